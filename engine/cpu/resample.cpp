#include <algorithm>

#include "engine/cpu/cascade.h"
#include "engine/kernels.h"

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kThreaded = 16384;

template <class T> [[gnu::always_inline]] inline void add_multiple_of(T* to, const T* from, T by, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += by * from[i];
}
GW_CLONES void add_multiple(float* to, const float* from, float by, int64_t n) { add_multiple_of(to, from, by, n); }
GW_CLONES void add_multiple(double* to, const double* from, double by, int64_t n) { add_multiple_of(to, from, by, n); }

template <class T> void compute(const Launch& l) {
  const auto& p = *static_cast<const ResampleParams*>(l.params);
  const T* in = static_cast<const T*>(l.in[0].data);
  T* out = static_cast<T*>(l.out[0].data);
  const int64_t before = l.out[0].shape[0], to = l.out[0].shape[1], from = l.in[0].shape[1], after = l.out[0].shape[2];
#pragma omp parallel for collapse(2) schedule(static) if (before * to * after > kThreaded)
  for (int64_t b = 0; b < before; ++b) {
    for (int64_t o = 0; o < to; ++o) {
      const int64_t first = p.start[o], count = p.start[to + o];
      const double* weight = p.weight + p.at(o, first);
      const int64_t step = p.kind == ResampleParams::by_result ? 0 : 1;
      const T* x = in + (b * from + first) * after;
      T* y = out + (b * to + o) * after;
      if (after == 1) {
        T sum = 0;
        for (int64_t k = 0; k < count; ++k) sum += static_cast<T>(weight[k * step]) * x[k];
        *y = sum;
      } else {
        std::fill_n(y, after, T(0));
        for (int64_t k = 0; k < count; ++k) add_multiple(y, x + k * after, static_cast<T>(weight[k * step]), after);
      }
    }
  }
}

}  // namespace

void resample(const Launch& l) { l.out[0].dtype == DType::float64 ? compute<double>(l) : compute<float>(l); }

}  // namespace gradwire::engine::cpu
