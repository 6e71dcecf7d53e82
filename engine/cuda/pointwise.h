#pragma once

#include <string_view>

#include "engine/backend.h"

namespace gradwire::engine::cuda {

/// The kernels of one functor, by the dtype in which it computes; null where there is none, all null without CUDA.
struct PointwiseRow {
  CudaPointwise by_dtype[kDTypes] = {};
};
PointwiseRow pointwise_row(std::string_view op);

// One family of engine/functors each: fills the row of its functor.
void find_unary(std::string_view op, PointwiseRow&);
void find_binary(std::string_view op, PointwiseRow&);
void find_compare(std::string_view op, PointwiseRow&);
void find_curves(std::string_view op, PointwiseRow&);
void find_logic(std::string_view op, PointwiseRow&);
void find_ternary(std::string_view op, PointwiseRow&);

}  // namespace gradwire::engine::cuda
