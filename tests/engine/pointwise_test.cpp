#include <catch2/catch_test_macros.hpp>

#include <array>
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

const double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

Scalar alpha = 3;

double floor_div(double a, double b) {
  if (b == 0) return a / b;
  return std::floor(a / b);  // exact for the numbers used here
}
int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// What each functor means, in double and in int64 (then wrapped); a null one has no such kernel.
struct Meaning {
  int inputs;
  bool boolean;  // has a bool kernel
  std::function<double(double, double)> real;
  std::function<int64_t(int64_t, int64_t)> whole;
  bool mask = false;  // gives bool
};

const std::map<std::string, Meaning>& meanings() {
  using D = double;
  using I = int64_t;
  static const std::map<std::string, Meaning> all = {
      {"neg", {1, false, [](D a, D) { return -a; }, [](I a, I) { return -a; }}},
      {"relu", {1, false, [](D a, D) { return a < 0 ? 0 : a; }, [](I a, I) { return a < 0 ? 0 : a; }}},
      {"exp", {1, false, [](D a, D) { return std::exp(a); }, nullptr}},
      {"log", {1, false, [](D a, D) { return std::log(a); }, nullptr}},
      {"add", {2, true, [](D a, D b) { return a + b; }, [](I a, I b) { return a + b; }}},
      {"add_scaled", {2, true, [](D a, D b) { return a + 3 * b; }, [](I a, I b) { return a + 3 * b; }}},
      {"sub", {2, false, [](D a, D b) { return a - b; }, [](I a, I b) { return a - b; }}},
      {"mul", {2, true, [](D a, D b) { return a * b; }, [](I a, I b) { return a * b; }}},
      {"div", {2, false, [](D a, D b) { return a / b; }, nullptr}},
      {"div_floor", {2, false, [](D a, D b) { return floor_div(a, b); }, [](I a, I b) { return floor_div(a, b); }}},
      {"div_trunc", {2, false, [](D a, D b) { return std::trunc(a / b); }, [](I a, I b) { return b ? a / b : 0; }}},
      {"maximum",
       {2, true, [](D a, D b) { return a != a || b != b ? kNan : std::max(a, b); },
        [](I a, I b) { return std::max(a, b); }}},
      {"minimum",
       {2, true, [](D a, D b) { return a != a || b != b ? kNan : std::min(a, b); },
        [](I a, I b) { return std::min(a, b); }}},
      {"threshold_backward", {2, false, [](D a, D b) { return b > 0 || b != b ? a : 0; }, nullptr}},
      {"eq", {2, true, [](D a, D b) { return a == b; }, [](I a, I b) { return a == b; }, true}},
      {"ne", {2, true, [](D a, D b) { return a != b; }, [](I a, I b) { return a != b; }, true}},
      {"lt", {2, true, [](D a, D b) { return a < b; }, [](I a, I b) { return a < b; }, true}},
      {"le", {2, true, [](D a, D b) { return a <= b; }, [](I a, I b) { return a <= b; }, true}},
      {"gt", {2, true, [](D a, D b) { return a > b; }, [](I a, I b) { return a > b; }, true}},
      {"ge", {2, true, [](D a, D b) { return a >= b; }, [](I a, I b) { return a >= b; }, true}},
  };
  return all;
}

bool expected_kernel(const Meaning& m, DType t) {
  return is_floating(t) ? true : t == DType::boolean ? m.boolean : m.whole != nullptr;
}

/// The true result, rounded or wrapped to the output's dtype.
bool right(const Meaning& m, DType t, const Array& a, const Array& b, const Array& out, int64_t i) {
  if (is_floating(t)) {
    const double want = m.real(a.real(i), b.real(i));
    return m.mask ? out.whole(i) == want : near(out.real(i), want, tolerance(t));
  }
  Array wrapped(m.mask ? DType::boolean : t, {1});
  wrapped.set(0, m.whole(a.whole(i), b.whole(i)));
  return out.whole(i) == wrapped.whole(0);
}

void run_row(const cpu::PointwiseRow& row, DType t, std::vector<View> views) {
  cpu::run(nest_of(views), row.by_dtype[static_cast<int>(t)], &alpha);
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

}  // namespace

