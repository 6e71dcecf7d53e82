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

/// Refuses another device than the context's; "cpu", "cuda", "cuda:0" or none.
void device(const Call&, int i);

}  // namespace gradwire::engine::rule
