#include <algorithm>
#include <cmath>

#include "tests/property/draw.h"
#include "tests/property/pointwise.h"

// Functions of one or two numbers beyond the four operations; bounds.

namespace gradwire::property {
namespace {

// ---- smooth ones ----

double reciprocal_slope(double x, double) { return -1 / (x * x); }

std::vector<Array> sqrt(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::sqrt(x); }, [](double, double y) { return 0.5 / y; }, 0);
}
std::vector<Array> tanh(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::tanh(x); }, [](double, double y) { return 1 - y * y; });
}
std::vector<Array> sigmoid(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return 1 / (1 + std::exp(-x)); }, [](double, double y) { return y * (1 - y); }, 8);
}
std::vector<Array> sin(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::sin(x); }, [](double x, double) { return std::cos(x); });
}
std::vector<Array> cos(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::cos(x); }, [](double x, double) { return -std::sin(x); });
}
std::vector<Array> reciprocal(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return 1 / x; }, reciprocal_slope, 0);
}
std::vector<Array> expm1(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::expm1(x); }, [](double, double y) { return y + 1; });
}
std::vector<Array> log1p(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::log1p(x); }, [](double x, double) { return 1 / (1 + x); });
}

std::vector<Array> square(const Args& a) {
  const Array& x = a.array(0);
  if (x.dtype == DType::boolean) throw Redraw{"the square of bool"};
  return unary(x, x.dtype, x.dtype, [&](const Num& n) { return product(x.dtype, n, n); });
}

std::vector<Array> abs(const Args& a) {
  const Array& x = a.array(0);
  if (x.dtype == DType::boolean) throw Redraw{"the size of bool"};
  return unary(x, x.dtype, x.dtype, [&](const Num& n) {
    if (!is_floating(x.dtype)) return n.i < 0 ? negative(x.dtype, n) : n;
    if (n.d != 0 && n.e > 0 && std::abs(n.v) <= n.e) throw Redraw{"a kink"};
    return real(x.dtype, std::abs(n.v), n.e, n.v == 0 ? 0 : n.v < 0 ? -n.d : n.d);
  });
}

// ---- steps: constant between jumps ----

template <class F> std::vector<Array> step(const Args& a, F f) {
  const Array& x = a.array(0);
  if (x.dtype == DType::boolean) throw Redraw{"a step of bool"};
  return unary(x, x.dtype, x.dtype, [&](const Num& n) {
    if (!is_floating(x.dtype)) return n;
    if (!std::isfinite(n.v)) throw Redraw{"a step of no number"};
    if (n.e > 0 && f(n.v - n.e) != f(n.v + n.e)) throw Redraw{"between two steps"};
    return real(x.dtype, f(n.v));
  });
}
std::vector<Array> floor(const Args& a) {
  return step(a, [](double x) { return std::floor(x); });
}
std::vector<Array> ceil(const Args& a) {
  return step(a, [](double x) { return std::ceil(x); });
}
std::vector<Array> trunc(const Args& a) {
  return step(a, [](double x) { return std::trunc(x); });
}
std::vector<Array> round(const Args& a) {
  return step(a, [](double x) { return std::nearbyint(x); });
}
std::vector<Array> sign(const Args& a) {
  const Array& x = a.array(0);
  if (!is_floating(x.dtype))
    return unary(x, x.dtype, x.dtype, [&](const Num& n) { return whole(x.dtype, (n.i > 0) - (n.i < 0)); });
  return step(a, [](double v) { return static_cast<double>((v > 0) - (v < 0)); });
}

// ---- of two ----

