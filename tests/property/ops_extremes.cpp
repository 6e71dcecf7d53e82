#include <algorithm>
#include <numeric>

#include "tests/property/draw.h"
#include "tests/property/sums.h"

// The largest, the smallest, and orders. NaN is larger than all; of equal ones the first comes first.

namespace gradwire::property {
namespace {

// Whether a comes before b in ascending order.
bool before(const Num& a, const Num& b, DType t) {
  if (is_nan(a, t) || is_nan(b, t)) return !is_nan(a, t) && is_nan(b, t);
  return order(a, b, t) < 0;
}

// The number of the largest or smallest of a group; NaN wins either way.
size_t best(const std::vector<Num>& some, DType t, bool least) {
  if (some.empty()) throw Redraw{"the largest of nothing"};
  size_t at = 0;
  for (size_t i = 1; i < some.size(); ++i) {
    if (is_nan(some[at], t)) break;
    if (is_nan(some[i], t) || (least ? order(some[i], some[at], t) < 0 : order(some[i], some[at], t) == 1)) at = i;
  }
  return at;
}

// Equal ones share the derivative.
template <bool Least> std::vector<Array> amax(const Args& a) {
  const Array& x = a.array(0);
  const bool whole_tensor = a.step().args.size() == 1;
  const Groups g = whole_tensor ? groups(x.shape, {}, false) : groups(x.shape, a.ints(1), a.flag(2));
  return {reduce(x, x.dtype, x.dtype, g, [&](const std::vector<Num>& some) {
    Num n = some[best(some, x.dtype, Least)];
    if (!is_floating(x.dtype) || is_nan(n, x.dtype)) return n;
    double d = 0, ties = 0;
    for (const Num& m : some) {
      if (m.v == n.v) d += m.d, ++ties;
    }
    n.d = d / ties;
    return n;
  })};
}

template <bool Least> std::vector<Array> max_dim(const Args& a) {
  const Array& x = a.array(0);
  const Groups g = groups(x.shape, a.ints(1), a.flag(2));
  const auto value = [&](const std::vector<Num>& some) { return some[best(some, x.dtype, Least)]; };
  const auto at = [&](const std::vector<Num>& some) {
    return whole(DType::int64, static_cast<int64_t>(best(some, x.dtype, Least)));
  };
  return {reduce(x, x.dtype, x.dtype, g, value), reduce(x, x.dtype, DType::int64, g, at)};
}

template <bool Least> std::vector<Array> argmax(const Args& a) {
  const Array& x = a.array(0);
  return {reduce(x, x.dtype, DType::int64, groups(x.shape, a.ints(1), a.flag(2)), [&](const std::vector<Num>& some) {
    return whole(DType::int64, static_cast<int64_t>(best(some, x.dtype, Least)));
  })};
}

// Numbers of the elements of a line in order.
std::vector<size_t> ordered(const std::vector<Num>& line, DType t, bool descending) {
  std::vector<size_t> at(line.size());
  std::iota(at.begin(), at.end(), 0);
  // Insertion: comparisons may throw.
  for (size_t i = 1; i < at.size(); ++i) {
    for (size_t k = i; k > 0; --k) {
      const Num &left = line[at[k - 1]], &right = line[at[k]];
      if (!(descending ? before(left, right, t) : before(right, left, t))) break;
      std::swap(at[k - 1], at[k]);
    }
  }
  return at;
}

struct Sorted {
  Array values, indices;
  Sorted(const Array& x, int64_t dim, bool descending) {
    const auto pick = [&](bool number) {
      return along(x, dim, x.dtype, number ? DType::int64 : x.dtype, [&](const std::vector<Num>& line) {
        std::vector<Num> out;
        for (const size_t i : ordered(line, x.dtype, descending))
          out.push_back(number ? whole(DType::int64, static_cast<int64_t>(i)) : line[i]);
        return out;
      });
    };
    values = pick(false), indices = pick(true);
  }
};

std::vector<Array> sort(const Args& a) {
  const Sorted s(a.array(0), a.has(1) ? a.integer(1) : -1, a.flag(2));
  return {s.values, s.indices};
}
std::vector<Array> argsort(const Args& a) {
  return {Sorted(a.array(0), a.has(1) ? a.integer(1) : -1, a.flag(2)).indices};
}

std::vector<Array> topk(const Args& a) {
  const Array& x = a.array(0);
  const int64_t k = a.integer(1), dim = dim_of(a.has(2) ? a.integer(2) : -1, x.ndim());
  const bool largest = !a.has(3) || a.flag(3);
  Sorted s(x, dim, largest);
  if (x.ndim() == 0) {
    if (k != 1) throw Redraw{"k of one element"};
    return {s.values, s.indices};
  }
  if (k < 0 || k > x.shape[static_cast<size_t>(dim)]) throw Redraw{"k out of range"};
  // Which of equal ones it is, is open.
  const std::vector<Num> all = elements(s.values),
                         next = elements(
                             range(s.values, dim, 1, std::max<int64_t>(x.shape[static_cast<size_t>(dim)] - 1, 0)));
  const std::vector<Num> first =
      elements(range(s.values, dim, 0, std::max<int64_t>(x.shape[static_cast<size_t>(dim)] - 1, 0)));
  for (size_t i = 0; i < next.size(); ++i) {
    if (is_floating(x.dtype) ? first[i].v == next[i].v || is_nan(first[i], x.dtype) || is_nan(next[i], x.dtype)
                             : first[i].i == next[i].i)
      throw Redraw{"equal ones"};
  }
  const auto cut = [&](const Array& v) {
    const Array part = range(v, dim, 0, k);
    return fresh(v.dtype, part.shape, elements(part));
  };
  return {cut(s.values), cut(s.indices)};
}

// ---- arguments ----

bool draw_all(Draw& d) {
  return d.array(0, [](const Array& a) { return count(a.shape) > 0; });
}
bool draw_dim(Draw& d) {
  if (!draw_all(d)) return false;
  d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  if (d.dice.chance(40)) d.set(2, Arg::of(Scalar(d.dice.chance(70))));
  return true;
}
bool draw_dims(Draw& d) {
  if (!draw_dim(d)) return false;
  if (d.dice.chance(30)) {
    Sizes dims;
    for (int64_t k = 0; k < d.at(0).ndim(); ++k) {
      if (d.dice.chance(60)) dims.push_back(k);
    }
    d.set(1, Arg::of(dims));
  } else if (d.dice.chance(20)) {
    d.set(1, Arg());
  }
  return true;
}
bool not_bool(const Array& a) { return a.dtype != DType::boolean && count(a.shape) > 0; }
bool draw_arg(Draw& d) {
  if (!d.array(0, not_bool)) return false;
  if (d.dice.chance(70)) {
    d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
    if (d.dice.chance(40)) d.set(2, Arg::of(Scalar(d.dice.chance(70))));
  }
  return true;
}
bool draw_sort(Draw& d) {
  if (!d.array(0)) return false;
  if (d.dice.chance(60)) {
    d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
    if (d.dice.chance(50)) d.set(2, Arg::of(Scalar(d.dice.chance(70))));
  }
  // Without it equal ones may change places.
  d.set(3, Arg::of(Scalar(true)));
  return true;
}
bool draw_topk(Draw& d) {
  if (!d.array(0, not_bool)) return false;
  const int64_t n = d.at(0).ndim(), dim = d.dim(n);
  d.set(1,
        Arg::of(Scalar(n == 0 ? int64_t{1} : d.dice.between(0, d.at(0).shape[static_cast<size_t>(dim_of(dim, n))]))));
  d.set(2, Arg::of(Scalar(dim)));
  if (d.dice.chance(50)) d.set(3, Arg::of(Scalar(d.dice.chance(50))));
  return true;
}

constexpr Row kRows[] = {
    {.name = "amax", .params = "self, dim, keepdim", .draw = draw_dims, .eval = amax<false>},
    {.name = "amin", .params = "self, dim, keepdim", .draw = draw_dims, .eval = amax<true>},
    {.name = "max", .params = "self", .draw = draw_all, .eval = amax<false>},
    {.name = "min", .params = "self", .draw = draw_all, .eval = amax<true>},
    {.name = "max.dim", .params = "self, dim, keepdim", .draw = draw_dim, .eval = max_dim<false>},
    {.name = "min.dim", .params = "self, dim, keepdim", .draw = draw_dim, .eval = max_dim<true>},
    {.name = "argmax", .params = "self, dim, keepdim", .draw = draw_arg, .eval = argmax<false>, .no_grad = true},
    {.name = "argmin", .params = "self, dim, keepdim", .draw = draw_arg, .eval = argmax<true>, .no_grad = true},
    {.name = "sort", .params = "self, dim, descending, *, stable", .draw = draw_sort, .eval = sort},
    {.name = "argsort",
     .params = "self, dim, descending, *, stable",
     .draw = draw_sort,
     .eval = argsort,
     .no_grad = true,
     .weight = 1},
    {.name = "topk", .params = "self, k, dim, largest, sorted", .draw = draw_topk, .eval = topk},
};

}  // namespace

constinit const std::span<const Row> kExtremes = kRows;

}  // namespace gradwire::property
