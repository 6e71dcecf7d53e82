#include "engine/cuda/cudnn.h"
#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

/// Sizes, with spatial dims that are not there as 1 in front. As in cpu/conv.cpp.
struct Sizes {
  int64_t images, channels, results, group_in, group_out;
  int64_t in[3], kernel[3], out[3], stride[3], padding[3], dilation[3];
  Sizes(const View& x, const View& w, const View& g, const ConvParams& p)
      : images(x.shape[0]),
        channels(x.shape[1]),
        results(w.shape[0]),
        group_in(w.shape[1]),
        group_out(w.shape[0] / p.groups) {
    const int missing = 5 - x.ndim;
    for (int d = 0; d < 3; ++d) {
      const int s = d - missing;
      const bool there = s >= 0;
      in[d] = there ? x.shape[2 + s] : 1, kernel[d] = there ? w.shape[2 + s] : 1, out[d] = there ? g.shape[2 + s] : 1;
      stride[d] = there ? p.stride[s] : 1, padding[d] = there ? p.padding[s] : 0;
      dilation[d] = there ? p.dilation[s] : 1;
    }
  }
};

/// The last three indexes of element i, whose sizes are given; i becomes the index of what is before them.
__device__ void split(int64_t& i, const int64_t* size, int64_t* at) {
  for (int d = 2; d >= 0; --d) at[d] = i % size[d], i /= size[d];
}

template <class T> __global__ void forward(const Sizes s, const int64_t n, const T* x, const T* w, T* g) {
  for (int64_t e = first_element(); e < n; e += all_threads()) {
    int64_t o[3], i = e;
    split(i, s.out, o);
    const int64_t r = i % s.results, image = i / s.results, first = r / s.group_out * s.group_in;
    T sum = 0;
    for (int64_t c = 0; c < s.group_in; ++c) {
      for (int64_t k0 = 0; k0 < s.kernel[0]; ++k0) {
        const int64_t i0 = o[0] * s.stride[0] - s.padding[0] + k0 * s.dilation[0];
        if (i0 < 0 || i0 >= s.in[0]) continue;
        for (int64_t k1 = 0; k1 < s.kernel[1]; ++k1) {
          const int64_t i1 = o[1] * s.stride[1] - s.padding[1] + k1 * s.dilation[1];
          if (i1 < 0 || i1 >= s.in[1]) continue;
          const T* line = x + (((image * s.channels + first + c) * s.in[0] + i0) * s.in[1] + i1) * s.in[2];
          const T* taps = w + (((r * s.group_in + c) * s.kernel[0] + k0) * s.kernel[1] + k1) * s.kernel[2];
          for (int64_t k2 = 0; k2 < s.kernel[2]; ++k2) {
            const int64_t i2 = o[2] * s.stride[2] - s.padding[2] + k2 * s.dilation[2];
            if (i2 >= 0 && i2 < s.in[2]) sum += line[i2] * taps[k2];
          }
        }
      }
    }
    g[e] = sum;
  }
}

/// The place in g that reads x at i through tap k, if there is one.
__device__ bool reader(const Sizes& s, int d, int64_t i, int64_t k, int64_t& o) {
  const int64_t t = i + s.padding[d] - k * s.dilation[d];
  o = t / s.stride[d];
  return t >= 0 && t % s.stride[d] == 0 && o < s.out[d];
}

