#include "tests/property/draw.h"
#include "tests/property/pointwise.h"

// Comparisons.

namespace gradwire::property {
namespace {

// The answers for less, equal, greater and NaN.
template <bool Less, bool Equal, bool Greater, bool Nan> std::vector<Array> compare(const Args& a) {
  const Side x(a, 0), y(a, 1);
  const DType t = promoted({x, y});
  return binary(x, y, t, DType::boolean, [&](const Num& p, const Num& q) {
    const int o = order(p, q, t);
    return whole(DType::boolean, o < 0 ? Less : o == 0 ? Equal : o == 1 ? Greater : Nan);
  });
}

template <class F> std::vector<Array> logic(const Args& a, F f) {
  const Side x(a.array(0)), y(a.array(1));
  return binary(x, y, DType::boolean, DType::boolean,
                [&](const Num& p, const Num& q) { return whole(DType::boolean, f(p.i != 0, q.i != 0)); });
}
std::vector<Array> logical_and(const Args& a) {
  return logic(a, [](bool p, bool q) { return p && q; });
}
std::vector<Array> logical_or(const Args& a) {
  return logic(a, [](bool p, bool q) { return p || q; });
}
std::vector<Array> logical_xor(const Args& a) {
  return logic(a, [](bool p, bool q) { return p != q; });
}
std::vector<Array> logical_not(const Args& a) {
  return unary(a.array(0), DType::boolean, DType::boolean, [](const Num& n) { return whole(DType::boolean, !n.i); });
}
std::vector<Array> isnan(const Args& a) {
  const Array& x = a.array(0);
  return unary(x, x.dtype, DType::boolean, [&](const Num& n) { return whole(DType::boolean, is_nan(n, x.dtype)); });
}

template <class F> std::vector<Array> bits(const Args& a, F f) {
  const Side x(a, 0), y(a, 1);
  const DType t = promoted({x, y});
  if (is_floating(t)) throw Redraw{"the bits of floats"};
  return binary(x, y, t, t, [&](const Num& p, const Num& q) { return whole(t, f(p.i, q.i)); });
}
std::vector<Array> bitwise_and(const Args& a) {
  return bits(a, [](int64_t p, int64_t q) { return p & q; });
}
std::vector<Array> bitwise_or(const Args& a) {
  return bits(a, [](int64_t p, int64_t q) { return p | q; });
}
std::vector<Array> bitwise_xor(const Args& a) {
  return bits(a, [](int64_t p, int64_t q) { return p ^ q; });
}

bool draw_logic(Draw& d) {
  if (!d.array(0, d.dice.chance(60) ? Draw::Fits([](const Array& a) { return a.dtype == DType::boolean; }) : nullptr))
    return false;
  const int other = d.partner(d.at(0).shape, d.dice.chance(60) ? DType::boolean : d.dtype(), d.inplace);
  if (other < 0) return false;
  d.set(1, Arg::of_var(other));
  return true;
}
bool draw_not(Draw& d) { return d.array(0); }
bool draw_bits(Draw& d) {
  if (!d.array(0, [](const Array& a) { return !is_floating(a.dtype); })) return false;
  const int other = d.partner(d.at(0).shape, d.dice.chance(70) ? d.at(0).dtype : d.dtype(), d.inplace);
  if (other < 0) return false;
  d.set(1, Arg::of_var(other));
  return true;
}

bool draw(Draw& d) {
  if (!d.array(0)) return false;
  const DType t = d.at(0).dtype;
  if (d.dice.chance(30)) {
    // Numbers that the tensor's dtype does not hold wrap in some versions and not in others.
    Scalar s = d.scalar(t);
    if (s.kind == Category::integer && category(t) != Category::floating) s = Scalar(s.i & 7);
    d.set(1, Arg::of(s));
    return true;
  }
  const int other = d.partner(d.at(0).shape, d.dice.chance(60) ? t : d.dtype(), d.inplace);
  if (other < 0) return false;
  d.set(1, Arg::of_var(other));
  return true;
}

constexpr Row kRows[] = {
    {.name = "eq",
     .params = "self, other",
     .draw = draw,
     .eval = compare<false, true, false, false>,
     .inplace = true,
     .saves = kNothing},
    {.name = "ne",
     .params = "self, other",
     .draw = draw,
     .eval = compare<true, false, true, true>,
     .inplace = true,
     .saves = kNothing},
    {.name = "lt",
     .params = "self, other",
     .draw = draw,
     .eval = compare<true, false, false, false>,
     .inplace = true,
     .saves = kNothing},
    {.name = "le",
     .params = "self, other",
     .draw = draw,
     .eval = compare<true, true, false, false>,
     .inplace = true,
     .saves = kNothing},
    {.name = "gt",
     .params = "self, other",
     .draw = draw,
     .eval = compare<false, false, true, false>,
     .inplace = true,
     .saves = kNothing},
    {.name = "ge",
     .params = "self, other",
     .draw = draw,
     .eval = compare<false, true, true, false>,
     .inplace = true,
     .saves = kNothing},
    {.name = "logical_and",
     .params = "self, other",
     .draw = draw_logic,
     .eval = logical_and,
     .inplace = true,
     .no_grad = true,
     .weight = 1},
    {.name = "logical_or",
     .params = "self, other",
     .draw = draw_logic,
     .eval = logical_or,
     .inplace = true,
     .no_grad = true,
     .weight = 1},
    {.name = "logical_xor",
     .params = "self, other",
     .draw = draw_logic,
     .eval = logical_xor,
     .inplace = true,
     .no_grad = true,
     .weight = 1},
    {.name = "logical_not",
     .params = "self",
     .draw = draw_not,
     .eval = logical_not,
     .inplace = true,
     .no_grad = true,
     .weight = 1},
    {.name = "isnan", .params = "self", .draw = draw_not, .eval = isnan, .no_grad = true, .weight = 1},
    {.name = "bitwise_and",
     .params = "self, other",
     .draw = draw_bits,
     .eval = bitwise_and,
     .inplace = true,
     .no_grad = true,
     .weight = 1},
    {.name = "bitwise_or",
     .params = "self, other",
     .draw = draw_bits,
     .eval = bitwise_or,
     .inplace = true,
     .no_grad = true,
     .weight = 1},
    {.name = "bitwise_xor",
     .params = "self, other",
     .draw = draw_bits,
     .eval = bitwise_xor,
     .inplace = true,
     .no_grad = true,
     .weight = 1},
};

}  // namespace

constinit const std::span<const Row> kCompare = kRows;

}  // namespace gradwire::property
