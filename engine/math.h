#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "schema/op_call.h"

// The words formulas are written in, for V = float, double and Int<T>: on the host and, under nvcc, on the device.
// engine/cpu/simd.h says the same words for SIMD vectors.
#ifdef __CUDACC__
#define GW_FN __host__ __device__ inline
#else
#define GW_FN inline
#endif

namespace gradwire::engine {

/// The dtypes for which a functor has kernels. Half types are floats: they compute in float32.
enum class Domain : uint8_t { floats = 1, integers = 2, boolean = 4, numbers = 3, whole = 6, all = 7 };
constexpr bool has(Domain set, Domain part) { return (static_cast<int>(set) & static_cast<int>(part)) != 0; }

/// A whole number that formulas can treat as V: arithmetic wraps modulo 2^bits, a bool's + is "or" and its * is "and".
template <class T> struct Int {
  static constexpr bool kBool = std::is_same_v<T, bool>;
  using U = std::make_unsigned_t<std::conditional_t<kBool, uint8_t, T>>;
  T v;

  Int() = default;
  GW_FN explicit Int(T x) : v(x) {}
  template <class N>
  requires(std::is_integral_v<N> && !std::is_same_v<N, T>) GW_FN explicit Int(N x)
      : v(kBool ? static_cast<T>(x != 0) : static_cast<T>(x)) {}

  // uint64_t: the product of two uint16_t would be a signed int, which may overflow.
  GW_FN static Int wrap(uint64_t x) { return Int(static_cast<T>(static_cast<U>(x))); }
  GW_FN uint64_t bits() const { return static_cast<U>(v); }

  friend GW_FN Int operator-(Int a) { return wrap(0 - a.bits()); }
  friend GW_FN Int operator+(Int a, Int b) {
    if constexpr (kBool)
      return Int(static_cast<bool>(a.v | b.v));
    else
      return wrap(a.bits() + b.bits());
  }
  friend GW_FN Int operator-(Int a, Int b) { return wrap(a.bits() - b.bits()); }
  friend GW_FN Int operator*(Int a, Int b) {
    if constexpr (kBool)
      return Int(static_cast<bool>(a.v & b.v));
    else
      return wrap(a.bits() * b.bits());
  }
  friend GW_FN bool operator<(Int a, Int b) { return a.v < b.v; }
  friend GW_FN bool operator<=(Int a, Int b) { return a.v <= b.v; }
  friend GW_FN bool operator>(Int a, Int b) { return a.v > b.v; }
  friend GW_FN bool operator>=(Int a, Int b) { return a.v >= b.v; }
  friend GW_FN bool operator==(Int a, Int b) { return a.v == b.v; }
  friend GW_FN bool operator!=(Int a, Int b) { return a.v != b.v; }
};

namespace math {

// The C library's names, which differ by type.
#define GW_CURVE(name)                               \
  GW_FN float name(float x) { return ::name##f(x); } \
  GW_FN double name(double x) { return ::name(x); }
GW_CURVE(exp)
GW_CURVE(log)
GW_CURVE(sqrt)
GW_CURVE(floor)
GW_CURVE(ceil)
GW_CURVE(trunc)
GW_CURVE(sin)
GW_CURVE(cos)
GW_CURVE(tanh)
GW_CURVE(log1p)
GW_CURVE(expm1)
GW_CURVE(exp2)
GW_CURVE(log2)
GW_CURVE(log10)
GW_CURVE(tan)
GW_CURVE(asin)
GW_CURVE(acos)
GW_CURVE(atan)
GW_CURVE(sinh)
GW_CURVE(cosh)
GW_CURVE(asinh)
GW_CURVE(atanh)
GW_CURVE(erf)
GW_CURVE(erfc)
#undef GW_CURVE
#define GW_CURVE2(name)                                          \
  GW_FN float name(float a, float b) { return ::name##f(a, b); } \
  GW_FN double name(double a, double b) { return ::name(a, b); }
GW_CURVE2(pow)
GW_CURVE2(fmod)
GW_CURVE2(atan2)
GW_CURVE2(hypot)
GW_CURVE2(copysign)
#undef GW_CURVE2
/// Halves to even.
GW_FN float round(float x) { return ::rintf(x); }
GW_FN double round(double x) { return ::rint(x); }
GW_FN float abs(float x) { return ::fabsf(x); }
GW_FN double abs(double x) { return ::fabs(x); }

/// c ? a : b, lane by lane; for scalars c is a bool.
template <class V> GW_FN V select(bool c, V a, V b) { return c ? a : b; }
/// Of two masks.
GW_FN bool both(bool a, bool b) { return a && b; }
GW_FN bool either(bool a, bool b) { return a || b; }
GW_FN bool differ(bool a, bool b) { return a != b; }

/// A parameter of an operator, in the category of V.
template <class V> GW_FN V scalar(const Scalar& s) {
  const bool real = s.kind == Category::floating, whole = s.kind == Category::integer;
  if constexpr (std::is_floating_point_v<V>)
    return static_cast<V>(real ? s.f : whole ? static_cast<double>(s.i) : (s.b ? 1.0 : 0.0));
  else
    return V(whole ? s.i : static_cast<int64_t>(!real && s.b));
}

/// A real number as a whole one: toward 0; what does not fit wraps modulo 2^bits, NaN and infinities give 0.
template <class T, class F> GW_FN T whole(F x) {
  if (x > F(-0x1p62) && x < F(0x1p62)) return static_cast<T>(static_cast<int64_t>(x));
  if (!(x - x == F(0))) return 0;
  const F rest = fmod(x, F(0x1p64));  // exact, and whole: nothing of this size has a fraction
  const uint64_t low = static_cast<uint64_t>(fabs(rest));
  return static_cast<T>(rest < 0 ? 0 - low : low);
}

// a / b rounded down, as PyTorch does it: the quotient of what fmod leaves, so that floor(a / b) * b + remainder == a.
template <class V>
requires std::is_floating_point_v<V> GW_FN V div_floor(V a, V b) {
  if (b == 0) return a / b;  // a signed infinity or NaN
  const V rest = fmod(a, b);
  V q = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) q -= 1;
  if (q == 0) return copysign(V(0), a / b);
  const V down = floor(q);
  return q - down > V(0.5) ? down + 1 : down;
}
template <class V>
requires std::is_floating_point_v<V> GW_FN V div_trunc(V a, V b) { return trunc(a / b); }
/// What div_floor leaves: it has b's sign, or a's where it is 0.
template <class V>
requires std::is_floating_point_v<V> GW_FN V remainder(V a, V b) {
  const V rest = fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

/// x / 0 is 0 (the front end refuses it first); the smallest number / -1 wraps.
template <class T> GW_FN Int<T> div_trunc(Int<T> a, Int<T> b) {
  if (b.v == 0) return Int<T>(T(0));
  if constexpr (std::is_signed_v<T>) {
    if (b.v == -1) return -a;
  }
  return Int<T>(static_cast<T>(a.v / b.v));
}
template <class T> GW_FN Int<T> div_floor(Int<T> a, Int<T> b) {
  const Int<T> q = div_trunc(a, b);
  if constexpr (std::is_signed_v<T>) {
    const bool inexact = b.v != 0 && q * b != a;
    return inexact && (a.v < 0) != (b.v < 0) ? q - Int<T>(T(1)) : q;
  } else {
    return q;
  }
}
/// What the divisions leave: 0 where they divide by 0.
template <class T> GW_FN Int<T> fmod(Int<T> a, Int<T> b) { return a - div_trunc(a, b) * b; }
template <class T> GW_FN Int<T> remainder(Int<T> a, Int<T> b) { return a - div_floor(a, b) * b; }

template <class T> GW_FN bool negative(Int<T> x) {
  if constexpr (std::is_signed_v<T>)
    return x.v < 0;
  else
    return false;
}
template <class T> GW_FN Int<T> abs(Int<T> x) { return negative(x) ? -x : x; }
// Whole numbers are round already.
template <class T> GW_FN Int<T> floor(Int<T> x) { return x; }
template <class T> GW_FN Int<T> ceil(Int<T> x) { return x; }
template <class T> GW_FN Int<T> trunc(Int<T> x) { return x; }
template <class T> GW_FN Int<T> round(Int<T> x) { return x; }

template <class T> GW_FN Int<T> bit_and(Int<T> a, Int<T> b) { return Int<T>::wrap(a.bits() & b.bits()); }
template <class T> GW_FN Int<T> bit_or(Int<T> a, Int<T> b) { return Int<T>::wrap(a.bits() | b.bits()); }
template <class T> GW_FN Int<T> bit_xor(Int<T> a, Int<T> b) { return Int<T>::wrap(a.bits() ^ b.bits()); }
template <class T> GW_FN Int<T> bit_not(Int<T> x) {
  if constexpr (Int<T>::kBool)
    return Int<T>(!x.v);
  else
    return Int<T>::wrap(~x.bits());
}

/// By fewer than 0 or at least as many places as there are: nothing of the number is left but, to the right, its sign.
template <class T> GW_FN Int<T> shift_left(Int<T> a, Int<T> b) {
  return negative(b) || b.bits() >= 8 * sizeof(T) ? Int<T>(T(0)) : Int<T>::wrap(a.bits() << b.bits());
}
template <class T> GW_FN Int<T> shift_right(Int<T> a, Int<T> b) {
  const bool all = negative(b) || b.bits() >= 8 * sizeof(T);
  return Int<T>(static_cast<T>(a.v >> (all ? 8 * sizeof(T) - 1 : b.bits())));
}

/// Wraps. A negative exponent gives 1 / a^-b rounded toward 0, and 0 for a base of 0.
template <class T> GW_FN Int<T> pow(Int<T> a, Int<T> b) {
  if (negative(b)) {
    if (a.v == 1) return a;
    if constexpr (std::is_signed_v<T>) {
      if (a.v == -1) return b.v & 1 ? a : -a;
    }
    return Int<T>(T(0));
  }
  Int<T> result(T(1));
  for (uint64_t left = b.bits(); left; left >>= 1, a = a * a) {
    if (left & 1) result = result * a;
  }
  return result;
}

}  // namespace math
}  // namespace gradwire::engine
