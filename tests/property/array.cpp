#include "tests/property/array.h"

#include <algorithm>
#include <utility>

namespace gradwire::property {

int64_t count(const Sizes& shape) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  return n;
}

Sizes dense_strides(const Sizes& shape) {
  Sizes strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) strides[d] = step, step *= std::max<int64_t>(shape[d], 1);
  return strides;
}

bool is_dense(const Array& a) {
  int64_t step = 1;
  for (size_t d = a.shape.size(); d-- > 0;) {
    if (a.shape[d] == 0) return true;
    if (a.shape[d] == 1) continue;
    if (a.strides[d] != step) return count(a.shape) == 0;
    step *= a.shape[d];
  }
  return true;
}

int64_t dim_of(int64_t dim, int64_t ndim) {
  ndim = std::max<int64_t>(ndim, 1);
  if (dim < -ndim || dim >= ndim) throw Redraw{"no such dim"};
  return dim < 0 ? dim + ndim : dim;
}

std::vector<int64_t> places(const Array& a) {
  const int64_t n = count(a.shape);
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(n));
  Sizes at(a.shape.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t place = a.offset;
    for (size_t d = 0; d < at.size(); ++d) place += at[d] * a.strides[d];
    out.push_back(place);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < a.shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

std::vector<Num> elements(const Array& a) {
  std::vector<Num> out;
  for (const int64_t p : places(a)) {
    out.push_back(a.store->cells.at(static_cast<size_t>(p)));
    if (a.detached) out.back().d = 0;
  }
  return out;
}

std::vector<Num> elements(const Array& a, DType to) {
  std::vector<Num> out = elements(a);
  for (Num& n : out) n = convert(n, a.dtype, to);
  return out;
}

Array fresh(DType dtype, Sizes shape, std::vector<Num> values) {
  Array a;
  a.dtype = dtype, a.strides = dense_strides(shape), a.shape = std::move(shape);
  a.store = std::make_shared<Store>();
  a.store->cells = std::move(values);
  a.version = std::make_shared<uint32_t>(0);
  return a;
}

Array fresh(DType dtype, Sizes shape, Num value) {
  std::vector<Num> values(static_cast<size_t>(count(shape)), value);
  return fresh(dtype, std::move(shape), std::move(values));
}

Array alias(const Array& a, Sizes shape, Sizes strides, int64_t offset) {
  Array v = a;
  v.shape = std::move(shape), v.strides = std::move(strides), v.offset = offset;
  return v;
}

void write(Array& a, const std::vector<Num>& values) {
  const std::vector<int64_t> to = places(a);
  for (size_t i = 0; i < to.size(); ++i) {
    Num& cell = a.store->cells.at(static_cast<size_t>(to[i]));
    const double d = cell.d;
    cell = values.at(i);
    if (a.detached) cell.d = d;
  }
  ++*a.version;
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes out(std::max(a.size(), b.size()));
  for (size_t k = 1; k <= out.size(); ++k) {
    const int64_t x = k <= a.size() ? a[a.size() - k] : 1, y = k <= b.size() ? b[b.size() - k] : 1;
    if (x != y && x != 1 && y != 1) throw Redraw{"sizes do not broadcast"};
    out[out.size() - k] = x == 1 ? y : x;
  }
  return out;
}

bool broadcasts(const Sizes& from, const Sizes& to) {
  if (from.size() > to.size()) return false;
  for (size_t k = 1; k <= from.size(); ++k) {
    const int64_t x = from[from.size() - k];
    if (x != 1 && x != to[to.size() - k]) return false;
  }
  return true;
}

Array widened(const Array& a, const Sizes& shape) {
  if (!broadcasts(a.shape, shape)) throw Redraw{"sizes do not broadcast"};
  Sizes strides(shape.size(), 0);
  for (size_t k = 1; k <= a.shape.size(); ++k) {
    if (a.shape[a.shape.size() - k] == shape[shape.size() - k])
      strides[shape.size() - k] = a.strides[a.shape.size() - k];
  }
  return alias(a, shape, std::move(strides), a.offset);
}

Array ordered(const Array& a, const Sizes& dims) {
  Sizes shape, strides;
  for (const int64_t d : dims) {
    shape.push_back(a.shape[static_cast<size_t>(d)]);
    strides.push_back(a.strides[static_cast<size_t>(d)]);
  }
  return alias(a, std::move(shape), std::move(strides), a.offset);
}

Array range(const Array& a, int64_t dim, int64_t start, int64_t length, int64_t step) {
  Array v = a;
  const auto d = static_cast<size_t>(dim);
  if (length > 0) v.offset += start * a.strides[d];
  v.shape[d] = length;
  v.strides[d] *= step;
  return v;
}

Array without(const Array& a, int64_t dim, int64_t at) {
  Array v = a;
  v.offset += at * a.strides[static_cast<size_t>(dim)];
  v.shape.erase(v.shape.begin() + dim);
  v.strides.erase(v.strides.begin() + dim);
  return v;
}

bool viewed(const Array& a, const Sizes& shape, Array& out) {
  if (count(shape) != count(a.shape)) throw Redraw{"another number of elements"};
  const std::vector<int64_t> at = places(a);
  if (at.empty()) {
    out = alias(a, shape, shape == a.shape ? a.strides : dense_strides(shape), a.offset);
    return true;
  }
  // Each stride is the way from the first element to its next along that dim; then all places must agree.
  Sizes strides = dense_strides(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1) strides[d] = at[static_cast<size_t>(strides[d])] - at[0];
  }
  out = alias(a, shape, std::move(strides), a.offset);
  return places(out) == at;
}

Array dense(const Array& a) { return is_dense(a) ? a : fresh(a.dtype, a.shape, elements(a)); }

Array reshaped(const Array& a, const Sizes& shape) {
  Array out;
  if (viewed(a, shape, out)) return out;
  return fresh(a.dtype, shape, elements(a));
}

bool self_overlaps(const Array& a) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.shape[d] == 0) return false;
    if (a.shape[d] > 1) dims.emplace_back(a.strides[d], a.shape[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

bool overlap(const Array& a, const Array& b) {
  if (a.store != b.store) return false;
  const std::vector<int64_t> x = places(a), y = places(b);
  if (x.empty() || y.empty()) return false;
  const auto [x0, x1] = std::minmax_element(x.begin(), x.end());
  const auto [y0, y1] = std::minmax_element(y.begin(), y.end());
  return *x0 <= *y1 && *y0 <= *x1;
}

}  // namespace gradwire::property
