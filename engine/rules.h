#pragma once

#include "engine/op.h"

// Rules that rows name.

namespace gradwire::engine::rule {

/// Comparisons: compute in what is promoted, give bool.
inline DTypes boolean(const Call&, DType t) { return {t, DType::boolean}; }
/// exp, log: integers and bool become the default dtype.
inline DTypes floating(const Call& c, DType t) {
  if (!is_floating(t)) t = c.cx.default_dtype;
  return {t, t};
}

/// The dims of a reduction, as a flag for each: none or an empty list means all. Throws for a dim given twice.
struct Reduced {
  Shape kept;     // the input's shape with 1 for what is reduced
  Shape dropped;  // without these dims
};
Reduced reduced(std::span<const int64_t> shape, const Bound& dims, bool keepdim);
/// t, the result or the gradient of a reduction, with 1 for the dims that were reduced (or it has them still).
Tensor unreduced(const Tensor& t, std::span<const int64_t> shape, const Bound& dims);

/// A tensor with one dim last, as kernels that work along rows want it; a 0-dim tensor is one of a single element.
struct DimLast {
  Shape shape, strides;
  DimLast(const Tensor& t, int dim);
  View view(const Tensor& t) const {
    return {t.data(), shape.data(), strides.data(), static_cast<int32_t>(shape.size()), t.dtype()};
  }
  /// From the last element to the first.
  View reversed(const Tensor& t);
};

/// x moved by one place along dim, to higher indexes; `fill` comes in at the start. History.
Tensor shifted(const Tensor& x, int dim, double fill);
/// x in dtype t; x itself if it has it. History.
Tensor as(const Tensor& x, DType t);
/// x in float32 if it is of a half type, for what is made of several operators.
Tensor wide(Context&, const Tensor& x);

/// Refuses another device than the context's; "cpu", "cuda", "cuda:0" or none.
void device(const Call&, int i);

}  // namespace gradwire::engine::rule
