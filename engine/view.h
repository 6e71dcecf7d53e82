#pragma once

#include <cstdint>

#include "schema/dtype.h"

namespace gradwire::engine {

/// What a kernel sees of a tensor, borrowed. Strides count elements, may be negative, and are 0 where one value stands
/// all along a dimension. `data` is the first element. Storage may be read, not written, up to 64 bytes past its end.
struct View {
  void* data = nullptr;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
  int32_t ndim = 0;
  DType dtype = DType::float32;

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= shape[d];
    return n;
  }
};

}  // namespace gradwire::engine
