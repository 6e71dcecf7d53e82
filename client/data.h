#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "schema/dtype.h"

namespace gradwire {

/// The dtype whose elements a C++ type holds.
template <class T>
inline constexpr DType kDTypeOf = [] {
  static_assert(sizeof(T) == 0, "this type is the element of no dtype");
  return DType::float32;
}();
template <> inline constexpr DType kDTypeOf<bool> = DType::boolean;
template <> inline constexpr DType kDTypeOf<uint8_t> = DType::uint8;
template <> inline constexpr DType kDTypeOf<int8_t> = DType::int8;
template <> inline constexpr DType kDTypeOf<int16_t> = DType::int16;
template <> inline constexpr DType kDTypeOf<int32_t> = DType::int32;
template <> inline constexpr DType kDTypeOf<long> = DType::int64;
template <> inline constexpr DType kDTypeOf<long long> = DType::int64;
template <> inline constexpr DType kDTypeOf<float> = DType::float32;
template <> inline constexpr DType kDTypeOf<double> = DType::float64;

namespace client {

/// `count` elements of one dtype into another: float to integer truncates, what does not fit wraps or is undefined as
/// in PyTorch but never a trap, anything but zero is true.
void convert(DType from, const std::byte* in, DType to, std::byte* out, size_t count);

}  // namespace client
}  // namespace gradwire
