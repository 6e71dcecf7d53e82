#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "engine/cpu/half.h"
#include "schema/dtype.h"

namespace gradwire::engine::cpu {

template <class T> struct Type { using type = T; };
template <class T> inline constexpr bool kHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T> inline constexpr bool kFloating = kHalf<T> || std::is_floating_point_v<T>;

/// The type a T is computed in: halves in float.
template <class T> using Computed = std::conditional_t<kHalf<T>, float, T>;

template <class T> Computed<T> computed(T x) {
  if constexpr (kHalf<T>)
    return to_float(x);
  else
    return x;
}
template <class T> T stored(Computed<T> x) {
  if constexpr (kHalf<T>)
    return from_float<T>(x);
  else
    return x;
}

template <class T>
inline constexpr DType dtype_of = std::is_same_v<T, bool>       ? DType::boolean
                                  : std::is_same_v<T, uint8_t>  ? DType::uint8
                                  : std::is_same_v<T, int8_t>   ? DType::int8
                                  : std::is_same_v<T, int16_t>  ? DType::int16
                                  : std::is_same_v<T, int32_t>  ? DType::int32
                                  : std::is_same_v<T, int64_t>  ? DType::int64
                                  : std::is_same_v<T, float16>  ? DType::float16
                                  : std::is_same_v<T, bfloat16> ? DType::bfloat16
                                  : std::is_same_v<T, float>    ? DType::float32
                                                                : DType::float64;

/// f(Type<T>()) for the type of the dtype.
template <class F> decltype(auto) with_floating(DType t, F&& f) {
  switch (t) {
    case DType::float16:
      return f(Type<float16>());
    case DType::bfloat16:
      return f(Type<bfloat16>());
    case DType::float64:
      return f(Type<double>());
    default:
      return f(Type<float>());
  }
}
template <class F> decltype(auto) with_type(DType t, F&& f) {
  switch (t) {
    case DType::boolean:
      return f(Type<bool>());
    case DType::uint8:
      return f(Type<uint8_t>());
    case DType::int8:
      return f(Type<int8_t>());
    case DType::int16:
      return f(Type<int16_t>());
    case DType::int32:
      return f(Type<int32_t>());
    case DType::int64:
      return f(Type<int64_t>());
    default:
      return with_floating(t, std::forward<F>(f));
  }
}
/// By size alone, for kernels that only move elements.
template <class F> decltype(auto) with_bytes(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(Type<uint8_t>());
    case 2:
      return f(Type<uint16_t>());
    case 4:
      return f(Type<uint32_t>());
    default:
      return f(Type<uint64_t>());
  }
}

}  // namespace gradwire::engine::cpu
