#pragma once

#include <cstdint>

#include "engine/kernels.h"

namespace gradwire::engine::cpu {

/// One step of an optimiser over n elements: p, g (only read), and three that are kept; null where there is none.
struct OptimLines {
  void (*single)(const OptimParams&, float* const* at, int64_t n) = nullptr;
  void (*wide)(const OptimParams&, double* const* at, int64_t n) = nullptr;
};

}  // namespace gradwire::engine::cpu
