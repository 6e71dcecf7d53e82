#pragma once

#include <limits>
#include <span>
#include <string>

#include "engine/rules.h"
#include "schema/error.h"

// What convolutions and pools share about their arguments.

namespace gradwire::engine {

/// The value for spatial dim d: one stands for all.
inline int64_t per_dim(std::span<const int64_t> list, int d) {
  return list[list.size() == 1 ? 0 : static_cast<size_t>(d)];
}

/// v, which is at least `low` (else `text` says so) and fits 31 bits, so that products of two stay in 64.
inline int64_t bounded(int64_t v, int64_t low, const char* text) {
  if (v < low) throw Error(Code::bad_argument, text);
  if (v > std::numeric_limits<int32_t>::max())
    throw Error(Code::bad_argument, std::to_string(v) + " is too large for a window");
  return v;
}

/// x in the dtype that it is computed in: halves in float32. History.
inline Tensor as_computed(const Tensor& x) {
  return rule::as(x, x.dtype() == DType::float64 ? x.dtype() : DType::float32);
}

}  // namespace gradwire::engine
