#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "schema/dtype.h"
#include "schema/shape.h"

namespace gradwire::engine::io {

/// Where the elements of a file go, in the order of the file: turns big-endian into little-endian, column-major into
/// row-major, and any non-zero byte of a bool into 1. Chunks may end in the middle of an element.
class Sink {
 public:
  /// `to` has checked_bytes(dtype, shape) bytes (schema/checked_bytes.h) and outlives the sink.
  Sink(DType dtype, const Shape& shape, bool fortran, bool big_endian, std::span<std::byte> to);
  /// True: the file's bytes are the tensor's bytes, and may be written to `to` without the sink.
  bool plain() const { return plain_; }
  /// The next bytes of the file. Throws Error{bad_tensor} when there are more than the tensor has.
  void feed(std::span<const std::byte> bytes);
  bool full() const { return taken_ == to_.size(); }

 private:
  void place(const std::byte* element);

  std::span<std::byte> to_;
  Shape shape_, at_;  // at_: the index of the next element, for column-major files
  Shape strides_;     // of the row-major target, in elements
  size_t element_, taken_ = 0, offset_ = 0;
  bool fortran_, swap_, boolean_, plain_;
  std::byte part_[8];  // an element whose end is in the next chunk
  size_t have_ = 0;
};

}  // namespace gradwire::engine::io
