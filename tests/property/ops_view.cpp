#include <algorithm>
#include <numeric>

#include "tests/property/draw.h"

// Views: other sizes, strides and offsets of the same storage.

namespace gradwire::property {
namespace {

// The sizes with a -1 filled in.
Sizes inferred(Sizes shape, int64_t n) {
  int64_t rest = 1, open = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == -1)
      open = static_cast<int64_t>(d);
    else
      rest *= shape[d];
  }
  if (open >= 0) {
    if (rest == 0 || n % rest != 0) throw Redraw{"no size fits"};
    shape[static_cast<size_t>(open)] = n / rest;
  }
  return shape;
}

std::vector<Array> view(const Args& a) {
  Array out;
  if (!viewed(a.array(0), inferred(a.ints(1), count(a.array(0).shape)), out)) throw Redraw{"no view of that shape"};
  return {out};
}

std::vector<Array> reshape(const Args& a) {
  return {reshaped(a.array(0), inferred(a.ints(1), count(a.array(0).shape)))};
}

std::vector<Array> expand(const Args& a) {
  const Array& x = a.array(0);
  Sizes shape = a.ints(1);
  if (shape.size() < x.shape.size()) throw Redraw{"fewer dims"};
  for (size_t k = 1; k <= x.shape.size(); ++k) {
    int64_t& size = shape[shape.size() - k];
    if (size == -1) size = x.shape[x.shape.size() - k];
  }
  return {widened(x, shape)};
}

std::vector<Array> permute(const Args& a) {
  const Array& x = a.array(0);
  Sizes dims = a.ints(1);
  for (int64_t& d : dims) d = dim_of(d, x.ndim());
  return {ordered(x, dims)};
}

Sizes identity(int64_t n) {
  Sizes dims(static_cast<size_t>(n));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

std::vector<Array> transpose(const Args& a) {
  const Array& x = a.array(0);
  const int64_t p = dim_of(a.integer(1), x.ndim()), q = dim_of(a.integer(2), x.ndim());
  if (x.ndim() == 0) return {x};
  Sizes dims = identity(x.ndim());
  std::swap(dims[static_cast<size_t>(p)], dims[static_cast<size_t>(q)]);
  return {ordered(x, dims)};
}

std::vector<Array> as_strided(const Args& a) {
  const Array& x = a.array(0);
  const Array v = alias(x, a.ints(1), a.ints(2), a.has(3) ? a.integer(3) : x.offset);
  for (const int64_t p : places(v)) {
    if (p < 0 || p >= static_cast<int64_t>(x.store->cells.size())) throw Redraw{"outside of the storage"};
  }
  return {v};
}

std::vector<Array> squeeze(const Args& a) {
  const Array& x = a.array(0);
  std::vector<bool> asked(x.shape.size(), !a.has(1));
  for (const int64_t d : a.ints(1)) {
    const int64_t at = dim_of(d, x.ndim());
    if (x.ndim() > 0) asked[static_cast<size_t>(at)] = true;
  }
  Array v = alias(x, {}, {}, x.offset);
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (asked[d] && x.shape[d] == 1) continue;
    v.shape.push_back(x.shape[d]), v.strides.push_back(x.strides[d]);
  }
  return {v};
}

std::vector<Array> unsqueeze(const Args& a) {
  Array v = a.array(0);
  const int64_t dim = dim_of(a.integer(1), v.ndim() + 1);
  v.shape.insert(v.shape.begin() + dim, 1), v.strides.insert(v.strides.begin() + dim, 1);
  return {v};
}

std::vector<Array> flatten(const Args& a) {
  const Array& x = a.array(0);
  if (x.shape.empty()) return {reshaped(x, {1})};
  const int64_t first = dim_of(a.has(1) ? a.integer(1) : 0, x.ndim()),
                last = dim_of(a.has(2) ? a.integer(2) : -1, x.ndim());
  if (first > last) throw Redraw{"no dims to flatten"};
  if (first == last) return {x};
  Sizes shape(x.shape.begin(), x.shape.begin() + first);
  shape.push_back(count(Sizes(x.shape.begin() + first, x.shape.begin() + last + 1)));
  shape.insert(shape.end(), x.shape.begin() + last + 1, x.shape.end());
  return {reshaped(x, shape)};
}

