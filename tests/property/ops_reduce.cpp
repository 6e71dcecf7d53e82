#include <algorithm>
#include <cmath>

#include "tests/property/draw.h"
#include "tests/property/sums.h"

// Reductions over some dims, or all.

namespace gradwire::property {
namespace {

template <class F> Array reduce(const Array& x, DType compute, DType result, const Groups& g, F f) {
  const std::vector<Num> all = elements(x, compute);
  std::vector<Num> out;
  for (const std::vector<size_t>& members : g.members) {
    std::vector<Num> some;
    for (const size_t i : members) some.push_back(all[i]);
    out.push_back(f(some));
  }
  return fresh(result, g.shape, std::move(out));
}

std::vector<Array> sum(const Args& a) {
  const Array& x = a.array(0);
  const DType t = a.dtype(3, is_floating(x.dtype) ? x.dtype : DType::int64);
  return {reduce(x, t, t, groups(x.shape, a.ints(1), a.flag(2)), [&](const std::vector<Num>& some) {
    if (is_floating(t)) {
      const Total s = total(t, some);
      return real(t, s.v, s.e, s.d);
    }
    uint64_t s = 0;
    for (const Num& n : some) s += static_cast<uint64_t>(n.i);
    return whole(t, static_cast<int64_t>(s));
  })};
}

std::vector<Array> mean(const Args& a) {
  const Array& x = a.array(0);
  const DType t = a.dtype(3, x.dtype);
  if (!is_floating(t)) throw Redraw{"the mean of integers"};
  return {reduce(x, t, t, groups(x.shape, a.ints(1), a.flag(2)), [&](const std::vector<Num>& some) {
    if (some.empty()) return real(t, std::nan(""));
    const Total s = total(t, some);
    const auto n = static_cast<double>(some.size());
    const bool exact = s.exact && (some.size() & (some.size() - 1)) == 0;
    const double own = exact || !std::isfinite(s.v) ? 0 : 4 * unit(t) * std::abs(s.v / n);
    return real(t, s.v / n, s.e / n + own, s.d / n);
  })};
}

bool draw_dims(Draw& d, const Draw::Fits& fits, bool with_dtype) {
  if (!d.array(0, fits)) return false;
  const int64_t n = d.at(0).ndim();
  const int64_t kind = d.dice.below(10);
  if (kind < 5) {
    d.set(1, Arg::of(Scalar(d.dim(n))));
  } else if (kind < 8) {
    Sizes dims;
    for (int64_t k = 0; k < n; ++k) {
      if (d.dice.chance(50)) dims.push_back(d.dice.chance(50) ? k : k - n);
    }
    if (d.dice.chance(50)) std::reverse(dims.begin(), dims.end());
    d.set(1, Arg::of(dims));
  }
  if (d.dice.chance(40)) d.set(2, Arg::of(Scalar(d.dice.chance(70))));
  if (with_dtype && d.dice.chance(20)) {
    const DType t = d.dice.chance(70) ? d.float_type() : d.dtype();
    if (t != DType::boolean && !d.program.gradients) d.set(3, Arg::of(t));
  }
  return true;
}

bool draw_sum(Draw& d) { return draw_dims(d, nullptr, true); }
bool draw_mean(Draw& d) {
  return draw_dims(
      d, [](const Array& a) { return is_floating(a.dtype); }, true);
}

constexpr Row kRows[] = {
    {.name = "sum",
     .params = "self, dim, keepdim, *, dtype",
     .draw = draw_sum,
     .eval = sum,
     .saves = kNothing,
     .weight = 3},
    {.name = "mean",
     .params = "self, dim, keepdim, *, dtype",
     .draw = draw_mean,
     .eval = mean,
     .saves = kNothing,
     .weight = 3},
};

}  // namespace

constinit const std::span<const Row> kReduce = kRows;

}  // namespace gradwire::property
