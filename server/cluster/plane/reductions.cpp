#include "server/cluster/plane/reductions.h"

#include <cstdint>
#include <type_traits>

#include "schema/half.h"

namespace gradwire::server::cluster::plane {

namespace {

// Element i of the result depends on nothing but elements i: the compiler may use vectors though c is a.
template <class T, class F> void each(void* c, const void* a, const void* b, size_t n) {
  T* out = static_cast<T*>(c);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) out[i] = F::of(x[i], y[i]);
}

/// Where whole numbers wrap: unsigned, and not narrower than int.
template <class T> using Wide = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;

struct Sum {
  template <class T> static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a + b;
    else
      return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  }
};
struct Product {
  template <class T> static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a * b;
    else
      return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  }
};
struct Min {
  template <class T> static T of(T a, T b) { return a < b || a != a ? a : b; }
};
struct Max {
  template <class T> static T of(T a, T b) { return a > b || a != a ? a : b; }
};
struct And {
  template <class T> static T of(T a, T b) { return static_cast<T>(a & b); }
};
struct Or {
  template <class T> static T of(T a, T b) { return static_cast<T>(a | b); }
};
struct Xor {
  template <class T> static T of(T a, T b) { return static_cast<T>(a ^ b); }
};

// bool: bytes, of which any that is not 0 is true.
template <class F> struct Logical {
  static uint8_t of(uint8_t a, uint8_t b) { return F::template of<uint8_t>(a != 0, b != 0); }
};

// Halves compare as floats; no result is rounded.
template <class F, float (*kWiden)(uint16_t)> struct Compared {
  static uint16_t of(uint16_t a, uint16_t b) {
    const float x = kWiden(a), y = kWiden(b), z = F::of(x, y);
    return z == x || x != x ? a : b;
  }
};

template <class F> Combine whole(DType t) {
  switch (t) {
    case DType::uint8:
      return each<uint8_t, F>;
    case DType::int8:
      return each<int8_t, F>;
    case DType::int16:
      return each<int16_t, F>;
    case DType::int32:
      return each<int32_t, F>;
    case DType::int64:
      return each<int64_t, F>;
    default:
      return nullptr;
  }
}
template <class F> Combine number(DType t) {
  if (t == DType::float32) return each<float, F>;
  if (t == DType::float64) return each<double, F>;
  return whole<F>(t);
}
template <class F> Combine extreme(DType t) {
  if (t == DType::float16) return each<uint16_t, Compared<F, half_to_float>>;
  if (t == DType::bfloat16) return each<uint16_t, Compared<F, bfloat16_to_float>>;
  return number<F>(t);
}

template <class T> void divide_all(void* x, size_t n, int by) {
  T* v = static_cast<T*>(x);
  for (size_t i = 0; i < n; ++i) {
    if constexpr (std::is_floating_point_v<T>)
      v[i] /= static_cast<T>(by);
    else
      v[i] = static_cast<T>(static_cast<int64_t>(v[i]) / by);
  }
}

}  // namespace

bool in_float32(ReduceOp op, DType t) {
  return (t == DType::float16 || t == DType::bfloat16) &&
         (op == ReduceOp::sum || op == ReduceOp::product || op == ReduceOp::avg);
}

Combine combine(ReduceOp op, DType t) {
  const bool logical = t == DType::boolean;
  switch (op) {
    case ReduceOp::avg:
      return logical ? nullptr : number<Sum>(t);
    case ReduceOp::sum:
      return logical ? each<uint8_t, Logical<Or>> : number<Sum>(t);
    case ReduceOp::product:
      return logical ? each<uint8_t, Logical<And>> : number<Product>(t);
    case ReduceOp::min:
      return logical ? each<uint8_t, Logical<And>> : extreme<Min>(t);
    case ReduceOp::max:
      return logical ? each<uint8_t, Logical<Or>> : extreme<Max>(t);
    case ReduceOp::band:
      return logical ? each<uint8_t, Logical<And>> : whole<And>(t);
    case ReduceOp::bor:
      return logical ? each<uint8_t, Logical<Or>> : whole<Or>(t);
    case ReduceOp::bxor:
      return logical ? each<uint8_t, Logical<Xor>> : whole<Xor>(t);
  }
  return nullptr;
}

void divide(DType t, void* x, size_t n, int by) {
  switch (t) {
    case DType::uint8:
      return divide_all<uint8_t>(x, n, by);
    case DType::int8:
      return divide_all<int8_t>(x, n, by);
    case DType::int16:
      return divide_all<int16_t>(x, n, by);
    case DType::int32:
      return divide_all<int32_t>(x, n, by);
    case DType::int64:
      return divide_all<int64_t>(x, n, by);
    case DType::float32:
      return divide_all<float>(x, n, by);
    case DType::float64:
      return divide_all<double>(x, n, by);
    default:
      return;
  }
}

void widen(DType t, float* to, const void* from, size_t n) {
  const auto* h = static_cast<const uint16_t*>(from);
  for (size_t i = 0; i < n; ++i) to[i] = t == DType::float16 ? half_to_float(h[i]) : bfloat16_to_float(h[i]);
}

void narrow(DType t, void* to, const float* from, size_t n) {
  auto* h = static_cast<uint16_t*>(to);
  for (size_t i = 0; i < n; ++i) h[i] = t == DType::float16 ? float_to_half(from[i]) : float_to_bfloat16(from[i]);
}

}  // namespace gradwire::server::cluster::plane
