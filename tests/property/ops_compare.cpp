#include "tests/property/draw.h"
#include "tests/property/pointwise.h"

// Comparisons.

namespace gradwire::property {

DType promoted(std::initializer_list<Side> sides) {
  bool seen = false;
  DType result = DType::boolean;
  for (int rank = 0; rank < 3; ++rank) {
    bool here = false;
    DType lower = DType::boolean;
    for (const Side& s : sides) {
      if (s.rank() != rank) continue;
      lower = here ? promote(lower, s.dtype()) : s.dtype();
      here = true;
    }
    if (!here) continue;
    if (!seen)
      result = lower;
    else if (category(lower) > category(result))
      result = promote(result, lower);
    seen = true;
  }
  return result;
}

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
  const int other = d.partner(d.at(0).shape, d.dice.chance(60) ? t : d.dtype());
  if (other < 0) return false;
  d.set(1, Arg::of_var(other));
  return true;
}

constexpr Row kRows[] = {
    {.name = "eq", .params = "self, other", .draw = draw, .eval = compare<false, true, false, false>, .no_grad = true},
    {.name = "ne", .params = "self, other", .draw = draw, .eval = compare<true, false, true, true>, .no_grad = true},
    {.name = "lt", .params = "self, other", .draw = draw, .eval = compare<true, false, false, false>, .no_grad = true},
    {.name = "le", .params = "self, other", .draw = draw, .eval = compare<true, true, false, false>, .no_grad = true},
    {.name = "gt", .params = "self, other", .draw = draw, .eval = compare<false, false, true, false>, .no_grad = true},
    {.name = "ge", .params = "self, other", .draw = draw, .eval = compare<false, true, true, false>, .no_grad = true},
};

}  // namespace

constinit const std::span<const Row> kCompare = kRows;

}  // namespace gradwire::property