std::vector<Array> narrow(const Args& a) {
  const Array& x = a.array(0);
  const int64_t dim = dim_of(a.integer(1), x.ndim()), size = x.shape.at(static_cast<size_t>(dim));
  const int64_t start = a.integer(2) < 0 ? a.integer(2) + size : a.integer(2);
  if (start < 0 || a.integer(3) < 0 || start + a.integer(3) > size) throw Redraw{"outside of the dim"};
  return {range(x, dim, start, a.integer(3))};
}

std::vector<Array> select(const Args& a) {
  const Array& x = a.array(0);
  const int64_t dim = dim_of(a.integer(1), x.ndim()), size = x.shape.at(static_cast<size_t>(dim));
  const int64_t at = a.integer(2) < 0 ? a.integer(2) + size : a.integer(2);
  if (at < 0 || at >= size) throw Redraw{"outside of the dim"};
  return {without(x, dim, at)};
}

std::vector<Array> movedim(const Args& a) {
  const Array& x = a.array(0);
  const Sizes from = a.ints(1), to = a.ints(2);
  if (from.size() != to.size()) throw Redraw{"dims without a place"};
  if (x.ndim() == 0) return {x};
  Sizes dims(x.shape.size(), -1);
  std::vector<bool> moved(x.shape.size(), false);
  for (size_t k = 0; k < from.size(); ++k) {
    const int64_t p = dim_of(from[k], x.ndim()), q = dim_of(to[k], x.ndim());
    if (moved[static_cast<size_t>(p)] || dims[static_cast<size_t>(q)] >= 0) throw Redraw{"a dim twice"};
    moved[static_cast<size_t>(p)] = true, dims[static_cast<size_t>(q)] = p;
  }
  size_t next = 0;
  for (int64_t& d : dims) {
    if (d >= 0) continue;
    while (moved[next]) ++next;
    d = static_cast<int64_t>(next++);
  }
  return {ordered(x, dims)};
}

std::vector<Array> diagonal(const Args& a) {
  const Array& x = a.array(0);
  const int64_t offset = a.has(1) ? a.integer(1) : 0;
  const int64_t p = dim_of(a.has(2) ? a.integer(2) : 0, x.ndim()), q = dim_of(a.has(3) ? a.integer(3) : 1, x.ndim());
  if (p == q || x.ndim() < 2) throw Redraw{"one dim"};
  const auto at = [](const Sizes& s, int64_t d) { return s[static_cast<size_t>(d)]; };
  const int64_t down = offset < 0 ? -offset : 0, right = offset > 0 ? offset : 0;
  const int64_t length = std::max<int64_t>(0, std::min(at(x.shape, p) - down, at(x.shape, q) - right));
  Array v = alias(x, {}, {}, x.offset + (length > 0 ? down * at(x.strides, p) + right * at(x.strides, q) : 0));
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (d != p && d != q) v.shape.push_back(at(x.shape, d)), v.strides.push_back(at(x.strides, d));
  }
  v.shape.push_back(length), v.strides.push_back(at(x.strides, p) + at(x.strides, q));
  return {v};
}

std::vector<Array> flip(const Args& a) {
  const Array& x = a.array(0);
  Array v = x;
  std::vector<bool> seen(x.shape.size(), false);
  for (const int64_t dim : a.ints(1)) {
    const auto d = static_cast<size_t>(dim_of(dim, x.ndim()));
    if (x.ndim() == 0) continue;
    if (seen[d]) throw Redraw{"a dim twice"};
    seen[d] = true;
    v.offset += (std::max<int64_t>(v.shape[d], 1) - 1) * v.strides[d];
    v.strides[d] = -v.strides[d];
  }
  return {fresh(x.dtype, x.shape, elements(v))};
}

std::vector<Array> t(const Args& a) {
  const Array& x = a.array(0);
  if (x.ndim() > 2) throw Redraw{"more than two dims"};
  Sizes dims = identity(x.ndim());
  std::reverse(dims.begin(), dims.end());
  return {ordered(x, dims)};
}

// ---- arguments ----

