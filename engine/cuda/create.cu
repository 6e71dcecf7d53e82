#include "engine/cuda/device.h"

// As engine/cpu/create.cpp; powers may differ in their last bits.

namespace gradwire::engine::cuda {
namespace {

template <class T> __global__ void sequence_each(T* out, const int64_t n, const SequenceParams p) {
  for (int64_t i = first_element(); i < n; i += all_threads()) {
    if constexpr (std::is_integral_v<T>) {
      if (p.kind == SequenceParams::steps) {
        out[i] = static_cast<T>(static_cast<uint64_t>(p.whole_start) +
                                static_cast<uint64_t>(i) * static_cast<uint64_t>(p.whole_step));
        continue;
      }
    }
    const bool near_start = p.kind == SequenceParams::steps || i < n / 2;
    const double x =
        near_start ? p.start + static_cast<double>(i) * p.step : p.end - static_cast<double>(n - 1 - i) * p.step;
    out[i] = converted<T>(p.kind == SequenceParams::powers ? pow(p.base, x) : x);
  }
}

template <class T>
__global__ void triangle_each(const Nest n, const int64_t height, const int64_t width, const TriangleParams p) {
  for (int64_t i = first_element(); i < n.total; i += all_threads()) {
    const int64_t column = i % width, edge = i / width % height + p.diagonal;
    if (p.lower ? column > edge : column < edge) *reinterpret_cast<T*>(Place(n, i).at[0]) = T(0);
  }
}

}  // namespace

void sequence(const Launch& l) {
  const int64_t n = l.out[0].numel();
  with_type(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    start(sequence_each<T>, n, l.stream, static_cast<T*>(l.out[0].data), n,
          *static_cast<const SequenceParams*>(l.params));
  });
}

void triangle(const Launch& l) {
  const View& out = l.out[0];
  const Nest n = nest_of({&out, 1}, true);
  if (n.total == 0) return;
  with_bytes(n.bytes[0], [&](auto type) {
    start(triangle_each<typename decltype(type)::type>, n.total, l.stream, n, out.shape[out.ndim - 2],
          out.shape[out.ndim - 1], *static_cast<const TriangleParams*>(l.params));
  });
}

}  // namespace gradwire::engine::cuda
