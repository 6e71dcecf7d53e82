#pragma once

#include <functional>
#include <vector>

#include "engine/tensor.h"

namespace gradwire::engine {

/// x (floating) with `out` elements along dim, each a weighted sum of the n that were there: `weights`(o, row) fills
/// the n weights of element o, which come as zeros. Recorded; halves compute in float32.
Tensor resample(Context&, const Tensor& x, int dim, int64_t out,
                const std::function<void(int64_t, std::vector<double>&)>& weights);

}  // namespace gradwire::engine
