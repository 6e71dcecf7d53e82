// Compiled once for each SIMD target, by Highway's foreach_target; the processor decides which one is used.
#include "engine/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/softmax.cpp"
#include "hwy/foreach_target.h"  // must come first

#include <algorithm>
#include <memory>
#include <new>

#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/cpu/pointwise-top.h"
#include "engine/cpu/rows.h"
#include "engine/kernels.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "schema/error.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::engine::cpu::HWY_NAMESPACE {

#undef GW_FN
#define GW_FN HWY_ATTR HWY_INLINE

#include "engine/cpu/simd.h"

/// The largest of n numbers; a NaN may be lost: the sum finds it.
template <class T> HWY_ATTR T top_of(const T* x, int64_t n) {
  using D = hn::ScalableTag<T>;
  using V = Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  T top = x[0];
  int64_t i = 0;
  if (n >= 2 * kLanes) {
    V a(hn::LoadU(D(), x)), b(hn::LoadU(D(), x + kLanes));
    for (i = 2 * kLanes; i + 2 * kLanes <= n; i += 2 * kLanes) {
      const V c(hn::LoadU(D(), x + i)), d(hn::LoadU(D(), x + i + kLanes));
      a = math::select(a > c, a, c), b = math::select(b > d, b, d);
    }
    T lanes[2 * kLanes];
    hn::StoreU(a.v, D(), lanes);
    hn::StoreU(b.v, D(), lanes + kLanes);
    top = lanes[0];
    for (T lane : lanes) top = top > lane ? top : lane;
  }
  for (; i < n; ++i) top = top > x[i] ? top : x[i];
  return top;
}

/// Contiguous, x may be out. Three passes; the sum is made of blocks, so that long rows stay exact.
template <class T> HWY_ATTR void log_softmax_row(const T* x, T* out, int64_t n) {
  using D = hn::ScalableTag<T>;
  using V = Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D()), kBlock = 64 * kLanes;
  const T top = top_of(x, n);
  int64_t i = 0;
  const V shift(static_cast<double>(top));
  double sum = 0;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t end = at + kBlock < n ? at + kBlock : n;
    V a(0.0), b(0.0);
    for (i = at; i + 2 * kLanes <= end; i += 2 * kLanes) {
      a = a + math::exp(V(hn::LoadU(D(), x + i)) - shift);
      b = b + math::exp(V(hn::LoadU(D(), x + i + kLanes)) - shift);
    }
    T lanes[kLanes];
    for (; i < end; i += kLanes) {  // whole vectors are read, and their first lanes used
      hn::StoreU(math::exp(V(hn::LoadU(D(), x + i)) - shift).v, D(), lanes);
      for (int64_t k = 0; k < kLanes && i + k < end; ++k) sum += lanes[k];
    }
    hn::StoreU((a + b).v, D(), lanes);
    T some = 0;
    for (T lane : lanes) some += lane;
    sum += some;
  }

  const T rest = static_cast<T>(std::log(sum));
  const V less(static_cast<double>(rest));
  for (i = 0; i + kLanes <= n; i += kLanes) hn::StoreU((V(hn::LoadU(D(), x + i)) - shift - less).v, D(), out + i);
  for (; i < n; ++i) out[i] = x[i] - top - rest;
}

/// The same for exp(x - max) / sum exp(x - max): each exponential is computed once, and scaled in the third pass.
template <class T> HWY_ATTR void softmax_row(const T* x, T* out, int64_t n) {
  using D = hn::ScalableTag<T>;
  using V = Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D()), kBlock = 64 * kLanes;
  const V shift(static_cast<double>(top_of(x, n)));
  double sum = 0;
  int64_t i = 0;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t end = at + kBlock < n ? at + kBlock : n;
    V a(0.0), b(0.0);
    for (i = at; i + 2 * kLanes <= end; i += 2 * kLanes) {
      const V c = math::exp(V(hn::LoadU(D(), x + i)) - shift), d = math::exp(V(hn::LoadU(D(), x + i + kLanes)) - shift);
      hn::StoreU(c.v, D(), out + i);
      hn::StoreU(d.v, D(), out + i + kLanes);
      a = a + c, b = b + d;
    }
    T lanes[kLanes];
    for (; i < end; i += kLanes) {  // whole vectors are read, and their first lanes used
      hn::StoreU(math::exp(V(hn::LoadU(D(), x + i)) - shift).v, D(), lanes);
      for (int64_t k = 0; k < kLanes && i + k < end; ++k) sum += out[i + k] = lanes[k];
    }
    hn::StoreU((a + b).v, D(), lanes);
    T some = 0;
    for (T lane : lanes) some += lane;
    sum += some;
  }
  const T scale = static_cast<T>(1 / sum);
  const V times(static_cast<double>(scale));
  for (i = 0; i + kLanes <= n; i += kLanes) hn::StoreU((V(hn::LoadU(D(), out + i)) * times).v, D(), out + i);
  for (; i < n; ++i) out[i] *= scale;
}