Num power(DType t, const Num& a, const Num& b) {
  if (!is_floating(t)) {
    if (b.i < 0 || b.i > 64) throw Redraw{"a power below 0 or a large one"};
    uint64_t p = 1;
    for (int64_t k = 0; k < b.i; ++k) p *= static_cast<uint64_t>(a.i);
    return whole(t, static_cast<int64_t>(p));
  }
  const double y = b.v == 2 ? a.v * a.v : std::pow(a.v, b.v);
  if (!std::isfinite(y) || !std::isfinite(a.v) || !std::isfinite(b.v)) throw Redraw{"a power that is no number"};
  if (a.v == 0 && (a.e > 0 || a.d != 0 || b.v <= 0)) throw Redraw{"a power of zero"};
  if (a.v < 0 && (b.e > 0 || b.d != 0)) throw Redraw{"a power of less than zero"};
  if (a.e > 0 && std::abs(a.v) <= 2 * a.e) throw Redraw{"a power of nearly zero"};
  const double by_base = a.v == 0 ? 0 : b.v * y / a.v;
  const double by_exponent = a.v > 0 ? y * std::log(a.v) : 0;
  const bool easy = b.e == 0 && (b.v == 0 || b.v == 1);
  const double own = easy ? 0 : 32 * unit(t) * std::abs(y);
  return real(t, y, 1.1 * (term(a.e, std::abs(by_base)) + term(b.e, std::abs(by_exponent))) + own,
              term(a.d, by_base) + term(b.d, by_exponent));
}

std::vector<Array> pow(const Args& a) {
  const Side x(a, 0), y(a, 1);
  const DType t = promoted({x, y});
  if (t == DType::boolean) throw Redraw{"a power of bool"};
  return binary(x, y, t, t, [&](const Num& p, const Num& q) { return power(t, p, q); });
}

// What division leaves: with the sign of the divisor (rounded down) or of the dividend.
Num rest(DType t, const Num& a, const Num& b, bool down) {
  if (!is_floating(t)) {
    const uint64_t q = static_cast<uint64_t>(divided(a, b, t, down));
    return whole(t, static_cast<int64_t>(static_cast<uint64_t>(a.i) - q * static_cast<uint64_t>(b.i)));
  }
  if (!std::isfinite(a.v) || !std::isfinite(b.v) || b.v == 0) throw Redraw{"a remainder of no number"};
  const double r = std::fmod(a.v, b.v), q = std::round((a.v - r) / b.v);
  if (std::abs(q) > 1e4) throw Redraw{"a large quotient"};
  const bool more = down && r != 0 && (r < 0) != (b.v < 0);
  const double times = q - more, e = a.e + std::abs(times) * b.e;
  const double jump = e + b.e;  // how well the next multiple of b is known
  if (jump > 0 || a.d != 0 || b.d != 0) {
    // Near a multiple of b it jumps.
    if (std::min(std::abs(r), std::abs(std::abs(b.v) - std::abs(r))) <= 4 * (jump + 1e-12)) throw Redraw{"at a jump"};
  }
  return real(t, more ? r + b.v : r, e, a.d - term(b.d, times));
}

template <bool Down> std::vector<Array> remainder(const Args& a) {
  const Side x(a, 0), y(a, 1);
  const DType t = promoted({x, y});
  if (t == DType::boolean) throw Redraw{"a remainder of bool"};
  return binary(x, y, t, t, [&](const Num& p, const Num& q) { return rest(t, p, q, Down); });
}

// ---- bounds ----

std::vector<Array> clamp(const Args& a) {
  const Side x(a, 0);
  if (!a.has(1) && !a.has(2)) throw Redraw{"no bound"};
  const Side low = a.has(1) ? Side(a, 1) : x, high = a.has(2) ? Side(a, 2) : x;
  const DType t = promoted({x, low, high});
  if (t == DType::boolean) throw Redraw{"bounds of bool"};
  // At a bound the derivative is self's.
  const auto bounded = [&](const Num& n, const Num& bound, bool least) {
    if (is_nan(n, t)) return n;
    if (is_nan(bound, t)) throw Redraw{"a bound that is no number"};
    const int o = order(n, bound, t);
    return (least ? o < 0 : o == 1) ? bound : n;
  };
  if (!a.has(2)) return binary(x, low, t, t, [&](const Num& n, const Num& b) { return bounded(n, b, true); });
  if (!a.has(1)) return binary(x, high, t, t, [&](const Num& n, const Num& b) { return bounded(n, b, false); });
  const Sizes shape = broadcast(x.shape(), broadcast(low.shape(), high.shape()));
  const std::vector<Num> n = x.at(shape, t), l = low.at(shape, t), h = high.at(shape, t);
  std::vector<Num> out;
  for (size_t i = 0; i < n.size(); ++i) {
    if (order(l[i], h[i], t) >= 0) throw Redraw{"bounds that cross or meet"};
    out.push_back(bounded(bounded(n[i], l[i], true), h[i], false));
  }
  return {fresh(t, shape, std::move(out))};
}

