#include <cmath>

#include <string>

#include "engine/cuda/device.h"
#include "schema/error.h"

namespace gradwire::engine::cuda {
namespace {

/// Sizes, with spatial dims that are not there as 1 in front. As in cpu/pool.cpp.
struct Sizes {
  int64_t in[3], out[3];
  PoolParams p;
  Sizes(const View& x, const View& y, const PoolParams& given) {
    const int missing = 5 - x.ndim;
    p.adaptive = given.adaptive;
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

/// The places along dim d that output o reads: at, at + step, ... < end.
struct Taps {
  int64_t at, end, step;
  __device__ Taps(const Sizes& s, int d, int64_t o) : step(s.p.dilation[d]) {
    if (s.p.adaptive) {
      at = o * s.in[d] / s.out[d], end = ((o + 1) * s.in[d] + s.out[d] - 1) / s.out[d];
      return;
    }
    const int64_t start = o * s.p.stride[d] - s.p.padding[d];
    at = start >= 0 ? start : start + (-start + step - 1) / step * step;
    end = min(start + (s.p.kernel[d] - 1) * step + 1, s.in[d]);
  }
};

template <class T> __global__ void largest(const Sizes s, const int64_t n, const T* x, T* y, int64_t* places) {
  for (int64_t e = first_element(); e < n; e += all_threads()) {
    const int64_t o2 = e % s.out[2], o1 = e / s.out[2] % s.out[1], o0 = e / s.out[2] / s.out[1] % s.out[0];
    const T* plane = x + e / s.out[2] / s.out[1] / s.out[0] * (s.in[0] * s.in[1] * s.in[2]);
    int64_t best = -1;
    Computed<T> most = 0;
    const Taps t0(s, 0, o0), t1(s, 1, o1), t2(s, 2, o2);
    for (int64_t i0 = t0.at; i0 < t0.end; i0 += t0.step) {
      for (int64_t i1 = t1.at; i1 < t1.end; i1 += t1.step) {
        for (int64_t i2 = t2.at; i2 < t2.end; i2 += t2.step) {
          const int64_t at = (i0 * s.in[1] + i1) * s.in[2] + i2;
          const Computed<T> v = computed(plane[at]);
          if (best < 0 || v > most || (v != v && most == most)) best = at, most = v;
        }
      }
    }
    y[e] = best < 0 ? stored<T>(-INFINITY) : plane[best], places[e] = best < 0 ? 0 : best;  // no tap inside
  }
}

__global__ void first_bad(const int64_t n, const int64_t size, const int64_t* places, unsigned long long* first) {
  for (int64_t i = first_element(); i < n; i += all_threads()) {
    if (places[i] < 0 || places[i] >= size) atomicMin(first, static_cast<unsigned long long>(i));
  }
}
const int64_t* checked_places(const View& places, int64_t size, void* stream) {
  const auto* p = static_cast<const int64_t*>(places.data);
  const Scratch flag(8, stream);
  check(cudaMemsetAsync(flag.as<void>(), 0xFF, 8, static_cast<cudaStream_t>(stream)), "clear");
  start(first_bad, places.numel(), stream, places.numel(), size, p, flag.as<unsigned long long>());
  uint64_t first;
  copy_to_host(&first, flag.as<void>(), 8, stream);
  if (first == UINT64_MAX) return p;
  int64_t bad;
  copy_to_host(&bad, p + first, 8, stream);
  throw Error(Code::index_out_of_range,
              "place " + std::to_string(bad) + " is out of bounds for a plane of " + std::to_string(size));
}

/// A thread a row, in the order of its places: sums do not depend on how threads meet.
template <class T>
__global__ void put(const int64_t rows, const int64_t n, const int64_t m, const T* in, const int64_t* places, T* out) {
  for (int64_t r = first_element(); r < rows; r += all_threads()) {
    for (int64_t i = 0; i < n; ++i) out[r * n + i] = 0;
    for (int64_t k = 0; k < m; ++k) out[r * n + places[r * m + k]] += in[r * m + k];
  }
}
template <class T>
__global__ void take(const int64_t all, const int64_t n, const int64_t m, const T* in, const int64_t* places, T* out) {
  for (int64_t e = first_element(); e < all; e += all_threads()) out[e] = in[e / m * n + places[e]];
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

void put_places(const Launch& l) {
  const int64_t n = l.out[0].shape[l.out[0].ndim - 1], m = l.in[1].shape[l.in[1].ndim - 1];
  const int64_t* places = checked_places(l.in[1], n, l.stream);
  const int64_t rows = n == 0 ? 0 : l.out[0].numel() / n;
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    start(put<T>, rows, l.stream, rows, n, m, static_cast<const T*>(l.in[0].data), places,
          static_cast<T*>(l.out[0].data));
  };
  l.out[0].dtype == DType::float64 ? run(Type<double>()) : run(Type<float>());
}

void take_places(const Launch& l) {
  const int64_t n = l.in[0].shape[l.in[0].ndim - 1], m = l.in[1].shape[l.in[1].ndim - 1], all = l.out[0].numel();
  const int64_t* places = checked_places(l.in[1], n, l.stream);
  with_bytes(size_of(l.out[0].dtype), [&](auto type) {
    using T = typename decltype(type)::type;
    start(take<T>, all, l.stream, all, n, m, static_cast<const T*>(l.in[0].data), places,
          static_cast<T*>(l.out[0].data));
  });
}

}  // namespace gradwire::engine::cuda
