#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/property/number.h"

// Tensors of the naive interpreter: a storage that views share, sizes, strides and an offset, and loops over all
// places.

namespace gradwire::property {

using Sizes = std::vector<int64_t>;

struct Store {
  std::vector<Num> cells;
  bool leaf = false;     // of a leaf that asks for gradients
  bool tracked = false;  // something with history was written into it
  bool saved = false;    // an operator's gradient may need its present values
};

struct Array {
  DType dtype = DType::float32;
  Sizes shape, strides;
  int64_t offset = 0;
  std::shared_ptr<Store> store;
  std::shared_ptr<uint32_t> version;  // counts writes; views share it
  bool history = false;               // it was made of something that asks for gradients
  bool detached = false;              // shares values, not derivatives
  bool multi_view = false;            // one of several views of one call: not written in place

  bool valid() const { return store != nullptr; }
  int64_t ndim() const { return static_cast<int64_t>(shape.size()); }
  bool requires_grad() const {
    return is_floating(dtype) && (history || (!detached && (store->tracked || store->leaf)));
  }
};

int64_t count(const Sizes& shape);
Sizes dense_strides(const Sizes& shape);
bool is_dense(const Array& a);
/// A negative dim counts from the end; 0-dim tensors have dim 0 and -1.
int64_t dim_of(int64_t dim, int64_t ndim);

/// Where the elements are, in row-major order.
std::vector<int64_t> places(const Array& a);
/// The elements, in row-major order.
std::vector<Num> elements(const Array& a);
/// The elements converted.
std::vector<Num> elements(const Array& a, DType to);

Array fresh(DType dtype, Sizes shape, std::vector<Num> values);
Array fresh(DType dtype, Sizes shape, Num value);
Array alias(const Array& a, Sizes shape, Sizes strides, int64_t offset);
/// The values in row-major order into a's places; counts as a write.
void write(Array& a, const std::vector<Num>& values);

/// Throws Redraw where the sizes do not fit.
Sizes broadcast(const Sizes& a, const Sizes& b);
bool broadcasts(const Sizes& from, const Sizes& to);
Array widened(const Array& a, const Sizes& shape);
/// A view with the dims in this order.
Array ordered(const Array& a, const Sizes& dims);
/// A view of `length` elements of one dim.
Array range(const Array& a, int64_t dim, int64_t start, int64_t length, int64_t step = 1);
Array without(const Array& a, int64_t dim, int64_t at);
/// The view under another shape, or nothing if the places do not allow one.
bool viewed(const Array& a, const Sizes& shape, Array& out);
Array dense(const Array& a);
Array reshaped(const Array& a, const Sizes& shape);

/// Whether an element stands at two places, or dims reach into each other, which may not be written in place.
bool self_overlaps(const Array& a);
/// Whether both have a place between the other's first and last.
bool overlap(const Array& a, const Array& b);

}  // namespace gradwire::property
