#pragma once

#include <bit>
#include <cstdint>

#include "engine/backend.h"

namespace gradwire::engine::cpu {

/// The stored half types. They compute in float32; conversions round to nearest, ties to even, and keep NaN.
struct float16 {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

inline float to_float(bfloat16 h) { return std::bit_cast<float>(uint32_t{h.bits} << 16); }
inline bfloat16 to_bfloat16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFF) > 0x7F800000) return {static_cast<uint16_t>(u >> 16 | 0x40)};
  return {static_cast<uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16)};
}

inline float to_float(float16 h) {
  const uint32_t sign = uint32_t{h.bits & 0x8000u} << 16, rest = h.bits & 0x7FFF;
  if (rest >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | rest << 13 | (rest > 0x7C00) << 22);
  // 2^112 moves the exponent, subnormal halves included, which are normal floats
  return std::bit_cast<float>(std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f) | sign);
}
inline float16 to_float16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = u >> 16 & 0x8000, rest = u & 0x7FFFFFFF;
  if (rest > 0x7F800000) return {static_cast<uint16_t>(sign | 0x7E00 | (rest >> 13 & 0x3FF))};
  if (rest >= 0x47800000) return {static_cast<uint16_t>(sign | 0x7C00)};  // 65536 and above
  if (rest < 0x38800000) {  // below 2^-14: the sum with 0.5 rounds at the last subnormal bit
    const float f = std::bit_cast<float>(rest) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(f) - 0x3F000000))};
  }
  return {static_cast<uint16_t>(sign | ((rest - 0x38000000 + 0xFFF + (rest >> 13 & 1)) >> 13))};
}

template <class T> T from_float(float x);
template <> inline float16 from_float<float16>(float x) { return to_float16(x); }
template <> inline bfloat16 from_float<bfloat16>(float x) { return to_bfloat16(x); }

/// Runs a row whose operands are stored as Half through the float32 kernel, a block at a time.
template <class Half>
void through_float(const void* functor, const Row&, RowKernel on_float, int inputs, bool mask_in, bool mask_out);

}  // namespace gradwire::engine::cpu
