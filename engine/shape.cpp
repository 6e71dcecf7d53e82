#include "engine/shape.h"

#include <cstdlib>

namespace gradwire::engine {

int64_t checked_numel(std::span<const int64_t> shape) {
  if (shape.size() > static_cast<size_t>(kMaxDims)) {
    throw Error(Code::bad_argument, "a tensor of " + std::to_string(shape.size()) +
                                        " dimensions is over the limit of " + std::to_string(kMaxDims));
  }
  int64_t n = 1, without_zeros = 1;
  for (const int64_t size : shape) {
    if (size < 0) {
      throw Error(Code::bad_argument,
                  "Trying to create tensor with negative dimension " + std::to_string(size) + ": " + to_string(shape));
    }
    if (size > kMaxDim || __builtin_mul_overflow(without_zeros, size == 0 ? 1 : size, &without_zeros) ||
        without_zeros > kMaxNumel) {
      throw Error(Code::bad_argument, "a tensor of shape " + to_string(shape) +
                                          " is over the limits of 2^40 for a dimension and 2^48 elements");
    }
    n *= size;
  }
  return n;
}

int64_t bytes_of(int64_t numel, DType t) { return numel * size_of(t); }

namespace {
[[noreturn]] void overflowed(int64_t a, const char* by, int64_t b) {
  throw Error(Code::bad_argument, "the size " + std::to_string(a) + by + std::to_string(b) + " overflows");
}
}  // namespace

int64_t checked_sum(int64_t a, int64_t b) {
  int64_t c;
  if (__builtin_add_overflow(a, b, &c)) overflowed(a, " + ", b);
  return c;
}
int64_t checked_difference(int64_t a, int64_t b) {
  int64_t c;
  if (__builtin_sub_overflow(a, b, &c)) overflowed(a, " - ", b);
  return c;
}
int64_t checked_product(int64_t a, int64_t b) {
  int64_t c;
  if (__builtin_mul_overflow(a, b, &c)) overflowed(a, " * ", b);
  return c;
}

Shape contiguous_strides(std::span<const int64_t> shape) {
  Shape strides(shape.size(), 1);
  int64_t n = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = n;
    if (__builtin_mul_overflow(n, std::max<int64_t>(shape[d], 1), &n)) n = kMaxNumel;  // no tensor has this shape
  }
  return strides;
}

bool is_contiguous(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t n = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != n) {
      for (size_t k = 0; k < d; ++k) {
        if (shape[k] == 0) return true;
      }
      return false;
    }
    n *= shape[d];
  }
  return true;
}

int wrap_dim(int64_t dim, int ndim) {
  const int64_t n = std::max(ndim, 1);
  if (dim < -n || dim >= n) {
    throw Error(Code::index_out_of_range, "Dimension out of range (expected to be in range of [" + std::to_string(-n) +
                                              ", " + std::to_string(n - 1) + "], but got " + std::to_string(dim) + ")");
  }
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

Shape broadcast_shapes(std::span<const int64_t> a, std::span<const int64_t> b) {
  const size_t n = std::max(a.size(), b.size());
  Shape out(n, 1);
  for (size_t d = n; d-- > 0;) {
    const int64_t x = d + a.size() < n ? 1 : a[d + a.size() - n], y = d + b.size() < n ? 1 : b[d + b.size() - n];
    if (x != y && x != 1 && y != 1) {
      throw Error(Code::shape_mismatch, "The size of tensor a (" + std::to_string(x) +
                                            ") must match the size of tensor b (" + std::to_string(y) +
                                            ") at non-singleton dimension " + std::to_string(d));
    }
    out[d] = x == 1 ? y : x;
  }
  return out;
}

bool broadcasts_to(std::span<const int64_t> from, std::span<const int64_t> to) {
  if (from.size() > to.size()) return false;
  const size_t more = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != to[d + more] && from[d] != 1) return false;
  }
  return true;
}

void expand_strides(std::span<const int64_t> shape, std::span<const int64_t> strides, std::span<const int64_t> to,
                    int64_t* out) {
  const size_t more = to.size() - shape.size();
  for (size_t d = 0; d < to.size(); ++d) {
    out[d] = d < more || (shape[d - more] == 1 && to[d] != 1) ? 0 : strides[d - more];
  }
}

Shape infer_shape(std::span<const int64_t> shape, int64_t numel) {
  Shape out(shape);
  int unknown = -1;
  int64_t known = 1;
  bool overflow = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == -1) {
      if (unknown >= 0) throw Error(Code::shape_mismatch, "only one dimension can be inferred");
      unknown = static_cast<int>(d);
    } else if (shape[d] < 0) {
      throw Error(Code::shape_mismatch, "invalid shape dimension " + std::to_string(shape[d]));
    } else {
      overflow = __builtin_mul_overflow(known, shape[d], &known) || overflow;
    }
  }
  if (shape.size() > static_cast<size_t>(kMaxDims)) checked_numel(shape);
  if (unknown >= 0 && known == 0 && numel == 0) {
    throw Error(Code::shape_mismatch,
                "cannot reshape tensor of 0 elements into shape " + to_string(shape) +
                    " because the unspecified dimension size -1 can be any value and is ambiguous");
  }
  if (!overflow && unknown >= 0 && known > 0 && numel % known == 0) {
    out[unknown] = numel / known;
  } else if (overflow || unknown >= 0 || known != numel) {
    throw Error(Code::shape_mismatch,
                "shape '" + to_string(shape) + "' is invalid for input of size " + std::to_string(numel));
  }
  checked_numel(out);
  return out;
}

