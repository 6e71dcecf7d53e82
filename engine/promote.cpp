#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/apply.h"
#include "schema/half.h"

static_assert(std::endian::native == std::endian::little);

namespace gradwire::engine {

DType promote(DType a, DType b) {
  if (a == b) return a;
  const Category ca = category(a), cb = category(b);
  if (ca != cb) return ca > cb ? a : b;
  if (ca == Category::floating) {
    const bool halves = (a == DType::float16 && b == DType::bfloat16) || (a == DType::bfloat16 && b == DType::float16);
    return halves ? DType::float32 : std::max(a, b);
  }
  if (a == DType::uint8 || b == DType::uint8) {
    const DType other = a == DType::uint8 ? b : a;
    return other == DType::int8 ? DType::int16 : other;
  }
  return std::max(a, b);
}

void Promotion::add(Scalar s, DType default_dtype) {
  join(numbers_, s.kind == Category::floating  ? default_dtype
                 : s.kind == Category::integer ? DType::int64
                                               : DType::boolean);
}

DType Promotion::result() const {
  auto combine = [](Slot higher, Slot lower) -> Slot {
    if (!higher.any) return lower;
    if (!lower.any || category(lower.dtype) <= category(higher.dtype)) {
      // bool takes part in nothing: a bool tensor and a bool number stay bool
      return higher;
    }
    return {promote(higher.dtype, lower.dtype), true};
  };
  return combine(combine(dims_, zero_dim_), numbers_).dtype;
}

void store_scalar(void* to, DType t, Scalar v) {
  auto put = [to](auto x) { std::memcpy(to, &x, sizeof x); };
  auto whole = [v, t]<class T>(T) -> T {
    const bool floating = v.kind == Category::floating;
    // Past 2^63 - 1 a double has no fraction, so < 2^63 is exact; a negative number wraps into an unsigned type.
    const double limit = std::ldexp(1.0, 8 * static_cast<int>(sizeof(T)) - std::is_signed_v<T>);
    const bool fits =
        floating ? std::abs(v.f) < limit
        : sizeof(T) == 8
            ? true
            : v.integer() <= static_cast<int64_t>(std::numeric_limits<T>::max()) &&
                  v.integer() >= (std::is_signed_v<T> ? static_cast<int64_t>(std::numeric_limits<T>::min())
                                                      : -static_cast<int64_t>(std::numeric_limits<T>::max()));
    if (!fits)
      throw Error(Code::bad_argument,
                  std::string("value cannot be converted to type ") + name(t) + " without overflow");
    return static_cast<T>(floating ? static_cast<int64_t>(v.f) : v.integer());
  };
  switch (t) {
    case DType::boolean:
      return put(static_cast<uint8_t>(v.real() != 0));
    case DType::uint8:
      return put(whole(uint8_t{}));
    case DType::int8:
      return put(whole(int8_t{}));
    case DType::int16:
      return put(whole(int16_t{}));
    case DType::int32:
      return put(whole(int32_t{}));
    case DType::int64:
      return put(whole(int64_t{}));
    case DType::float16:
      return put(float_to_half(static_cast<float>(v.real())));
    case DType::bfloat16:
      return put(float_to_bfloat16(static_cast<float>(v.real())));
    case DType::float32:
      return put(static_cast<float>(v.real()));
    case DType::float64:
      return put(v.real());
  }
}

void wrap_scalar(void* to, DType t, Scalar v) {
  if (v.kind != Category::integer || category(t) != Category::integer) return store_scalar(to, t, v);
  std::memcpy(to, &v.i, static_cast<size_t>(size_of(t)));  // the low bytes come first
}

}  // namespace gradwire::engine
