// The largest of windows, and what goes to and comes from their places.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/cpu/cascade.h"
#include "engine/cpu/dispatch.h"
#include "engine/kernels.h"
#include "schema/error.h"

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kThreaded = 4096;
constexpr int64_t kStrip = 256;  // outputs of a row that are computed together

/// Sizes, with spatial dims that are not there as 1 in front.
struct Sizes {
  int64_t planes, in[3], out[3];
  PoolParams p;
  Sizes(const View& x, const View& y, const PoolParams& given) : planes(x.shape[0] * x.shape[1]) {
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

/// The places along dim d that output o reads: at, at + step, ... < end; none where at >= end.
struct Taps {
  int64_t at, end, step;
  Taps(const Sizes& s, int d, int64_t o) : step(s.p.dilation[d]) {
    if (s.p.adaptive) {
      at = o * s.in[d] / s.out[d], end = ((o + 1) * s.in[d] + s.out[d] - 1) / s.out[d];
      return;
    }
    const int64_t start = o * s.p.stride[d] - s.p.padding[d];
    at = start >= 0 ? start : start + (-start + step - 1) / step * step;
    end = std::min(start + (s.p.kernel[d] - 1) * step + 1, s.in[d]);
  }
};

template <class T> void plane(const Sizes& s, const T* x, T* y, int64_t* places) {
  int64_t o[3];
  for (o[0] = 0; o[0] < s.out[0]; ++o[0]) {
    for (o[1] = 0; o[1] < s.out[1]; ++o[1]) {
      for (o[2] = 0; o[2] < s.out[2]; ++o[2], ++y, ++places) {
        const Taps t0(s, 0, o[0]), t1(s, 1, o[1]), t2(s, 2, o[2]);
        int64_t best = -1;
        Computed<T> most = 0;
        for (int64_t i0 = t0.at; i0 < t0.end; i0 += t0.step) {
          for (int64_t i1 = t1.at; i1 < t1.end; i1 += t1.step) {
            const int64_t line = (i0 * s.in[1] + i1) * s.in[2];
            for (int64_t i2 = t2.at; i2 < t2.end; i2 += t2.step) {
              const Computed<T> v = computed(x[line + i2]);
              if (best < 0 || v > most || (v != v && most == most)) best = line + i2, most = v;
            }
          }
        }
        *y = best < 0 ? stored<T>(-INFINITY) : x[best], *places = best < 0 ? 0 : best;  // no tap inside
      }
    }
  }
}

/// One tap of n outputs beside each other, which read x[0], x[step], ...: the first of these stands at place `at`. The
/// larger stays, of equals the one that was there, and NaN.
template <class T, class I>
[[gnu::always_inline]] inline void take(const T* x, int64_t step, I at, T* most, I* best, int64_t n) {
  const auto each = [&](int64_t by) __attribute__((always_inline)) {
    const I jump = static_cast<I>(by);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const T v = x[i * by], m = most[i];
      const bool more = (v > m) | ((v != v) & (m == m));
      most[i] = more ? v : m;
      best[i] = more ? at + static_cast<I>(i) * jump : best[i];
    }
  };
  if (step == 1)
    each(1);
  else if (step == 2)
    each(2);
  else
    each(step);
}
GW_CLONES void take_row(const float* x, int64_t step, int32_t at, float* most, int32_t* best, int64_t n) {
  take(x, step, at, most, best, n);
}
GW_CLONES void take_row(const double* x, int64_t step, int64_t at, double* most, int64_t* best, int64_t n) {
  take(x, step, at, most, best, n);
}

/// A plane, a strip of outputs at a time, tap by tap. The plane has no more places than an I counts.
template <class T, class I> void plane_by_rows(const Sizes& s, const T* x, T* y, int64_t* places) {
  T most[kStrip];
  I best[kStrip];
  const int64_t step = s.p.stride[2], dilation = s.p.dilation[2];
  for (int64_t o0 = 0; o0 < s.out[0]; ++o0) {
    const Taps t0(s, 0, o0);
    for (int64_t o1 = 0; o1 < s.out[1]; ++o1) {
      const Taps t1(s, 1, o1);
      for (int64_t from = 0; from < s.out[2]; from += kStrip) {
        const int64_t n = std::min(kStrip, s.out[2] - from);
        const bool any = t0.at < t0.end && t1.at < t1.end;
        for (int64_t i = 0; i < n; ++i) {
          const Taps t2(s, 2, from + i);  // the first tap is what equals keep
          most[i] = -std::numeric_limits<T>::infinity();
          best[i] = any && t2.at < t2.end ? static_cast<I>((t0.at * s.in[1] + t1.at) * s.in[2] + t2.at) : 0;
        }
        for (int64_t i0 = t0.at; i0 < t0.end; i0 += t0.step) {
          for (int64_t i1 = t1.at; i1 < t1.end; i1 += t1.step) {
            const int64_t line = (i0 * s.in[1] + i1) * s.in[2];
            for (int64_t k = 0; k < s.p.kernel[2]; ++k) {
              // outputs [low, high) of the strip have this tap inside
              const int64_t shift = from * step - s.p.padding[2] + k * dilation;
              const int64_t low = shift >= 0 ? 0 : std::min(n, (-shift + step - 1) / step);
              const int64_t high = shift >= s.in[2] ? 0 : std::min(n, (s.in[2] - 1 - shift) / step + 1);
              if (low >= high) continue;
              const int64_t at = line + shift + low * step;
              take_row(x + at, step, static_cast<I>(at), most + low, best + low, high - low);
            }
          }
        }
        for (int64_t i = 0; i < n; ++i) y[i] = most[i], places[i] = best[i];
        y += n, places += n;
      }
    }
  }
}

template <class T> struct Rows {
  int64_t rows, n, m;  // rows of n numbers, and of m places in rows
  const T* in;
  T* out;
  const int64_t* places;
};
/// Rows of the last dim: `whole` has size n, `places` m; all contiguous.
template <class T> Rows<T> rows_of(const Launch& l, const View& whole, const View& places, const View& in) {
  const int64_t n = whole.shape[whole.ndim - 1], m = places.shape[places.ndim - 1];
  return {n == 0 ? 0 : whole.numel() / n,          n, m, static_cast<const T*>(in.data), static_cast<T*>(l.out[0].data),
          static_cast<const int64_t*>(places.data)};
}

void refuse(int64_t place, int64_t size) {
  throw Error(Code::index_out_of_range,
              "place " + std::to_string(place) + " is out of bounds for a plane of " + std::to_string(size));
}

void check_places(const View& places, int64_t size) {
  const auto* p = static_cast<const int64_t*>(places.data);
  const int64_t n = places.numel();
  uint64_t most = 0;
#pragma omp parallel for simd schedule(static) reduction(max : most) if (n > kThreaded * 16)
  for (int64_t i = 0; i < n; ++i) most = std::max(most, static_cast<uint64_t>(p[i]));  // what is negative is large
  if (n > 0 && most >= static_cast<uint64_t>(size)) refuse(static_cast<int64_t>(most), size);
}

}  // namespace

