#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <limits>
#include <map>

#include "engine/cpu/loop.h"
#include "engine/cpu/pointwise.h"
#include "hwy/targets.h"
#include "tests/engine/arrays.h"

using namespace gradwire;
using namespace gradwire::engine;
using namespace gradwire::engine::test;

namespace {

using D = double;
using I = int64_t;
using L = long double;
const double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

// What a functor means, in double and in int64 (then wrapped); a null one has no such kernel.
struct Meaning {
  int inputs;
  bool boolean;
  std::function<D(D, D, D)> real;
  std::function<I(I, I, I)> whole;
  bool mask = false;  // gives bool
};

D python_mod(D a, D b) {
  const D rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}
I power(I a, I b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t r = 1;
  for (I k = 0; k < b; ++k) r *= static_cast<uint64_t>(a);
  return static_cast<I>(r);
}

const Scalar kParam = 2;

const std::map<std::string, Meaning>& meanings() {
  const auto whole = [](auto f) { return [f](I a, I b, I c) { return static_cast<I>(f(a, b, c)); }; };
  const auto same = [](I a, I, I) { return a; };
  static const std::map<std::string, Meaning> all = {
      {"abs", {1, false, [](D a, D, D) { return std::abs(a); }, [](I a, I, I) { return std::abs(a); }}},
      {"sign", {1, true, [](D a, D, D) { return (a > 0) - (a < 0); }, [](I a, I, I) { return (a > 0) - (a < 0); }}},
      {"square", {1, false, [](D a, D, D) { return a * a; }, [](I a, I, I) { return a * a; }}},
      {"cube", {1, false, [](D a, D, D) { return a * a * a; }, [](I a, I, I) { return a * a * a; }}},
      {"reciprocal", {1, false, [](D a, D, D) { return 1 / a; }, nullptr}},
      {"sqrt", {1, false, [](D a, D, D) { return std::sqrt(a); }, nullptr}},
      {"rsqrt", {1, false, [](D a, D, D) { return 1 / std::sqrt(a); }, nullptr}},
      {"floor", {1, false, [](D a, D, D) { return std::floor(a); }, same}},
      {"ceil", {1, false, [](D a, D, D) { return std::ceil(a); }, same}},
      {"trunc", {1, false, [](D a, D, D) { return std::trunc(a); }, same}},
      {"round", {1, false, [](D a, D, D) { return std::nearbyint(a); }, same}},
      {"round_up_to", {1, false, [](D a, D, D) { return std::nearbyint(a * 2) / 2; }, nullptr}},
      {"round_down_to", {1, false, [](D a, D, D) { return std::nearbyint(a / 2) * 2; }, nullptr}},
      {"frac", {1, false, [](D a, D, D) { return a - std::trunc(a); }, nullptr}},
      {"fmod", {2, false, [](D a, D b, D) { return std::fmod(a, b); }, [](I a, I b, I) { return b ? a % b : a; }}},
      {"remainder",
       {2, false, [](D a, D b, D) { return python_mod(a, b); },
        [](I a, I b, I) { return b ? static_cast<I>(python_mod(static_cast<D>(a), static_cast<D>(b))) : a; }}},
      {"fmax", {2, true, [](D a, D b, D) { return std::fmax(a, b); }, [](I a, I b, I) { return std::max(a, b); }}},
      {"fmin", {2, true, [](D a, D b, D) { return std::fmin(a, b); }, [](I a, I b, I) { return std::min(a, b); }}},
      {"pow", {2, false, [](D a, D b, D) { return std::pow(a, b); }, [](I a, I b, I) { return power(a, b); }}},
      {"atan2", {2, false, [](D a, D b, D) { return std::atan2(a, b); }, nullptr}},
      {"hypot", {2, false, [](D a, D b, D) { return std::hypot(a, b); }, nullptr}},
      {"logaddexp", {2, false, [](D a, D b, D) { return std::log(std::exp(a) + std::exp(b)); }, nullptr}},
      {"copysign", {2, false, [](D a, D b, D) { return std::copysign(a, b); }, nullptr}},
      {"xlogy", {2, false, [](D a, D b, D) { return a == 0 ? 0 : a * std::log(b); }, nullptr}},
      {"bitwise_left_shift", {2, false, nullptr, [](I a, I b, I) { return b < 0 ? 0 : a << b; }}},
      {"bitwise_right_shift", {2, false, nullptr, [](I a, I b, I) { return b < 0 ? (a < 0 ? -1 : 0) : a >> b; }}},
      {"logical_and", {2, true, [](D a, D b, D) { return a && b; }, whole([](I a, I b, I) { return a && b; }), true}},
      {"logical_or", {2, true, [](D a, D b, D) { return a || b; }, whole([](I a, I b, I) { return a || b; }), true}},
      {"logical_xor",
       {2, true, [](D a, D b, D) { return !a != !b; }, whole([](I a, I b, I) { return !a != !b; }), true}},
      {"logical_not", {1, true, [](D a, D, D) { return !a; }, whole([](I a, I, I) { return !a; }), true}},
      {"isnan", {1, true, [](D a, D, D) { return std::isnan(a); }, whole([](I, I, I) { return false; }), true}},
      {"isinf", {1, true, [](D a, D, D) { return std::isinf(a); }, whole([](I, I, I) { return false; }), true}},
      {"isfinite", {1, true, [](D a, D, D) { return std::isfinite(a); }, whole([](I, I, I) { return true; }), true}},
      {"bitwise_and", {2, true, nullptr, [](I a, I b, I) { return a & b; }}},
      {"bitwise_or", {2, true, nullptr, [](I a, I b, I) { return a | b; }}},
      {"bitwise_xor", {2, true, nullptr, [](I a, I b, I) { return a ^ b; }}},
      {"addcmul", {3, false, [](D a, D b, D c) { return a + 2 * b * c; }, [](I a, I b, I c) { return a + 2 * b * c; }}},
      {"addcdiv", {3, false, [](D a, D b, D c) { return a + 2 * b / c; }, nullptr}},
      {"lerp", {3, false, [](D a, D b, D w) { return a + w * (b - a); }, nullptr}},
      {"clamp",
       {3, false, [](D a, D b, D c) { return std::min(std::max(a, b), c); },
        [](I a, I b, I c) { return std::min(std::max(a, b), c); }}},
      {"masked_fill", {3, true, [](D a, D b, D c) { return b ? c : a; }, [](I a, I b, I c) { return b ? c : a; }}},
  };
  return all;
}

bool has_kernel(const Meaning& m, DType t) {
  return is_floating(t) ? m.real != nullptr : m.whole != nullptr && (t != DType::boolean || m.boolean);
}

void run_row(const std::string& name, DType t, std::vector<View> views, const Scalar& param = kParam) {
  cpu::run(nest_of(views), cpu::pointwise_row(name).by_dtype[static_cast<int>(t)], &param);
}

struct OnEachTarget {
  ~OnEachTarget() { hwy::SetSupportedTargetsForTest(0); }
  template <class F> void operator()(F f) {
    int targets = 0;
    for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
      hwy::SetSupportedTargetsForTest(0);
      if ((hwy::SupportedTargets() & target) == 0) continue;
      hwy::SetSupportedTargetsForTest(target);
      ++targets;
      f(target);
    }
    CHECK(targets > 0);
  }
};

