#include <Random123/philox.h>

#include <cmath>
#include <numbers>

#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"

// Random numbers: element i depends on the seed, the offset and i alone (see kernels.h), so threads may share the work.

namespace gradwire::engine::cpu {
namespace {

struct Words {
  uint32_t w[4];
};

Words draw(const RandomParams& p, uint64_t element_group) {
  const uint64_t c = p.offset + element_group;
  const r123::Philox4x32::ctr_type counter = {{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0, 0}};
  const r123::Philox4x32::key_type key = {{static_cast<uint32_t>(p.seed), static_cast<uint32_t>(p.seed >> 32)}};
  const auto r = r123::Philox4x32()(counter, key);
  return {{r[0], r[1], r[2], r[3]}};
}

/// Elements of one counter: 4, or 2 of float64.
template <class T> inline constexpr int64_t kDrawn = std::is_same_v<T, double> ? 2 : 4;

uint64_t pair(const Words& w, int64_t k) { return w.w[2 * k] | uint64_t{w.w[2 * k + 1]} << 32; }

/// Multiples of 2^-bits that T holds, so that no draw is rounded up to 1.
template <class T> void uniforms(const Words& w, Computed<T>* out) {
  if constexpr (std::is_same_v<T, double>) {
    for (int k = 0; k < 2; ++k) out[k] = static_cast<double>(pair(w, k) >> 11) * 0x1p-53;
  } else {
    constexpr int bits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, float16> ? 11 : 8;
    for (int k = 0; k < 4; ++k) out[k] = static_cast<float>(w.w[k] >> (32 - bits)) * (1.0f / (1 << bits));
  }
}

/// Box and Muller: two uniform draws, the first in (0, 1], make two independent normal ones.
template <class C> void normal_pair(C u, C v, C* out) {
  const C radius = std::sqrt(C(-2) * std::log(u)), angle = C(2 * std::numbers::pi) * v;
  out[0] = radius * std::cos(angle), out[1] = radius * std::sin(angle);
}
template <class T> void normals(const Words& w, Computed<T>* out) {
  if constexpr (std::is_same_v<T, double>) {
    normal_pair(static_cast<double>((pair(w, 0) >> 11) + 1) * 0x1p-53, static_cast<double>(pair(w, 1) >> 11) * 0x1p-53,
                out);
  } else {
    for (int k = 0; k < 4; k += 2) {
      normal_pair(static_cast<float>((w.w[k] >> 8) + 1) * 0x1p-24f, static_cast<float>(w.w[k + 1] >> 8) * 0x1p-24f,
                  out + k);
    }
  }
}

template <class T> using Draw = void (*)(const Words&, Computed<T>*);

template <class T> void fill_with(const View& out, const RandomParams& p, Draw<T> f) {
  const int64_t n = out.numel(), groups = (n + kDrawn<T> - 1) / kDrawn<T>;
  T* to = static_cast<T*>(out.data);
#pragma omp parallel for schedule(static) if (n > kParallel / 8)
  for (int64_t g = 0; g < groups; ++g) {
    Computed<T> some[kDrawn<T>];
    f(draw(p, static_cast<uint64_t>(g)), some);
    const int64_t first = g * kDrawn<T>;
    for (int64_t k = 0; k < kDrawn<T> && first + k < n; ++k) to[first + k] = stored<T>(some[k]);
  }
}

}  // namespace

void uniform(const Launch& l) {
  with_floating(l.out[0].dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    fill_with<T>(l.out[0], *static_cast<const RandomParams*>(l.params), uniforms<T>);
  });
}

void normal(const Launch& l) {
  with_floating(l.out[0].dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    fill_with<T>(l.out[0], *static_cast<const RandomParams*>(l.params), normals<T>);
  });
}

}  // namespace gradwire::engine::cpu
