#include <string>

#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"
#include "schema/error.h"

namespace gradwire::engine::cpu {
namespace {

/// Element (i, j, k) of a view of up to three dims, by its strides.
template <class T> T& at(const View& v, int64_t i, int64_t j = 0, int64_t k = 0) {
  return static_cast<T*>(
      v.data)[i * v.strides[0] + (v.ndim > 1 ? j * v.strides[1] : 0) + (v.ndim > 2 ? k * v.strides[2] : 0)];
}

void check_targets(const View& target, int64_t classes, int64_t ignored) {
  for (int64_t n = 0; n < target.shape[0]; ++n) {
    for (int64_t d = 0; d < target.shape[1]; ++d) {
      const int64_t t = at<int64_t>(target, n, d);
      if (t != ignored && (t < 0 || t >= classes)) {
        throw Error(Code::index_out_of_range, "Target " + std::to_string(t) + " is out of bounds.");
      }
    }
  }
}

}  // namespace

void nll_pick(const Launch& l) {
  const View &out = l.out[0], &input = l.in[0], &target = l.in[1], &weight = l.in[2];
  const int64_t ignored = static_cast<const NllParams*>(l.params)->ignore_index, ends = out.shape[1];
  check_targets(target, input.shape[1], ignored);
  with_floating(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
#pragma omp parallel for schedule(static) if (out.numel() > kParallel)
    for (int64_t i = 0; i < out.shape[0] * ends; ++i) {
      const int64_t n = i / ends, d = i % ends, t = at<int64_t>(target, n, d);
      at<T>(out, n, d) =
          t == ignored ? stored<T>(0) : stored<T>(-computed(at<T>(weight, t)) * computed(at<T>(input, n, t, d)));
    }
  });
}

void nll_spread(const Launch& l) {
  const View &out = l.out[0], &grad = l.in[0], &target = l.in[1], &weight = l.in[2];
  const int64_t ignored = static_cast<const NllParams*>(l.params)->ignore_index, ends = out.shape[2];
  check_targets(target, out.shape[1], ignored);
  const FillParams zero{Scalar(0)};
  fill({.stream = nullptr, .out = l.out, .in = {}, .params = &zero});
  with_floating(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t i = 0; i < out.shape[0] * ends; ++i) {
      const int64_t n = i / ends, d = i % ends, t = at<int64_t>(target, n, d);
      if (t != ignored) {
        at<T>(out, n, t, d) = stored<T>(-computed(at<T>(weight, t)) * computed(at<T>(grad, n, d)));
      }
    }
  });
}

}  // namespace gradwire::engine::cpu