std::optional<Shape> view_strides(std::span<const int64_t> shape, std::span<const int64_t> strides,
                                  std::span<const int64_t> to) {
  for (const int64_t size : to) {
    if (size == 0) return contiguous_strides(to);
  }
  Shape out(to.size(), 1);
  // Runs of dims that lie contiguous behind each other are cut anew; a new dim must not cross two runs.
  int64_t t = static_cast<int64_t>(to.size()) - 1;
  int64_t run = 1, cut = 1, base = shape.empty() ? 1 : strides.back();
  for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
    run *= shape[d];
    if (d > 0 && (shape[d - 1] == 1 || strides[d - 1] == run * base)) continue;
    while (t >= 0 && (cut < run || to[t] == 1)) {
      out[t] = cut * base;
      cut *= to[t];
      --t;
    }
    if (cut != run) return std::nullopt;
    if (d > 0) base = strides[d - 1], run = cut = 1;
  }
  for (; t >= 0; --t) out[t] = base;  // only sizes of 1 are left
  return out;
}

std::optional<Extent> extent_of(std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset) {
  Extent e{offset, offset};
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return std::nullopt;
    int64_t way;
    int64_t& end = strides[d] < 0 ? e.first : e.last;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &way) || __builtin_add_overflow(end, way, &end)) {
      throw Error(Code::bad_argument, "strides " + to_string(strides) + " of shape " + to_string(shape) + " overflow");
    }
  }
  return e;
}

bool overlaps_itself(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  Shape order;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return false;
    if (shape[d] > 1) order.push_back(static_cast<int64_t>(d));
  }
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return std::abs(strides[a]) < std::abs(strides[b]); });
  int64_t reach = 0;  // what the smaller strides span
  for (const int64_t d : order) {
    const int64_t step = std::abs(strides[d]);
    if (step <= reach) return true;
    int64_t way;
    if (__builtin_mul_overflow(shape[d] - 1, step, &way) || __builtin_add_overflow(reach, way, &reach)) return true;
  }
  return false;
}

std::optional<Geometry> within(std::span<const int64_t> base_shape, std::span<const int64_t> base_strides,
                               int64_t base_offset, std::span<const int64_t> shape, std::span<const int64_t> strides,
                               int64_t offset) {
  const Shape flat = contiguous_strides(base_shape);
  Shape order;
  for (size_t d = 0; d < base_shape.size(); ++d) {
    if (base_shape[d] > 1) order.push_back(static_cast<int64_t>(d));
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return base_strides[a] > base_strides[b]; });
  Shape reach(base_shape.size(), 0);  // the largest index that the view has along each of the base's dims
  // A step through memory, as steps along the base's dims: the largest stride first.
  auto decompose = [&](int64_t step, int64_t times) -> std::optional<int64_t> {
    int64_t out = 0;
    for (const int64_t d : order) {
      if (base_strides[d] <= 0) return std::nullopt;
      const int64_t k = step / base_strides[d];
      step -= k * base_strides[d];
      out += k * flat[d];
      if (__builtin_mul_overflow(k, times, &reach[d]) || reach[d] >= base_shape[d]) return std::nullopt;
    }
    return step == 0 ? std::optional(out) : std::nullopt;
  };
  Geometry g{Shape(shape.size(), 0), 0};
  if (offset < base_offset) return std::nullopt;
  Shape sum(base_shape.size(), 0);
  auto add = [&](int64_t step, int64_t times) -> std::optional<int64_t> {
    std::fill(reach.begin(), reach.end(), 0);
    const auto out = decompose(step, times);
    for (size_t d = 0; out && d < sum.size(); ++d) {
      if ((sum[d] += reach[d]) >= base_shape[d] && base_shape[d] > 1) return std::nullopt;
    }
    return out;
  };
  if (is_contiguous(base_shape, base_strides)) {
    const auto e = extent_of(shape, strides, offset - base_offset);
    int64_t n = 1;
    for (const int64_t size : base_shape) n *= size;
    if (e && (e->first < 0 || e->last >= n)) return std::nullopt;
    return Geometry{Shape(strides), offset - base_offset};
  }
  const auto start = add(offset - base_offset, 1);
  if (!start) return std::nullopt;
  g.offset = *start;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] <= 1) continue;
    const auto step = strides[d] < 0 ? std::nullopt : add(strides[d], shape[d] - 1);
    if (!step) return std::nullopt;
    g.strides[d] = *step;
  }
  return g;
}

Range slice_range(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step, int64_t size) {
  if (step == 0) throw Error(Code::bad_argument, "slice step cannot be zero");
  if (step < 0) throw Error(Code::bad_argument, "step must be greater than zero");
  auto clamp = [size](int64_t i) { return i < 0 ? (i < -size ? 0 : i + size) : std::min(i, size); };
  const int64_t from = clamp(start.value_or(0)), to = clamp(stop.value_or(size));
  return {from, to <= from ? 0 : (to - from - 1) / step + 1};
}

}  // namespace gradwire::engine