HWY_ATTR void log_row_f(const float* x, float* out, int64_t n) { log_softmax_row(x, out, n); }
HWY_ATTR void log_row_d(const double* x, double* out, int64_t n) { log_softmax_row(x, out, n); }
HWY_ATTR void row_f(const float* x, float* out, int64_t n) { softmax_row(x, out, n); }
HWY_ATTR void row_d(const double* x, double* out, int64_t n) { softmax_row(x, out, n); }

}  // namespace gradwire::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::engine::cpu {
namespace {

HWY_EXPORT(log_row_f);
HWY_EXPORT(log_row_d);
HWY_EXPORT(row_f);
HWY_EXPORT(row_d);

void one_row(const float* x, float* out, int64_t n, bool log) {
  if (log)
    HWY_DYNAMIC_DISPATCH(log_row_f)(x, out, n);
  else
    HWY_DYNAMIC_DISPATCH(row_f)(x, out, n);
}
void one_row(const double* x, double* out, int64_t n, bool log) {
  if (log)
    HWY_DYNAMIC_DISPATCH(log_row_d)(x, out, n);
  else
    HWY_DYNAMIC_DISPATCH(row_d)(x, out, n);
}

/// Rows that are not contiguous are computed in a buffer: as many together as stand side by side in a cache line, as
/// long as they fit the second cache.
constexpr int64_t kTogether = 16, kBuffer = 65536;  // rows; elements

void all_rows(const Launch& l, bool log) {
  View views[] = {l.out[0], l.in[0]};
  const int64_t n = views[0].shape[views[0].ndim - 1],
                steps[] = {views[0].strides[views[0].ndim - 1], views[1].strides[views[1].ndim - 1]};
  if (views[0].numel() == 0) return;
  for (View& v : views) --v.ndim;
  const Nest rows = nest_of(views);
  with_floating(views[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Computed<T>;
    constexpr int64_t kSize = sizeof(T);
    bool failed = false;
    const bool direct = !kHalf<T> && steps[0] == 1 && steps[1] == 1;
    const int64_t most = direct ? 64 : std::clamp<int64_t>(kBuffer / n, 1, kTogether);
    const int64_t width = rows.size[0], each = std::min(most, width), across = (width + each - 1) / each;
#pragma omp parallel if (rows.total * n > kParallel / 4)
    {
      // An error leaves the region as a value.
      const std::unique_ptr<C[]> buffer(direct ? nullptr : new (std::nothrow) C[each * n + 64 / sizeof(C)]);
      const std::unique_ptr<T[]> packed(kHalf<T> ? new (std::nothrow) T[each * n] : nullptr);
      const bool ready = direct || (buffer && (packed || !kHalf<T>));
      if (!ready) {
#pragma omp atomic write
        failed = true;
      }
#pragma omp for schedule(static)
      for (int64_t task = 0; task < rows.total / width * across; ++task) {
        if (!ready) continue;
        const int64_t first = task % across * each, count = std::min(each, width - first);
        char* at[kMaxOperands] = {};
        rows.outer(task / across, 1, at);
        const Plane out{at[0] + first * rows.stride[0][0], rows.stride[0][0], steps[0] * kSize},
            in{at[1] + first * rows.stride[0][1], rows.stride[0][1], steps[1] * kSize};
        if constexpr (!kHalf<T>) {
          if (direct) {
            for (int64_t r = 0; r < count; ++r)
              one_row(reinterpret_cast<const T*>(in.at + r * in.row), reinterpret_cast<T*>(out.at + r * out.row), n,
                      log);
            continue;
          }
        }
        T* some = packed.get();
        if constexpr (!kHalf<T>) some = buffer.get();
        const Plane held{reinterpret_cast<char*>(some), n * kSize, kSize};
        copy_plane(kSize, held, in, count, n, false);
        if constexpr (kHalf<T>) to_float(packed.get(), buffer.get(), count * n);
        // The last vector of a row reads the next one's first elements, before they are written.
        for (int64_t r = 0; r < count; ++r) one_row(buffer.get() + r * n, buffer.get() + r * n, n, log);
        if constexpr (kHalf<T>) from_float(buffer.get(), packed.get(), count * n);
        copy_plane(kSize, out, held, count, n, false);
      }
    }
    if (failed) throw Error(Code::memory_limit, log ? "out of memory in log_softmax" : "out of memory in softmax");
  });
}

}  // namespace

void log_softmax(const Launch& l) { all_rows(l, true); }
void softmax(const Launch& l) { all_rows(l, false); }

}  // namespace gradwire::engine::cpu
#endif
