#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/cpu/dispatch.h"
#include "engine/math.h"

namespace gradwire::engine::cpu {

/// One element, as the kernel `convert` does it.
template <class T, class F> T converted(F x) {
  if constexpr (kHalf<F>)
    return converted<T>(to_float(x));
  else if constexpr (kHalf<T>)
    return from_float<T>(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, bool>)
    return x != F(0);
  else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<F>)
    return math::whole<T>(x);
  else
    return static_cast<T>(x);
}

}  // namespace gradwire::engine::cpu
