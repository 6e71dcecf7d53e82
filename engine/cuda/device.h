#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/nest.h"

// What the .cu files share: errors, launches, types and places in strided views.

namespace gradwire::engine::cuda {

/// Throws Error{memory_limit} or Error{unavailable}, with the driver's text.
void check(cudaError_t, const char* what);

inline constexpr int kThreads = 256;
/// Blocks of a grid-stride loop over n elements.
inline int blocks_for(int64_t n) {
  return static_cast<int>(std::clamp<int64_t>((n + kThreads - 1) / kThreads, 1, 132 * 32));
}
__device__ inline int64_t first_element() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// kernel(args...) for n elements on the launch's stream; nothing for n == 0.
template <class... P, class... A> void start(void (*kernel)(P...), int64_t n, void* stream, A&&... args) {
  if (n == 0) return;
  kernel<<<blocks_for(n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(std::forward<A>(args)...);
  check(cudaGetLastError(), "launch");
}

/// Memory for one kernel, in the order of the stream.
class Scratch {
 public:
  Scratch(size_t bytes, void* stream);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  template <class T> T* as() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
};
/// Waits for the stream.
void copy_to_host(void* to, const void* from, size_t bytes, void* stream);

/// Where operand k of a nest stands at element i.
struct Place {
  char* at[kMaxOperands];
  __device__ Place(const Nest& n, int64_t i) {
    for (int k = 0; k < kMaxOperands; ++k) at[k] = k < n.operands ? n.at[k] : nullptr;
    for (int d = 0; d < n.ndim; ++d) {
      const bool last = d + 1 == n.ndim;
      const int64_t size = n.size[d];
      int64_t next = 0, here = i;
      if (!last) {
        // 64-bit division is slow here
        next = (i | size) >> 32 ? i / size : static_cast<uint32_t>(i) / static_cast<uint32_t>(size);
        here = i - next * size;
      }
      for (int k = 0; k < kMaxOperands; ++k) {
        if (k < n.operands) at[k] += here * n.stride[d][k];
      }
      i = next;
    }
  }
};

// Halves are computed in float, whole numbers as Int.
template <class T> inline constexpr bool kHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;
template <class T> inline constexpr bool kFloating = kHalf<T> || std::is_floating_point_v<T>;
template <class T> using Computed = std::conditional_t<kHalf<T>, float, T>;

template <class T> __device__ Computed<T> computed(T x) { return static_cast<Computed<T>>(x); }
template <class T> __device__ T stored(Computed<T> x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}
/// As the kernel `convert` does it.
template <class T, class F> __device__ T converted(F x) {
  if constexpr (kHalf<F>)
    return converted<T>(static_cast<float>(x));
  else if constexpr (kHalf<T>)
    return stored<T>(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, bool>)
    return x != F(0);
  else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<F>)
    return math::whole<T>(x);
  else
    return static_cast<T>(x);
}

template <class T> struct Type { using type = T; };
/// f(Type<T>()) for the type of the dtype.
template <class F> void with_floating(DType t, F&& f) {
  switch (t) {
    case DType::float16:
      return f(Type<__half>());
    case DType::bfloat16:
      return f(Type<__nv_bfloat16>());
    case DType::float64:
      return f(Type<double>());
    default:
      return f(Type<float>());
  }
}
template <class F> void with_type(DType t, F&& f) {
  switch (t) {
    case DType::boolean:
      return f(Type<bool>());
    case DType::uint8:
      return f(Type<uint8_t>());
    case DType::int8:
      return f(Type<int8_t>());
    case DType::int16:
      return f(Type<int16_t>());
    case DType::int32:
      return f(Type<int32_t>());
    case DType::int64:
      return f(Type<int64_t>());
    default:
      return with_floating(t, std::forward<F>(f));
  }
}
/// By size alone, for kernels that only move elements.
template <class F> void with_bytes(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(Type<uint8_t>());
    case 2:
      return f(Type<uint16_t>());
    case 4:
      return f(Type<uint32_t>());
    default:
      return f(Type<uint64_t>());
  }
}

}  // namespace gradwire::engine::cuda
