#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

template <class T>
__global__ void bands(const ResampleParams p, const int64_t n, const int64_t from, const int64_t after, const T* in,
                      T* out) {
  for (int64_t e = first_element(); e < n; e += all_threads()) {
    const int64_t a = e % after, o = e / after % p.m, b = e / after / p.m;
    const int64_t first = p.start[o], count = p.start[p.m + o];
    T sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      const double w = p.kind == ResampleParams::by_result   ? p.weight[o]
                       : p.kind == ResampleParams::by_source ? p.weight[first + k]
                                                             : p.weight[p.start[2 * p.m + o] + k];
      sum += static_cast<T>(w) * in[(b * from + first + k) * after + a];
    }
    out[e] = sum;
  }
}

}  // namespace

void resample(const Launch& l) {
  ResampleParams p = *static_cast<const ResampleParams*>(l.params);
  const int64_t n = l.out[0].numel();
  const size_t starts = static_cast<size_t>(p.starts) * sizeof(int64_t),
               weights = static_cast<size_t>(p.weights) * sizeof(double);
  const Scratch scratch(starts + weights, l.stream);
  auto* start_at = scratch.as<int64_t>();
  auto* weight_at = reinterpret_cast<double*>(start_at + p.starts);
  const auto stream = static_cast<cudaStream_t>(l.stream);
  // from pageable memory: it has been read when the call returns
  check(cudaMemcpyAsync(start_at, p.start, starts, cudaMemcpyHostToDevice, stream), "copy");
  check(cudaMemcpyAsync(weight_at, p.weight, weights, cudaMemcpyHostToDevice, stream), "copy");
  p.start = start_at, p.weight = weight_at;
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    start(bands<T>, n, l.stream, p, n, l.in[0].shape[1], l.out[0].shape[2], static_cast<const T*>(l.in[0].data),
          static_cast<T*>(l.out[0].data));
  };
  l.out[0].dtype == DType::float64 ? run(Type<double>()) : run(Type<float>());
}

}  // namespace gradwire::engine::cuda
