// The words of engine/math.h that only pointwise formulas use, for Highway vectors. Included inside the namespace of a
// SIMD target, after simd.h.

namespace math {

template <class D> GW_FN Mask<D> both(Mask<D> a, Mask<D> b) { return {hn::And(a.m, b.m)}; }
template <class D> GW_FN Mask<D> either(Mask<D> a, Mask<D> b) { return {hn::Or(a.m, b.m)}; }
template <class D> GW_FN Mask<D> differ(Mask<D> a, Mask<D> b) { return {hn::Xor(a.m, b.m)}; }

// Only whole numbers have bits to work on; formulas name these all the same.
template <class V> V bit_and(V, V);
template <class V> V bit_or(V, V);
template <class V> V bit_xor(V, V);
template <class V> V bit_not(V);
template <class V> V shift_left(V, V);
template <class V> V shift_right(V, V);

// Zeros keep the sign of x, which Highway forgets where the processor has no instruction that rounds (before SSE 4.1).
template <class D> GW_FN Vec<D> signed_as([[maybe_unused]] Vec<D> x, Vec<D> rounded) {
#if HWY_TARGET > HWY_SSE4
  return Vec<D>(hn::CopySign(rounded.v, x.v));
#else
  return rounded;
#endif
}
template <class D> GW_FN Vec<D> floor(Vec<D> x) { return signed_as(x, Vec<D>(hn::Floor(x.v))); }
template <class D> GW_FN Vec<D> ceil(Vec<D> x) { return signed_as(x, Vec<D>(hn::Ceil(x.v))); }
template <class D> GW_FN Vec<D> trunc(Vec<D> x) { return signed_as(x, Vec<D>(hn::Trunc(x.v))); }
/// Halves to even.
template <class D> GW_FN Vec<D> round(Vec<D> x) { return signed_as(x, Vec<D>(hn::Round(x.v))); }

template <class D> GW_FN Vec<D> copysign(Vec<D> size, Vec<D> sign) { return Vec<D>(hn::CopySign(size.v, sign.v)); }

/// (e^r - 1) for |r| <= ln 2 / 2.
template <class D> GW_FN Vec<D> expm1_reduced(Vec<D> r) {
  using V = Vec<D>;
  V p(0.0);
  if constexpr (kFloat<D>)
    p = poly(r, V(1 / 5040.0), 1 / 720.0, 1 / 120.0, 1 / 24.0, 1 / 6.0, 0.5);
  else
    p = poly(r, V(1 / 87178291200.0), 1 / 6227020800.0, 1 / 479001600.0, 1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0,
             1 / 40320.0, 1 / 5040.0, 1 / 720.0, 1 / 120.0, 1 / 24.0, 1 / 6.0, 0.5);
  return fma(p * r, r, r);
}

/// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), with half of 2^n, which may be one beyond the largest.
template <class D> GW_FN Vec<D> expm1(Vec<D> x) {
  using V = Vec<D>;
  const V magic(kMagic<D>);
  const V y = clamp(x, V(kFloat<D> ? -18.0 : -38.0), V(kFloat<D> ? 89.0 : 710.0));
  const V n = fma(y, V(1.44269504088896340736), magic) - magic;
  const V ln2_high(kFloat<D> ? -0x1.62e4p-1 : -0x1.62e42fefa38p-1),
      ln2_low(kFloat<D> ? -0x1.7f7d1cp-20 : -0x1.ef35793c7673p-45);
  const V q = expm1_reduced(fma(n, ln2_low, fma(n, ln2_high, y)));
  const V half = exp2_whole(n - V(1.0));
  return select(x == V(0.0), x, V(2.0) * fma(half, q, half - V(0.5)));
}

/// 2^(n + f) = 2^n e^(f ln 2); 2^n in two factors, so that results may be subnormal or infinite.
template <class D> GW_FN Vec<D> exp2(Vec<D> x) {
  using V = Vec<D>;
  const V magic(kMagic<D>);
  x = clamp(x, V(kFloat<D> ? -151.0 : -1076.0), V(kFloat<D> ? 129.0 : 1025.0));
  const V n = (x + magic) - magic;
  const V p = expm1_reduced((x - n) * V(0.69314718055994530942)) + V(1.0);
  const V half = fma(n, V(0.5), magic) - magic;
  return p * exp2_whole(half) * exp2_whole(n - half);
}

/// e / (e + 2) for e = e^2a - 1, a = |x|.
template <class D> GW_FN Vec<D> tanh(Vec<D> x) {
  using V = Vec<D>;
  const V e = expm1(clamp(abs(x), V(0.0), V(22.0)) * V(2.0));
  return copysign(e / (e + V(2.0)), x);
}

/// With u = 1 + x rounded, log(u) x / (u - 1): what u has lost is in both.
template <class D> GW_FN Vec<D> log1p(Vec<D> x) {
  using V = Vec<D>;
  const V one(1.0), u = x + one, inf(HUGE_VAL);
  const V y = log(u) * (x / (u - one));
  return select(u == one, x, select(u == inf, u, y));
}

/// A positive x as 2^exponent * rest, with rest in [sqrt(1/2), sqrt(2)).
template <class D> struct Split {
  Vec<D> exponent, log_of_rest;

  GW_FN explicit Split(Vec<D> x) : exponent(0.0), log_of_rest(0.0) {
    using V = Vec<D>;
    constexpr int kMantissa = kFloat<D> ? 23 : 52;
    const hn::RebindToSigned<D> di;
    using I = hn::TFromD<decltype(di)>;
    const Mask<D> tiny = x < V(kFloat<D> ? 0x1p-126 : 0x1p-1022);
    const V y = select(tiny, x * V(kFloat<D> ? 0x1p24 : 0x1p54), x);
    const auto bits = hn::BitCast(di, y.v);
    const auto root = hn::Set(di, static_cast<I>(kFloat<D> ? 0x3f3504f3 : 0x3fe6a09e667f3bcd));
    const auto one = hn::Set(di, static_cast<I>(kFloat<D> ? 0x3f800000 : 0x3ff0000000000000));
    // counted from sqrt(1/2), whose own exponent is one less
    const auto shifted = hn::Add(bits, hn::Sub(one, root));
    const auto k = hn::Sub(hn::ShiftRight<kMantissa>(shifted), hn::Set(di, static_cast<I>(kFloat<D> ? 127 : 1023)));
    const auto rest = hn::Sub(bits, hn::ShiftLeft<kMantissa>(k));
    exponent = V(hn::ConvertTo(D(), k)) - select(tiny, V(kFloat<D> ? 24.0 : 54.0), V(0.0));
    log_of_rest = V(hn::Log(D(), hn::BitCast(D(), rest)));
  }
};
/// What a logarithm is where x is not positive and finite.
template <class D> GW_FN Vec<D> with_ends(Vec<D> x, Vec<D> log) {
  const Vec<D> zero(0.0), inf(HUGE_VAL);
  return select(x > zero, select(x == inf, inf, log), select(x == zero, -inf, Vec<D>(std::nan(""))));
}
/// Powers of two are exact.
template <class D> GW_FN Vec<D> log2(Vec<D> x) {
  const Split<D> s(x);
  return with_ends(x, fma(s.log_of_rest, Vec<D>(1.44269504088896340736), s.exponent));
}
/// The exponent times log10(2) in two parts, the first product exact: powers of ten come out whole.
template <class D> GW_FN Vec<D> log10(Vec<D> x) {
  using V = Vec<D>;
  const Split<D> s(x);
  const V high(kFloat<D> ? 0x1.3440000000000p-2 : 0x1.34413509f4000p-2),
      low(kFloat<D> ? 4.605038981195214e-06 : 8.241712586023572e-13);
  return with_ends(x, fma(s.exponent, high, fma(s.log_of_rest, V(0.43429448190325182765), s.exponent * low)));
}

// The C library's, a lane at a time.
#define GW_BY_LANE(name)                                             \
  template <class D> GW_FN Vec<D> name(Vec<D> x) {                   \
    return by_lane([](auto a) { return engine::math::name(a); }, x); \
  }
GW_BY_LANE(asin)
GW_BY_LANE(acos)
GW_BY_LANE(sinh)
GW_BY_LANE(cosh)
GW_BY_LANE(asinh)
GW_BY_LANE(atanh)
GW_BY_LANE(erf)
GW_BY_LANE(erfc)
#undef GW_BY_LANE

/// Highway's where its reduction of the argument is good, the C library's for the lanes beyond: what a lane gives must
/// not depend on its neighbours.
template <class D> GW_FN Mask<D> moderate(Vec<D> x) { return abs(x) < Vec<D>(30000.0); }
template <class D> GW_FN Vec<D> sin(Vec<D> x) {
  const Vec<D> zero(0.0);
  const Mask<D> near = moderate(x);
  const Vec<D> y(hn::Sin(D(), select(near, x, zero).v));
  if (hn::AllTrue(D(), near.m)) return select(x == zero, x, y);
  return select(near, select(x == zero, x, y), by_lane([](auto a) { return engine::math::sin(a); }, x));
}
template <class D> GW_FN Vec<D> cos(Vec<D> x) {
  const Mask<D> near = moderate(x);
  const Vec<D> y(hn::Cos(D(), select(near, x, Vec<D>(0.0)).v));
  if (hn::AllTrue(D(), near.m)) return y;
  return select(near, y, by_lane([](auto a) { return engine::math::cos(a); }, x));
}

template <class D> GW_FN Vec<D> pow(Vec<D> a, Vec<D> b) {
  return by_lane([](auto x, auto y) { return engine::math::pow(x, y); }, a, b);
}
template <class D> GW_FN Vec<D> tan(Vec<D> x) {
  const Vec<D> zero(0.0);
  const Mask<D> near = moderate(x);
  const Vec<D> y = select(near, x, zero), z = Vec<D>(hn::Sin(D(), y.v)) / Vec<D>(hn::Cos(D(), y.v));
  if (hn::AllTrue(D(), near.m)) return select(x == zero, x, z);
  return select(near, select(x == zero, x, z), by_lane([](auto a) { return engine::math::tan(a); }, x));
}
template <class D> GW_FN Vec<D> atan(Vec<D> x) {
  const Vec<D> quarter(1.57079632679489661923);
  const Vec<D> y = select(abs(x) == Vec<D>(HUGE_VAL), quarter, Vec<D>(hn::Atan(D(), abs(x).v)));
  return select(x == x, copysign(y, x), x);
}
/// The angle in the first octant, turned over.
template <class D> GW_FN Vec<D> atan2(Vec<D> y, Vec<D> x) {
  using V = Vec<D>;
  const V zero(0.0), one(1.0), inf(HUGE_VAL), quarter(1.57079632679489661923), half(3.14159265358979323846);
  const V ax = abs(x), ay = abs(y);
  const Mask<D> steep = ay > ax;
  const V large = select(steep, ay, ax), small = select(steep, ax, ay);
  const V t = select(large == zero, zero, select(small == inf, one, small / large));
  const V a(hn::Atan(D(), t.v));
  const V b = select(steep, quarter - a, a);
  const V c = copysign(select(copysign(one, x) < zero, half - b, b), y);
  return select(x == x, select(y == y, c, y), x);
}
/// An infinity wins over NaN.
template <class D> GW_FN Vec<D> hypot(Vec<D> a, Vec<D> b) {
  using V = Vec<D>;
  const V zero(0.0), inf(HUGE_VAL), p = abs(a), q = abs(b);
  const Mask<D> swap = p < q;
  const V large = select(swap, q, p), small = select(swap, p, q), t = small / large;
  const V y = select(large == zero, p + q, large * sqrt(fma(t, t, V(1.0))));
  return select(either(p == inf, q == inf), inf, select(p == p, y, p));
}

#if HWY_NATIVE_FMA
/// Whether the remainders of a / b can be told from a - n b, which is exact then.
template <class D> GW_FN bool divides_exactly(Vec<D> q, Vec<D> b) {
  return hn::AllTrue(D(), hn::And(hn::Lt(hn::Abs(q.v), Vec<D>(kFloat<D> ? 0x1p22 : 0x1p51).v),
                                  hn::Lt(hn::Abs(b.v), Vec<D>(kFloat<D> ? 0x1p126 : 0x1p1022).v)));
}
#endif
/// The rounded quotient may be a whole number where the true one is just below.
template <class D> GW_FN Vec<D> fmod(Vec<D> a, Vec<D> b) {
#if HWY_NATIVE_FMA
  using V = Vec<D>;
  const V q = a / b, zero(0.0), one(1.0);
  if (divides_exactly(q, b)) {
    const V n = trunc(q), rest = fma(-n, b, a);
    const V exact = select(copysign(one, a) * rest < zero, fma(copysign(one, q) - n, b, a), rest);
    return select(exact == zero, copysign(zero, a), exact);
  }
#endif
  return by_lane([](auto x, auto y) { return engine::math::fmod(x, y); }, a, b);
}
template <class D> GW_FN Vec<D> remainder(Vec<D> a, Vec<D> b) {
#if HWY_NATIVE_FMA
  using V = Vec<D>;
  const V q = a / b, zero(0.0), one(1.0);
  if (divides_exactly(q, b)) {
    const V n = floor(q), rest = fma(-n, b, a);
    const V exact = select(copysign(one, b) * rest < zero, fma(one - n, b, a), rest);
    return select(exact == zero, copysign(zero, a), exact);
  }
#endif
  return by_lane([](auto x, auto y) { return engine::math::remainder(x, y); }, a, b);
}

}  // namespace math
