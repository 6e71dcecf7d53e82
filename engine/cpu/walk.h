#pragma once

#include "engine/nest.h"

// Kept and reduced dimensions, for kernels that make one element of many.

namespace gradwire::engine::cpu {

/// Dimensions of a walk over (in, out, a second out), innermost first; strides in bytes.
struct Walk {
  int ndim = 0;
  int64_t count = 1, size[kMaxDims], in[kMaxDims], out[kMaxDims], more[kMaxDims];
  void push(const Nest& n, int d) { push(n.size[d], n.stride[d][0], n.stride[d][1], n.stride[d][2]); }
  void push(int64_t n, int64_t in_step, int64_t out_step, int64_t more_step) {
    size[ndim] = n, in[ndim] = in_step, out[ndim] = out_step, more[ndim] = more_step;
    count *= n, ++ndim;
  }
  /// Without the innermost.
  Walk outer() const {
    Walk w;
    for (int d = 1; d < ndim; ++d) w.push(size[d], in[d], out[d], more[d]);
    return w;
  }
};

/// A place in a walk, which moves on one element at a time.
struct Place {
  const Walk& w;
  int64_t at[kMaxDims], in = 0, out = 0, more = 0;
  Place(const Walk& w, int64_t i) : w(w) {
    for (int d = 0; d < w.ndim; i /= w.size[d++]) {
      at[d] = i % w.size[d];
      in += at[d] * w.in[d], out += at[d] * w.out[d], more += at[d] * w.more[d];
    }
  }
  void next() {
    for (int d = 0; d < w.ndim; ++d) {
      in += w.in[d], out += w.out[d], more += w.more[d];
      if (++at[d] < w.size[d]) return;
      in -= w.in[d] * w.size[d], out -= w.out[d] * w.size[d], more -= w.more[d] * w.size[d], at[d] = 0;
    }
  }
};

/// The dims where outputs have size 1 and the input has not are reduced, the others are kept. in_order: reduced dims
/// keep their direction, so that a place along them is an index.
struct Split {
  Nest nest;  // at[0] the input, at[1] and at[2] the outputs
  Walk kept, reduced;
  Split(const View& in, std::span<const View> outs, bool in_order = false);
  /// Whether the innermost dimension is kept: whole rows can then be taken together.
  bool columns() const { return kept.ndim > 0 && nest.stride[0][1] != 0; }
};

}  // namespace gradwire::engine::cpu
