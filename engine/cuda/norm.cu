#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

constexpr int kWarp = 32, kTensors = 3;

struct Planes {
  int64_t images, channels, inner = 1;
  explicit Planes(const View& v) : images(v.shape[0]), channels(v.shape[1]) {
    for (int d = 2; d < v.ndim; ++d) inner *= v.shape[d];
  }
  __host__ __device__ int64_t each() const { return images * inner; }
};

template <class T> struct Tensors {
  const T* at[kTensors] = {};
  int count = 0;
  Tensors(const Launch& l, size_t first) {
    for (size_t i = first; i < l.in.size() && count < kTensors; ++i) at[count++] = static_cast<const T*>(l.in[i].data);
  }
};

/// Sums of the tensors, or where their means are there of the pairs' products without them: a warp for each part of a
/// channel, to[sum][channel][part].
template <class T>
__global__ void add_up(const Planes s, const Tensors<T> t, const ChannelParams p, const double* mean,
                       const int64_t parts, double* to) {
  const int lane = threadIdx.x % kWarp, sums = mean ? p.count : t.count;
  for (int64_t i = first_element() / kWarp; i < s.channels * parts; i += all_threads() / kWarp) {
    const int64_t c = i / parts, part = i % parts;
    double sum[ChannelParams::kPairs] = {};
    for (int64_t e = part * kWarp + lane; e < s.each(); e += parts * kWarp) {
      const int64_t at = (e / s.inner * s.channels + c) * s.inner + e % s.inner;
      double x[kTensors];
      for (int k = 0; k < t.count; ++k)
        x[k] = static_cast<double>(t.at[k][at]) - (mean ? mean[k * s.channels + c] : 0.0);
      for (int k = 0; k < sums; ++k) sum[k] += mean ? x[p.pairs[k][0]] * x[p.pairs[k][1]] : x[k];
    }
    for (int k = 0; k < sums; ++k) {
      for (int w = kWarp / 2; w > 0; w /= 2) sum[k] += __shfl_xor_sync(0xFFFFFFFF, sum[k], w);
      if (lane == 0) to[(k * s.channels + c) * parts + part] = sum[k];
    }
  }
}

__global__ void finish(const int64_t n, const int64_t parts, const double scale, const double* from, double* to) {
  for (int64_t i = first_element(); i < n; i += all_threads()) {
    double sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += from[i * parts + p];
    to[i] = sum * scale;
  }
}

template <class T>
void moments(const Planes& s, const Tensors<T>& t, const ChannelParams& p, double* mean, double* cov, void* stream) {
  const int64_t parts = std::clamp<int64_t>(s.each() / 256, 1, std::max<int64_t>(1, 8192 / s.channels));
  const Scratch scratch(sizeof(double) * ChannelParams::kPairs * s.channels * parts, stream);
  auto* some = scratch.as<double>();
  const double scale = 1 / static_cast<double>(s.each());
  start(add_up<T>, s.channels * parts * kWarp, stream, s, t, p, static_cast<const double*>(nullptr), parts, some);
  start(finish, t.count * s.channels, stream, t.count * s.channels, parts, scale, some, mean);
  if (p.count == 0) return;
  start(add_up<T>, s.channels * parts * kWarp, stream, s, t, p, mean, parts, some);
  start(finish, p.count * s.channels, stream, p.count * s.channels, parts, scale, some, cov);
}

template <class T>
__global__ void mix(const Planes s, const int64_t n, const Tensors<T> t, const double* factors, T* out) {
  for (int64_t e = first_element(); e < n; e += all_threads()) {
    const int64_t c = e / s.inner % s.channels;
    T sum = static_cast<T>(factors[c]);
    for (int k = 0; k < t.count; ++k) sum += static_cast<T>(factors[(k + 1) * s.channels + c]) * t.at[k][e];
    out[e] = sum;
  }
}

