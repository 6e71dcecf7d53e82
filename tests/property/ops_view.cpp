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
};

}  // namespace

constinit const std::span<const Row> kViews = kRows;

}  // namespace gradwire::property