// A shape of the same number of elements.
Sizes reshaping(Draw& d, const Array& x) {
  int64_t n = count(x.shape);
  if (n == 0) {
    Sizes shape = x.shape;
    std::reverse(shape.begin(), shape.end());
    return shape;
  }
  Sizes shape;
  while (n > 1 && shape.size() < 4) {
    Sizes factors;
    for (int64_t f = 1; f <= n; ++f) {
      if (n % f == 0) factors.push_back(f);
    }
    shape.push_back(d.dice.one_of(factors));
    n /= shape.back();
  }
  if (n > 1 || d.dice.chance(10)) shape.push_back(n);
  if (!shape.empty() && d.dice.chance(40)) d.dice.chance(50) ? shape.front() = -1 : shape.back() = -1;
  return shape;
}

bool draw_reshape(Draw& d) {
  if (!d.array(0)) return false;
  d.set(1, Arg::of(reshaping(d, d.at(0))));
  return true;
}

bool draw_expand(Draw& d) {
  if (!d.array(0, [](const Array& a) { return count(a.shape) <= 60; })) return false;
  Sizes shape = d.at(0).shape;
  for (int64_t& s : shape) {
    if (s == 1) s = d.dice.between(1, 3);
    if (d.dice.chance(30)) s = s == 1 ? 1 : -1;
  }
  // -1 keeps the size that is there, which a grown 1 has not.
  for (size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == -1 && d.at(0).shape[k] == 1) shape[k] = 2;
  }
  if (shape.size() < 4 && d.dice.chance(50)) shape.insert(shape.begin(), d.dice.between(1, 3));
  d.set(1, Arg::of(shape));
  return true;
}

bool draw_permute(Draw& d) {
  if (!d.array(0)) return false;
  const int64_t n = d.at(0).ndim();
  Sizes dims = identity(n);
  for (size_t k = dims.size(); k > 1; --k)
    std::swap(dims[k - 1], dims[static_cast<size_t>(d.dice.below(static_cast<int64_t>(k)))]);
  for (int64_t& x : dims) x -= d.dice.chance(20) ? n : 0;
  d.set(1, Arg::of(dims));
  return true;
}

