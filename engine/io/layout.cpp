#include "engine/io/layout.h"

#include <algorithm>
#include <cstring>

#include "schema/error.h"

namespace gradwire::engine::io {

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
