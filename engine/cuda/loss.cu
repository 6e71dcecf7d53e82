#include <string>

#include "engine/cuda/device.h"
#include "schema/error.h"

namespace gradwire::engine::cuda {
namespace {

/// A view of up to three dims that kernels can index.
template <class T> struct Grid {
  T* data;
  int64_t stride[3] = {};
  explicit Grid(const View& v) : data(static_cast<T*>(v.data)) {
    for (int d = 0; d < v.ndim; ++d) stride[d] = v.strides[d];
  }
  __device__ T& operator()(int64_t i, int64_t j = 0, int64_t k = 0) const {
    return data[i * stride[0] + j * stride[1] + k * stride[2]];
  }
};

struct Sizes {
  int64_t n, ends, ignored;
};

__global__ void first_bad(const Grid<int64_t> target, const Sizes s, const int64_t classes, unsigned long long* first) {
  for (int64_t i = first_element(); i < s.n * s.ends; i += all_threads()) {
    const int64_t t = target(i / s.ends, i % s.ends);
    if (t != s.ignored && (t < 0 || t >= classes)) atomicMin(first, static_cast<unsigned long long>(i));
  }
}

void check_targets(const View& target, const Sizes& s, int64_t classes, void* stream) {
  const Scratch flag(8, stream);
  check(cudaMemsetAsync(flag.as<void>(), 0xFF, 8, static_cast<cudaStream_t>(stream)), "clear");
  const Grid<int64_t> t(target);
  start(first_bad, s.n * s.ends, stream, t, s, classes, flag.as<unsigned long long>());
  uint64_t first;
  copy_to_host(&first, flag.as<void>(), 8, stream);
  if (first == UINT64_MAX) return;
  const auto i = static_cast<int64_t>(first);
  int64_t bad;
  copy_to_host(&bad, t.data + i / s.ends * t.stride[0] + i % s.ends * t.stride[1], 8, stream);
  throw Error(Code::index_out_of_range, "Target " + std::to_string(bad) + " is out of bounds.");
}

template <class T>
__global__ void pick(const Grid<T> out, const Grid<const T> input, const Grid<int64_t> target,
                     const Grid<const T> weight, const Sizes s) {
  for (int64_t i = first_element(); i < s.n * s.ends; i += all_threads()) {
    const int64_t n = i / s.ends, d = i % s.ends, t = target(n, d);
    out(n, d) = t == s.ignored ? stored<T>(0) : stored<T>(-computed(weight(t)) * computed(input(n, t, d)));
  }
}

template <class T>
__global__ void spread(const Grid<T> out, const Grid<const T> grad, const Grid<int64_t> target,
                       const Grid<const T> weight, const Sizes s) {
  for (int64_t i = first_element(); i < s.n * s.ends; i += all_threads()) {
    const int64_t n = i / s.ends, d = i % s.ends, t = target(n, d);
    if (t != s.ignored) out(n, t, d) = stored<T>(-computed(weight(t)) * computed(grad(n, d)));
  }
}

}  // namespace

void nll_pick(const Launch& l) {
  const View& out = l.out[0];
  const Sizes s{out.shape[0], out.shape[1], static_cast<const NllParams*>(l.params)->ignore_index};
  check_targets(l.in[1], s, l.in[0].shape[1], l.stream);
  with_floating(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    start(pick<T>, s.n * s.ends, l.stream, Grid<T>(out), Grid<const T>(l.in[0]), Grid<int64_t>(l.in[1]),
          Grid<const T>(l.in[2]), s);
  });
}

void nll_spread(const Launch& l) {
  const View& out = l.out[0];
  const Sizes s{out.shape[0], out.shape[2], static_cast<const NllParams*>(l.params)->ignore_index};
  check_targets(l.in[1], s, out.shape[1], l.stream);
  const FillParams zero{Scalar(0)};
  fill({.stream = l.stream, .out = l.out, .in = {}, .params = &zero});
  with_floating(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    start(spread<T>, s.n * s.ends, l.stream, Grid<T>(out), Grid<const T>(l.in[0]), Grid<int64_t>(l.in[1]),
          Grid<const T>(l.in[2]), s);
  });
}

}  // namespace gradwire::engine::cuda
