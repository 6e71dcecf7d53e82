#include "tests/property/values.h"

#include <cmath>
#include <cstring>

namespace gradwire::property {
namespace {

using engine::Tensor;

// A half's value by its fields, whatever the engine makes of them.
double half(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

uint16_t half_bits(double v, DType t) {
  const int exponent_bits = t == DType::float16 ? 5 : 8, fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0,
                 top = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  if (std::isnan(v)) return static_cast<uint16_t>(top | 1 << (fraction_bits - 1));
  if (std::isinf(v)) return static_cast<uint16_t>(sign | top);
  if (v == 0) return sign;
  int exponent;
  std::frexp(v, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  const auto fraction = static_cast<int>(std::ldexp(std::abs(v), fraction_bits - exponent));
  if (fraction < 1 << fraction_bits) return static_cast<uint16_t>(sign | fraction);
  return static_cast<uint16_t>(sign | (exponent + bias) << fraction_bits | (fraction - (1 << fraction_bits)));
}

template <class T> void put(std::vector<std::byte>& bytes, T x) {
  const auto* p = reinterpret_cast<const std::byte*>(&x);
  bytes.insert(bytes.end(), p, p + sizeof x);
}

template <class T> T get(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

Num element(const char* p, DType t) {
  Num n;
  switch (t) {
    case DType::boolean:
    case DType::uint8:
      n.i = get<uint8_t>(p);
      break;
    case DType::int8:
      n.i = get<int8_t>(p);
      break;
    case DType::int16:
      n.i = get<int16_t>(p);
      break;
    case DType::int32:
      n.i = get<int32_t>(p);
      break;
    case DType::int64:
      n.i = get<int64_t>(p);
      break;
    case DType::float16:
      n.v = half(get<uint16_t>(p), 5, 10);
      break;
    case DType::bfloat16:
      n.v = half(get<uint16_t>(p), 8, 7);
      break;
    case DType::float32:
      n.v = get<float>(p);
      break;
    case DType::float64:
      n.v = get<double>(p);
  }
  return n;
}

}  // namespace

Tensor upload(engine::Context& cx, const Array& a) {
  std::vector<std::byte> bytes;
  for (const Num& n : elements(a)) {
    switch (a.dtype) {
      case DType::boolean:
      case DType::uint8:
      case DType::int8:
        put(bytes, static_cast<uint8_t>(n.i));
        break;
      case DType::int16:
        put(bytes, static_cast<int16_t>(n.i));
        break;
      case DType::int32:
        put(bytes, static_cast<int32_t>(n.i));
        break;
      case DType::int64:
        put(bytes, n.i);
        break;
      case DType::float16:
      case DType::bfloat16:
        put(bytes, half_bits(n.v, a.dtype));
        break;
      case DType::float32:
        put(bytes, static_cast<float>(n.v));
        break;
      case DType::float64:
        put(bytes, n.v);
    }
  }
  return engine::from_bytes(cx, a.dtype, a.shape, bytes);
}

std::vector<Num> download(const Tensor& t) {
  Array a;
  a.shape.assign(t.shape().begin(), t.shape().end());
  a.strides.assign(t.strides().begin(), t.strides().end());
  std::vector<Num> out;
  const auto* first = static_cast<const char*>(t.data());
  for (const int64_t p : places(a)) out.push_back(element(first + p * size_of(t.dtype()), t.dtype()));
  return out;
}

}  // namespace gradwire::property
