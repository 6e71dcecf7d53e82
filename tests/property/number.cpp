#include "tests/property/number.h"

#include <cmath>
#include <limits>

namespace gradwire::property {
namespace {

// `bits` significant bits, exponents from `least`, nothing above `most`.
double round_bits(double v, int bits, int least, double most) {
  if (v == 0 || !std::isfinite(v)) return v;
  int exponent;
  std::frexp(v, &exponent);
  const int last = std::max(exponent - 1, least) - (bits - 1);
  const double r = std::ldexp(std::nearbyint(std::ldexp(v, -last)), last);
  return std::abs(r) > most ? std::copysign(std::numeric_limits<double>::infinity(), v) : r;
}

int rank(DType t) { return static_cast<int>(t); }

// Results beyond this say nothing about an operator, and their bounds nothing about their values.
double largest(DType t) { return t == DType::float16 ? 65504 : 1e9; }
constexpr double kSmallest = 1e-24;

}  // namespace

double round_to(DType t, double v) {
  switch (t) {
    case DType::float16:
      return round_bits(static_cast<float>(v), 11, -14, 65504);
    case DType::bfloat16:
      return round_bits(static_cast<float>(v), 8, -126, 0x1.FEp127);
    case DType::float32:
      return static_cast<float>(v);
    default:
      return v;
  }
}

double unit(DType t) { return t == DType::float64 ? 0x1p-53 : 0x1p-24; }

int64_t wrap(DType t, uint64_t x) {
  switch (t) {
    case DType::boolean:
      return x != 0;
    case DType::uint8:
      return static_cast<int64_t>(x & 0xFF);
    case DType::int8:
      return static_cast<int64_t>((x & 0xFF) ^ 0x80) - 0x80;
    case DType::int16:
      return static_cast<int64_t>((x & 0xFFFF) ^ 0x8000) - 0x8000;
    case DType::int32:
      return static_cast<int64_t>((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000;
    default:
      return static_cast<int64_t>(x);
  }
}

Num real(DType t, double v, double e, double d) {
  Num n;
  if (std::isnan(e) || std::isinf(e)) throw Redraw{"no bound"};
  if (!std::isfinite(v)) {
    if (e > 0) throw Redraw{"a bound around an infinity"};
    n.v = v;
    return n;
  }
  n.v = round_to(t, v);
  if (e > 0) {
    const double slack = e + 0x1p-52 * (std::abs(v) + e);  // what float64 itself loses
    if (t == DType::float64)
      n.e = slack;
    else
      n.e = std::max(round_to(t, v + slack) - n.v, n.v - round_to(t, v - slack));
    if (!std::isfinite(n.e)) throw Redraw{"a bound around an infinity"};
  }
  if (std::abs(v) > largest(t) || (v != 0 && std::abs(v) < kSmallest)) throw Redraw{"too large or small"};
  if (!(std::abs(d) < 1e9)) throw Redraw{"a steep derivative"};
  n.d = d;
  return n;
}

Num convert(const Num& x, DType from, DType to) {
  if (!is_floating(from)) {
    if (!is_floating(to)) return whole(to, x.i);
    // Halves are made of the float32 next to the integer.
    return real(to, to == DType::float64 ? static_cast<double>(x.i) : static_cast<double>(static_cast<float>(x.i)));
  }
  if (is_floating(to)) return from == to ? x : real(to, x.v, x.e, x.d);
  if (to == DType::boolean) {
    if (x.e > 0 && std::abs(x.v) <= x.e) throw Redraw{"zero or not"};
    return whole(to, x.v != 0);
  }
  if (!std::isfinite(x.v) || std::abs(x.v) > 1e15) throw Redraw{"no integer"};
  if (std::trunc(x.v - x.e) != std::trunc(x.v + x.e)) throw Redraw{"between two integers"};
  return whole(to, static_cast<int64_t>(std::trunc(x.v)));
}

Num number(Scalar s, DType to) {
  Num n;
  if (s.kind == Category::floating) {
    n.v = s.f;
    return convert(n, DType::float64, to);
  }
  n.i = s.integer();
  return convert(n, DType::int64, to);
}

DType promote(DType a, DType b) {
  if (rank(a) > rank(b)) return promote(b, a);  // so a comes first in the list of dtypes
  if (a == DType::float16 && b == DType::bfloat16) return DType::float32;
  if (a == DType::uint8 && b == DType::int8) return DType::int16;
  return b;
}

bool is_nan(const Num& a, DType t) { return is_floating(t) && std::isnan(a.v); }

int order(const Num& a, const Num& b, DType t) {
  if (!is_floating(t)) return a.i < b.i ? -1 : a.i > b.i;
  if (std::isnan(a.v) || std::isnan(b.v)) return 2;
  const double e = a.e + b.e;
  if (e > 0 && std::abs(a.v - b.v) <= 2 * e) throw Redraw{"too close to call"};
  return a.v < b.v ? -1 : a.v > b.v;
}

}  // namespace gradwire::property
