#pragma once

#include "engine/kernels.h"
#include "engine/op.h"

// What the rows of select.cpp do: slices and elements along a dim by index tensors, which are checked before anything
// is written. `c` are the arguments of those rows.

namespace gradwire::engine {

/// index * stride, checked against the size; of the index's shape. What else `p` says decides the check.
Tensor places(Context&, const Tensor& index, LinearIndexParams p, int dim, int64_t size, int64_t stride);
/// The refusal of an index into all elements in row-major order.
Error outside_all(int64_t value, int dim, int64_t size);

/// A tensor by other strides.
struct Seen {
  const Tensor& tensor;
  const Shape& strides;
};
/// Puts `values` where the places say in what the target shows, all at one shape, or adds them.
void put_at(Context&, const Shape& shape, Seen target, Seen place, Seen values, bool accumulate);
/// A number as a tensor of this dtype; throws bad_argument where it does not fit.
Tensor number(const Call&, Scalar value, DType dtype);

// One index for whole slices.
Results selected_slices(const Call&);
void add_slices(const Call&, const Tensor& target);
void copy_slices(const Call&, const Tensor& target);
void fill_slices(const Call&, const Tensor& target);
/// The elements of the gradient that index_fill overwrote.
Tensor overwritten(const Vjp&);

// An index for each element.
Results gathered(const Call&);
/// target[..., index, ...] = src, or += src; without src the value `one`.
void scatter_into(const Call&, const Tensor& target, const Tensor* src, const Tensor& one, bool accumulate);
/// The gradient of src, of which only the first part was scattered.
Tensor of_src(const Vjp&);
/// Zeros in the shape of the first parameter.
Tensor zeros_for(const Vjp&);

}  // namespace gradwire::engine
