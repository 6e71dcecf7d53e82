// Moments and sums of multiples by channel. Sums are kept in double; how they are cut depends on the shapes alone.
#include <algorithm>
#include <cmath>

#include "engine/cpu/cascade.h"
#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"

namespace gradwire::engine::cpu {
namespace {

constexpr int kTensors = 3;        // of one call
constexpr int64_t kShort = 16;     // a channel whose runs are shorter is taken beside its neighbours
constexpr int64_t kColumns = 256;  // elements side by side
constexpr int64_t kChunk = 2048;   // elements that stay in the first cache

// The loops, for float and double; the clones of each are for different instruction sets.
template <class T> [[gnu::always_inline]] inline double sum_shifted(const T* p, double shift, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += static_cast<double>(p[i]) - shift;
  return s;
}
template <class T>
[[gnu::always_inline]] inline double sum_products(const T* a, double ma, const T* b, double mb, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += (static_cast<double>(a[i]) - ma) * (static_cast<double>(b[i]) - mb);
  return s;
}
/// In one pass, without a shift each: the sums of a, of b, of a * b and of b * b.
struct Sums {
  double a = 0, b = 0, ab = 0, bb = 0;
};
[[gnu::always_inline]] inline void add_sums_all(Sums& to, const float* a, double sa, const float* b, double sb,
                                                int64_t n) {
  double s = 0, t = 0, st = 0, tt = 0;
#pragma omp simd reduction(+ : s, t, st, tt)
  for (int64_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(a[i]) - sa, y = static_cast<double>(b[i]) - sb;
    s += x, t += y, st += x * y, tt += y * y;
  }
  to.a += s, to.b += t, to.ab += st, to.bb += tt;
}
template <class T> [[gnu::always_inline]] inline void mix_all(T* out, const T* const* t, int k, const T* f, int64_t n) {
  const T *a = t[0], *b = t[1], *c = t[2], f0 = f[0], f1 = f[1], f2 = f[2], f3 = f[3];
  if (k == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = f0 + f1 * a[i];
  } else if (k == 2) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = f0 + f1 * a[i] + f2 * b[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = f0 + f1 * a[i] + f2 * b[i] + f3 * c[i];
  }
}
template <class T> [[gnu::always_inline]] inline void add_all(double* s, const T* p, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) s[i] += static_cast<double>(p[i]);
}
template <class T>
[[gnu::always_inline]] inline void add_products_all(double* s, const T* a, const double* ma, const T* b,
                                                    const double* mb, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) s[i] += (static_cast<double>(a[i]) - ma[i]) * (static_cast<double>(b[i]) - mb[i]);
}
/// out = f (n of each factor) applied to the columns of t.
template <class T>
[[gnu::always_inline]] inline void mix_columns_all(T* out, const T* const* t, int k, const T (*f)[kColumns],
                                                   int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = f[0][i] + f[1][i] * t[0][i];
  for (int j = 1; j < k; ++j) {
    const T *p = t[j], *g = f[j + 1];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] += g[i] * p[i];
  }
}

#define GW_FOR(T)                                                                                                 \
  GW_CLONES double total(const T* p, double shift, int64_t n) { return sum_shifted(p, shift, n); }                \
  GW_CLONES double products(const T* a, double ma, const T* b, double mb, int64_t n) {                            \
    return sum_products(a, ma, b, mb, n);                                                                         \
  }                                                                                                               \
  GW_CLONES void mix(T* out, const T* const* t, int k, const T* f, int64_t n) { mix_all(out, t, k, f, n); }       \
  GW_CLONES void add(double* s, const T* p, int64_t n) { add_all(s, p, n); }                                      \
  GW_CLONES void add_products(double* s, const T* a, const double* ma, const T* b, const double* mb, int64_t n) { \
    add_products_all(s, a, ma, b, mb, n);                                                                         \
  }                                                                                                               \
  GW_CLONES void mix_columns(T* out, const T* const* t, int k, const T(*f)[kColumns], int64_t n) {                \
    mix_columns_all(out, t, k, f, n);                                                                             \
  }
