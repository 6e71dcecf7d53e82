#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/cpu/dispatch.h"

namespace gradwire::engine::cpu {

/// Toward 0; what does not fit wraps modulo 2^bits, NaN and infinities give 0.
template <class T, class F> T whole(F x) {
  if (x > F(-0x1p62) && x < F(0x1p62)) return static_cast<T>(static_cast<int64_t>(x));
  if (!std::isfinite(x)) return 0;
  const F rest = std::fmod(x, F(0x1p64));  // exact, and whole: nothing of this size has a fraction
  const uint64_t low = static_cast<uint64_t>(std::fabs(rest));
  return static_cast<T>(rest < 0 ? 0 - low : low);
}

/// One element, as the kernel `convert` does it.
template <class T, class F> T converted(F x) {
  if constexpr (kHalf<F>)
    return converted<T>(to_float(x));
  else if constexpr (kHalf<T>)
    return from_float<T>(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, bool>)
    return x != F(0);
  else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<F>)
    return whole<T>(x);
  else
    return static_cast<T>(x);
}

}  // namespace gradwire::engine::cpu
