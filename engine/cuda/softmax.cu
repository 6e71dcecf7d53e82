#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

constexpr int kWarp = 32;

/// A warp a row: the largest, the sum of exponentials, the result.
template <class T>
__global__ void softmax_rows(const Nest rows, const int64_t n, const int64_t out_step, const int64_t in_step,
                             const bool log) {
  using C = Computed<T>;
  const int lane = threadIdx.x % kWarp;
  for (int64_t r = first_element() / kWarp; r < rows.total; r += all_threads() / kWarp) {
    const Place p(rows, r);
    T* out = reinterpret_cast<T*>(p.at[0]);
    const T* in = reinterpret_cast<const T*>(p.at[1]);
    C top = -HUGE_VALF;
    for (int64_t i = lane; i < n; i += kWarp) top = max(top, computed(in[i * in_step]));  // drops NaN: the sum finds it
    for (int w = kWarp / 2; w > 0; w /= 2) top = max(top, __shfl_xor_sync(0xFFFFFFFF, top, w));
    double sum = 0;
    for (int64_t i = lane; i < n; i += kWarp) sum += math::exp(computed(in[i * in_step]) - top);
    for (int w = kWarp / 2; w > 0; w /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, w);
    const C rest = static_cast<C>(log ? math::log(sum) : 1 / sum);
    for (int64_t i = lane; i < n; i += kWarp) {
      const C x = computed(in[i * in_step]) - top;
      out[i * out_step] = stored<T>(log ? x - rest : math::exp(x) * rest);
    }
  }
}

void all_rows(const Launch& l, bool log) {
  View views[] = {l.out[0], l.in[0]};
  if (views[0].numel() == 0) return;
  const int last = views[0].ndim - 1;
  const int64_t n = views[0].shape[last], steps[] = {views[0].strides[last], views[1].strides[last]};
  for (View& v : views) --v.ndim;
  const Nest rows = nest_of(views);
  with_floating(views[0].dtype, [&](auto type) {
    start(softmax_rows<typename decltype(type)::type>, rows.total * kWarp, l.stream, rows, n, steps[0], steps[1], log);
  });
}

}  // namespace

void log_softmax(const Launch& l) { all_rows(l, true); }
void softmax(const Launch& l) { all_rows(l, false); }

}  // namespace gradwire::engine::cuda
