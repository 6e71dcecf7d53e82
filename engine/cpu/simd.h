// The words of engine/math.h for Highway vectors. Included inside the namespace of a SIMD target, as the functors are.

namespace hn = hwy::HWY_NAMESPACE;

template <class D> struct Mask { hn::Mask<D> m; };

/// A vector of D's lanes that formulas can treat as a number.
template <class D> struct Vec {
  using T = hn::TFromD<D>;
  hn::Vec<D> v;

  GW_FN explicit Vec(hn::Vec<D> x) : v(x) {}
  GW_FN explicit Vec(double x) : v(hn::Set(D(), static_cast<T>(x))) {}

  friend GW_FN Vec operator-(Vec a) { return Vec(hn::Neg(a.v)); }
  friend GW_FN Vec operator+(Vec a, Vec b) { return Vec(hn::Add(a.v, b.v)); }
  friend GW_FN Vec operator-(Vec a, Vec b) { return Vec(hn::Sub(a.v, b.v)); }
  friend GW_FN Vec operator*(Vec a, Vec b) { return Vec(hn::Mul(a.v, b.v)); }
  friend GW_FN Vec operator/(Vec a, Vec b) { return Vec(hn::Div(a.v, b.v)); }
  friend GW_FN Mask<D> operator<(Vec a, Vec b) { return {hn::Lt(a.v, b.v)}; }
  friend GW_FN Mask<D> operator<=(Vec a, Vec b) { return {hn::Le(a.v, b.v)}; }
  friend GW_FN Mask<D> operator>(Vec a, Vec b) { return {hn::Gt(a.v, b.v)}; }
  friend GW_FN Mask<D> operator>=(Vec a, Vec b) { return {hn::Ge(a.v, b.v)}; }
  friend GW_FN Mask<D> operator==(Vec a, Vec b) { return {hn::Eq(a.v, b.v)}; }
  friend GW_FN Mask<D> operator!=(Vec a, Vec b) { return {hn::Not(hn::Eq(a.v, b.v))}; }  // hn::Ne says NaN == NaN
};

namespace math {

template <class D> GW_FN Vec<D> select(Mask<D> c, Vec<D> a, Vec<D> b) { return Vec<D>(hn::IfThenElse(c.m, a.v, b.v)); }
template <class D> GW_FN Vec<D> abs(Vec<D> x) { return Vec<D>(hn::Abs(x.v)); }
template <class D> GW_FN Vec<D> sqrt(Vec<D> x) { return Vec<D>(hn::Sqrt(x.v)); }
template <class D> GW_FN Vec<D> fma(Vec<D> a, Vec<D> b, Vec<D> c) { return Vec<D>(hn::MulAdd(a.v, b.v, c.v)); }

/// A NaN stays (through Highway's Min and Max it does on some targets only).
template <class D> GW_FN Vec<D> clamp(Vec<D> x, Vec<D> low, Vec<D> high) {
  return select(x < low, low, select(x > high, high, x));
}

/// Horner: ((top * x + c0) * x + c1) ...
template <class V, class... C> GW_FN V poly(V x, V top, C... c) {
  ((top = fma(top, x, V(c))), ...);
  return top;
}

/// For functions without a vector form: one scalar call a lane.
template <class F, class D, class... E> GW_FN Vec<D> by_lane(F f, Vec<D> x, Vec<E>... y) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN hn::TFromD<D> out[kLanes], rest[sizeof...(y) + 1][kLanes];
  hn::Store(x.v, D(), out);
  size_t k = 0;
  ((hn::Store(y.v, D(), rest[k++])), ...);
  for (size_t i = 0; i < kLanes; ++i) {
    if constexpr (sizeof...(y) == 0)
      out[i] = f(out[i]);
    else
      out[i] = f(out[i], rest[0][i]);
  }
  return Vec<D>(hn::Load(D(), out));
}

// exp is our own: Highway 1.0.3's turns NaN into infinity, ends at 706 for double, and takes twice the time.
template <class D> inline constexpr bool kFloat = sizeof(hn::TFromD<D>) == 4;
template <class D>
inline constexpr double kMagic = kFloat<D> ? 0x1.8p23 : 0x1.8p52;  // x + kMagic: x rounded, in the low bits

/// 2 to the whole number n, |n| <= 127 (double: 1023).
template <class D> GW_FN Vec<D> exp2_whole(Vec<D> n) {
  const hn::RebindToUnsigned<D> bits;
  const Vec<D> biased = n + Vec<D>(kMagic<D> + (kFloat<D> ? 127 : 1023));
  return Vec<D>(hn::BitCast(D(), hn::ShiftLeft < kFloat<D> ? 23 : 52 > (hn::BitCast(bits, biased.v))));
}