template <class T> __global__ void input(const Sizes s, const int64_t n, const T* g, const T* w, T* x) {
  for (int64_t e = first_element(); e < n; e += all_threads()) {
    int64_t at[3], i = e;
    split(i, s.in, at);
    const int64_t channel = i % s.channels, image = i / s.channels;
    const int64_t group = channel / s.group_in, c = channel % s.group_in;
    T sum = 0;
    for (int64_t r = group * s.group_out; r < (group + 1) * s.group_out; ++r) {
      for (int64_t k0 = 0; k0 < s.kernel[0]; ++k0) {
        int64_t o0, o1, o2;
        if (!reader(s, 0, at[0], k0, o0)) continue;
        for (int64_t k1 = 0; k1 < s.kernel[1]; ++k1) {
          if (!reader(s, 1, at[1], k1, o1)) continue;
          const T* line = g + (((image * s.results + r) * s.out[0] + o0) * s.out[1] + o1) * s.out[2];
          const T* taps = w + (((r * s.group_in + c) * s.kernel[0] + k0) * s.kernel[1] + k1) * s.kernel[2];
          for (int64_t k2 = 0; k2 < s.kernel[2]; ++k2) {
            if (reader(s, 2, at[2], k2, o2)) sum += line[o2] * taps[k2];
          }
        }
      }
    }
    x[e] = sum;
  }
}

template <class T> __global__ void weight(const Sizes s, const int64_t n, const T* g, const T* x, T* w) {
  for (int64_t e = first_element(); e < n; e += all_threads()) {
    int64_t k[3], i = e;
    split(i, s.kernel, k);
    const int64_t c = i % s.group_in, r = i / s.group_in, channel = r / s.group_out * s.group_in + c;
    T sum = 0;
    for (int64_t image = 0; image < s.images; ++image) {
      for (int64_t o0 = 0; o0 < s.out[0]; ++o0) {
        const int64_t i0 = o0 * s.stride[0] - s.padding[0] + k[0] * s.dilation[0];
        if (i0 < 0 || i0 >= s.in[0]) continue;
        for (int64_t o1 = 0; o1 < s.out[1]; ++o1) {
          const int64_t i1 = o1 * s.stride[1] - s.padding[1] + k[1] * s.dilation[1];
          if (i1 < 0 || i1 >= s.in[1]) continue;
          const T* line = x + (((image * s.channels + channel) * s.in[0] + i0) * s.in[1] + i1) * s.in[2];
          const T* grads = g + (((image * s.results + r) * s.out[0] + o0) * s.out[1] + o1) * s.out[2];
          for (int64_t o2 = 0; o2 < s.out[2]; ++o2) {
            const int64_t i2 = o2 * s.stride[2] - s.padding[2] + k[2] * s.dilation[2];
            if (i2 >= 0 && i2 < s.in[2]) sum += line[i2] * grads[o2];
          }
        }
      }
    }
    w[e] = sum;
  }
}

const ConvParams& params(const Launch& l) { return *static_cast<const ConvParams*>(l.params); }

/// kernel(sizes, n, a, b, out) for the dtype.
template <class F, class D> void run(const Launch& l, const Sizes& s, F of_float, D of_double) {
  const int64_t n = l.out[0].numel();
  if (l.out[0].dtype == DType::float64) {
    start(of_double, n, l.stream, s, n, static_cast<const double*>(l.in[0].data),
          static_cast<const double*>(l.in[1].data), static_cast<double*>(l.out[0].data));
  } else {
    start(of_float, n, l.stream, s, n, static_cast<const float*>(l.in[0].data), static_cast<const float*>(l.in[1].data),
          static_cast<float*>(l.out[0].data));
  }
}

}  // namespace

int64_t conv_scratch(ConvPass, const Launch&) { return 0; }

void conv_forward(const Launch& l) {
  if (!run_cudnn(ConvPass::forward, l))
    run(l, Sizes(l.in[0], l.in[1], l.out[0], params(l)), forward<float>, forward<double>);
}
void conv_input(const Launch& l) {
  if (!run_cudnn(ConvPass::input, l)) run(l, Sizes(l.out[0], l.in[1], l.in[0], params(l)), input<float>, input<double>);
}
void conv_weight(const Launch& l) {
  if (!run_cudnn(ConvPass::weight, l))
    run(l, Sizes(l.in[1], l.out[0], l.in[0], params(l)), weight<float>, weight<double>);
}

}  // namespace gradwire::engine::cuda