TEST_CASE("every functor has the kernels of its domain", "[pointwise]") {
  for (const auto& [name, m] : meanings()) {
    CAPTURE(name);
    const Pointwise* p = find_pointwise(name);
    REQUIRE(p != nullptr);
    CHECK(p->inputs == m.inputs);
    for (DType t : kAll) CHECK((p->cpu[static_cast<int>(t)] != nullptr) == expected_kernel(m, t));
  }
  CHECK(find_pointwise("where")->inputs == 3);
  CHECK(find_pointwise("no_such_functor") == nullptr);
}

TEST_CASE("every functor is right for every dtype and layout on every target", "[pointwise]") {
  std::mt19937 r(1);
  OnEachTarget()([&](int64_t target) {
    for (const auto& [name, m] : meanings()) {
      const cpu::PointwiseRow row = cpu::pointwise_row(name);
      for (DType t : kAll) {
        if (!expected_kernel(m, t)) continue;
        for (Layout la : kLayouts) {
          for (Layout lb : kLayouts) {
            if (m.inputs == 1 && lb != Layout::contiguous) continue;
            for (const Sizes& shape : {Sizes{5, 7, 3}, Sizes{3, 150}, Sizes{70, 65}, Sizes{37}}) {
              const Layout lo = kOutLayouts[r() % 4];
              CAPTURE(target, name, gradwire::name(t), test::name(la), test::name(lb), test::name(lo), shape);
              const Array a = Array(t, shape, la).random(r), b = Array(t, shape, lb).random(r);
              const Array out(m.mask ? DType::boolean : t, shape, lo);
              std::vector<View> views = {out.view(), a.view(), b.view()};
              views.resize(1 + m.inputs);
              run_row(row, t, views);
              int64_t wrong = 0;
              for (int64_t i = 0; i < out.numel(); ++i) wrong += !right(m, t, a, b, out, i);
              REQUIRE(wrong == 0);
              REQUIRE(out.sound());
            }
          }
        }
      }
    }
  });
}

TEST_CASE("where picks by its mask for every dtype and layout", "[pointwise]") {
  std::mt19937 r(2);
  OnEachTarget()([&](int64_t target) {
    const cpu::PointwiseRow row = cpu::pointwise_row("where");
    for (DType t : kAll) {
      for (Layout l : kLayouts) {
        for (const Sizes& shape : {Sizes{5, 7, 3}, Sizes{3, 150}, Sizes{}, Sizes{0, 4}}) {
          CAPTURE(target, gradwire::name(t), test::name(l), shape);
          const Array c = Array(DType::boolean, shape, l).random(r), a = Array(t, shape, kLayouts[r() % 5]).random(r);
          const Array b = Array(t, shape).random(r), out(t, shape);
          run_row(row, t, {out.view(), c.view(), a.view(), b.view()});
          for (int64_t i = 0; i < out.numel(); ++i) REQUIRE(out.real(i) == (c.whole(i) ? a : b).real(i));
          REQUIRE(out.sound());
        }
      }
    }
  });
}

