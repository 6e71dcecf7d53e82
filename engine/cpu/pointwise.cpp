#include "engine/cpu/pointwise.h"

namespace gradwire::engine::cpu {

PointwiseRow pointwise_row(std::string_view op) {
  PointwiseRow found;
  for (const auto& family :
       {unary_rows(), curves_rows(), binary_rows(), ternary_rows(), compare_rows(), logic_rows(), whole_rows()}) {
    for (const PointwiseRow& r : family) {
      if (r.op != op) continue;
      found.op = r.op, found.inputs = r.inputs, found.masked = r.masked;
      for (int t = 0; t < kDTypes; ++t) {
        if (r.by_dtype[t]) found.by_dtype[t] = r.by_dtype[t];
      }
    }
  }
  return found;
}

}  // namespace gradwire::engine::cpu
