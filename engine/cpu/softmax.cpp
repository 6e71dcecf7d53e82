// Compiled once for each SIMD target, by Highway's foreach_target; the processor decides which one is used.
#include "engine/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/softmax.cpp"
#include "hwy/foreach_target.h"  // must come first

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

/// Contiguous, x may be out. Three passes; the sum is made of blocks, so that long rows stay exact.
template <class T> HWY_ATTR void log_softmax_row(const T* x, T* out, int64_t n) {
  using D = hn::ScalableTag<T>;
  using V = Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D()), kBlock = 64 * kLanes;
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
  for (; i < n; ++i) top = top > x[i] ? top : x[i];  // a NaN may be lost here: the sum finds it

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

HWY_ATTR void softmax_row_f(const float* x, float* out, int64_t n) { log_softmax_row(x, out, n); }
HWY_ATTR void softmax_row_d(const double* x, double* out, int64_t n) { log_softmax_row(x, out, n); }

}  // namespace gradwire::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::engine::cpu {
namespace {

HWY_EXPORT(softmax_row_f);
HWY_EXPORT(softmax_row_d);

void one_row(const float* x, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(softmax_row_f)(x, out, n); }
void one_row(const double* x, double* out, int64_t n) { HWY_DYNAMIC_DISPATCH(softmax_row_d)(x, out, n); }

}  // namespace

void log_softmax(const Launch& l) {
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
#pragma omp parallel if (rows.total * n > kParallel / 4)
    {
      // An error leaves the region as a value.
      const std::unique_ptr<C[]> buffer(direct ? nullptr : new (std::nothrow) C[n + 64 / sizeof(C)]);
      const std::unique_ptr<T[]> packed(kHalf<T> ? new (std::nothrow) T[n] : nullptr);
      const bool ready = direct || (buffer && (packed || !kHalf<T>));
      if (!ready) {
#pragma omp atomic write
        failed = true;
      }
#pragma omp for schedule(static)
      for (int64_t i = 0; i < rows.total; ++i) {
        if (!ready) continue;
        char* at[kMaxOperands] = {};
        rows.outer(i, 0, at);
        char *out = at[0], *in = at[1];
        if constexpr (kHalf<T>) {
          copy_plane(kSize, {reinterpret_cast<char*>(packed.get()), 0, kSize}, {in, 0, steps[1] * kSize}, 1, n, false);
          to_float(packed.get(), buffer.get(), n);
          one_row(buffer.get(), buffer.get(), n);
          from_float(buffer.get(), packed.get(), n);
          copy_plane(kSize, {out, 0, steps[0] * kSize}, {reinterpret_cast<char*>(packed.get()), 0, kSize}, 1, n, false);
        } else if (direct) {
          one_row(reinterpret_cast<const T*>(in), reinterpret_cast<T*>(out), n);
        } else {
          char* some = reinterpret_cast<char*>(buffer.get());
          copy_plane(kSize, {some, 0, kSize}, {in, 0, steps[1] * kSize}, 1, n, false);
          one_row(buffer.get(), buffer.get(), n);
          copy_plane(kSize, {out, 0, steps[0] * kSize}, {some, 0, kSize}, 1, n, false);
        }
      }
    }
    if (failed) throw Error(Code::memory_limit, "out of memory in log_softmax");
  });
}

}  // namespace gradwire::engine::cpu
#endif
