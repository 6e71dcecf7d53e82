#include <algorithm>
#include <cmath>

#include "tests/property/draw.h"
#include "tests/property/pointwise.h"
#include "tests/property/sums.h"

// Reductions over some dims, or all.

namespace gradwire::property {
namespace {

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

std::vector<Array> prod(const Args& a) {
  const Array& x = a.array(0);
  const DType t = a.dtype(1, is_floating(x.dtype) ? x.dtype : DType::int64);
  return {
      reduce(x, t, t, groups(x.shape, {}, false), [&](const std::vector<Num>& some) { return product_of(t, some); })};
}

std::vector<Array> prod_dim(const Args& a) {
  const Array& x = a.array(0);
  const DType t = a.dtype(3, is_floating(x.dtype) ? x.dtype : DType::int64);
  return {reduce(x, t, t, groups(x.shape, a.ints(1), a.flag(2)),
                 [&](const std::vector<Num>& some) { return product_of(t, some); })};
}

std::vector<Array> logsumexp(const Args& a) {
  const Array& x = a.array(0);
  if (!is_floating(x.dtype)) throw Redraw{"integers"};
  return {reduce(x, x.dtype, x.dtype, groups(x.shape, a.ints(1), a.flag(2)), [&](const std::vector<Num>& some) {
    if (some.empty()) throw Redraw{"the logarithm of nothing"};
    const Total l = log_sum_exp(x.dtype, some);
    return real(x.dtype, l.v, l.e, l.d);
  })};
}

// The variance by its definition: what a running formula loses is within the bound.
template <bool Root> std::vector<Array> spread(const Args& a) {
  const Array& x = a.array(0);
  const DType t = x.dtype;
  if (!is_floating(t)) throw Redraw{"the variance of integers"};
  const double correction = a.has(4) ? a.scalar(4).real() : a.has(2) ? static_cast<double>(a.flag(2)) : 1;
  return {reduce(x, t, t, groups(x.shape, a.ints(1), a.flag(3)), [&](const std::vector<Num>& some) {
    const auto n = static_cast<double>(some.size());
    if (n - correction <= 0) throw Redraw{"the variance of too few"};
    double mean = 0, size = 0, e = 0, d = 0;
    for (const Num& x : some) {
      if (!std::isfinite(x.v)) throw Redraw{"the variance of infinities"};
      mean += x.v / n, size += std::abs(x.v) / n, e = std::max(e, x.e), d += x.d / n;
    }
    const double off = 2 * e + 4 * (n + 2) * unit(t) * size;  // of a difference from the mean
    double v = 0, bound = 0, dv = 0;
    for (const Num& x : some) {
      const double far = x.v - mean;
      v += far * far / (n - correction), bound += (2 * std::abs(far) + off) * off / (n - correction);
      dv += 2 * far * (x.d - d) / (n - correction);
    }
    bound += 4 * (n + 2) * unit(t) * v;
    if (!Root) return real(t, v, bound, dv);
    if (v <= 4 * bound) throw Redraw{"the root of nearly nothing"};
    const double root = std::sqrt(v);
    return real(t, root, bound / root + 2 * unit(t) * root, dv / 2 / root);
  })};
}

template <bool All> std::vector<Array> truth(const Args& a) {
  const Array& x = a.array(0);
  // uint8 stays uint8.
  const DType result = x.dtype == DType::uint8 ? DType::uint8 : DType::boolean;
  return {reduce(x, DType::boolean, result, groups(x.shape, a.ints(1), a.flag(2)), [&](const std::vector<Num>& some) {
    const auto holds = [](const Num& n) { return n.i != 0; };
    return whole(result,
                 All ? std::all_of(some.begin(), some.end(), holds) : std::any_of(some.begin(), some.end(), holds));
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

bool floats(const Array& a) { return is_floating(a.dtype) && finite(a); }
bool draw_prod(Draw& d) {
  if (!d.array(0, [](const Array& a) { return count(a.shape) <= 12; })) return false;
  if (!d.program.gradients && d.dice.chance(20)) d.set(1, Arg::of(d.float_type()));
  return true;
}
bool draw_prod_dim(Draw& d) {
  if (!d.array(0, [](const Array& a) { return within(a, -9, 9); })) return false;
  d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  if (d.dice.chance(40)) d.set(2, Arg::of(Scalar(d.dice.chance(70))));
  return true;
}
bool draw_lse(Draw& d) {
  if (!draw_dims(
          d, [](const Array& a) { return floats(a) && within(a, -40, 40); }, false))
    return false;
  return d.args[1].kind == Arg::scalar || (d.args[1].kind == Arg::ints && !d.args[1].list.empty());
}
bool draw_spread(Draw& d) {
  if (!draw_dims(d, floats, false)) return false;
  std::swap(d.args[2], d.args[3]);
  if (d.dice.chance(30))
    d.set(2, Arg::of(Scalar(d.dice.chance(50))));
  else if (d.dice.chance(20))
    d.set(4, Arg::of(Scalar(d.dice.below(3))));
  return true;
}
bool draw_truth(Draw& d) {
  return draw_dims(
      d, d.dice.chance(60) ? Draw::Fits([](const Array& a) { return a.dtype == DType::boolean; }) : nullptr, false);
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
    {.name = "prod", .params = "self, *, dtype", .draw = draw_prod, .eval = prod, .weight = 1},
    {.name = "prod.dim",
     .params = "self, dim, keepdim, *, dtype",
     .draw = draw_prod_dim,
     .eval = prod_dim,
     .weight = 1},
    {.name = "logsumexp", .params = "self, dim, keepdim", .draw = draw_lse, .eval = logsumexp},
    {.name = "var",
     .params = "self, dim, unbiased, keepdim, *, correction",
     .draw = draw_spread,
     .eval = spread<false>},
    {.name = "std", .params = "self, dim, unbiased, keepdim, *, correction", .draw = draw_spread, .eval = spread<true>},
    {.name = "all",
     .params = "self, dim, keepdim",
     .draw = draw_truth,
     .eval = truth<true>,
     .no_grad = true,
     .weight = 1},
    {.name = "any",
     .params = "self, dim, keepdim",
     .draw = draw_truth,
     .eval = truth<false>,
     .no_grad = true,
     .weight = 1},
};

}  // namespace

constinit const std::span<const Row> kReduce = kRows;

}  // namespace gradwire::property
