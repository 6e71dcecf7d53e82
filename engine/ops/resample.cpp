#include "engine/ops/resample.h"

#include <algorithm>

#include "engine/apply.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {

Tensor resample(Context& cx, const Tensor& x, int dim, int64_t out,
                const std::function<void(int64_t, std::vector<double>&)>& weights) {
  const int64_t n = x.size(dim);
  const DType in = x.dtype() == DType::float64 ? DType::float64 : DType::float32;
  const Shape square{out, n};
  cx.empty(square, DType::float64);  // what follows must fit
  std::vector<double> all, row(out > 0 ? static_cast<size_t>(n) : 0);
  all.reserve(static_cast<size_t>(checked_numel(square)));
  for (int64_t o = 0; o < out; ++o) {
    std::ranges::fill(row, 0);
    weights(o, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  const Tensor matrix = cx.contiguous(from_bytes(cx, DType::float64, square, std::as_bytes(std::span(all))), in);
  // [before, n, after], so that the dim is the second to last
  Shape shape(x.shape());
  const auto sizes = x.shape();
  const int64_t before = checked_numel(sizes.first(static_cast<size_t>(dim))),
                after = checked_numel(sizes.subspan(static_cast<size_t>(dim) + 1));
  shape[static_cast<size_t>(dim)] = out;
  const Tensor wide = cast(x, in);
  const Tensor y = after == 1 ? matmul(reshape(wide, {before, n}), transpose(matrix, 0, 1))
                              : matmul(matrix, reshape(wide, {before, n, after}));
  return cast(reshape(y, shape), x.dtype());
}

}  // namespace gradwire::engine
