#pragma once

#include <cstddef>

#include "schema/dtype.h"
#include "server/cluster/collective.h"

namespace gradwire::server::cluster::plane {

/// c[i] = a[i] op b[i]; c may be a or b, no other overlap.
using Combine = void (*)(void* c, const void* a, const void* b, size_t n);

/// Sums and products of halves: sum, product and avg combine them in float32, and round once at the end.
bool in_float32(ReduceOp, DType);

/// Whole numbers wrap; bool is logical (sum: or, product: and); min and max of NaN and anything are NaN; avg adds, and
/// leaves the division to `divide`. For halves of sum, product and avg see above. Null where there is none: the bitwise
/// ones of floating types.
Combine combine(ReduceOp, DType);

/// x[i] /= by, whole numbers towards zero as NCCL does it. Not for bool.
void divide(DType, void* x, size_t n, int by);

/// float16 or bfloat16 to float32 and back, rounded to nearest even.
void widen(DType, float* to, const void* from, size_t n);
void narrow(DType, void* to, const float* from, size_t n);

}  // namespace gradwire::server::cluster::plane