__global__ void factors_of_norm(const int64_t channels, const double eps, const double* mean, const double* var,
                                const double* weight, const double* bias, double* f) {
  for (int64_t c = first_element(); c < channels; c += all_threads()) {
    f[channels + c] = weight[c] / ::sqrt(var[c] + eps);
    f[c] = bias[c] - mean[c] * f[channels + c];
  }
}

/// mean: of the gradient, then of x; cov: var x, then that of the two.
__global__ void factors_of_backward(const int64_t channels, const double eps, const double n, const double* mean,
                                    const double* cov, const double* weight, double* f, double* sums) {
  for (int64_t c = first_element(); c < channels; c += all_threads()) {
    const double r = 1 / ::sqrt(cov[c] + eps), along = cov[channels + c] * r;
    f[channels + c] = weight[c] * r;
    f[2 * channels + c] = -f[channels + c] * along * r;
    f[c] = -f[channels + c] * mean[c] - f[2 * channels + c] * mean[channels + c];
    sums[c] = along * n, sums[channels + c] = mean[c] * n;
  }
}

const ChannelParams& params(const Launch& l) { return *static_cast<const ChannelParams*>(l.params); }
double* doubles(const View& v) { return static_cast<double*>(v.data); }

template <class F> void typed(const View& v, F&& f) {
  if (v.dtype == DType::float64)
    f(Type<double>());
  else
    f(Type<float>());
}

}  // namespace

void channel_moments(const Launch& l) {
  typed(l.in[0], [&](auto type) {
    using T = typename decltype(type)::type;
    moments(Planes(l.in[0]), Tensors<T>(l, 0), params(l), doubles(l.out[0]), doubles(l.out[1]), l.stream);
  });
}

void channel_mix(const Launch& l) {
  const int64_t n = l.out[0].numel();
  typed(l.out[0], [&](auto type) {
    using T = typename decltype(type)::type;
    start(mix<T>, n, l.stream, Planes(l.out[0]), n, Tensors<T>(l, 1), doubles(l.in[0]), static_cast<T*>(l.out[0].data));
  });
}

void channel_norm(const Launch& l) {
  const Planes s(l.out[0]);
  const int64_t n = l.out[0].numel();
  ChannelParams p = params(l);
  p.count = 1;
  const Scratch factors(sizeof(double) * 2 * s.channels, l.stream);
  typed(l.out[0], [&](auto type) {
    using T = typename decltype(type)::type;
    Tensors<T> t(l, 0);
    t.count = 1;
    moments(s, t, p, doubles(l.out[1]), doubles(l.out[2]), l.stream);
    start(factors_of_norm, s.channels, l.stream, s.channels, p.eps, doubles(l.out[1]), doubles(l.out[2]),
          doubles(l.in[1]), doubles(l.in[2]), factors.as<double>());
    start(mix<T>, n, l.stream, s, n, t, factors.as<double>(), static_cast<T*>(l.out[0].data));
  });
}

void channel_norm_backward(const Launch& l) {
  const Planes s(l.out[0]);
  const int64_t n = l.out[0].numel();
  ChannelParams p = params(l);
  p.count = 2, p.pairs[0][0] = p.pairs[0][1] = p.pairs[1][1] = 1;
  const Scratch scratch(sizeof(double) * 7 * s.channels, l.stream);
  auto *mean = scratch.as<double>(), *cov = mean + 2 * s.channels, *factors = cov + 2 * s.channels;
  typed(l.out[0], [&](auto type) {
    using T = typename decltype(type)::type;
    Tensors<T> t(l, 0);
    t.count = 2;
    moments(s, t, p, mean, cov, l.stream);
    start(factors_of_backward, s.channels, l.stream, s.channels, p.eps, static_cast<double>(s.each()), mean, cov,
          doubles(l.in[2]), factors, doubles(l.out[1]));
    start(mix<T>, n, l.stream, s, n, t, factors, static_cast<T*>(l.out[0].data));
  });
}

}  // namespace gradwire::engine::cuda