std::vector<Array> masked_fill(const Args& a) {
  const Array &x = a.array(0), &mask = a.array(1);
  if (mask.dtype != DType::boolean) throw Redraw{"a mask of numbers"};
  const Side value(a, 2);
  if (category(value.dtype()) > category(x.dtype)) throw Redraw{"a value of a higher category"};
  if (!value.shape().empty()) throw Redraw{"a value with dims"};
  const Sizes shape = broadcast(x.shape, mask.shape);
  std::vector<Num> out = elements(widened(x, shape));
  const std::vector<Num> bits = elements(widened(mask, shape)), v = value.at({}, x.dtype);
  for (size_t i = 0; i < out.size(); ++i) {
    if (bits[i].i) out[i] = v[0];
  }
  return {fresh(x.dtype, shape, std::move(out))};
}

// ---- arguments ----

bool floats(const Array& a) { return is_floating(a.dtype); }

template <int Low, int High> bool draw_within(Draw& d) {
  return d.array(0, [](const Array& a) { return floats(a) && finite(a) && within(a, Low, High); });
}
bool draw_positive(Draw& d) {
  return d.array(0, [](const Array& a) { return floats(a) && finite(a) && within(a, 0.01, 1e6); });
}
bool draw_nonzero(Draw& d) {
  return d.array(0, [](const Array& a) { return floats(a) && finite(a) && nonzero(a, 0.1); });
}
bool draw_number(Draw& d) { return d.array(0, numbers); }

bool draw_pow(Draw& d) {
  const bool base = d.dice.chance(50);
  if (!d.array(0, [&](const Array& a) {
        if (a.dtype == DType::boolean) return false;
        if (!floats(a) || !base) return finite(a) && within(a, -20, 20);
        return finite(a) && within(a, 0.1, 20);
      }))
    return false;
  const DType t = d.at(0).dtype;
  if (!floats(d.at(0)) || !base) {
    d.set(1, Arg::of(Scalar(d.dice.between(0, 4))));
  } else if (d.dice.chance(50)) {
    d.set(1, Arg::of(Scalar(static_cast<double>(d.dice.between(-6, 6)) / 2)));
  } else {
    const int v = d.partner(d.at(0).shape, t, d.inplace);
    if (v < 0 || !within(d.env[static_cast<size_t>(v)], -3, 3)) return false;
    d.set(1, Arg::of_var(v));
  }
  return true;
}

bool draw_rest(Draw& d) {
  if (!d.array(0, numbers)) return false;
  if (d.dice.chance(40)) {
    Scalar s = d.scalar(d.at(0).dtype);
    if (s.real() == 0 || s.kind == Category::boolean) s = Scalar(3);
    d.set(1, Arg::of(s));
    return true;
  }
  const int v = d.partner(d.at(0).shape, d.dice.chance(60) ? d.at(0).dtype : d.dtype(), d.inplace);
  if (v < 0 || !nonzero(d.env[static_cast<size_t>(v)], 0.1)) return false;
  d.set(1, Arg::of_var(v));
  return true;
}

bool draw_clamp(Draw& d) {
  if (!d.array(0, numbers)) return false;
  const DType t = d.at(0).dtype;
  const bool tensors = d.dice.chance(25);
  const int64_t which = d.dice.below(3);
  for (size_t k = 1; k <= 2; ++k) {
    if (which == static_cast<int64_t>(k)) continue;
    if (tensors) {
      const int v = d.partner(d.at(0).shape, t, d.inplace);
      if (v < 0) return false;
      d.set(k, Arg::of_var(v));
    } else {
      Scalar s = Scalar(k == 1 ? d.dice.between(t == DType::uint8 ? 0 : -3, 1) : d.dice.between(1, 5));
      if (d.dice.chance(50) && (floats(d.at(0)) || !d.inplace)) s = Scalar(static_cast<double>(s.i) + 0.25);
      d.set(k, Arg::of(s));
    }
  }
  return true;
}

