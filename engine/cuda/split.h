#pragma once

#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {

/// Kept and reduced dimensions of (in, outs): reduced are those where outputs have size 1 and the input has not.
struct Split {
  Nest kept, reduced;
  bool rows = false;  // a reduced dimension is the innermost
};
/// in_order: reduced dims keep their direction, so that a place along them is an index.
Split split(const View& in, std::span<const View> outs, bool in_order = false);

/// Parts of each kept place: enough threads to fill the device, of at least 32 elements each; by the shapes alone.
inline int64_t parts_of(const Split& s) {
  return std::clamp<int64_t>(s.reduced.total / 32, 1, std::max<int64_t>(1, 262144 / s.kept.total));
}

/// Where part i stands: its kept place, and its number there.
struct Part {
  int64_t kept, number;
  __device__ Part(const Split& s, int64_t parts, int64_t i)
      : kept(s.rows ? i / parts : i % s.kept.total), number(s.rows ? i % parts : i / s.kept.total) {}  // neighbours are
  // neighbours in memory
};
/// Element r of the reduced places at a kept one.
__device__ inline const char* element(const Split& s, const char* kept, int64_t r) {
  return kept + (Place(s.reduced, r).at[0] - s.reduced.at[0]);
}

}  // namespace gradwire::engine::cuda
