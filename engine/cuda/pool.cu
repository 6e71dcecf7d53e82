#include <cmath>

#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

/// Sizes, with spatial dims that are not there as 1 in front. As in cpu/pool.cpp.
struct Sizes {
  int64_t in[3], out[3];
  PoolParams p;
  Sizes(const View& x, const View& y, const PoolParams& given) {
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
};

template <class T> __global__ void largest(const Sizes s, const int64_t n, const T* x, T* y, int64_t* places) {
  for (int64_t e = first_element(); e < n; e += all_threads()) {
    const int64_t o2 = e % s.out[2], o1 = e / s.out[2] % s.out[1], o0 = e / s.out[2] / s.out[1] % s.out[0];
    const T* plane = x + e / s.out[2] / s.out[1] / s.out[0] * (s.in[0] * s.in[1] * s.in[2]);
    int64_t best = -1;
    Computed<T> most = 0;
    for (int64_t k0 = 0; k0 < s.p.kernel[0]; ++k0) {
      const int64_t i0 = o0 * s.p.stride[0] - s.p.padding[0] + k0 * s.p.dilation[0];
      if (i0 < 0 || i0 >= s.in[0]) continue;
      for (int64_t k1 = 0; k1 < s.p.kernel[1]; ++k1) {
        const int64_t i1 = o1 * s.p.stride[1] - s.p.padding[1] + k1 * s.p.dilation[1];
        if (i1 < 0 || i1 >= s.in[1]) continue;
        for (int64_t k2 = 0; k2 < s.p.kernel[2]; ++k2) {
          const int64_t i2 = o2 * s.p.stride[2] - s.p.padding[2] + k2 * s.p.dilation[2];
          if (i2 < 0 || i2 >= s.in[2]) continue;
          const int64_t at = (i0 * s.in[1] + i1) * s.in[2] + i2;
          const Computed<T> v = computed(plane[at]);
          if (best < 0 || v > most || (v != v && most == most)) best = at, most = v;
        }
      }
    }
    y[e] = best < 0 ? stored<T>(-INFINITY) : plane[best], places[e] = best < 0 ? 0 : best;  // no tap inside
  }
}

}  // namespace

void max_pool(const Launch& l) {
  const Sizes s(l.in[0], l.out[0], *static_cast<const PoolParams*>(l.params));
  const int64_t n = l.out[0].numel();
  with_floating(l.out[0].dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    start(largest<T>, n, l.stream, s, n, static_cast<const T*>(l.in[0].data), static_cast<T*>(l.out[0].data),
          static_cast<int64_t*>(l.out[1].data));
  });
}

}  // namespace gradwire::engine::cuda
