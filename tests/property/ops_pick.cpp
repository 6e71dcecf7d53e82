#include <algorithm>
#include <set>

#include "tests/property/draw.h"

// Elements by number along a dim, or by a mask.

namespace gradwire::property {
namespace {

// For each element of `index` its coordinates.
Sizes coordinates(const Sizes& shape, size_t i) {
  Sizes at(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = static_cast<int64_t>(i) % shape[d];
    i /= static_cast<size_t>(shape[d]);
  }
  return at;
}

int64_t place(const Array& a, const Sizes& at) {
  int64_t p = a.offset;
  for (size_t d = 0; d < at.size(); ++d) p += at[d] * a.strides[d];
  return p;
}

// A dense copy whose cells are the row-major elements.
Array copied(const Array& a) { return fresh(a.dtype, a.shape, elements(a)); }

std::vector<int64_t> numbers_of(const Array& index, int64_t size) {
  if (index.dtype != DType::int64) throw Redraw{"numbers of another dtype"};
  std::vector<int64_t> out;
  for (const Num& n : elements(index)) {
    if (n.i < 0 || n.i >= size) throw Redraw{"a number out of range"};
    out.push_back(n.i);
  }
  return out;
}

void check_sizes(const Array& x, const Array& index, int64_t dim) {
  if (x.shape.size() != index.shape.size() || x.shape.empty()) throw Redraw{"other dims"};
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (static_cast<int64_t>(d) != dim && index.shape[d] > x.shape[d]) throw Redraw{"more than there is"};
  }
}

std::vector<Array> gather(const Args& a) {
  const Array x = copied(a.array(0));
  const Array& index = a.array(2);
  const int64_t dim = dim_of(a.integer(1), x.ndim());
  check_sizes(x, index, dim);
  std::vector<Num> out;
  const std::vector<int64_t> numbers = numbers_of(index, x.shape[static_cast<size_t>(dim)]);
  for (size_t i = 0; i < numbers.size(); ++i) {
    Sizes at = coordinates(index.shape, i);
    at[static_cast<size_t>(dim)] = numbers[i];
    out.push_back(x.store->cells[static_cast<size_t>(place(x, at))]);
  }
  return {fresh(x.dtype, index.shape, std::move(out))};
}

Num added(DType t, const Num& a, const Num& b) {
  if (t == DType::boolean) return whole(t, a.i | b.i);
  if (!is_floating(t)) return whole(t, static_cast<int64_t>(static_cast<uint64_t>(a.i) + static_cast<uint64_t>(b.i)));
  return real(t, a.v + b.v, a.e + b.e, a.d + b.d);
}

enum class Put { replace, add, value };

template <Put How> std::vector<Array> scatter(const Args& a) {
  const Array x = copied(a.array(0));
  const Array& index = a.array(2);
  const int64_t dim = dim_of(a.integer(1), x.ndim());
  check_sizes(x, index, dim);
  Array src;
  if (How != Put::value) {
    src = copied(a.array(3));
    if (src.dtype != x.dtype || src.shape.size() != x.shape.size()) throw Redraw{"another source"};
    for (size_t d = 0; d < x.shape.size(); ++d) {
      if (index.shape[d] > src.shape[d]) throw Redraw{"more than the source has"};
    }
  }
  const std::vector<int64_t> numbers = numbers_of(index, x.shape[static_cast<size_t>(dim)]);
  std::set<int64_t> seen;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Sizes from = coordinates(index.shape, i);
    Sizes at = from;
    at[static_cast<size_t>(dim)] = numbers[i];
    const int64_t p = place(x, at);
    Num& cell = x.store->cells[static_cast<size_t>(p)];
    if (How != Put::add && !seen.insert(p).second) throw Redraw{"a place twice"};
    const Num v =
        How == Put::value ? number(a.scalar(3), x.dtype) : src.store->cells[static_cast<size_t>(place(src, from))];
    cell = How == Put::add ? added(x.dtype, cell, v) : v;
  }
  return {x};
}

std::vector<Array> index_select(const Args& a) {
  const Array& x = a.array(0);
  const Array& index = a.array(2);
  const int64_t dim = dim_of(a.integer(1), x.ndim());
  if (index.shape.size() != 1 || x.shape.empty()) throw Redraw{"other dims"};
  const std::vector<int64_t> numbers = numbers_of(index, x.shape[static_cast<size_t>(dim)]);
  Sizes shape = x.shape;
  shape[static_cast<size_t>(dim)] = static_cast<int64_t>(numbers.size());
  Array out = fresh(x.dtype, shape, Num());
  for (size_t k = 0; k < numbers.size(); ++k) {
    Array part = without(out, dim, static_cast<int64_t>(k));
    write(part, elements(without(x, dim, numbers[k])));
  }
  *out.version = 0;
  return {out};
}