/// x = n ln 2 + r; exp(x) = 2^n (1 + r + r^2/2 + ...). 2^n in two factors, so that results may be subnormal or
/// infinite.
template <class D> GW_FN Vec<D> exp(Vec<D> x) {
  using V = Vec<D>;
  const V low(kFloat<D> ? -104.0 : -746.0), high(kFloat<D> ? 89.0 : 710.0), magic(kMagic<D>);
  x = clamp(x, low, high);
  const V n = fma(x, V(1.44269504088896340736), magic) - magic;
  const V ln2_high(kFloat<D> ? -0x1.62e4p-1 : -0x1.62e42fefa38p-1),
      ln2_low(kFloat<D> ? -0x1.7f7d1cp-20 : -0x1.ef35793c7673p-45);
  const V r = fma(n, ln2_low, fma(n, ln2_high, x));
  V p(0.0);
  if constexpr (kFloat<D>) {
    const V s = r * r;
    const V a = fma(V(1 / 6.0), r, V(0.5)), b = fma(V(1 / 120.0), r, V(1 / 24.0)),
            c = fma(V(1 / 5040.0), r, V(1 / 720.0));
    p = fma(fma(fma(c, s, b), s, a), s, r) + V(1.0);
  } else {
    p = poly(r, V(1 / 6227020800.0), 1 / 479001600.0, 1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0,
             1 / 5040.0, 1 / 720.0, 1 / 120.0, 1 / 24.0, 1 / 6.0, 0.5, 1.0, 1.0);
  }
  const V half = fma(n, V(0.5), magic) - magic;
  return p * exp2_whole(half) * exp2_whole(n - half);
}

/// Highway's, which promises nothing outside (0, largest].
template <class D> GW_FN Vec<D> log(Vec<D> x) {
  const Vec<D> zero(0.0), inf(HUGE_VAL);
  const Vec<D> y = select(x == inf, inf, Vec<D>(hn::Log(D(), x.v)));
  return select(x > zero, y, select(x == zero, -inf, Vec<D>(std::nan(""))));
}

/// A parameter of an operator.
template <class V> GW_FN V scalar(const Scalar& s) {
  return V(s.kind == Category::floating  ? s.f
           : s.kind == Category::integer ? static_cast<double>(s.i)
                                         : (s.b ? 1.0 : 0.0));
}

template <class D> GW_FN Vec<D> div_trunc(Vec<D> a, Vec<D> b) { return Vec<D>(hn::Trunc((a / b).v)); }
/// The rounded quotient may be a whole number where the true one is just below, never the other way round; where it is
/// small its remainder is exact, and tells.
template <class D> GW_FN Vec<D> div_floor(Vec<D> a, Vec<D> b) {
#if HWY_NATIVE_FMA
  using V = Vec<D>;
  using T = hn::TFromD<D>;
  const V q = a / b, zero(0.0);
  const auto small = hn::And(hn::Lt(hn::Abs(q.v), hn::Set(D(), T(kFloat<D> ? 0x1p22 : 0x1p51))),
                             hn::Lt(hn::Abs(b.v), hn::Set(D(), T(kFloat<D> ? 0x1p126 : 0x1p1022))));
  if (hn::AllTrue(D(), small)) {
    const V f(hn::Floor(q.v)), rest = fma(-f, b, a);
    const Mask<D> less{hn::Lt(hn::Mul(rest.v, hn::CopySign(hn::Set(D(), T(1)), b.v)), hn::Zero(D()))};
    const V exact = select(less, f - V(1.0), f);
    return select(exact == zero, V(hn::CopySign(zero.v, q.v)), exact);
  }
#endif
  return by_lane([](auto x, auto y) { return engine::math::div_floor(x, y); }, a, b);
}

}  // namespace math

// Loading and storing; a bool is a mask.
template <class D, class T> GW_FN Vec<D> load(const T* p) { return Vec<D>(hn::LoadU(D(), p)); }

template <class D> GW_FN Mask<D> load(const bool* p) {
  const hn::Rebind<int32_t, D> d32;
  const auto wide = hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint8_t, D>(), reinterpret_cast<const uint8_t*>(p)));
  const hn::RebindToSigned<D> di;
  if constexpr (sizeof(hn::TFromD<D>) == 4)
    return {hn::RebindMask(D(), hn::Gt(wide, hn::Zero(di)))};
  else
    return {hn::RebindMask(D(), hn::Gt(hn::PromoteTo(di, wide), hn::Zero(di)))};
}

template <class D, class T> GW_FN void store(Vec<D> x, T* p) { hn::StoreU(x.v, D(), p); }

template <class D> GW_FN void store(Mask<D> x, bool* p) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(D(), x.m, bits);
  for (size_t i = 0; i < hn::Lanes(D()); i += 8) {  // bit k to byte k
    const uint64_t spread = bits[i / 8] * 0x0101010101010101u & 0x8040201008040201u;
    const uint64_t bytes = (spread + 0x7F7F7F7F7F7F7F7Fu) >> 7 & 0x0101010101010101u;
    std::memcpy(p + i, &bytes, std::min<size_t>(8, hn::Lanes(D())));
  }
}

/// Past the caches: for outputs that are too large to be read again soon. p is aligned to the vector.
template <class D, class T> GW_FN void stream(Vec<D> x, T* p) { hn::Stream(x.v, D(), p); }
template <class D> GW_FN void stream(Mask<D> x, bool* p) { store(x, p); }