// One result of a functor of float or double.
template <class T>
std::vector<T> results(const std::string& name, const std::vector<T>& a, const std::vector<T>& b = {}) {
  const DType t = sizeof(T) == 4 ? DType::float32 : DType::float64;
  const auto n = static_cast<int64_t>(a.size());
  const Array x(t, {n}), y(t, {n}), out(t, {n});
  std::memcpy(x.storage(), a.data(), a.size() * sizeof(T));
  std::vector<View> views = {out.view(), x.view()};
  if (!b.empty()) std::memcpy(y.storage(), b.data(), b.size() * sizeof(T)), views.push_back(y.view());
  run_row(name, t, views);
  std::vector<T> got(a.size());
  std::memcpy(got.data(), out.storage(), a.size() * sizeof(T));
  return got;
}

template <class T> double ulps(T got, L want) {
  const T near = static_cast<T>(std::abs(want));
  if (std::isnan(want) || std::isinf(near) || std::isinf(got))
    return (std::isnan(want) && std::isnan(got)) || got == static_cast<T>(want) ? 0 : kInf;
  if (std::isnan(got)) return kInf;
  const T step = std::nextafter(near, std::numeric_limits<T>::infinity()) - near;
  return static_cast<double>(std::abs(static_cast<L>(got) - want) / step);
}