GW_FOR(float)
GW_FOR(double)
#undef GW_FOR
GW_CLONES void add_sums(Sums& to, const float* a, double sa, const float* b, double sb, int64_t n) {
  add_sums_all(to, a, sa, b, sb, n);
}

/// [N, C, ...] as images of channels of `inner` elements.
struct Planes {
  int64_t images, channels, inner = 1;
  explicit Planes(const View& v) : images(v.shape[0]), channels(v.shape[1]) {
    for (int d = 2; d < v.ndim; ++d) inner *= v.shape[d];
  }
  int64_t each() const { return images * inner; }
};

using Moments = double[kTensors][kColumns];  // by tensor (or pair), then channel of a part

/// One channel, by its runs.
struct Along {
  const Planes& s;
  int64_t first;
  int64_t count() const { return 1; }
  int64_t at(int64_t image) const { return (image * s.channels + first) * s.inner; }

  template <class T> void means(const T* const* t, int k, Moments& mean) const {
    for (int j = 0; j < k; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < s.images; ++i) sum += total(t[j] + at(i), 0, s.inner);
      mean[j][0] = sum / static_cast<double>(s.each());
    }
  }
  template <class T>
  void covariances(const T* const* t, const Moments& mean, const int (*pairs)[2], int n, double (*to)[kColumns]) const {
    for (int p = 0; p < n; ++p) to[p][0] = 0;
    for (int64_t i = 0; i < s.images; ++i) {
      for (int64_t c = 0; c < s.inner; c += kChunk) {
        const int64_t at_c = at(i) + c, length = std::min(kChunk, s.inner - c);
        for (int p = 0; p < n; ++p) {
          const int a = pairs[p][0], b = pairs[p][1];
          to[p][0] += products(t[a] + at_c, mean[a][0], t[b] + at_c, mean[b][0], length);
        }
      }
    }
    for (int p = 0; p < n; ++p) to[p][0] /= static_cast<double>(s.each());
  }
  template <class T>
  void moments(const T* const* t, int k, const int (*pairs)[2], int n, Moments& mean, double (*to)[kColumns]) const {
    if constexpr (std::is_same_v<T, double>) {
      means(t, k, mean);
      covariances(t, mean, pairs, n, to);
    } else {
      // double has the digits for one pass over floats, without their first instead of their mean
      double shift[kTensors] = {}, sum[kTensors] = {}, product[ChannelParams::kPairs] = {};
      for (int j = 0; j < k; ++j) shift[j] = static_cast<double>(t[j][at(0)]);
      if (k == 2 && std::all_of(pairs, pairs + n, [](const int(&p)[2]) { return p[0] != 0 || p[1] != 0; })) {
        Sums two;
        for (int64_t i = 0; i < s.images; ++i) add_sums(two, t[0] + at(i), shift[0], t[1] + at(i), shift[1], s.inner);
        sum[0] = two.a, sum[1] = two.b;
        for (int p = 0; p < n; ++p) product[p] = pairs[p][0] == pairs[p][1] ? two.bb : two.ab;
      } else {
        for (int64_t i = 0; i < s.images; ++i) {
          for (int64_t c = 0; c < s.inner; c += kChunk) {
            const int64_t at_c = at(i) + c, length = std::min(kChunk, s.inner - c);
            for (int j = 0; j < k; ++j) sum[j] += total(t[j] + at_c, shift[j], length);
            for (int p = 0; p < n; ++p) {
              const int a = pairs[p][0], b = pairs[p][1];
              product[p] += products(t[a] + at_c, shift[a], t[b] + at_c, shift[b], length);
            }
          }
        }
      }
      const auto all = static_cast<double>(s.each());
      for (int j = 0; j < k; ++j) mean[j][0] = shift[j] + sum[j] / all;
      for (int p = 0; p < n; ++p) {
        const int a = pairs[p][0], b = pairs[p][1];
        to[p][0] = product[p] / all - sum[a] / all * (sum[b] / all);
        if (a == b) to[p][0] = std::max(to[p][0], 0.0);
      }
    }
  }
  template <class T> void mixed(T* out, const T* const* t, int k, const double (*factors)[kColumns]) const {
    T f[kTensors + 1] = {};
    for (int j = 0; j <= k; ++j) f[j] = static_cast<T>(factors[j][0]);
    for (int64_t i = 0; i < s.images; ++i) {
      const T* from[kTensors] = {};
      for (int j = 0; j < k; ++j) from[j] = t[j] + at(i);
      mix(out + at(i), from, k, f, s.inner);
    }
  }
};

