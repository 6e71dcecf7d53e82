#pragma once

#include <bit>
#include <cstdint>

namespace gradwire {

// float16 (IEEE binary16) and bfloat16 as their bits. To a half: round to nearest, ties to even; NaN stays NaN.

inline uint16_t float_to_half(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f), sign = x >> 16 & 0x8000, magnitude = x & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);  // 65536 and more, and infinity
  if (magnitude < 0x38800000) {  // below 2^-14: subnormal; adding 0.5 leaves the result in the low bits, rounded
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t{h} << 16 & 0x80000000, magnitude = h & 0x7FFF;
  if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | magnitude << 13);
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
}

inline uint16_t float_to_bfloat16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(x >> 16 | 0x40);
  return static_cast<uint16_t>((x + 0x7FFF + (x >> 16 & 1)) >> 16);
}

inline float bfloat16_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

}  // namespace gradwire
