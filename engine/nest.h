#pragma once

#include <span>

#include "engine/view.h"
#include "schema/shape.h"

namespace gradwire::engine {

inline constexpr int kMaxOperands = 4;  // the output and up to three inputs

/// The loops of an elementwise operation, innermost first, with as few dimensions as the strides allow. Bytes, not
/// elements.
struct Nest {
  int ndim = 0, operands = 0;
  int64_t total = 1;  // elements; where it is 0 the rest is not filled in
  char* at[kMaxOperands] = {};
  int64_t bytes[kMaxOperands] = {};                        // of one element
  int64_t size[kMaxDims], stride[kMaxDims][kMaxOperands];  // 0 where there is no operand

  // Loops over operands go over all four, so that the compiler stores and loads them in the same way: a wide load of
  // what narrow stores have just written waits for all stores before it.

  /// Where each operand stands at place i of the dimensions from `from` outward.
  void outer(int64_t i, int from, char* (&p)[kMaxOperands]) const {
    for (int k = 0; k < kMaxOperands; ++k) p[k] = at[k];
    for (int d = from; d < ndim && i > 0; i /= size[d++]) {
      const int64_t at_d = i < size[d] ? i : i % size[d];
      for (int k = 0; k < kMaxOperands; ++k) p[k] += at_d * stride[d][k];
    }
  }
};

/// A place in the dimensions from `from` outward, which moves on one at a time without a division.
class NestWalk {
 public:
  NestWalk(const Nest& n, int64_t i, int from) : n_(n), from_(from) {
    n.outer(i, from, at);
    for (int d = from; d < n.ndim; i /= n.size[d++]) index_[d] = i % n.size[d];
  }
  void next() {
    for (int d = from_; d < n_.ndim; ++d) {
      for (int k = 0; k < kMaxOperands; ++k) at[k] += n_.stride[d][k];
      if (++index_[d] < n_.size[d]) return;
      for (int k = 0; k < kMaxOperands; ++k) at[k] -= n_.stride[d][k] * n_.size[d];
      index_[d] = 0;
    }
  }
  char* at[kMaxOperands] = {};

 private:
  const Nest& n_;
  int from_;
  int64_t index_[kMaxDims];
};

/// views[0] is the output, written in memory order; all have its shape (inputs already broadcast: stride 0).
/// in_order keeps the dimensions in row-major order instead: then walking the nest is walking the indexes.
Nest nest_of(std::span<const View> views, bool in_order = false);

}  // namespace gradwire::engine
