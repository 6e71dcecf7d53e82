#include <algorithm>
#include <cmath>

#include "tests/property/draw.h"
#include "tests/property/pointwise.h"

// Elementwise arithmetic.

namespace gradwire::property {
namespace {

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

std::vector<Array> neg(const Args& a) {
  const Array& x = a.array(0);
  if (x.dtype == DType::boolean) throw Redraw{"minus of bool"};
  return unary(x, x.dtype, x.dtype, [&](const Num& n) { return negative(x.dtype, n); });
}

std::vector<Array> exp(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::exp(x); }, [](double, double y) { return y; });
}

std::vector<Array> log(const Args& a) {
  return smooth(
      a.array(0), [](double x) { return std::log(x); }, [](double x, double) { return 1 / x; });
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
