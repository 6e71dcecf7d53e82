#pragma once

#include "engine/op.h"

// Elements of a tensor named by indexes: their places are computed and checked once, for reading and for writing.

namespace gradwire::engine {

using Items = std::span<const IndexItem<Tensor>>;

/// What x[...] names.
struct Picked {
  Tensor view;     // after integers, slices and new axes
  Tensor offsets;  // int64, how far each picked place is from the view's start; empty: nothing is picked
  Shape result;    // the shape of x[...]
  Shape self_strides, offset_strides;  // view and offsets at that shape
};
/// Throws index_out_of_range, shape_mismatch, bad_argument as PyTorch does.
Picked pick(Context&, const Tensor& x, Items);
/// target[items] = value, or += value. All checks come before the first write.
void assign_picked(Context&, const Tensor& target, Items, Tensor value, bool accumulate);

/// The values of an integer tensor on the host: a small synchronous copy where it lives on a device.
class HostInts {
 public:
  HostInts(Context&, const Tensor& t);
  std::span<const int64_t> values() const { return values_; }

 private:
  Tensor tensor_;
  std::vector<int64_t> copy_;
  std::span<const int64_t> values_;
};

/// t as a kernel sees it under another shape and other strides, which must outlive the view.
View at_result(const Tensor& t, const Shape& shape, const Shape& strides);

/// Views: `length` steps along a dim from `start` on, which lie inside it; and the place i of a dim, without the dim.
Tensor sliced(Context&, const Tensor& x, int dim, int64_t start, int64_t length, int64_t step = 1);
Tensor selected(Context&, const Tensor& x, int dim, int64_t i);
/// Zeros of that size with grad in a view of them: what slice, select and diagonal have as gradients. Throws
/// shape_mismatch where grad has not the view's shape.
Tensor embedded(const Call&, const Tensor& grad, std::span<const int64_t> size,
                Tensor (*view)(const Call&, const Tensor&));

}  // namespace gradwire::engine
