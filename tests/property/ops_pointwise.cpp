#include <algorithm>
#include <cmath>

#include "tests/property/draw.h"
#include "tests/property/pointwise.h"

// Elementwise arithmetic.

namespace gradwire::property {
namespace {

constexpr double kUlps = 4;  // of what is no correctly rounded operation: two are promised

// ---- of two operands ----

Num sum_of(DType t, const Num& a, const Num& b) {
  if (t == DType::boolean) return whole(t, a.i | b.i);
  if (!is_floating(t)) return whole(t, static_cast<int64_t>(static_cast<uint64_t>(a.i) + static_cast<uint64_t>(b.i)));
  return real(t, a.v + b.v, a.e + b.e, a.d + b.d);
}

Num negative(DType t, const Num& a) {
  if (!is_floating(t)) return whole(t, static_cast<int64_t>(0 - static_cast<uint64_t>(a.i)));
  return real(t, -a.v, a.e, -a.d);
}

Num product(DType t, const Num& a, const Num& b) {
  if (!is_floating(t)) return whole(t, static_cast<int64_t>(static_cast<uint64_t>(a.i) * static_cast<uint64_t>(b.i)));
  return real(t, a.v * b.v, term(b.e, std::abs(a.v)) + term(a.e, std::abs(b.v)) + a.e * b.e,
              term(b.d, a.v) + term(a.d, b.v));
}

Num quotient(DType t, const Num& a, const Num& b) {
  double e = 0;
  if (b.v == 0 && a.v != 0 && !std::isnan(a.v)) throw Redraw{"the sign of a zero"};  // which sums do not promise
  if (a.e > 0 || b.e > 0) {
    const double least = std::abs(b.v) - b.e;
    if (least <= 0) throw Redraw{"division by what may be zero"};
    e = (a.e + std::abs(a.v / b.v) * b.e) / least;
  }
  return real(t, a.v / b.v, e, term(a.d, 1 / b.v) - term(b.d, a.v / b.v / b.v));
}

// a + alpha * b, rounded twice, halves in float32 throughout.
std::vector<Array> scaled(const Args& a, bool minus) {
  const Side self(a, 0), other(a, 1);
  const DType t = promoted({self, other});
  const Scalar alpha = a.has(2) ? a.scalar(2) : Scalar(1);
  const bool one = alpha.real() == 1;
  if (minus && (self.dtype() == DType::boolean || other.dtype() == DType::boolean)) throw Redraw{"minus of bool"};
  if (alpha.kind > category(t) || (alpha.kind == Category::boolean && t != DType::boolean))
    throw Redraw{"alpha of another kind"};
  const DType inside = computed(t);
  const Num factor = number(alpha, inside);
  return binary(self, other, t, t, [&](const Num& x, const Num& y) {
    Num more = one ? y : product(inside, factor, y);
    if (minus) more = negative(inside, more);
    return sum_of(t, x, more);
  });
}

std::vector<Array> add(const Args& a) { return scaled(a, false); }
std::vector<Array> sub(const Args& a) { return scaled(a, true); }

std::vector<Array> mul(const Args& a) {
  const Side x(a, 0), y(a, 1);
  const DType t = promoted({x, y});
  return binary(x, y, t, t, [&](const Num& p, const Num& q) { return product(t, p, q); });
}

int64_t divided(const Num& a, const Num& b, DType t, bool floor) {
  if (b.i == 0) throw Redraw{"integer division by zero"};
  if (b.i == -1) return negative(t, a).i;
  const int64_t q = a.i / b.i;
  return q - (floor && a.i % b.i != 0 && (a.i < 0) != (b.i < 0));
}

double floored(double a, double b) {
  const double rest = std::fmod(a, b), q = std::round((a - rest) / b);
  return rest != 0 && (rest < 0) != (b < 0) ? q - 1 : q;
}

std::vector<Array> div(const Args& a) {
  const Side x(a, 0), y(a, 1);
  const std::string mode = a.words(2);
  DType t = promoted({x, y});
  if (mode.empty() && !is_floating(t)) t = DType::float32;
  if (!mode.empty() && t == DType::boolean) throw Redraw{"rounded division of bool"};
  return binary(x, y, t, t, [&](const Num& p, const Num& q) {
    if (mode.empty()) return quotient(t, p, q);
    if (!is_floating(t)) return whole(t, divided(p, q, t, mode == "floor"));
    if (!std::isfinite(p.v) || !std::isfinite(q.v) || q.v == 0) throw Redraw{"rounded division to no number"};
    const double e = quotient(DType::float64, p, q).e;
    const double exact = p.v / q.v;
    if (e > 0 && std::floor(exact - 2 * e) != std::floor(exact + 2 * e)) throw Redraw{"between two quotients"};
    if (std::abs(exact) > 1e5) throw Redraw{"a large quotient"};
    return real(t, mode == "floor" ? floored(p.v, q.v) : std::trunc(round_to(computed(t), exact)));
  });
}

Num larger(DType t, const Num& a, const Num& b, bool least) {
  if (!is_floating(t)) return whole(t, least ? std::min(a.i, b.i) : std::max(a.i, b.i));
  if (std::isnan(a.v)) return a;
  if (std::isnan(b.v)) return b;
  Num n = (a.v < b.v) == least ? a : b;
  const double e = a.e + b.e;
  if (a.v == b.v) n.d = (a.d + b.d) / 2;
  if (e > 0 && std::abs(a.v - b.v) <= 2 * e) {
    if (a.d != b.d) throw Redraw{"a kink"};
    n.e = std::max(a.e, b.e);
  }
  return n;
}

template <bool Least> std::vector<Array> extreme(const Args& a) {
  const Side x(a, 0), y(a, 1);
  const DType t = promoted({x, y});
  return binary(x, y, t, t, [&](const Num& p, const Num& q) { return larger(t, p, q, Least); });
}

std::vector<Array> where(const Args& a) {
  const Array& condition = a.array(0);
  if (condition.dtype != DType::boolean && condition.dtype != DType::uint8) throw Redraw{"a condition of numbers"};
  const Side x(a, 1), y(a, 2);
  const DType t = promoted({x, y});
  const Sizes shape = broadcast(condition.shape, broadcast(x.shape(), y.shape()));
  const std::vector<Num> c = elements(widened(condition, shape)), p = x.at(shape, t), q = y.at(shape, t);
  std::vector<Num> out;
  for (size_t i = 0; i < c.size(); ++i) out.push_back(c[i].i ? p[i] : q[i]);
  return {fresh(t, shape, std::move(out))};
}

// ---- of one ----

// f(value) with derivative slope(value, f(value)); what f's result may be off by for x's bound is at most `steep` times
// that bound.
template <class F, class S> std::vector<Array> smooth(const Args& a, F f, S slope, double ulps = kUlps) {
  const Array& x = a.array(0);
  const DType t = is_floating(x.dtype) ? x.dtype : DType::float32;
  return unary(x, t, t, [&](const Num& n) {
    const double y = f(n.v);
    if (!std::isfinite(y)) {
      if (n.e > 0) throw Redraw{"a bound around an infinity"};
      return real(t, y);
    }
    // The slope at the far ends of the bound, where it is steepest for what is drawn here.
    double steep = 0;
    if (n.e > 0) {
      for (const double at : {n.v - n.e, n.v, n.v + n.e}) steep = std::max(steep, std::abs(slope(at, f(at))));
      if (!std::isfinite(steep)) throw Redraw{"an infinite slope"};
    }
    const double own = ulps * 2 * unit(t) * std::abs(y);
    const double d = n.d == 0 ? 0 : n.d * slope(n.v, y);
    return real(t, y, term(n.e, 1.01 * steep) + own, d);
  });
}

std::vector<Array> neg(const Args& a) {
  const Array& x = a.array(0);
  if (x.dtype == DType::boolean) throw Redraw{"minus of bool"};
  return unary(x, x.dtype, x.dtype, [&](const Num& n) { return negative(x.dtype, n); });
}

std::vector<Array> exp(const Args& a) {
  return smooth(
      a, [](double x) { return std::exp(x); }, [](double, double y) { return y; });
}

std::vector<Array> log(const Args& a) {
  return smooth(
      a, [](double x) { return std::log(x); }, [](double x, double) { return 1 / x; });
}

std::vector<Array> relu(const Args& a) {
  const Array& x = a.array(0);
  if (x.dtype == DType::boolean) throw Redraw{"relu of bool"};
  return unary(x, x.dtype, x.dtype, [&](const Num& n) {
    if (!is_floating(x.dtype)) return whole(x.dtype, std::max<int64_t>(n.i, 0));
    if (std::isnan(n.v)) return n;
    if (n.d != 0 && n.e > 0 && std::abs(n.v) <= n.e) throw Redraw{"a kink"};
    if (n.v > 0) return n;
    Num zero;
    zero.e = std::max(0.0, n.v + n.e);
    return zero;
  });
}

// ---- arguments ----

bool any(const Array&) { return true; }
bool numbers(const Array& a) { return a.dtype != DType::boolean; }
bool nonzero(const Array& a, double least) {
  const std::vector<Num> all = elements(a);
  return std::all_of(all.begin(), all.end(),
                     [&](const Num& n) { return is_floating(a.dtype) ? std::abs(n.v) - n.e >= least : n.i != 0; });
}

bool two(Draw& d, const Draw::Fits& first, const Draw::Fits& second, bool tensors = false) {
  if (!d.array(0, first)) return false;
  const Array& self = d.at(0);
  const int kind = static_cast<int>(d.dice.below(10));
  if (!tensors && kind < 3) {
    d.set(1, Arg::of(d.scalar(self.dtype)));
  } else {
    const int other = d.partner(self.shape, kind < 7 ? self.dtype : d.dtype(), d.inplace);
    if (other < 0 || !second(d.env[static_cast<size_t>(other)])) return false;
    d.set(1, Arg::of_var(other));
  }
  if (!d.inplace && d.dice.chance(25)) std::swap(d.args[0], d.args[1]);
  return true;
}

bool draw_sum(Draw& d) {
  if (!two(d, any, any)) return false;
  if (d.dice.chance(25)) d.set(2, Arg::of(d.scalar(d.args[0].kind == Arg::var ? d.at(0).dtype : DType::int64)));
  return true;
}
bool draw_two(Draw& d) { return two(d, any, any); }
bool draw_tensors(Draw& d) { return two(d, any, any, true); }
bool draw_div(Draw& d) {
  if (!two(d, any, any)) return false;
  if (d.dice.chance(40) && !d.program.gradients) d.set(2, Arg::of(d.dice.chance(50) ? "floor" : "trunc"));
  if (d.args[1].kind == Arg::var && !(d.dice.chance(10) && d.args[2].kind == Arg::none))
    return nonzero(d.at(1), d.args[2].kind == Arg::none ? 0.1 : 0.01);
  return d.args[1].kind == Arg::var || d.args[1].number.real() != 0;
}
bool draw_where(Draw& d) {
  if (!d.array(1)) return false;
  const Sizes shape = d.at(1).shape;
  const int condition = d.partner(shape, d.dice.chance(90) ? DType::boolean : DType::uint8);
  const int other = d.partner(shape, d.dice.chance(60) ? d.at(1).dtype : d.dtype());
  if (condition < 0 || other < 0) return false;
  d.set(0, Arg::of_var(condition));
  d.set(2, d.dice.chance(25) ? Arg::of(d.scalar(d.at(1).dtype)) : Arg::of_var(other));
  if (d.dice.chance(30)) std::swap(d.args[1], d.args[2]);
  return true;
}
bool within(const Array& a, double low, double high) {
  const std::vector<Num> all = elements(a);
  return !is_floating(a.dtype) || std::all_of(all.begin(), all.end(), [&](const Num& n) {
    return !std::isfinite(n.v) || (n.v - n.e >= low && n.v + n.e <= high);
  });
}
bool draw_number(Draw& d) { return d.array(0, numbers); }
bool draw_exp(Draw& d) {
  return d.array(0, [](const Array& a) { return within(a, -12, 6); });
}
bool draw_log(Draw& d) {
  return d.array(0, [](const Array& a) { return is_floating(a.dtype) ? within(a, 0.02, 1e6) : nonzero(a, 1); });
}

constexpr Row kRows[] = {
    {.name = "add",
     .params = "self, other, *, alpha",
     .draw = draw_sum,
     .eval = add,
     .inplace = true,
     .saves = kNothing,
     .weight = 4},
    {.name = "sub",
     .params = "self, other, *, alpha",
     .draw = draw_sum,
     .eval = sub,
     .inplace = true,
     .saves = kNothing,
     .weight = 4},
    {.name = "mul",
     .params = "self, other",
     .draw = draw_two,
     .eval = mul,
     .inplace = true,
     .saves = kReads,
     .weight = 4},
    {.name = "div",
     .params = "self, other, *, rounding_mode",
     .draw = draw_div,
     .eval = div,
     .inplace = true,
     .saves = kReads,
     .weight = 4},
    {.name = "maximum", .params = "self, other", .draw = draw_tensors, .eval = extreme<false>, .saves = kReads},
    {.name = "minimum", .params = "self, other", .draw = draw_tensors, .eval = extreme<true>, .saves = kReads},
    {.name = "where",
     .params = "condition, self, other",
     .draw = draw_where,
     .eval = where,
     .saves = kReads,
     .weight = 3},
    {.name = "neg", .params = "self", .draw = draw_number, .eval = neg, .inplace = true, .saves = kNothing},
    {.name = "exp", .params = "self", .draw = draw_exp, .eval = exp, .inplace = true, .saves = kResult},
    {.name = "log", .params = "self", .draw = draw_log, .eval = log, .inplace = true, .saves = kReads},
    {.name = "relu", .params = "self", .draw = draw_number, .eval = relu, .inplace = true, .saves = kResult},
};

}  // namespace

constinit const std::span<const Row> kPointwise = kRows;

}  // namespace gradwire::property
