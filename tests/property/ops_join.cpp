#include <algorithm>

#include "tests/property/draw.h"

// Several tensors into one, and one into several.

namespace gradwire::property {
namespace {

// All tensors have dims here, and so one rank in promotion.
DType common_type(const std::vector<Array>& all) {
  DType t = all.at(0).dtype;
  for (const Array& a : all) t = promote(t, a.dtype);
  return t;
}

std::vector<Array> cat(const Args& a) {
  const std::vector<Array> all = a.arrays(0);
  const DType t = common_type(all);
  Sizes shape = all[0].shape;
  if (shape.empty()) throw Redraw{"no dims"};
  const auto dim = static_cast<size_t>(dim_of(a.has(1) ? a.integer(1) : 0, all[0].ndim()));
  shape[dim] = 0;
  for (const Array& x : all) {
    Sizes other = x.shape;
    if (other.size() != shape.size()) throw Redraw{"other dims"};
    other[dim] = 0;
    if (other != shape && count(shape) >= 0 && !std::equal(other.begin(), other.end(), shape.begin()))
      throw Redraw{"other sizes"};
  }
  for (const Array& x : all) shape[dim] += x.shape[dim];
  Array out = fresh(t, shape, Num());
  int64_t start = 0;
  for (const Array& x : all) {
    Array part = range(out, static_cast<int64_t>(dim), start, x.shape[dim]);
    write(part, elements(x, t));
    start += x.shape[dim];
  }
  *out.version = 0;
  return {out};
}

std::vector<Array> stack(const Args& a) {
  const std::vector<Array> all = a.arrays(0);
  const DType t = common_type(all);
  const int64_t dim = dim_of(a.has(1) ? a.integer(1) : 0, all[0].ndim() + 1);
  Sizes shape = all[0].shape;
  shape.insert(shape.begin() + dim, static_cast<int64_t>(all.size()));
  Array out = fresh(t, shape, Num());
  for (size_t k = 0; k < all.size(); ++k) {
    if (all[k].shape != all[0].shape) throw Redraw{"other sizes"};
    Array part = without(out, dim, static_cast<int64_t>(k));
    write(part, elements(all[k], t));
  }
  *out.version = 0;
  return {out};
}

std::vector<Array> parts(const Array& x, int64_t dim, const Sizes& lengths) {
  std::vector<Array> out;
  int64_t start = 0;
  for (const int64_t n : lengths) {
    out.push_back(range(x, dim, start, n));
    out.back().multi_view = true;
    start += n;
  }
  if (start != x.shape[static_cast<size_t>(dim)]) throw Redraw{"lengths that do not add up"};
  return out;
}

std::vector<Array> equal_parts(const Array& x, int64_t dim, int64_t each) {
  const int64_t n = x.shape.at(static_cast<size_t>(dim));
  if (n == 0 || each <= 0) throw Redraw{"nothing to split"};
  Sizes lengths;
  for (int64_t left = n; left > 0; left -= each) lengths.push_back(std::min(left, each));
  return parts(x, dim, lengths);
}

std::vector<Array> split(const Args& a) {
  const Array& x = a.array(0);
  return equal_parts(x, dim_of(a.has(2) ? a.integer(2) : 0, x.ndim()), a.integer(1));
}
std::vector<Array> split_sizes(const Args& a) {
  const Array& x = a.array(0);
  return parts(x, dim_of(a.has(2) ? a.integer(2) : 0, x.ndim()), a.ints(1));
}
std::vector<Array> chunk(const Args& a) {
  const Array& x = a.array(0);
  const int64_t dim = dim_of(a.has(2) ? a.integer(2) : 0, x.ndim()), n = x.shape.at(static_cast<size_t>(dim));
  return equal_parts(x, dim, (n + a.integer(1) - 1) / a.integer(1));
}
std::vector<Array> unbind(const Args& a) {
  const Array& x = a.array(0);
  const int64_t dim = dim_of(a.has(1) ? a.integer(1) : 0, x.ndim());
  std::vector<Array> out;
  for (int64_t k = 0; k < x.shape.at(static_cast<size_t>(dim)); ++k) {
    out.push_back(without(x, dim, k));
    out.back().multi_view = true;
  }
  return out;
}

// ---- arguments ----

bool some_dims(const Array& a) { return !a.shape.empty(); }

bool draw_joined(Draw& d, bool same) {
  const int first = d.pick(same ? Draw::Fits() : Draw::Fits(some_dims));
  if (first < 0) return false;
  const Array x = d.env[static_cast<size_t>(first)];
  const int64_t dim = d.dim(same ? x.ndim() + 1 : x.ndim());
  Sizes all{first};
  for (int64_t k = d.dice.between(0, 2); k > 0; --k) {
    Sizes shape = x.shape;
    if (!same) shape[static_cast<size_t>(dim_of(dim, x.ndim()))] = -1;  // any
    const int other = d.pick([&](const Array& a) {
      if (a.shape.size() != shape.size()) return false;
      for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] >= 0 && a.shape[i] != shape[i]) return false;
      }
      return true;
    });
    if (other >= 0) all.push_back(other);
  }
  if (d.dice.chance(30)) std::reverse(all.begin(), all.end());
  d.set(0, Arg::of_vars(all));
  if (d.dice.chance(80)) d.set(1, Arg::of(Scalar(dim)));
  return true;
}
bool draw_cat(Draw& d) { return draw_joined(d, false); }
bool draw_stack(Draw& d) { return draw_joined(d, true); }

