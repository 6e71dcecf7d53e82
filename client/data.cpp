#include "client/data.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "schema/half.h"

namespace gradwire::client {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
float wide(Half h) { return half_to_float(h.bits); }
float wide(BFloat b) { return bfloat16_to_float(b.bits); }

template <class To, class From> To cast(From v) {
  if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat>) {
    return cast<To>(wide(v));
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half{float_to_half(static_cast<float>(v))};
  } else if constexpr (std::is_same_v<To, BFloat>) {
    return BFloat{float_to_bfloat16(static_cast<float>(v))};
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
