#pragma once

#include <span>

#include "engine/backend.h"
#include "engine/cpu/pack.h"
#include "engine/nest.h"

namespace gradwire::engine::cpu {

inline constexpr int64_t kParallel = 32768;  // below this many elements one thread is faster
inline constexpr int64_t kStreamBytes =
    6 << 20;  // outputs above this go past the caches: smaller ones are often read next

/// Runs the kernel over the nest in blocks of rows. Operands that are not contiguous along a row are first packed into
/// a small buffer (a transposed operand a tile at a time), so kernels only ever see steps 0 and 1.
void run(const Nest&, RowKernel, const void* functor);

/// The threads of a parallel region, and which of them this is.
int team_size();
int team_rank();

/// views[0] = views[1], of the same dtype and shape.
void copy(std::span<const View> views);

}  // namespace gradwire::engine::cpu