struct Curve {
  const char* name;
  L (*exact)(L);
  double bound;  // ULP
  double low, high;
};
const Curve kCurves[] = {
    {"exp", [](L x) { return std::exp(x); }, 2, -80, 80},
    {"exp2", [](L x) { return std::exp2(x); }, 2, -120, 120},
    {"expm1", [](L x) { return std::expm1(x); }, 3, -20, 80},
    {"expm1", [](L x) { return std::expm1(x); }, 3, -0.5, 0.5},
    {"log", [](L x) { return std::log(x); }, 2, 0, 1000},
    {"log2", [](L x) { return std::log2(x); }, 3, 0, 1000},
    {"log2", [](L x) { return std::log2(x); }, 3, 0.9, 1.1},
    {"log10", [](L x) { return std::log10(x); }, 3, 0, 1000},
    {"log10", [](L x) { return std::log10(x); }, 3, 0.9, 1.1},
    {"tan", [](L x) { return std::tan(x); }, 7, -3, 3},
    {"tan", [](L x) { return std::tan(x); }, 7, -1e5, 1e5},
    {"atan", [](L x) { return std::atan(x); }, 4, -3, 3},
    {"atan", [](L x) { return std::atan(x); }, 4, -100, 100},
    {"asin", [](L x) { return std::asin(x); }, 2, -1, 1},
    {"acos", [](L x) { return std::acos(x); }, 2, -1, 1},
    {"sinh", [](L x) { return std::sinh(x); }, 3, -80, 80},
    {"cosh", [](L x) { return std::cosh(x); }, 3, -80, 80},
    {"asinh", [](L x) { return std::asinh(x); }, 3, -80, 80},
    {"atanh", [](L x) { return std::atanh(x); }, 3, -1, 1},
    {"erf", [](L x) { return std::erf(x); }, 2, -4, 4},
    {"erfc", [](L x) { return std::erfc(x); }, 4, -4, 8},
    {"log1p", [](L x) { return std::log1p(x); }, 3, -1, 1000},
    {"log1p", [](L x) { return std::log1p(x); }, 3, -0.1, 0.1},
    {"sin", [](L x) { return std::sin(x); }, 3, -3, 3},
    {"sin", [](L x) { return std::sin(x); }, 3, -1e5, 1e5},
    {"cos", [](L x) { return std::cos(x); }, 3, -3, 3},
    {"cos", [](L x) { return std::cos(x); }, 3, -1e5, 1e5},
    {"tanh", [](L x) { return std::tanh(x); }, 4, -10, 10},
    {"tanh", [](L x) { return std::tanh(x); }, 4, -0.01, 0.01},
    {"sigmoid", [](L x) { return 1 / (1 + std::exp(-x)); }, 4, -80, 40},
};

template <class T> void check_curves(int64_t target) {
  std::mt19937_64 r(3);
  for (const Curve& c : kCurves) {
    std::vector<T> x(20001);
    for (T& v : x) v = static_cast<T>(std::uniform_real_distribution<>(c.low, c.high)(r));
    const std::vector<T> y = results(c.name, x);
    double worst = 0;
    T at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (const double u = ulps(y[i], c.exact(x[i])); u > worst) worst = u, at = x[i];
    }
    CAPTURE(target, c.name, c.low, c.high, sizeof(T), worst, at);
    CHECK(worst <= c.bound);
  }
}

