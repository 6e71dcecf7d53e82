#include <Random123/philox.h>

#include <cub/device/device_radix_sort.cuh>

#include "engine/cuda/device.h"

// As engine/cpu/random.cpp: the same words; logarithms and cosines may differ in their last bits.

namespace gradwire::engine::cuda {
namespace {

struct Words {
  uint32_t w[4];
};

__device__ Words draw(const RandomParams& p, uint64_t group) {
  const uint64_t c = p.offset + group;
  const r123::Philox4x32::ctr_type counter = {{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0, 0}};
  const r123::Philox4x32::key_type key = {{static_cast<uint32_t>(p.seed), static_cast<uint32_t>(p.seed >> 32)}};
  const auto r = r123::Philox4x32()(counter, key);
  return {{r[0], r[1], r[2], r[3]}};
}

template <class T> inline constexpr int kDrawn = std::is_same_v<T, double> ? 2 : 4;

__device__ uint64_t pair(const Words& w, int k) { return w.w[2 * k] | uint64_t{w.w[2 * k + 1]} << 32; }

template <class T> __device__ void uniforms(const Words& w, Computed<T>* out) {
  if constexpr (std::is_same_v<T, double>) {
    for (int k = 0; k < 2; ++k) out[k] = static_cast<double>(pair(w, k) >> 11) * 0x1p-53;
  } else {
    constexpr int bits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, __half> ? 11 : 8;
    for (int k = 0; k < 4; ++k) out[k] = static_cast<float>(w.w[k] >> (32 - bits)) * (1.0f / (1 << bits));
  }
}

__device__ void normal_pair(float u, float v, float* out) {
  const float radius = sqrtf(-2.0f * logf(u));
  float sine, cosine;
  sincospif(2.0f * v, &sine, &cosine);
  out[0] = radius * cosine, out[1] = radius * sine;
}
__device__ void normal_pair(double u, double v, double* out) {
  const double radius = sqrt(-2.0 * log(u));
  double sine, cosine;
  sincospi(2.0 * v, &sine, &cosine);
  out[0] = radius * cosine, out[1] = radius * sine;
}
template <class T> __device__ void normals(const Words& w, Computed<T>* out) {
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

template <class T, bool normal> __global__ void draw_each(T* to, const int64_t n, const RandomParams p) {
  constexpr int drawn = kDrawn<T>;
  for (int64_t g = first_element(); g * drawn < n; g += all_threads()) {
    Computed<T> some[drawn];
    const Words w = draw(p, static_cast<uint64_t>(g));
    if constexpr (normal)
      normals<T>(w, some);
    else
      uniforms<T>(w, some);
    for (int k = 0; k < drawn && g * drawn + k < n; ++k) to[g * drawn + k] = stored<T>(some[k]);
  }
}

template <bool normal> void run(const Launch& l) {
  with_floating(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = l.out[0].numel();
    start(draw_each<T, normal>, n, l.stream, static_cast<T*>(l.out[0].data), n,
          *static_cast<const RandomParams*>(l.params));
  });
}

template <class T> __global__ void whole_each(T* to, const int64_t n, const WholeParams p) {
  for (int64_t g = first_element(); 2 * g < n; g += all_threads()) {
    const Words w = draw(p.random, static_cast<uint64_t>(g));
    for (int k = 0; k < 2 && 2 * g + k < n; ++k) {
      const uint64_t bits = pair(w, k), x = p.range == 0 ? bits : __umul64hi(bits, p.range);
      to[2 * g + k] = converted<T>(static_cast<int64_t>(static_cast<uint64_t>(p.low) + x));
    }
  }
}

__global__ void number_each(int64_t* to, const int64_t n) {
  for (int64_t i = first_element(); i < n; i += all_threads()) to[i] = i;
}

}  // namespace

void whole(const Launch& l) {
  with_type(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = l.out[0].numel();
    start(whole_each<T>, n, l.stream, static_cast<T*>(l.out[0].data), n, *static_cast<const WholeParams*>(l.params));
  });
}

void permutation(const Launch& l) {
  const int64_t n = l.out[0].numel();
  if (n == 0) return;
  const auto stream = static_cast<cudaStream_t>(l.stream);
  auto *keys = static_cast<uint64_t*>(l.out[1].data), *sorted = keys + n;
  auto* numbers = reinterpret_cast<int64_t*>(sorted + n);
  WholeParams p;
  p.random = *static_cast<const RandomParams*>(l.params);
  start(whole_each<int64_t>, n, l.stream, reinterpret_cast<int64_t*>(keys), n, p);
  start(number_each, n, l.stream, numbers, n);
  auto* out = static_cast<int64_t*>(l.out[0].data);
  size_t bytes = 0;
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted, numbers, out, n, 0, 64, stream), "sort");
  const Scratch room(bytes, l.stream);
  check(cub::DeviceRadixSort::SortPairs(room.as<void>(), bytes, keys, sorted, numbers, out, n, 0, 64, stream), "sort");
}

void uniform(const Launch& l) { run<false>(l); }
void normal(const Launch& l) { run<true>(l); }

}  // namespace gradwire::engine::cuda