TEST_CASE("NaN, infinities and the ends of the range come out as they should on every target", "[pointwise]") {
  OnEachTarget()([&](int64_t target) {
    for (DType t : kFloats) {
      const double largest = t == DType::float16    ? 65504
                             : t == DType::float64  ? std::numeric_limits<double>::max()
                             : t == DType::bfloat16 ? 0x1.FEp127
                                                    : std::numeric_limits<float>::max();
      const std::vector<double> in = {kNan, kInf, -kInf, 0.0, -0.0, 1,    -1,    largest, -largest, 88.7, -87.3,
                                      88.8, -104, 709.7, 710, -745, -750, 1e-30, 1e-310,  5e-324,   0.5,  3};
      Array x(t, {static_cast<int64_t>(in.size())});
      x.each([&](int64_t i) { return in[i]; });
      const Array y(t, x.shape());
      for (const char* op : {"exp", "log", "relu", "neg"}) {
        run_row(cpu::pointwise_row(op), t, {y.view(), x.view()});
        for (int64_t i = 0; i < x.numel(); ++i) {
          CAPTURE(target, op, gradwire::name(t), x.real(i), y.real(i));
          double want = meanings().at(op).real(x.real(i), 0);
          Array rounded(t, {1});
          rounded.set(0, want);
          want = rounded.real(0);
          // relative also where numbers are small: subnormal results may be off by their last bits
          const double least = t == DType::float64 ? 5e-324 : t == DType::float16 ? 6e-8 : 0x1p-149;
          if (std::isnan(want) || std::isinf(want))
            REQUIRE(near(y.real(i), want, 0));
          else
            REQUIRE(std::abs(y.real(i) - want) <= 4 * tolerance(t) / 10 * std::abs(want) + 2 * least);
        }
      }
      // every pair: comparisons, maximum and minimum, divisions
      const int64_t n = x.numel();
      const Array a = x.seen({n, n}, {1, 0}), b = x.seen({n, n}, {0, 1}), z(t, {n, n}), mask(DType::boolean, {n, n});
      for (const char* op :
           {"maximum", "minimum", "div", "div_trunc", "add", "mul", "eq", "ne", "lt", "le", "gt", "ge"}) {
        const Meaning& m = meanings().at(op);
        const Array& out = m.mask ? mask : z;
        run_row(cpu::pointwise_row(op), t, {out.view(), a.view(), b.view()});
        for (int64_t i = 0; i < out.numel(); ++i) {
          CAPTURE(target, op, gradwire::name(t), a.real(i), b.real(i), out.real(i));
          Array rounded(out.dtype(), {1});
          rounded.set(0, is_floating(t) && t != DType::float64 ? static_cast<float>(m.real(a.real(i), b.real(i)))
                                                               : m.real(a.real(i), b.real(i)));
          REQUIRE(near(out.real(i), rounded.real(0), 0));
        }
      }
    }
  });
}

TEST_CASE("exp and log are within 2 ULP of the true value on every target", "[pointwise]") {
  OnEachTarget()([&](int64_t target) {
    for (const char* op : {"exp", "log"}) {
      const int64_t n = 100000;
      Array x(DType::float32, {n}), xd(DType::float64, {n});
      const bool log = std::string(op) == "log";
      std::mt19937 r(3);
      std::uniform_real_distribution<double> range(-87, 88);
      x.each([&](int64_t) { return log ? std::exp(range(r)) : range(r); });
      xd.each([&](int64_t) { return log ? std::exp(8 * range(r)) : 8 * range(r); });
      const Array y(DType::float32, {n}), yd(DType::float64, {n});
      run_row(cpu::pointwise_row(op), DType::float32, {y.view(), x.view()});
      run_row(cpu::pointwise_row(op), DType::float64, {yd.view(), xd.view()});
      double worst = 0, worst_d = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double want = log ? std::log(x.real(i)) : std::exp(x.real(i));
        const auto w = static_cast<float>(std::abs(want));
        worst = std::max(worst, std::abs(y.real(i) - want) / (std::nextafter(w, INFINITY) - w));
        const long double ld =
            log ? std::log(static_cast<long double>(xd.real(i))) : std::exp(static_cast<long double>(xd.real(i)));
        const auto wd = static_cast<double>(std::abs(ld));
        worst_d =
            std::max(worst_d, static_cast<double>(std::abs(yd.real(i) - ld)) / (std::nextafter(wd, INFINITY) - wd));
      }
      CAPTURE(target, op, worst, worst_d);
      CHECK(worst <= 2);
      CHECK(worst_d <= 2);
    }
  });
}

TEST_CASE("whole numbers wrap, and divide without a trap", "[pointwise]") {
  const auto check = [](DType t, int64_t a, int64_t b, const char* op, int64_t want) {
    Array x(t, {3}), y(t, {3});
    x.each([&](int64_t) { return a; }), y.each([&](int64_t) { return b; });
    const Array out(t, {3});
    run_row(cpu::pointwise_row(op), t, {out.view(), x.view(), y.view()});
    CAPTURE(gradwire::name(t), op, a, b);
    for (int64_t i = 0; i < 3; ++i) CHECK(out.whole(i) == want);
  };
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  check(DType::int64, high, 1, "add", low);
  check(DType::int64, low, -1, "div_trunc", low);
  check(DType::int64, low, -1, "div_floor", low);
  check(DType::int32, -2147483648, -1, "div_floor", -2147483648);
  check(DType::int8, -128, -1, "div_trunc", -128);
  check(DType::int8, 127, 2, "mul", -2);
  check(DType::int16, 300, 300, "mul", 24464);
  check(DType::uint8, 3, 5, "sub", 254);
  for (DType t : {DType::uint8, DType::int8, DType::int16, DType::int32, DType::int64}) {
    check(t, 7, 0, "div_trunc", 0);
    check(t, 7, 0, "div_floor", 0);
  }
  check(DType::int32, -7, 2, "div_floor", -4);
  check(DType::int32, -7, 2, "div_trunc", -3);
  check(DType::int64, high - 1, high, "div_floor", 0);
}

