#include "client/data.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace gradwire::client {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

float wide(Half h) {
  const uint32_t sign = uint32_t{h.bits & 0x8000u} << 16, exponent = (h.bits >> 10) & 31, fraction = h.bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0) {
    const float small = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -small : small;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}
float wide(BFloat b) { return std::bit_cast<float>(uint32_t{b.bits} << 16); }

/// To the nearest, ties to even.
Half narrow_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(f)) return {static_cast<uint16_t>(sign | 0x7E00)};
  const float a = std::fabs(f);
  if (a >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7C00)};
  if (a < 6.103515625e-05f)  // below the normal ones: multiples of 2^-24
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(a, 24))))};
  const uint32_t magnitude = (bits & 0x7FFFFFFFu) - (112u << 23);
  return {static_cast<uint16_t>(sign | (magnitude + 0xFFF + (magnitude >> 13 & 1)) >> 13)};
}
BFloat narrow_bfloat(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if (std::isnan(f)) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

template <class To, class From> To cast(From v) {
  if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat>) {
    return cast<To>(wide(v));
  } else if constexpr (std::is_same_v<To, Half>) {
    return narrow_half(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, BFloat>) {
    return narrow_bfloat(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Through int64, as PyTorch does; out of its range C++ leaves the result open.
    if (!(v > -9.3e18f && v < 9.2e18f)) return static_cast<To>(std::numeric_limits<int64_t>::min());
    return static_cast<To>(static_cast<int64_t>(v));
  } else {
    return static_cast<To>(v);
  }
}

template <class F> void with_type(DType t, F f) {
  switch (t) {
    case DType::boolean:
      return f(bool{});
    case DType::uint8:
      return f(uint8_t{});
    case DType::int8:
      return f(int8_t{});
    case DType::int16:
      return f(int16_t{});
    case DType::int32:
      return f(int32_t{});
    case DType::int64:
      return f(int64_t{});
    case DType::float16:
      return f(Half{});
    case DType::bfloat16:
      return f(BFloat{});
    case DType::float32:
      return f(float{});
    case DType::float64:
      return f(double{});
  }
}

}  // namespace

void convert(DType from, const std::byte* in, DType to, std::byte* out, size_t count) {
  with_type(from, [&](auto source) {
    with_type(to, [&](auto target) {
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(&source, in + i * sizeof source, sizeof source);
        target = cast<decltype(target)>(source);
        std::memcpy(out + i * sizeof target, &target, sizeof target);
      }
    });
  });
}

}  // namespace gradwire::client
