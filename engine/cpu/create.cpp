#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/cpu/convert.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"

namespace gradwire::engine::cpu {
namespace {

template <class T> T value_at(const SequenceParams& p, int64_t i, int64_t n) {
  if constexpr (std::is_integral_v<T>) {
    if (p.kind == SequenceParams::steps) {
      const auto step = static_cast<uint64_t>(p.whole_step);
      return static_cast<T>(static_cast<uint64_t>(p.whole_start) + static_cast<uint64_t>(i) * step);
    }
  }
  const bool near_start = p.kind == SequenceParams::steps || i < n / 2;
  const double x =
      near_start ? p.start + static_cast<double>(i) * p.step : p.end - static_cast<double>(n - 1 - i) * p.step;
  return converted<T>(p.kind == SequenceParams::powers ? std::pow(p.base, x) : x);
}

}  // namespace

void sequence(const Launch& l) {
  const auto& p = *static_cast<const SequenceParams*>(l.params);
  const int64_t n = l.out[0].numel();
  with_type(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* out = static_cast<T*>(l.out[0].data);
#pragma omp parallel for schedule(static) if (n > kParallel)
    for (int64_t i = 0; i < n; ++i) out[i] = value_at<T>(p, i, n);
  });
}

void triangle(const Launch& l) {
  const auto& p = *static_cast<const TriangleParams*>(l.params);
  View rows = l.out[0];
  const int64_t height = rows.shape[rows.ndim - 2], width = rows.shape[rows.ndim - 1];
  const int64_t bytes = size_of(rows.dtype), step = rows.strides[rows.ndim - 1] * bytes;
  --rows.ndim;
  const Nest n = nest_of({&rows, 1}, true);
#pragma omp parallel for schedule(static) if (n.total * width > kParallel)
  for (int64_t r = 0; r < n.total; ++r) {
    char* at[kMaxOperands];
    n.outer(r, 0, at);
    const int64_t edge = r % height + p.diagonal;  // the column that the diagonal has in this row
    const int64_t first = p.lower ? std::clamp<int64_t>(edge + 1, 0, width) : 0;
    const int64_t last = p.lower ? width : std::clamp<int64_t>(edge, 0, width);
    if (step == bytes) {
      std::memset(at[0] + first * step, 0, static_cast<size_t>((last - first) * bytes));
    } else {
      for (int64_t c = first; c < last; ++c) std::memset(at[0] + c * step, 0, static_cast<size_t>(bytes));
    }
  }
}

}  // namespace gradwire::engine::cpu
