#include "engine/cpu/cascade.h"

#include <cstring>

namespace gradwire::engine::cpu {
namespace {

// Four vectors of 32 bytes: enough additions in flight to hide their latency.
template <class T> [[gnu::always_inline]] inline T sum_lanes(const T* p, int64_t n) {
  typedef T V __attribute__((vector_size(32)));
  constexpr int64_t kLanes = 32 / sizeof(T), kAll = 4 * kLanes;
  int64_t i = 0;
  T s = 0;
  if (n >= kAll) {
    V a[4] = {}, x;
    for (; i + kAll <= n; i += kAll) {
      for (int k = 0; k < 4; ++k) {
        std::memcpy(&x, p + i + k * kLanes, 32);
        a[k] += x;
      }
    }
    const V all = (a[0] + a[1]) + (a[2] + a[3]);
    T pairs[kLanes];
    std::memcpy(pairs, &all, 32);
    for (int64_t w = kLanes / 2; w > 0; w /= 2) {
      for (int64_t j = 0; j < w; ++j) pairs[j] += pairs[j + w];
    }
    s = pairs[0];
  }
  for (; i < n; ++i) s += p[i];
  return s;
}

template <class T> [[gnu::always_inline]] inline void add_lanes(T* to, const T* const from[4], int64_t n) {
  const T *a = from[0], *b = from[1], *c = from[2], *d = from[3];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += (a[i] + b[i]) + (c[i] + d[i]);
}

}  // namespace

GW_CLONES float sum_block(const float* p, int64_t n) { return sum_lanes(p, n); }
GW_CLONES double sum_block(const double* p, int64_t n) { return sum_lanes(p, n); }
GW_CLONES uint64_t sum_block(const uint64_t* p, int64_t n) { return sum_lanes(p, n); }
GW_CLONES void add_four(float* to, const float* const from[4], int64_t n) { add_lanes(to, from, n); }
GW_CLONES void add_four(double* to, const double* const from[4], int64_t n) { add_lanes(to, from, n); }
GW_CLONES void add_four(uint64_t* to, const uint64_t* const from[4], int64_t n) { add_lanes(to, from, n); }

}  // namespace gradwire::engine::cpu
