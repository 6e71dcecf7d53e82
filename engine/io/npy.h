#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "schema/dtype.h"
#include "schema/shape.h"

// NumPy's .npy format, versions 1.0 to 3.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
// Only arrays of plain numbers: no objects (pickle), no structures. The dictionary of the head has a grammar of its own
// here; nothing is evaluated.

namespace gradwire::engine::io {

inline constexpr size_t kNpyPrefix = 12;           // bytes that tell how long the head is
inline constexpr size_t kMaxNpyHead = 10000 + 12;  // bytes of a head, NumPy's own limit

struct NpyHead {
  DType dtype = DType::float32;
  Shape shape;
  bool fortran = false, big_endian = false;
  size_t data_offset = 0;  // bytes of the head
  size_t data_bytes = 0;   // what must follow it, exactly
};

/// Bytes of the whole head, from the first kNpyPrefix bytes of a file. Throws Error{bad_tensor}, also over kMaxNpyHead.
size_t npy_head_bytes(std::span<const std::byte> prefix);

/// Reads a whole head (npy_head_bytes() of the file). Throws Error{bad_tensor}.
NpyHead parse_npy_head(std::span<const std::byte> head);

/// The head of a file of version 1.0 whose little-endian row-major bytes follow. Throws Error{bad_tensor} for
/// bfloat16, which the format does not have.
std::string npy_head(DType dtype, std::span<const int64_t> shape);

}  // namespace gradwire::engine::io
