#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradwire {

inline constexpr int kMaxDims = 32;                       // of a tensor
inline constexpr int64_t kMaxDim = int64_t{1} << 40;      // of one dimension
inline constexpr int64_t kMaxNumel = int64_t{1} << 48;    // of a tensor, in elements

/// A short list of int64: sizes, strides or dims. Up to six elements live inside, more on the heap.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> v) { assign(v.begin(), v.size()); }
  Shape(std::span<const int64_t> v) { assign(v.data(), v.size()); }
  Shape(const std::vector<int64_t>& v) { assign(v.data(), v.size()); }
  Shape(size_t n, int64_t value) { resize(n, value); }
  Shape(const Shape& s) { assign(s.data(), s.size()); }
  Shape(Shape&& s) noexcept { swap(s); }
  Shape& operator=(const Shape& s) { return assign(s.data(), s.size()), *this; }
  Shape& operator=(Shape&& s) noexcept { return swap(s), *this; }
  ~Shape() { delete[] heap_; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return heap_ ? heap_ : inline_; }
  const int64_t* data() const { return heap_ ? heap_ : inline_; }
  int64_t& operator[](size_t i) { return data()[i]; }
  int64_t operator[](size_t i) const { return data()[i]; }
  int64_t* begin() { return data(); }
  int64_t* end() { return data() + size_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t back() const { return data()[size_ - 1]; }

  void push_back(int64_t v) { resize(size_ + 1, v); }
  void insert(size_t at, int64_t v) {
    push_back(v);
    std::rotate(begin() + at, end() - 1, end());
  }
  void erase(size_t at) {
    std::copy(begin() + at + 1, end(), begin() + at);
    --size_;
  }
  void resize(size_t n, int64_t value = 0) {
    reserve(n);
    for (size_t i = size_; i < n; ++i) data()[i] = value;
    size_ = static_cast<uint32_t>(n);
  }
  void assign(const int64_t* v, size_t n) {
    if (v == data()) return;
    size_ = 0;
    reserve(n);
    if (n) std::memcpy(data(), v, n * sizeof(int64_t));
    size_ = static_cast<uint32_t>(n);
  }
  void swap(Shape& s) noexcept {
    std::swap(size_, s.size_), std::swap(capacity_, s.capacity_), std::swap(heap_, s.heap_);
    for (int i = 0; i < kInline; ++i) std::swap(inline_[i], s.inline_[i]);
  }
  operator std::span<const int64_t>() const { return {data(), size()}; }
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  static constexpr int kInline = 6;
  void reserve(size_t n) {
    if (n <= capacity_) return;
    const size_t c = std::max<size_t>(n, 2 * size_t{capacity_});
    auto* more = new int64_t[c];
    std::copy(begin(), end(), more);
    delete[] heap_;
    heap_ = more, capacity_ = static_cast<uint32_t>(c);
  }
  uint32_t size_ = 0, capacity_ = kInline;
  int64_t* heap_ = nullptr;
  int64_t inline_[kInline] = {};
};

/// "[2, 3]", as PyTorch's messages write sizes; of more than a tensor can have, the first ones.
inline std::string to_string(std::span<const int64_t> s) {
  constexpr size_t kShown = 2 * kMaxDims;
  std::string text = "[";
  for (size_t i = 0; i < std::min(s.size(), kShown); ++i) text += (i ? ", " : "") + std::to_string(s[i]);
  return text += s.size() > kShown ? ", ...]" : "]";
}

}  // namespace gradwire