bool draw_masked(Draw& d) {
  if (!d.array(0)) return false;
  const int mask = d.partner(d.at(0).shape, DType::boolean, d.inplace);
  if (mask < 0) return false;
  d.set(1, Arg::of_var(mask));
  const DType t = d.at(0).dtype;
  if (d.dice.chance(25)) {
    const int v = d.pick([&](const Array& a) { return a.dtype == t && a.shape.empty(); });
    d.set(2, Arg::of_var(v >= 0 ? v : d.input(t, {})));
    return true;
  }
  Scalar s = d.scalar(t);
  if (s.kind > category(t)) s = Scalar(category(t) == Category::boolean ? Scalar(true) : Scalar(int64_t{2}));
  if (t == DType::uint8 && s.real() < 0) s = Scalar(1);
  d.set(2, Arg::of(s));
  return true;
}

constexpr Row kRows[] = {
    {.name = "abs", .params = "self", .draw = draw_number, .eval = abs, .inplace = true, .saves = kReads},
    {.name = "square",
     .params = "self",
     .draw = draw_within<-1000, 1000>,
     .eval = square,
     .inplace = true,
     .saves = kReads},
    {.name = "sqrt", .params = "self", .draw = draw_positive, .eval = sqrt, .inplace = true, .saves = kResult},
    {.name = "tanh", .params = "self", .draw = draw_within<-8, 8>, .eval = tanh, .inplace = true, .saves = kResult},
    {.name = "sigmoid",
     .params = "self",
     .draw = draw_within<-20, 20>,
     .eval = sigmoid,
     .inplace = true,
     .saves = kResult},
    {.name = "sin", .params = "self", .draw = draw_within<-20, 20>, .eval = sin, .inplace = true, .saves = kReads},
    {.name = "cos", .params = "self", .draw = draw_within<-20, 20>, .eval = cos, .inplace = true, .saves = kReads},
    {.name = "reciprocal",
     .params = "self",
     .draw = draw_nonzero,
     .eval = reciprocal,
     .inplace = true,
     .saves = kResult},
    {.name = "expm1", .params = "self", .draw = draw_within<-8, 6>, .eval = expm1, .inplace = true, .saves = kResult},
    {.name = "log1p", .params = "self", .draw = draw_within<0, 1000>, .eval = log1p, .inplace = true, .saves = kReads},
    {.name = "floor", .params = "self", .draw = draw_number, .eval = floor, .inplace = true, .saves = kNothing},
    {.name = "ceil", .params = "self", .draw = draw_number, .eval = ceil, .inplace = true, .saves = kNothing},
    {.name = "trunc", .params = "self", .draw = draw_number, .eval = trunc, .inplace = true, .saves = kNothing},
    {.name = "round", .params = "self", .draw = draw_number, .eval = round, .inplace = true, .saves = kNothing},
    {.name = "sign", .params = "self", .draw = draw_number, .eval = sign, .inplace = true, .saves = kNothing},
    {.name = "pow", .params = "self, exponent", .draw = draw_pow, .eval = pow, .inplace = true},
    {.name = "remainder",
     .params = "self, other",
     .draw = draw_rest,
     .eval = remainder<true>,
     .inplace = true,
     .saves = kReads},
    {.name = "fmod",
     .params = "self, other",
     .draw = draw_rest,
     .eval = remainder<false>,
     .inplace = true,
     .saves = kReads},
    {.name = "clamp",
     .params = "self, min, max",
     .draw = draw_clamp,
     .eval = clamp,
     .inplace = true,
     .saves = kReads,
     .weight = 3},
    {.name = "masked_fill",
     .params = "self, mask, value",
     .draw = draw_masked,
     .eval = masked_fill,
     .inplace = true,
     .saves = kReads,
     .weight = 3},
};

}  // namespace

constinit const std::span<const Row> kCurves = kRows;

}  // namespace gradwire::property