// Into a few parts, so that programs do not fill with them.
bool small_ends(const Array& a) {
  return !a.shape.empty() && a.shape.front() > 0 && a.shape.front() <= 5 && a.shape.back() <= 5;
}
bool draw_split(Draw& d) {
  if (!d.array(0, small_ends)) return false;
  d.set(1, Arg::of(Scalar(d.dice.between(1, 3))));
  if (d.dice.chance(50)) d.set(2, Arg::of(Scalar(d.dice.chance(50) ? 0 : -1)));
  return true;
}
bool draw_split_sizes(Draw& d) {
  if (!draw_split(d)) return false;
  int64_t left = d.args[2].kind == Arg::none || d.args[2].number.i == 0 ? d.at(0).shape.front() : d.at(0).shape.back();
  Sizes sizes;
  while (left > 0) sizes.push_back(d.dice.between(0, left)), left -= sizes.back();
  if (sizes.size() > 5) return false;
  d.set(1, Arg::of(sizes));
  return true;
}
bool draw_unbind(Draw& d) {
  if (!d.array(0, small_ends)) return false;
  if (d.dice.chance(70)) d.set(1, Arg::of(Scalar(d.dice.chance(50) ? 0 : -1)));
  return true;
}

constexpr Row kRows[] = {
    {.name = "cat", .params = "tensors, dim", .draw = draw_cat, .eval = cat, .saves = kNothing, .weight = 3},
    {.name = "stack", .params = "tensors, dim", .draw = draw_stack, .eval = stack, .saves = kNothing},
    {.name = "split",
     .params = "self, split_size_or_sections, dim",
     .draw = draw_split,
     .eval = split,
     .saves = kNothing,
     .weight = 1},
    {.name = "split.sizes",
     .params = "self, split_size_or_sections, dim",
     .draw = draw_split_sizes,
     .eval = split_sizes,
     .saves = kNothing,
     .weight = 1},
    {.name = "chunk", .params = "self, chunks, dim", .draw = draw_split, .eval = chunk, .saves = kNothing, .weight = 1},
    {.name = "unbind", .params = "self, dim", .draw = draw_unbind, .eval = unbind, .saves = kNothing, .weight = 1},
};

}  // namespace

constinit const std::span<const Row> kJoin = kRows;

}  // namespace gradwire::property
