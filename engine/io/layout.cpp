#include "engine/io/layout.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "schema/error.h"

namespace gradwire::engine::io {

size_t checked_bytes(DType dtype, std::span<const int64_t> shape) {
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

Sink::Sink(DType dtype, const Shape& shape, bool fortran, bool big_endian, std::span<std::byte> to)
    : to_(to),
      shape_(shape),
      at_(shape.size(), 0),
      strides_(shape.size(), 1),
      element_(static_cast<size_t>(size_of(dtype))),
      fortran_(fortran && shape.size() > 1),
      swap_(big_endian && element_ > 1),
      boolean_(dtype == DType::boolean),
      plain_(!fortran_ && !swap_ && !boolean_) {
  for (size_t d = shape_.size(); d-- > 1;) strides_[d - 1] = strides_[d] * std::max<int64_t>(shape_[d], 1);
}

void Sink::place(const std::byte* element) {
  std::byte* to = to_.data() + offset_ * element_;
  if (boolean_) {
    *to = std::byte{*element != std::byte{0}};
  } else if (swap_) {
    std::reverse_copy(element, element + element_, to);
  } else {
    std::memcpy(to, element, element_);
  }
  taken_ += element_;
  if (!fortran_) {
    ++offset_;
    return;
  }
  for (size_t d = 0; d < shape_.size(); ++d) {  // the first index runs fastest
    offset_ += static_cast<size_t>(strides_[d]);
    if (++at_[d] < shape_[d]) break;
    offset_ -= static_cast<size_t>(strides_[d] * shape_[d]);
    at_[d] = 0;
  }
}

void Sink::feed(std::span<const std::byte> bytes) {
  if (bytes.size() > to_.size() - taken_ - have_) throw Error(Code::bad_tensor, "more data than the shape says");
  if (plain_ && have_ == 0) {
    if (!bytes.empty()) std::memcpy(to_.data() + taken_, bytes.data(), bytes.size());
    taken_ += bytes.size();
    return;
  }
  while (!bytes.empty()) {
    if (have_ == 0 && bytes.size() >= element_) {
      place(bytes.data());
      bytes = bytes.subspan(element_);
      continue;
    }
    const size_t n = std::min(bytes.size(), element_ - have_);
    std::memcpy(part_ + have_, bytes.data(), n);
    have_ += n;
    bytes = bytes.subspan(n);
    if (have_ == element_) {
      have_ = 0;
      place(part_);
    }
  }
}

}  // namespace gradwire::engine::io