bool draw_transpose(Draw& d) {
  if (!d.array(0)) return false;
  d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  d.set(2, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  return true;
}

bool draw_strided(Draw& d) {
  const bool gradients = d.program.gradients;
  if (!d.array(0, [&](const Array& a) {
        return !gradients || (is_dense(a) && count(a.shape) == static_cast<int64_t>(a.store->cells.size()));
      }))
    return false;
  const auto room = static_cast<int64_t>(d.at(0).store->cells.size());
  if (room == 0) return false;
  int64_t left = room - 1;
  Sizes size, stride;
  const int64_t offset = d.dice.below(std::min<int64_t>(left + 1, 4));
  left -= offset;
  for (int64_t n = d.dice.below(4); n > 0; --n) {
    stride.push_back(d.dice.between(0, 4));
    size.push_back(d.dice.between(1, 3));
    if (stride.back() * (size.back() - 1) > left) size.back() = 1;
    left -= stride.back() * (size.back() - 1);
  }
  d.set(1, Arg::of(size)), d.set(2, Arg::of(stride));
  if (offset != d.at(0).offset || d.dice.chance(70)) d.set(3, Arg::of(Scalar(offset)));
  return true;
}

bool some_dims(const Array& a) { return !a.shape.empty(); }

bool draw_squeeze(Draw& d) {
  if (!d.array(0, d.dice.chance(70) ? Draw::Fits([](const Array& a) {
                 return std::find(a.shape.begin(), a.shape.end(), 1) != a.shape.end();
               })
                                    : nullptr))
    return false;
  const int64_t n = d.at(0).ndim();
  if (d.dice.chance(50))
    d.set(1, Arg::of(Scalar(d.dim(n))));
  else if (n > 1 && d.dice.chance(30))
    d.set(1, Arg::of(Sizes{0, -1}));
  return true;
}
bool draw_unsqueeze(Draw& d) {
  if (!d.array(0)) return false;
  d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim() + 1))));
  return true;
}
bool draw_flatten(Draw& d) {
  if (!d.array(0)) return false;
  if (d.dice.chance(60)) d.set(1, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  if (d.dice.chance(40)) d.set(2, Arg::of(Scalar(d.dim(d.at(0).ndim()))));
  return true;
}
bool draw_narrow(Draw& d) {
  if (!d.array(0, some_dims)) return false;
  const int64_t n = d.at(0).ndim(), dim = d.dim(n), size = d.at(0).shape[static_cast<size_t>(dim_of(dim, n))];
  const int64_t start = d.dice.between(0, size);
  d.set(1, Arg::of(Scalar(dim)));
  d.set(2, Arg::of(Scalar(start < size && d.dice.chance(30) ? start - size : start)));
  d.set(3, Arg::of(Scalar(d.dice.between(0, size - start))));
  return true;
}
bool draw_select(Draw& d) {
  if (!d.array(0, some_dims)) return false;
  const int64_t n = d.at(0).ndim(), dim = d.dim(n), size = d.at(0).shape[static_cast<size_t>(dim_of(dim, n))];
  if (size == 0) return false;
  d.set(1, Arg::of(Scalar(dim)));
  d.set(2, Arg::of(Scalar(d.dice.between(-size, size - 1))));
  return true;
}
bool draw_movedim(Draw& d) {
  if (!d.array(0, some_dims)) return false;
  const int64_t n = d.at(0).ndim();
  if (n > 1 && d.dice.chance(40)) {
    const int64_t p = d.dice.below(n), q = (p + d.dice.between(1, n - 1)) % n;
    d.set(1, Arg::of(Sizes{p, q})), d.set(2, Arg::of(d.dice.chance(50) ? Sizes{q, p} : Sizes{0, -1}));
  } else {
    d.set(1, Arg::of(Scalar(d.dim(n)))), d.set(2, Arg::of(Scalar(d.dim(n))));
  }
  return true;
}
bool draw_diagonal(Draw& d) {
  if (!d.array(0, [](const Array& a) { return a.shape.size() >= 2; })) return false;
  const int64_t n = d.at(0).ndim();
  if (d.dice.chance(60)) d.set(1, Arg::of(Scalar(d.dice.between(-2, 2))));
  if (d.dice.chance(50)) d.set(2, Arg::of(Scalar(d.dim(n)))), d.set(3, Arg::of(Scalar(d.dim(n))));
  return true;
}
bool draw_flip(Draw& d) {
  if (!d.array(0)) return false;
  Sizes dims;
  for (int64_t k = 0; k < d.at(0).ndim(); ++k) {
    if (d.dice.chance(50)) dims.push_back(d.dice.chance(50) ? k : k - d.at(0).ndim());
  }
  d.set(1, Arg::of(dims));
  return true;
}
bool draw_t(Draw& d) {
  return d.array(0, [](const Array& a) { return a.shape.size() <= 2; });
}

constexpr Row kRows[] = {
    {.name = "view", .params = "self, size", .draw = draw_reshape, .eval = view, .saves = kNothing},
    {.name = "reshape", .params = "self, shape", .draw = draw_reshape, .eval = reshape, .saves = kNothing},
    {.name = "expand", .params = "self, size", .draw = draw_expand, .eval = expand, .saves = kNothing},
    {.name = "permute", .params = "self, dims", .draw = draw_permute, .eval = permute, .saves = kNothing},
    {.name = "transpose", .params = "self, dim0, dim1", .draw = draw_transpose, .eval = transpose, .saves = kNothing},
    {.name = "as_strided",
     .params = "self, size, stride, storage_offset",
     .draw = draw_strided,
     .eval = as_strided,
     .saves = kNothing},
    {.name = "squeeze", .params = "self, dim", .draw = draw_squeeze, .eval = squeeze, .saves = kNothing},
    {.name = "unsqueeze", .params = "self, dim", .draw = draw_unsqueeze, .eval = unsqueeze, .saves = kNothing},
    {.name = "flatten", .params = "self, start_dim, end_dim", .draw = draw_flatten, .eval = flatten, .saves = kNothing},
    {.name = "narrow", .params = "self, dim, start, length", .draw = draw_narrow, .eval = narrow, .saves = kNothing},
    {.name = "select", .params = "self, dim, index", .draw = draw_select, .eval = select, .saves = kNothing},
    {.name = "movedim",
     .params = "self, source, destination",
     .draw = draw_movedim,
     .eval = movedim,
     .saves = kNothing},
    {.name = "diagonal",
     .params = "self, offset, dim1, dim2",
     .draw = draw_diagonal,
     .eval = diagonal,
     .saves = kNothing},
    {.name = "flip", .params = "self, dims", .draw = draw_flip, .eval = flip, .saves = kNothing},
    {.name = "t", .params = "self", .draw = draw_t, .eval = t, .saves = kNothing},
};

}  // namespace

constinit const std::span<const Row> kViews = kRows;

}  // namespace gradwire::property
