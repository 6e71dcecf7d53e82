// Random numbers: element i depends on the seed, the offset and i alone (see kernels.h), so threads may share the work.
// Compiled once for each SIMD target, by Highway's foreach_target; the processor decides which one is used.
#include "engine/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/random.cpp"
#include "hwy/foreach_target.h"  // must come first

#include <Random123/philox.h>

#include <algorithm>
#include <numbers>

#include "engine/cpu/convert.h"
#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/cpu/pointwise-top.h"
#include "engine/cpu/rows.h"
#include "engine/kernels.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::engine::cpu::HWY_NAMESPACE {

#undef GW_FN
#define GW_FN HWY_ATTR HWY_INLINE

#include "engine/cpu/simd.h"

/// The words of counters [first, first + groups), four each.
HWY_ATTR void philox_words(uint64_t seed, uint64_t first, int64_t groups, uint32_t* out) {
  int64_t g = 0;
#if HWY_TARGET != HWY_SCALAR
  // A counter a lane of 64 bits, whose upper half is never looked at: only even 32-bit lanes are multiplied.
  const hn::ScalableTag<uint64_t> d;
  const hn::RepartitionToNarrow<decltype(d)> half;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  uint64_t order[kLanes];  // so that interleaving within blocks of 128 bits puts the words of counter after counter
  for (int64_t l = 0; l < kLanes; ++l) order[l] = static_cast<uint64_t>(l % 2 * (kLanes / 2) + l / 2);
  const auto low_half = hn::Set(d, 0xFFFFFFFF), lanes = hn::LoadU(d, order);
  const auto multiply = [&](auto x, uint32_t by)
                            HWY_ATTR { return hn::MulEven(hn::BitCast(half, x), hn::Set(half, by)); };
  for (; g + kLanes <= groups; g += kLanes) {
    auto c0 = hn::Add(hn::Set(d, first + static_cast<uint64_t>(g)), lanes), c1 = hn::ShiftRight<32>(c0);
    auto c2 = hn::Zero(d), c3 = hn::Zero(d);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const auto p0 = multiply(c0, 0xD2511F53), p1 = multiply(c2, 0xCD9E8D57);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
      c1 = p1, c3 = p0;
    }
    const auto a = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
    const auto b = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
    auto* to = reinterpret_cast<uint64_t*>(out + 4 * g);
    hn::StoreU(hn::InterleaveLower(d, a, b), d, to);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, to + kLanes);
  }
#endif
  for (; g < groups; ++g) {
    const uint64_t c = first + static_cast<uint64_t>(g);
    const r123::Philox4x32::ctr_type counter = {{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0, 0}};
    const r123::Philox4x32::key_type key = {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
    const auto r = r123::Philox4x32()(counter, key);
    for (int k = 0; k < 4; ++k) out[4 * g + k] = r[k];
  }
}

/// sin and cos of 2 pi v, 0 <= v < 1: v is a quarter turn's multiple plus f, exactly; |f| <= 1/8.
template <class D> GW_FN void turn(Vec<D> v, Vec<D>& sine, Vec<D>& cosine) {
  using V = Vec<D>;
  const V quarters(hn::Round((v * V(4.0)).v)), f = v - quarters * V(0.25), s = f * f;
  const V a =
      f * math::poly(s, V(42.0586939448920), -76.7058597530614, 81.6052492760750, -41.3417022403998, 6.28318530717959);
  const V b = math::poly(s, V(-26.4262567833744), 60.2446413718766, -85.4568172066937, 64.9393940226683,
                         -19.7392088021787, 1.0);
  const auto is = [&](double q) HWY_ATTR { return quarters == V(q); };
  const Mask<D> odd{hn::Or(is(1).m, is(3).m)};
  const V x = math::select(odd, b, a), y = math::select(odd, a, b);
  sine = math::select(Mask<D>{hn::Or(is(2).m, is(3).m)}, -x, x);
  cosine = math::select(Mask<D>{hn::Or(is(1).m, is(2).m)}, -y, y);
}

