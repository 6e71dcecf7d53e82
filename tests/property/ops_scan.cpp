#include <algorithm>
#include <cmath>

#include "tests/property/draw.h"
#include "tests/property/pointwise.h"
#include "tests/property/sums.h"

// What works along one dim and keeps it.

namespace gradwire::property {
namespace {

std::vector<Array> log_softmax(const Args& a) {
  const Array& x = a.array(0);
  const DType t = a.dtype(2, x.dtype);
  if (!is_floating(t)) throw Redraw{"a softmax of integers"};
  return {along(x, a.integer(1), t, t, [&](const std::vector<Num>& line) {
    const Total l = log_sum_exp(t, line);
    std::vector<Num> out;
    for (const Num& n : line)
      out.push_back(real(t, n.v - l.v, n.e + l.e + 8 * unit(t) * (std::abs(n.v) + std::abs(n.v - l.v)), n.d - l.d));
    return out;
  })};
}

std::vector<Array> softmax(const Args& a) {
  const Array& x = a.array(0);
  const DType t = a.dtype(2, x.dtype);
  if (!is_floating(t)) throw Redraw{"a softmax of integers"};
  return {along(x, a.integer(1), t, t, [&](const std::vector<Num>& line) {
    const Total l = log_sum_exp(t, line);
    std::vector<Num> out;
    for (const Num& n : line) {
      const double y = std::exp(n.v - l.v);
      const double off = n.e + l.e + 8 * unit(t) * (2 + std::abs(n.v) + std::abs(n.v - l.v));
      out.push_back(real(t, y, 1.1 * y * off, y * (n.d - l.d)));
    }
    return out;
  })};
}

// A result for each prefix of a line.
template <class F> std::vector<Array> scan(const Args& a, F f) {
  const Array& x = a.array(0);
  const DType t = a.dtype(2, is_floating(x.dtype) ? x.dtype : DType::int64);
  return {along(x, a.integer(1), t, t, [&](const std::vector<Num>& line) {
    std::vector<Num> out, some;
    for (const Num& n : line) some.push_back(n), out.push_back(f(t, some));
    return out;
  })};
}
std::vector<Array> cumsum(const Args& a) {
  return scan(a, [](DType t, const std::vector<Num>& some) {
    if (is_floating(t)) {
      const Total s = total(t, some);
      return real(t, s.v, s.e, s.d);
    }
    uint64_t s = 0;
    for (const Num& n : some) s += static_cast<uint64_t>(n.i);
    return whole(t, static_cast<int64_t>(s));
  });
}
std::vector<Array> cumprod(const Args& a) { return scan(a, product_of); }

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

bool draw_scan(Draw& d) {
  if (!d.array(0, [](const Array& a) { return finite(a) && within(a, -100, 100); })) return false;
  d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  if (!d.program.gradients && d.dice.chance(15)) d.set(2, Arg::of(d.float_type()));
  return true;
}
bool draw_cumprod(Draw& d) { return draw_scan(d) && within(d.at(0), -4, 4); }

constexpr Row kRows[] = {
    {.name = "log_softmax",
     .params = "self, dim, *, dtype",
     .draw = draw_softmax,
     .eval = log_softmax,
     .saves = kResult},
    {.name = "softmax", .params = "self, dim, *, dtype", .draw = draw_softmax, .eval = softmax, .saves = kResult},
    {.name = "cumsum",
     .params = "self, dim, *, dtype",
     .draw = draw_scan,
     .eval = cumsum,
     .inplace = true,
     .saves = kNothing},
    {.name = "cumprod",
     .params = "self, dim, *, dtype",
     .draw = draw_cumprod,
     .eval = cumprod,
     .inplace = true,
     .weight = 1},
};

}  // namespace

constinit const std::span<const Row> kScan = kRows;

}  // namespace gradwire::property