/// Some channels beside each other: rows of columns, and each column's number is then one of its channel's.
struct Across {
  const Planes& s;
  int64_t first, channels;
  int64_t count() const { return channels; }
  int64_t width() const { return channels * s.inner; }
  int64_t at(int64_t image) const { return (image * s.channels + first) * s.inner; }

  void fold(const double* columns, double* to) const {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < s.inner; ++i) sum += columns[c * s.inner + i];
      to[c] = sum / static_cast<double>(s.each());
    }
  }
  template <class F> void spread(const double* from, F* columns) const {
    for (int64_t c = 0; c < channels; ++c) std::fill_n(columns + c * s.inner, s.inner, static_cast<F>(from[c]));
  }

  template <class T> void means(const T* const* t, int k, Moments& mean) const {
    for (int j = 0; j < k; ++j) {
      double sums[kColumns] = {};
      for (int64_t i = 0; i < s.images; ++i) add(sums, t[j] + at(i), width());
      fold(sums, mean[j]);
    }
  }
  template <class T>
  void covariances(const T* const* t, const Moments& mean, const int (*pairs)[2], int n, double (*to)[kColumns]) const {
    for (int p = 0; p < n; ++p) {
      const int a = pairs[p][0], b = pairs[p][1];
      double sums[kColumns] = {}, ma[kColumns], mb[kColumns];
      spread(mean[a], ma), spread(mean[b], mb);
      for (int64_t i = 0; i < s.images; ++i) add_products(sums, t[a] + at(i), ma, t[b] + at(i), mb, width());
      fold(sums, to[p]);
    }
  }
  template <class T>
  void moments(const T* const* t, int k, const int (*pairs)[2], int n, Moments& mean, double (*to)[kColumns]) const {
    means(t, k, mean);
    covariances(t, mean, pairs, n, to);
  }
  template <class T> void mixed(T* out, const T* const* t, int k, const double (*factors)[kColumns]) const {
    T f[kTensors + 1][kColumns];
    for (int j = 0; j <= k; ++j) spread(factors[j], f[j]);
    for (int64_t i = 0; i < s.images; ++i) {
      const T* from[kTensors] = {};
      for (int j = 0; j < k; ++j) from[j] = t[j] + at(i);
      mix_columns(out + at(i), from, k, f, width());
    }
  }
};

/// f(part) for all channels.
template <class F> void each_part(const Planes& s, F&& f) {
  if (s.each() == 0) return;
  const bool several = s.each() * s.channels > kParallel;
  if (s.inner >= kShort) {
#pragma omp parallel for schedule(static) if (several)
    for (int64_t c = 0; c < s.channels; ++c) f(Along{s, c});
  } else {
    const int64_t some = std::max<int64_t>(std::min(kColumns, s.channels * s.inner / 4) / s.inner, 1);
#pragma omp parallel for schedule(static) if (several)
    for (int64_t c = 0; c < s.channels; c += some) f(Across{s, c, std::min(some, s.channels - c)});
  }
}

const ChannelParams& params(const Launch& l) { return *static_cast<const ChannelParams*>(l.params); }
double* doubles(const View& v) { return static_cast<double*>(v.data); }

constexpr int kOfFirst[][2] = {{0, 0}}, kOfSecond[][2] = {{1, 1}, {0, 1}};

/// f(T*) for the type of the tensors.
template <class F> void typed(const View& v, F&& f) {
  if (v.dtype == DType::float64)
    f(static_cast<double*>(v.data));
  else
    f(static_cast<float*>(v.data));
}
/// The tensors of a launch from its `first` input on.
template <class T> struct Tensors {
  const T* at[kTensors] = {};
  int count = 0;
  Tensors(const Launch& l, size_t first) {
    for (size_t i = first; i < l.in.size() && count < kTensors; ++i) at[count++] = static_cast<const T*>(l.in[i].data);
  }
};

}  // namespace

