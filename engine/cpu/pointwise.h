#pragma once

#include <span>
#include <string_view>

#include "engine/backend.h"

namespace gradwire::engine::cpu {

/// The kernels of one functor, by the dtype in which it computes; null where there is none.
struct PointwiseRow {
  const char* op = nullptr;
  int inputs = 0;
  bool masked = false;  // of three inputs the first is a bool
  RowKernel by_dtype[kDTypes] = {};
};

// Floats and halves: each family of engine/functors compiled for each SIMD target; those for this machine.
std::span<const PointwiseRow> unary_rows();
std::span<const PointwiseRow> binary_rows();
std::span<const PointwiseRow> compare_rows();
std::span<const PointwiseRow> curves_rows();
std::span<const PointwiseRow> logic_rows();
std::span<const PointwiseRow> ternary_rows();
/// Integers and bool, all families: plain loops, compiled once.
std::span<const PointwiseRow> whole_rows();

/// Looks again at each call, for tests that choose a SIMD target.
PointwiseRow pointwise_row(std::string_view op);

}  // namespace gradwire::engine::cpu