std::vector<Array> index_add(const Args& a) {
  Array x = copied(a.array(0));
  const Array &index = a.array(2), &source = a.array(3);
  const int64_t dim = dim_of(a.integer(1), x.ndim());
  if (index.shape.size() != 1 || x.shape.empty() || source.dtype != x.dtype) throw Redraw{"other dims"};
  Sizes shape = x.shape;
  shape[static_cast<size_t>(dim)] = index.shape[0];
  if (source.shape != shape) throw Redraw{"another source"};
  const std::vector<int64_t> numbers = numbers_of(index, x.shape[static_cast<size_t>(dim)]);
  for (size_t k = 0; k < numbers.size(); ++k) {
    Array part = without(x, dim, numbers[k]);
    const std::vector<Num> more = elements(without(source, dim, static_cast<int64_t>(k)));
    std::vector<Num> there = elements(part);
    for (size_t i = 0; i < there.size(); ++i) there[i] = added(x.dtype, there[i], more[i]);
    write(part, there);
  }
  *x.version = 0;
  return {x};
}

std::vector<Array> masked_select(const Args& a) {
  const Array &x = a.array(0), &mask = a.array(1);
  if (mask.dtype != DType::boolean) throw Redraw{"a mask of numbers"};
  const Sizes shape = broadcast(x.shape, mask.shape);
  const std::vector<Num> all = elements(widened(x, shape)), bits = elements(widened(mask, shape));
  std::vector<Num> out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (bits[i].i) out.push_back(all[i]);
  }
  const auto n = static_cast<int64_t>(out.size());
  return {fresh(x.dtype, {n}, std::move(out))};
}

// ---- arguments ----

bool dims(const Array& a) { return !a.shape.empty() && count(a.shape) > 0; }

// self, a dim, and numbers along it of at most self's sizes elsewhere.
bool draw_along(Draw& d) {
  if (!d.array(0, dims)) return false;
  const Sizes shape = d.at(0).shape;
  const int64_t n = d.at(0).ndim(), dim = d.dim(n);
  d.set(1, Arg::of(Scalar(dim)));
  Sizes taken = shape;
  for (int64_t& s : taken) s = d.dice.chance(60) ? s : d.dice.between(1, s);
  const auto at = static_cast<size_t>(dim_of(dim, n));
  if (d.dice.chance(50)) taken[at] = d.dice.between(1, 3);
  d.set(2, Arg::of_var(d.indices(taken, 0, shape[at])));
  return true;
}
bool draw_scatter(Draw& d) {
  if (!draw_along(d)) return false;
  const Array x = d.at(0);
  const Sizes shape = d.at(2).shape;
  const int v = d.pick([&](const Array& a) {
    if (a.dtype != x.dtype || a.shape.size() != shape.size()) return false;
    return std::equal(shape.begin(), shape.end(), a.shape.begin(), [](int64_t p, int64_t q) { return p <= q; });
  });
  d.set(3, Arg::of_var(v >= 0 ? v : d.input(x.dtype, shape)));
  return true;
}
bool draw_scatter_value(Draw& d) {
  if (!draw_along(d)) return false;
  const DType t = d.at(0).dtype;
  d.set(3, Arg::of(is_floating(t) ? Scalar(1.5) : Scalar(d.dice.below(5))));
  return true;
}
bool draw_select(Draw& d) {
  if (!d.array(0, dims)) return false;
  const int64_t n = d.at(0).ndim(), dim = d.dim(n), size = d.at(0).shape[static_cast<size_t>(dim_of(dim, n))];
  d.set(1, Arg::of(Scalar(dim)));
  d.set(2, Arg::of_var(d.indices({d.dice.between(0, 4)}, 0, size)));
  return true;
}
bool draw_index_add(Draw& d) {
  if (!draw_select(d)) return false;
  const Array x = d.at(0);
  Sizes shape = x.shape;
  shape[static_cast<size_t>(dim_of(d.args[1].number.i, x.ndim()))] = d.at(2).shape[0];
  const int v = d.pick([&](const Array& a) { return a.dtype == x.dtype && a.shape == shape; });
  d.set(3, Arg::of_var(v >= 0 ? v : d.input(x.dtype, shape)));
  return true;
}
bool draw_masked(Draw& d) {
  if (!d.array(0)) return false;
  const int mask = d.partner(d.at(0).shape, DType::boolean);
  if (mask < 0) return false;
  d.set(1, Arg::of_var(mask));
  return true;
}

constexpr Row kRows[] = {
    {.name = "gather", .params = "self, dim, index", .draw = draw_along, .eval = gather, .saves = kReads},
    {.name = "scatter",
     .params = "self, dim, index, src",
     .draw = draw_scatter,
     .eval = scatter<Put::replace>,
     .inplace = true,
     .saves = kReads},
    {.name = "scatter.value",
     .params = "self, dim, index, value",
     .draw = draw_scatter_value,
     .eval = scatter<Put::value>,
     .inplace = true,
     .saves = kReads,
     .weight = 1},
    {.name = "scatter_add",
     .params = "self, dim, index, src",
     .draw = draw_scatter,
     .eval = scatter<Put::add>,
     .inplace = true,
     .saves = kReads},
    {.name = "index_select", .params = "self, dim, index", .draw = draw_select, .eval = index_select, .saves = kReads},
    {.name = "index_add",
     .params = "self, dim, index, source",
     .draw = draw_index_add,
     .eval = index_add,
     .inplace = true,
     .saves = kReads,
     .weight = 1},
    {.name = "masked_select", .params = "self, mask", .draw = draw_masked, .eval = masked_select, .saves = kReads},
};

}  // namespace

constinit const std::span<const Row> kPicking = kRows;

}  // namespace gradwire::property