template <class T> void check_special(int64_t target) {
  using N = std::numeric_limits<T>;
  const T nan = N::quiet_NaN(), inf = N::infinity();
  const std::vector<T> x = {nan,          inf,           -inf,         T(0.0),   T(-0.0),   T(1),
                            T(-1),        N::max(),      N::lowest(),  N::min(), -N::min(), N::denorm_min(),
                            T(0.5),       T(-0.5),       T(2.5),       T(-2.5),  T(88.9),   T(-104),
                            T(128),       T(-150),       T(710.5),     T(-746),  T(1024),   T(-1075),
                            T(1e-10),     T(-1e-10),     T(1e10),      T(3e7),   T(4.0e18), T(4503599627370497.5),
                            T(8388609.0), T(0.49999997), T(-1 + 1e-7), T(1e30),  T(8),      T(1000)};
  for (const Curve& c : kCurves) {
    const std::vector<T> y = results(c.name, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const L want = c.exact(x[i]);
      CAPTURE(target, c.name, sizeof(T), x[i], y[i], want);
      // subnormal results may be off by their last bits
      if (std::abs(want) < N::min())
        CHECK(std::abs(static_cast<L>(y[i]) - want) <= N::min() * N::epsilon() * 4);
      else
        CHECK(ulps(y[i], want) <= c.bound);
      if (want == 0 && std::signbit(want) != std::signbit(y[i])) CHECK(x[i] != 0);
    }
  }
  for (const char* name : {"floor", "ceil", "trunc", "round", "sqrt", "frac", "abs"}) {
    const std::vector<T> y = results(name, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const T want = static_cast<T>(meanings().at(name).real(x[i], 0, 0));
      CAPTURE(target, name, sizeof(T), x[i], y[i]);
      CHECK(((std::isnan(want) && std::isnan(y[i])) || (want == y[i] && std::signbit(want) == std::signbit(y[i]))));
    }
  }
  for (T power = -20; power <= 20; ++power) {
    CHECK(results<T>("log2", {std::exp2(power)})[0] == power);
    CHECK(results<T>("exp2", {power})[0] == std::exp2(power));
  }

  for (int power = 0; power <= 10; ++power)
    CHECK(results<T>("log10", {static_cast<T>(std::pow(10.0, power))})[0] == static_cast<T>(power));

  // every pair of the special values
  std::vector<T> a, b;
  for (const T p : x) {
    for (const T q : x) a.push_back(p), b.push_back(q);
  }
  const std::map<std::string, std::function<T(T, T)>> pairs = {
      {"fmod", [](T p, T q) { return std::fmod(p, q); }},
      {"remainder",
       [](T p, T q) {
         const T rest = std::fmod(p, q);
         return rest != 0 && (q < 0) != (rest < 0) ? rest + q : rest;
       }},
      {"pow", [](T p, T q) { return std::pow(p, q); }},
      {"atan2", [](T p, T q) { return std::atan2(p, q); }},
      {"hypot", [](T p, T q) { return std::hypot(p, q); }},
  };
  for (const auto& [name, f] : pairs) {
    const std::vector<T> y = results(name, a, b);
    for (size_t i = 0; i < a.size(); ++i) {
      const T want = f(a[i], b[i]);
      CAPTURE(target, name, sizeof(T), a[i], b[i], y[i], want);
      const bool exact = name == "fmod" || name == "remainder";
      CHECK(((std::isnan(want) && std::isnan(y[i])) ||
             (std::signbit(want) == std::signbit(y[i]) && (want == y[i] || (!exact && ulps(y[i], L(want)) <= 5)))));
    }
  }
}

}  // namespace

TEST_CASE("Every elementwise functor is right for every dtype and layout on every target", "[elementwise][I5]") {
  std::mt19937 r(1);
  OnEachTarget()([&](int64_t target) {
    for (const auto& [name, m] : meanings()) {
      const cpu::PointwiseRow row = cpu::pointwise_row(name);
      REQUIRE(row.inputs == m.inputs);
      CHECK(!row.masked);
      for (DType t : kAll) {
        CAPTURE(target, name, gradwire::name(t));
        REQUIRE((row.by_dtype[static_cast<int>(t)] != nullptr) == has_kernel(m, t));
        if (!has_kernel(m, t)) continue;
        for (Layout l : kLayouts) {
          for (const Sizes& shape : {Sizes{5, 7, 3}, Sizes{2, 150}, Sizes{37}, Sizes{}, Sizes{0, 4}}) {
            const Layout lo = kOutLayouts[r() % 4];
            CAPTURE(test::name(l), test::name(lo), shape);
            const Array a = Array(t, shape, l).random(r), b = Array(t, shape, kLayouts[r() % 5]).random(r),
                        c = Array(t, shape).random(r), out(m.mask ? DType::boolean : t, shape, lo);
            std::vector<View> views = {out.view(), a.view(), b.view(), c.view()};
            views.resize(static_cast<size_t>(1 + m.inputs));
            run_row(name, t, views);
            for (int64_t i = 0; i < out.numel(); ++i) {
              CAPTURE(a.real(i), b.real(i), c.real(i), out.real(i));
              if (is_floating(t)) {
                const double want = m.real(a.real(i), b.real(i), c.real(i));
                if (m.mask)
                  REQUIRE(out.whole(i) == want);
                else
                  REQUIRE((near(out.real(i), want, tolerance(t)) ||
                           (std::abs(want) > 65504 && t == DType::float16 && std::isinf(out.real(i)))));
              } else {
                Array wrapped(m.mask ? DType::boolean : t, {1});
                wrapped.set(0, m.whole(a.whole(i), b.whole(i), c.whole(i)));
                REQUIRE(out.whole(i) == wrapped.whole(0));
              }
            }
            REQUIRE(out.sound());
          }
        }
      }
    }
  });
}

TEST_CASE("Transcendental functions keep their error bounds on every target", "[elementwise]") {
  OnEachTarget()([](int64_t target) { check_curves<float>(target), check_curves<double>(target); });
}