void max_pool(const Launch& l) {
  const Sizes s(l.in[0], l.out[0], *static_cast<const PoolParams*>(l.params));
  const int64_t n = s.in[0] * s.in[1] * s.in[2], m = s.out[0] * s.out[1] * s.out[2];
  with_floating(l.out[0].dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    const T* x = static_cast<const T*>(l.in[0].data);
    T* y = static_cast<T*>(l.out[0].data);
    auto* places = static_cast<int64_t*>(l.out[1].data);
    const bool by_rows = !kHalf<T> && !s.p.adaptive && s.out[2] >= 4 && n < std::numeric_limits<int32_t>::max();
#pragma omp parallel for schedule(static) if (s.planes * m > kThreaded)
    for (int64_t i = 0; i < s.planes; ++i) {
      if constexpr (!kHalf<T>) {
        if (by_rows) {
          using I = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
          plane_by_rows<T, I>(s, x + i * n, y + i * m, places + i * m);
          continue;
        }
      }
      plane(s, x + i * n, y + i * m, places + i * m);
    }
  });
}

void put_places(const Launch& l) {
  check_places(l.in[1], l.out[0].shape[l.out[0].ndim - 1]);
  const auto run = [&]<class T>(T) {
    const Rows<T> r = rows_of<T>(l, l.out[0], l.in[1], l.in[0]);
#pragma omp parallel for schedule(static) if (r.rows * (r.n + r.m) > kThreaded)
    for (int64_t i = 0; i < r.rows; ++i) {
      T* to = r.out + i * r.n;
      const T* from = r.in + i * r.m;
      const int64_t* at = r.places + i * r.m;
      std::fill_n(to, r.n, T(0));
      for (int64_t k = 0; k < r.m; ++k) to[at[k]] += from[k];
    }
  };
  l.out[0].dtype == DType::float64 ? run(double()) : run(float());
}

void take_places(const Launch& l) {
  check_places(l.in[1], l.in[0].shape[l.in[0].ndim - 1]);
  with_bytes(size_of(l.out[0].dtype), [&](auto t) {
    using T = typename decltype(t)::type;
    const Rows<T> r = rows_of<T>(l, l.in[0], l.in[1], l.in[0]);
#pragma omp parallel for schedule(static) if (r.rows * r.m > kThreaded)
    for (int64_t i = 0; i < r.rows; ++i) {
      for (int64_t k = 0; k < r.m; ++k) r.out[i * r.m + k] = r.in[i * r.n + r.places[i * r.m + k]];
    }
  });
}

}  // namespace gradwire::engine::cpu