TEST_CASE("floor division of floats gives what PyTorch gives", "[pointwise]") {
  const std::vector<std::array<double, 3>> cases = {{1, 0.1, 9},
                                                    {-1, 0.1, -10},
                                                    {7, 0, kInf},
                                                    {-7, 0, -kInf},
                                                    {0, 0, kNan},
                                                    {7, kInf, 0},
                                                    {-7, kInf, -1},
                                                    {kNan, 1, kNan},
                                                    {6, -4, -2},
                                                    {-6, -4, 1},
                                                    {1e300, 3, std::floor(1e300 / 3)},
                                                    {kInf, 2, kNan}};
  for (const auto& [a, b, want] : cases) {
    Array x(DType::float64, {1}), y(DType::float64, {1});
    x.set(0, a), y.set(0, b);
    const Array out(DType::float64, {1});
    run_row(cpu::pointwise_row("div_floor"), DType::float64, {out.view(), x.view(), y.view()});
    CAPTURE(a, b);
    CHECK(near(out.real(0), want, 0));
  }
}

TEST_CASE("a scaled addition takes alpha in the category of the dtype", "[pointwise]") {
  const auto check = [](DType t, Scalar s, double want) {
    alpha = s;
    Array x(t, {20}), y(t, {20});
    x.each([](int64_t) { return 1; }), y.each([](int64_t) { return 1; });
    const Array out(t, {20});
    run_row(cpu::pointwise_row("add_scaled"), t, {out.view(), x.view(), y.view()});
    for (int64_t i = 0; i < 20; ++i) CHECK(out.real(i) == want);
    alpha = 3;
  };
  check(DType::float32, 0.5, 1.5);
  check(DType::float32, 2, 3);
  check(DType::float64, true, 2);
  check(DType::bfloat16, -1, 0);
  check(DType::int64, 2, 3);
  check(DType::int32, true, 2);
  check(DType::boolean, true, 1);
}

TEST_CASE("large outputs, which go past the caches, are the same as small ones", "[pointwise]") {
  OnEachTarget()([&](int64_t target) {
    for (DType t : {DType::float32, DType::float64, DType::float16, DType::int32}) {
      const int64_t n = (7 << 20) / size_of(t) + 13;
      for (int64_t skew : {0, 1, 5}) {  // the output starts anywhere
        Array a(t, {n + skew}), b(t, {n + skew});
        a.each([](int64_t i) { return i % 97; }), b.each([](int64_t i) { return i % 89; });
        const Array whole(t, {n + skew}), out = whole.narrow(0, skew, n);
        const Array x = a.narrow(0, 0, n), y = b.narrow(0, skew, n);
        run_row(cpu::pointwise_row("add"), t, {out.view(), x.view(), y.view()});
        int64_t wrong = 0;
        for (int64_t i = 0; i < n; ++i) wrong += out.real(i) != i % 97 + (i + skew) % 89;
        CAPTURE(target, gradwire::name(t), skew);
        CHECK(wrong == 0);
        CHECK(whole.sound());
      }
    }
  });
}

TEST_CASE("an operator in place sees its old values", "[pointwise]") {
  for (DType t : {DType::float32, DType::float64, DType::float16, DType::int64}) {
    for (Layout l : kOutLayouts) {
      Array x(t, {300, 41}, l), y(t, {41});
      x.each([](int64_t i) { return i % 50; }), y.each([](int64_t i) { return i % 7; });
      run_row(cpu::pointwise_row("add"), t, {x.view(), x.view(), y.seen({300, 41}, {0, 1}).view()});
      int64_t wrong = 0;
      for (int64_t i = 0; i < x.numel(); ++i) wrong += x.real(i) != i % 50 + i % 41 % 7;
      CAPTURE(gradwire::name(t), test::name(l));
      CHECK(wrong == 0);
    }
  }
}
