#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

// The half types as their bits: conversions round to nearest even, as PyTorch's do; NaNs stay NaNs.

namespace gradwire::server::http {

inline float from_bfloat16(uint16_t h) { return std::bit_cast<float>(uint32_t{h} << 16); }
inline uint16_t to_bfloat16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if (f != f) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

inline float from_float16(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(tiny));
}
inline uint16_t to_float16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>(u >> 16 & 0x8000);
  const uint32_t magnitude = u & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x1FF));
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds to 65536 or more
  if (magnitude <
      0x38800000) {  // below the smallest normal half: steps of 2^-24, rounded by adding 0.5 whose ulp that is
    const uint32_t t = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
    return static_cast<uint16_t>(sign | (t - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

}  // namespace gradwire::server::http
