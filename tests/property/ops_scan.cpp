#include <algorithm>
#include <cmath>

#include "tests/property/draw.h"
#include "tests/property/sums.h"

// What works along one dim and keeps it.

namespace gradwire::property {
namespace {

// f of each line along the dim, in its order.
template <class F> Array along(const Array& x, int64_t dim, DType compute, DType result, F f) {
  const std::vector<Num> all = elements(x, compute);
  const Groups g = groups(x.shape, {dim}, false);
  std::vector<Num> out(all.size());
  for (const std::vector<size_t>& members : g.members) {
    std::vector<Num> line;
    for (const size_t i : members) line.push_back(all[i]);
    if (line.empty()) continue;
    const std::vector<Num> made = f(line);
    for (size_t k = 0; k < members.size(); ++k) out[members[k]] = made[k];
  }
  return fresh(result, x.shape, std::move(out));
}

// The logarithm of a line's sum of exponentials, before it is rounded to any dtype.
struct Lse {
  double v = 0, e = 0, d = 0;
  explicit Lse(DType t, const std::vector<Num>& line) {
    double top = -HUGE_VAL, most = 0, sum = 0;
    for (const Num& n : line) {
      if (!std::isfinite(n.v)) throw Redraw{"infinities under a softmax"};
      top = std::max(top, n.v), most = std::max(most, n.e);
    }
    for (const Num& n : line) sum += std::exp(n.v - top);
    for (const Num& n : line) d += term(n.d, std::exp(n.v - top) / sum);
    v = top + std::log(sum);
    e = most + 8 * unit(t) * (static_cast<double>(line.size()) + std::abs(top) + std::log(sum));
  }
};

std::vector<Array> log_softmax(const Args& a) {
  const Array& x = a.array(0);
  const DType t = a.dtype(2, x.dtype);
  if (!is_floating(t)) throw Redraw{"a softmax of integers"};
  return {along(x, a.integer(1), t, t, [&](const std::vector<Num>& line) {
    const Lse l(t, line);
    std::vector<Num> out;
    for (const Num& n : line)
      out.push_back(real(t, n.v - l.v, n.e + l.e + 8 * unit(t) * (std::abs(n.v) + std::abs(n.v - l.v)), n.d - l.d));
    return out;
  })};
}

bool draw_softmax(Draw& d) {
  const bool gradients = d.program.gradients;
  if (!d.array(0, [](const Array& a) {
        if (!is_floating(a.dtype)) return false;
        const std::vector<Num> all = elements(a);
        return std::all_of(all.begin(), all.end(), [](const Num& n) { return std::abs(n.v) < 50; });
      }))
    return false;
  d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  if (!gradients && d.dice.chance(15)) d.set(2, Arg::of(d.float_type()));
  return true;
}

constexpr Row kRows[] = {
    {.name = "log_softmax",
     .params = "self, dim, *, dtype",
     .draw = draw_softmax,
     .eval = log_softmax,
     .saves = kResult},
};

}  // namespace

constinit const std::span<const Row> kScan = kRows;

}  // namespace gradwire::property
