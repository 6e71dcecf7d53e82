#include <cmath>

#include "engine/cpu/dispatch.h"
#include "engine/kernels.h"

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kThreaded = 4096;

/// Sizes, with spatial dims that are not there as 1 in front.
struct Sizes {
  int64_t planes, in[3], out[3];
  PoolParams p;
  Sizes(const View& x, const View& y, const PoolParams& given) : planes(x.shape[0] * x.shape[1]) {
    const int missing = 5 - x.ndim;
    for (int d = 0; d < 3; ++d) {
      const int s = d - missing;
      in[d] = s >= 0 ? x.shape[2 + s] : 1, out[d] = s >= 0 ? y.shape[2 + s] : 1;
      if (s >= 0) {
        p.kernel[d] = given.kernel[s], p.stride[d] = given.stride[s];
        p.padding[d] = given.padding[s], p.dilation[d] = given.dilation[s];
      }
    }
  }
  /// The first tap along dim d, from output o, that lies inside; taps go on from there.
  int64_t first(int d, int64_t o) const {
    const int64_t at = o * p.stride[d] - p.padding[d];
    return at >= 0 ? 0 : (-at + p.dilation[d] - 1) / p.dilation[d];
  }
};

template <class T> void plane(const Sizes& s, const T* x, T* y, int64_t* places) {
  int64_t o[3];
  for (o[0] = 0; o[0] < s.out[0]; ++o[0]) {
    for (o[1] = 0; o[1] < s.out[1]; ++o[1]) {
      for (o[2] = 0; o[2] < s.out[2]; ++o[2], ++y, ++places) {
        int64_t best = -1;
        Computed<T> most = 0;
        for (int64_t k0 = s.first(0, o[0]); k0 < s.p.kernel[0]; ++k0) {
          const int64_t i0 = o[0] * s.p.stride[0] - s.p.padding[0] + k0 * s.p.dilation[0];
          if (i0 >= s.in[0]) break;
          for (int64_t k1 = s.first(1, o[1]); k1 < s.p.kernel[1]; ++k1) {
            const int64_t i1 = o[1] * s.p.stride[1] - s.p.padding[1] + k1 * s.p.dilation[1];
            if (i1 >= s.in[1]) break;
            const int64_t line = (i0 * s.in[1] + i1) * s.in[2];
            for (int64_t k2 = s.first(2, o[2]); k2 < s.p.kernel[2]; ++k2) {
              const int64_t i2 = o[2] * s.p.stride[2] - s.p.padding[2] + k2 * s.p.dilation[2];
              if (i2 >= s.in[2]) break;
              const Computed<T> v = computed(x[line + i2]);
              if (best < 0 || v > most || (v != v && most == most)) best = line + i2, most = v;
            }
          }
        }
        *y = best < 0 ? stored<T>(-INFINITY) : x[best], *places = best < 0 ? 0 : best;  // no tap inside
      }
    }
  }
}

}  // namespace

void max_pool(const Launch& l) {
  const Sizes s(l.in[0], l.out[0], *static_cast<const PoolParams*>(l.params));
  const int64_t n = s.in[0] * s.in[1] * s.in[2], m = s.out[0] * s.out[1] * s.out[2];
  with_floating(l.out[0].dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    const T* x = static_cast<const T*>(l.in[0].data);
    T* y = static_cast<T*>(l.out[0].data);
    auto* places = static_cast<int64_t*>(l.out[1].data);
#pragma omp parallel for schedule(static) if (s.planes * m > kThreaded)
    for (int64_t i = 0; i < s.planes; ++i) plane(s, x + i * n, y + i * m, places + i * m);
  });
}

}  // namespace gradwire::engine::cpu
