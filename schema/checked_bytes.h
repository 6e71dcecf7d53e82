#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "schema/dtype.h"
#include "schema/error.h"
#include "schema/shape.h"

namespace gradwire {

/// Bytes of a contiguous tensor. Throws Error{bad_tensor} where a size is negative, or rank, a dimension or the
/// number of elements is over the limits of schema/shape.h; nothing overflows on the way.
inline size_t checked_bytes(DType dtype, std::span<const int64_t> shape) {
  if (shape.size() > kMaxDims) {
    throw Error(Code::bad_tensor, "a tensor has at most " + std::to_string(kMaxDims) + " dimensions, got " +
                                      std::to_string(shape.size()));
  }
  bool empty = false;
  for (int64_t n : shape) {
    if (n < 0)
      throw Error(Code::bad_tensor, "negative dimension " + std::to_string(n) + " in shape " + to_string(shape));
    if (n > kMaxDim) throw Error(Code::bad_tensor, "dimension " + std::to_string(n) + " is too large");
    empty |= n == 0;
  }
  if (empty) return 0;
  int64_t numel = 1;
  for (int64_t n : shape) {
    if (__builtin_mul_overflow(numel, n, &numel) || numel > kMaxNumel) {
      throw Error(Code::bad_tensor, "shape " + to_string(shape) + " has too many elements");
    }
  }
  return static_cast<size_t>(numel) * static_cast<size_t>(size_of(dtype));
}

}  // namespace gradwire