TEST_CASE("Angles and lengths of points keep their error bounds on every target", "[elementwise]") {
  std::mt19937_64 r(4);
  OnEachTarget()([&](int64_t target) {
    const auto check = [&]<class T>(T) {
      std::vector<T> a(20000), b(20000);
      for (size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<T>(std::ldexp(std::uniform_real_distribution<>(-1, 1)(r), static_cast<int>(r() % 8) - 4));
        b[i] = static_cast<T>(std::ldexp(std::uniform_real_distribution<>(-1, 1)(r), static_cast<int>(r() % 8) - 4));
      }
      const std::vector<T> angle = results("atan2", a, b), length = results("hypot", a, b);
      double worst_angle = 0, worst_length = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        worst_angle = std::max(worst_angle, ulps(angle[i], std::atan2(L(a[i]), L(b[i]))));
        worst_length = std::max(worst_length, ulps(length[i], std::hypot(L(a[i]), L(b[i]))));
      }
      CAPTURE(target, sizeof(T), worst_angle, worst_length);
      CHECK(worst_angle <= 5);
      CHECK(worst_length <= 2);
    };
    check(float()), check(double());
  });
}

TEST_CASE("Special values come out as the C library has them on every target", "[elementwise]") {
  OnEachTarget()([](int64_t target) { check_special<float>(target), check_special<double>(target); });
}

TEST_CASE("What one element gives does not depend on its neighbours", "[elementwise]") {
  OnEachTarget()([](int64_t target) {
    for (const char* name : {"sin", "cos", "tan", "atan2", "fmod", "remainder", "div_floor", "pow", "tanh", "log1p"}) {
      std::vector<float> x(64, 1.2345f), y(64, 0.789f);
      const bool two = cpu::pointwise_row(name).inputs == 2;
      const float alone = two ? results(name, x, y)[5] : results(name, x)[5];
      for (const float other : {1e9f, 1e38f, static_cast<float>(kNan), static_cast<float>(kInf), 0.0f}) {
        x.assign(64, other), x[5] = 1.2345f;
        CAPTURE(target, name, other);
        CHECK((two ? results(name, x, y)[5] : results(name, x)[5]) == alone);
      }
    }
  });
}

TEST_CASE("Remainders of floats are exact, also by quotients that round up to a whole number", "[elementwise]") {
  std::mt19937_64 r(5);
  OnEachTarget()([&](int64_t target) {
    std::vector<double> a(20000), b(20000);
    for (size_t i = 0; i < a.size(); ++i) {
      b[i] = std::ldexp(std::uniform_real_distribution<>(-1, 1)(r), static_cast<int>(r() % 40) - 20);
      a[i] = i % 2 ? std::nextafter(b[i] * static_cast<double>(r() % 1000000), i % 4 == 1 ? kInf : -kInf)
                   : std::ldexp(std::uniform_real_distribution<>(-1, 1)(r), static_cast<int>(r() % 60) - 20);
    }
    const std::vector<double> f = results("fmod", a, b), p = results("remainder", a, b);
    int64_t wrong = 0;
    for (size_t i = 0; i < a.size(); ++i)
      wrong += f[i] != std::fmod(a[i], b[i]), wrong += p[i] != python_mod(a[i], b[i]);
    CAPTURE(target);
    CHECK(wrong == 0);
  });
}

TEST_CASE("Whole powers and remainders wrap, and divide without a trap", "[elementwise]") {
  const auto check = [](DType t, I a, I b, const char* op, I want) {
    Array x(t, {3}), y(t, {3});
    x.each([&](I) { return a; }), y.each([&](I) { return b; });
    const Array out(t, {3});
    run_row(op, t, {out.view(), x.view(), y.view()});
    CAPTURE(gradwire::name(t), op, a, b);
    for (I i = 0; i < 3; ++i) CHECK(out.whole(i) == want);
  };
  const I low = std::numeric_limits<I>::min(), high = std::numeric_limits<I>::max();
  check(DType::int64, low, -1, "fmod", 0);
  check(DType::int64, low, -1, "remainder", 0);
  check(DType::int8, -128, -1, "remainder", 0);
  check(DType::int64, 7, 0, "fmod", 7);  // the front end refuses it first
  check(DType::int64, 2, 64, "pow", 0);
  check(DType::int64, 3, 41, "pow", -420491770248316829);
  check(DType::int64, -1, high, "pow", -1);
  check(DType::int64, -1, low, "pow", 1);
  check(DType::int64, 0, -1, "pow", 0);
  check(DType::int64, 0, 0, "pow", 1);
  check(DType::int8, 2, 7, "pow", -128);
  check(DType::uint8, 2, 200, "pow", 0);
  check(DType::int32, 7, -1, "pow", 0);
}