void channel_moments(const Launch& l) {
  const Planes s(l.in[0]);
  const ChannelParams& p = params(l);
  typed(l.in[0], [&]<class T>(T*) {
    const Tensors<T> t(l, 0);
    each_part(s, [&](const auto& part) {
      Moments mean;
      double cov[ChannelParams::kPairs][kColumns];
      part.moments(t.at, t.count, p.pairs, p.count, mean, cov);
      for (int j = 0; j < t.count; ++j)
        std::copy_n(mean[j], part.count(), doubles(l.out[0]) + j * s.channels + part.first);
      for (int j = 0; j < p.count; ++j)
        std::copy_n(cov[j], part.count(), doubles(l.out[1]) + j * s.channels + part.first);
    });
  });
}

void channel_mix(const Launch& l) {
  const Planes s(l.out[0]);
  const double* factors = doubles(l.in[0]);
  typed(l.out[0], [&]<class T>(T* out) {
    const Tensors<T> t(l, 1);
    if (s.inner >= kShort) {  // in the order of memory
#pragma omp parallel for schedule(static) if (s.each() * s.channels > kParallel)
      for (int64_t i = 0; i < s.images * s.channels; ++i) {
        const T* from[kTensors] = {};
        T f[kTensors + 1] = {};
        for (int j = 0; j <= t.count; ++j) f[j] = static_cast<T>(factors[j * s.channels + i % s.channels]);
        for (int j = 0; j < t.count; ++j) from[j] = t.at[j] + i * s.inner;
        mix(out + i * s.inner, from, t.count, f, s.inner);
      }
      return;
    }
    each_part(s, [&](const auto& part) {
      double f[kTensors + 1][kColumns];
      for (int j = 0; j <= t.count; ++j) std::copy_n(factors + j * s.channels + part.first, part.count(), f[j]);
      part.mixed(out, t.at, t.count, f);
    });
  });
}

void channel_norm(const Launch& l) {
  const Planes s(l.out[0]);
  const double *weight = doubles(l.in[1]), *bias = doubles(l.in[2]), eps = params(l).eps;
  typed(l.out[0], [&]<class T>(T* out) {
    const T* x[kTensors] = {static_cast<const T*>(l.in[0].data)};
    each_part(s, [&](const auto& part) {
      Moments mean;
      double var[1][kColumns], f[2][kColumns];
      part.moments(x, 1, kOfFirst, 1, mean, var);
      for (int64_t c = 0; c < part.count(); ++c) {
        const int64_t channel = part.first + c;
        f[1][c] = weight[channel] / std::sqrt(var[0][c] + eps);
        f[0][c] = bias[channel] - mean[0][c] * f[1][c];
        doubles(l.out[1])[channel] = mean[0][c], doubles(l.out[2])[channel] = var[0][c];
      }
      part.mixed(out, x, 1, f);
    });
  });
}

void channel_norm_backward(const Launch& l) {
  const Planes s(l.out[0]);
  const double *weight = doubles(l.in[2]), eps = params(l).eps;
  const auto n = static_cast<double>(s.each());
  typed(l.out[0], [&]<class T>(T* out) {
    const T* t[kTensors] = {static_cast<const T*>(l.in[0].data), static_cast<const T*>(l.in[1].data)};
    each_part(s, [&](const auto& part) {
      Moments mean;
      double cov[2][kColumns], f[3][kColumns];
      part.moments(t, 2, kOfSecond, 2, mean, cov);
      for (int64_t c = 0; c < part.count(); ++c) {
        const int64_t channel = part.first + c;
        const double r = 1 / std::sqrt(cov[0][c] + eps), along = cov[1][c] * r;  // the mean of grad * normalised x
        f[1][c] = weight[channel] * r;
        f[2][c] = -f[1][c] * along * r;
        f[0][c] = -f[1][c] * mean[0][c] - f[2][c] * mean[1][c];
        doubles(l.out[1])[channel] = along * n, doubles(l.out[1])[s.channels + channel] = mean[0][c] * n;
      }
      part.mixed(out, t, 2, f);
    });
  });
}

}  // namespace gradwire::engine::cpu
