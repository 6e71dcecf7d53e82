#pragma once

#include <optional>
#include <span>

#include "schema/dtype.h"
#include "schema/error.h"
#include "schema/shape.h"

// All arithmetic on sizes, strides and indexes: every product and sum is checked, so that nothing from outside can
// overflow. Errors use PyTorch's texts.

namespace gradwire::engine {

/// Elements of a tensor of this shape. Throws bad_argument for a negative size, more than kMaxDims dimensions, a
/// dimension over kMaxDim or more than kMaxNumel elements.
int64_t checked_numel(std::span<const int64_t> shape);
/// numel * size_of(dtype), for a numel that checked_numel has passed.
int64_t bytes_of(int64_t numel, DType);

/// a + b, a - b and a * b. Throw bad_argument on overflow.
int64_t checked_sum(int64_t a, int64_t b);
int64_t checked_difference(int64_t a, int64_t b);
int64_t checked_product(int64_t a, int64_t b);

Shape contiguous_strides(std::span<const int64_t> shape);
bool is_contiguous(std::span<const int64_t> shape, std::span<const int64_t> strides);

/// [-ndim, ndim) -> [0, ndim); a 0-dim tensor counts as 1-dim. Throws index_out_of_range otherwise.
int wrap_dim(int64_t dim, int ndim);

/// The shape that both broadcast to. Throws shape_mismatch naming the right-most clash.
Shape broadcast_shapes(std::span<const int64_t> a, std::span<const int64_t> b);
/// a == broadcast_shapes(a, b), without throwing.
bool broadcasts_to(std::span<const int64_t> from, std::span<const int64_t> to);
/// Strides that show a tensor at a larger shape: 0 along what is repeated. `to` must be reachable.
void expand_strides(std::span<const int64_t> shape, std::span<const int64_t> strides, std::span<const int64_t> to,
                    int64_t* out);

/// Fills in one -1; throws shape_mismatch where the count cannot be right.
Shape infer_shape(std::span<const int64_t> shape, int64_t numel);
/// Strides of the same memory under another shape; nothing where that needs a copy.
std::optional<Shape> view_strides(std::span<const int64_t> shape, std::span<const int64_t> strides,
                                  std::span<const int64_t> to);

/// The first and the last element that a tensor can touch, counted from its storage's start; nothing when empty.
/// Throws bad_argument on overflow.
struct Extent {
  int64_t first, last;
};
std::optional<Extent> extent_of(std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset);

/// Whether two indexes of the tensor can name one element. Exact for views made by slicing, expanding and transposing;
/// on doubt it says yes.
bool overlaps_itself(std::span<const int64_t> shape, std::span<const int64_t> strides);

/// Where a view's elements would stand if its base were contiguous from 0 on; nothing where they leave the base, or run
/// across its rows.
struct Geometry {
  Shape strides;
  int64_t offset;
};
std::optional<Geometry> within(std::span<const int64_t> base_shape, std::span<const int64_t> base_strides,
                               int64_t base_offset, std::span<const int64_t> shape, std::span<const int64_t> strides,
                               int64_t offset);

/// start:stop:step over a dimension, clamped as Python does.
struct Range {
  int64_t start, length;
};
Range slice_range(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step, int64_t size);

}  // namespace gradwire::engine