/// Box and Muller: two words, the first as a number in (0, 1], make two independent normal draws; n words are even.
HWY_ATTR void normal_floats(const uint32_t* words, int64_t n, float* out) {
  using D = hn::ScalableTag<float>;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  using V = Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  for (int64_t i = 0; i < n; i += 2 * kLanes) {  // the buffers have room for whole vectors
    hn::Vec<decltype(du)> first, second;
    hn::LoadInterleaved2(du, words + i, first, second);
    const auto real = [&](auto x) HWY_ATTR { return V(hn::ConvertTo(D(), hn::BitCast(di, hn::ShiftRight<8>(x)))); };
    const V u = (real(first) + V(1.0)) * V(0x1p-24), v = real(second) * V(0x1p-24);
    const V radius = math::sqrt(V(-2.0) * math::log(u));
    V sine(0.0), cosine(0.0);
    turn(v, sine, cosine);
    hn::StoreInterleaved2((radius * cosine).v, (radius * sine).v, D(), out + i);
  }
}

}  // namespace gradwire::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::engine::cpu {
namespace {

HWY_EXPORT(philox_words);
HWY_EXPORT(normal_floats);

constexpr int64_t kWords = 2048;  // of a block, in the first cache

__extension__ typedef unsigned __int128 Wide;
uint64_t pair(const uint32_t* w) { return w[0] | uint64_t{w[1]} << 32; }

// How a block of words becomes numbers.

void uniforms(const uint32_t* w, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(pair(w + 2 * i) >> 11) * 0x1p-53;
}
/// Multiples of 2^-bits, as many as the stored type holds, so that no draw is rounded up to 1.
template <int bits> void uniforms(const uint32_t* w, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(static_cast<int32_t>(w[i] >> (32 - bits))) * (1.0f / (1 << bits));
}
void normals(const uint32_t* w, int64_t n, double* out) {
  for (int64_t i = 0; i < n; i += 2) {
    const double u = static_cast<double>((pair(w + 2 * i) >> 11) + 1) * 0x1p-53,
                 v = static_cast<double>(pair(w + 2 * i + 2) >> 11) * 0x1p-53;
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    out[i] = radius * std::cos(angle);
    if (i + 1 < n) out[i + 1] = radius * std::sin(angle);
  }
}

template <bool normal, class T> void fill_with(const View& out, const RandomParams& p) {
  using C = Computed<T>;
  constexpr int64_t words = std::is_same_v<T, double> ? 2 : 1;  // of an element
  constexpr int bits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, float16> ? 11 : 8;
  const int64_t n = out.numel(), block = kWords / words, blocks = (n + block - 1) / block;
  T* to = static_cast<T*>(out.data);
#pragma omp parallel for schedule(static) if (n > kParallel / 4)
  for (int64_t b = 0; b < blocks; ++b) {
    alignas(64) uint32_t w[kWords];
    alignas(64) C some[kWords];
    const int64_t first = b * block, here = std::min(block, n - first), groups = (here * words + 3) / 4;
    HWY_DYNAMIC_DISPATCH(philox_words)(p.seed, p.offset + static_cast<uint64_t>(b * (kWords / 4)), groups, w);
    if constexpr (std::is_same_v<T, double>) {
      normal ? normals(w, here, some) : uniforms(w, here, some);
    } else if constexpr (normal) {
      for (int64_t i = 4 * groups; i < std::min(kWords, 4 * groups + 32); ++i) w[i] = 0;  // whole vectors are read
      HWY_DYNAMIC_DISPATCH(normal_floats)(w, here, some);
    } else {
      uniforms<bits>(w, here, some);
    }
    if constexpr (kHalf<T>)
      from_float(some, to + first, here);
    else
      std::copy_n(some, here, to + first);
  }
}

template <class T> void whole_as(const View& out, const WholeParams& p) {
  const int64_t n = out.numel(), block = kWords / 2, blocks = (n + block - 1) / block;
  T* to = static_cast<T*>(out.data);
#pragma omp parallel for schedule(static) if (n > kParallel / 4)
  for (int64_t b = 0; b < blocks; ++b) {
    alignas(64) uint32_t w[kWords];
    const int64_t first = b * block, here = std::min(block, n - first);
    HWY_DYNAMIC_DISPATCH(philox_words)
    (p.random.seed, p.random.offset + static_cast<uint64_t>(b * (kWords / 4)), (here + 1) / 2, w);
    for (int64_t i = 0; i < here; ++i) {
      const uint64_t bits = pair(w + 2 * i);
      const uint64_t x = p.range == 0 ? bits : static_cast<uint64_t>(Wide{bits} * p.range >> 64);
      to[first + i] = converted<T>(static_cast<int64_t>(static_cast<uint64_t>(p.low) + x));
    }
  }
}

struct Numbered {
  uint64_t key;
  int64_t number;
  bool operator<(const Numbered& o) const { return key < o.key || (key == o.key && number < o.number); }
};

/// By the upper 33 bits in three rounds, stable; what is equal there stands together and is few.
void sort(Numbered* v, Numbered* other, int64_t n) {
  constexpr int kBits = 11, kBuckets = 1 << kBits;
  Numbered* const home = v;
  for (int shift = 64 - 3 * kBits; shift < 64; shift += kBits) {
    int64_t starts[kBuckets + 1] = {};
    const auto bucket = [shift](const Numbered& x) { return x.key >> shift & (kBuckets - 1); };
    for (int64_t i = 0; i < n; ++i) ++starts[bucket(v[i]) + 1];
    for (int b = 0; b < kBuckets; ++b) starts[b + 1] += starts[b];
    for (int64_t i = 0; i < n; ++i) other[starts[bucket(v[i])]++] = v[i];
    std::swap(v, other);
  }
  std::copy_n(v, n, home);
  for (int64_t i = 1; i < n; ++i) {
    for (int64_t k = i; k > 0 && home[k] < home[k - 1]; --k) std::swap(home[k], home[k - 1]);
  }
}

}  // namespace

void whole(const Launch& l) {
  with_type(l.out[0].dtype, [&](auto t) {
    whole_as<typename decltype(t)::type>(l.out[0], *static_cast<const WholeParams*>(l.params));
  });
}

void permutation(const Launch& l) {
  const View& out = l.out[0];
  const int64_t n = out.numel();
  whole_as<int64_t>(out, {*static_cast<const RandomParams*>(l.params)});
  auto *to = static_cast<int64_t*>(out.data), *room = static_cast<int64_t*>(l.out[1].data);
  auto *order = reinterpret_cast<Numbered*>(room), *other = reinterpret_cast<Numbered*>(room + 2 * n);
  for (int64_t i = 0; i < n; ++i) order[i] = {static_cast<uint64_t>(to[i]), i};
  if (n < 4096)
    std::sort(order, order + n);
  else
    sort(order, other, n);
  for (int64_t i = 0; i < n; ++i) to[i] = order[i].number;
}

void uniform(const Launch& l) {
  with_floating(l.out[0].dtype, [&](auto t) {
    fill_with<false, typename decltype(t)::type>(l.out[0], *static_cast<const RandomParams*>(l.params));
  });
}

void normal(const Launch& l) {
  with_floating(l.out[0].dtype, [&](auto t) {
    fill_with<true, typename decltype(t)::type>(l.out[0], *static_cast<const RandomParams*>(l.params));
  });
}

}  // namespace gradwire::engine::cpu
#endif
