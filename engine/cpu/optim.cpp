// Steps of optimisers: one pass over a parameter, its gradient and what is kept. Compiled once for each SIMD target.
#include "engine/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/optim.cpp"
#include "hwy/foreach_target.h"  // must come first

#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/cpu/optim.h"
#include "engine/cpu/pointwise-top.h"
#include "engine/kernels.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::engine::cpu::HWY_NAMESPACE {

template <class... F> struct list {};

#undef GW_FN
#define GW_FN HWY_ATTR HWY_INLINE

#include "engine/cpu/simd.h"
#include "engine/functors/optim.h"

/// p, g, and three that are kept, of which null ones are not there.
template <class T> struct Line { T* at[5]; };

template <class D, class F, class T> GW_FN void once(const F& f, const Line<T>& l, int64_t i) {
  using V = Vec<D>;
  V p = load<D>(l.at[0] + i), a(0.0), b(0.0), c(0.0);
  const V g = load<D>(l.at[1] + i);
  if (l.at[2]) a = load<D>(l.at[2] + i);
  if (l.at[3]) b = load<D>(l.at[3] + i);
  if (l.at[4]) c = load<D>(l.at[4] + i);
  f(p, g, a, b, c);
  store(p, l.at[0] + i);
  if (l.at[2]) store(a, l.at[2] + i);
  if (l.at[3]) store(b, l.at[3] + i);
  if (l.at[4]) store(c, l.at[4] + i);
}

template <class F, class T> HWY_ATTR void line(const OptimParams& o, T* const* at, int64_t n) {
  using D = hn::ScalableTag<T>;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  const F f{o};
  const Line<T> l{{at[0], at[1], at[2], at[3], at[4]}};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) once<D>(f, l, i);
  if (i == n) return;
  T rest[5][kLanes] = {};
  Line<T> last{};
  for (int k = 0; k < 5; ++k) {
    if (l.at[k]) last.at[k] = std::copy(l.at[k] + i, l.at[k] + n, rest[k]) - (n - i);
  }
  once<D>(f, last, 0);
  for (int k = 0; k < 5; ++k) {
    if (l.at[k] && k != 1) std::copy_n(rest[k], n - i, l.at[k] + i);
  }
}

template <class... F> OptimLines find(list<F...>, OptimKind kind) {
  OptimLines lines;
  ((F::kind == kind ? void(lines = {line<F, float>, line<F, double>}) : void()), ...);
  return lines;
}
OptimLines optim_lines(OptimKind kind) { return find(optimisers(), kind); }

}  // namespace gradwire::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::engine::cpu {

HWY_EXPORT(optim_lines);

namespace {

constexpr int64_t kBlock = 1024;  // of halves that are made wide at a time

template <class T> void run(const OptimLines& lines, const OptimParams& o, T* const* from, int64_t begin, int64_t end) {
  if constexpr (kHalf<T>) {
    float wide[5][kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      float* at[5] = {};
      for (int k = 0; k < 5; ++k) {
        if (!from[k]) continue;
        at[k] = wide[k];
        for (int64_t j = 0; j < n; ++j) wide[k][j] = to_float(from[k][i + j]);
      }
      lines.single(o, at, n);
      for (int k = 0; k < 5; ++k) {
        if (!from[k] || k == 1) continue;
        for (int64_t j = 0; j < n; ++j) from[k][i + j] = from_float<T>(wide[k][j]);
      }
    }
  } else {
    T* at[5];
    for (int k = 0; k < 5; ++k) at[k] = from[k] ? from[k] + begin : nullptr;
    if constexpr (std::is_same_v<T, float>)
      lines.single(o, at, end - begin);
    else
      lines.wide(o, at, end - begin);
  }
}

}  // namespace

void optimize(const Launch& l) {
  const auto& o = *static_cast<const OptimParams*>(l.params);
  const OptimLines lines = HWY_DYNAMIC_DISPATCH(optim_lines)(o.kind);
  const int64_t n = l.out[0].numel();
  with_floating(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* const at[5] = {static_cast<T*>(l.out[0].data), static_cast<T*>(l.in[0].data), static_cast<T*>(l.out[1].data),
                      static_cast<T*>(l.out[2].data), static_cast<T*>(l.out[3].data)};
    constexpr int64_t kPiece = kParallel / 2;
    const int64_t pieces = (n + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static) if (n > kParallel)
    for (int64_t k = 0; k < pieces; ++k) run<T>(lines, o, at, k * kPiece, std::min(n, (k + 1) * kPiece));
  });
}

}  // namespace gradwire::engine::cpu
#endif
