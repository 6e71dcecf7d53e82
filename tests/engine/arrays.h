#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/convert.h"
#include "engine/cpu/dispatch.h"
#include "engine/kernels.h"

// Small tensors of any dtype and layout for the tests of kernels, read and written one element at a time.

namespace gradwire::engine::test {

using Sizes = std::vector<int64_t>;

enum class Layout { contiguous, transposed, sliced, negative, expanded };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::negative,
                                      Layout::expanded};
/// Those that an output may have.
inline constexpr Layout kOutLayouts[] = {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::negative};

inline const char* name(Layout l) {
  constexpr const char* names[] = {"contiguous", "transposed", "sliced", "negative", "expanded"};
  return names[static_cast<int>(l)];
}

inline constexpr DType kAll[] = {DType::boolean, DType::uint8,   DType::int8,     DType::int16,   DType::int32,
                                 DType::int64,   DType::float16, DType::bfloat16, DType::float32, DType::float64};
inline constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

class Array {
 public:
  Array(DType dtype, Sizes shape, Layout layout = Layout::contiguous) : dtype_(dtype), shape_(std::move(shape)) {
    const int n = static_cast<int>(shape_.size());
    strides_.resize(n);
    int64_t elements = 1, first = 0;
    for (int i = 0; i < n; ++i) {
      const int d = layout == Layout::transposed ? i : n - 1 - i;
      if (layout == Layout::expanded && d == 0 && n > 1) {
        strides_[d] = 0;
        continue;
      }
      const int64_t gap = layout == Layout::sliced ? 2 : 1;
      strides_[d] = elements * gap;
      elements *= std::max<int64_t>(shape_[d], 1) * gap;
      if (layout == Layout::negative && shape_[d] > 0) {
        first += (shape_[d] - 1) * strides_[d];
        strides_[d] = -strides_[d];
      }
    }
    // 64 bytes to read past the end; other bytes tell of writes outside
    bytes_ = static_cast<size_t>(elements * size_of(dtype));
    data_ = std::shared_ptr<char>(static_cast<char*>(std::aligned_alloc(64, (bytes_ + 64 + 63) / 64 * 64)), std::free);
    std::memset(data_.get(), 0x7D, bytes_ + 64);
    first_ = first;
  }

  DType dtype() const { return dtype_; }
  const Sizes& shape() const { return shape_; }
  int64_t numel() const { return view().numel(); }
  View view() const {
    return {data_.get() + first_ * size_of(dtype_), shape_.data(), strides_.data(), static_cast<int32_t>(shape_.size()),
            dtype_};
  }
  /// Element i in row-major order.
  char* at(int64_t i) const {
    int64_t offset = first_;
    for (size_t d = shape_.size(); d-- > 0; i /= shape_[d]) offset += i % shape_[d] * strides_[d];
    return data_.get() + offset * size_of(dtype_);
  }
  char* place(const Sizes& index) const {
    int64_t offset = first_;
    for (size_t d = 0; d < shape_.size(); ++d) offset += index[d] * strides_[d];
    return data_.get() + offset * size_of(dtype_);
  }
  double real(int64_t i) const { return value(at(i)); }
  double real_at(const Sizes& index) const { return value(place(index)); }
  int64_t whole(int64_t i) const {
    return cpu::with_type(dtype_, [&](auto t) {
      typename decltype(t)::type x;
      std::memcpy(&x, at(i), sizeof x);
      return cpu::converted<int64_t>(x);
    });
  }
  template <class N> void set(int64_t i, N x) {
    cpu::with_type(dtype_, [&](auto t) {
      const auto v = cpu::converted<typename decltype(t)::type>(x);
      std::memcpy(at(i), &v, sizeof v);
    });
  }
  template <class F> Array& each(F value) {
    for (int64_t i = 0; i < numel(); ++i) set(i, value(i));
    return *this;
  }
  /// Small numbers that every dtype holds: all sums of a few are exact in float32.
  Array& random(std::mt19937& r) {
    return each([&](int64_t) {
      const auto whole = static_cast<int64_t>(r() % 15) - 7;
      return is_floating(dtype_)        ? static_cast<double>(whole) + 0.25 * static_cast<double>(r() % 4)
             : dtype_ == DType::boolean ? static_cast<double>(whole & 1)
             : dtype_ == DType::uint8   ? static_cast<double>(std::abs(whole))
                                        : static_cast<double>(whole);
    });
  }
  /// Dims 0 and 1 change places.
  Array swapped(size_t a, size_t b) const {
    Array t = *this;
    std::swap(t.shape_[a], t.shape_[b]), std::swap(t.strides_[a], t.strides_[b]);
    return t;
  }
  /// Seen with another shape and strides, from the same first element.
  Array seen(Sizes shape, Sizes strides) const {
    Array t = *this;
    t.shape_ = std::move(shape), t.strides_ = std::move(strides);
    return t;
  }
  /// A view of a part: dim d from `start`, `size` elements.
  Array narrow(size_t d, int64_t start, int64_t size) const {
    Array t = *this;
    t.first_ += start * strides_[d], t.shape_[d] = size;
    return t;
  }
  /// Where the storage begins, its bytes, and the first element's offset in it, in bytes.
  char* storage() const { return data_.get(); }
  size_t storage_bytes() const { return bytes_; }
  int64_t first() const { return first_ * size_of(dtype_); }
  std::vector<char> bytes() const { return {data_.get(), data_.get() + bytes_}; }
  /// Nothing was written past the end of the storage.
  bool sound() const {
    for (size_t i = 0; i < 64; ++i) {
      if (data_.get()[bytes_ + i] != 0x7D) return false;
    }
    return true;
  }

 private:
  double value(const char* p) const {
    return cpu::with_type(dtype_, [&](auto t) {
      typename decltype(t)::type x;
      std::memcpy(&x, p, sizeof x);
      return cpu::converted<double>(x);
    });
  }

  DType dtype_;
  Sizes shape_, strides_;
  std::shared_ptr<char> data_;
  size_t bytes_ = 0;
  int64_t first_ = 0;
};

/// How far a result of this dtype may be from the true value, relative to max(1, |value|).
inline double tolerance(DType t) {
  switch (t) {
    case DType::float16:
      return 1e-3;
    case DType::bfloat16:
      return 8e-3;
    case DType::float32:
      return 1e-6;
    default:
      return 1e-13;
  }
}
inline bool near(double got, double want, double relative) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= relative * std::max(1.0, std::abs(want));
}

/// Kernels run with this many threads while it lives; without OpenMP with one.
class Threads {
 public:
#ifdef _OPENMP
  explicit Threads(int n) : before_(omp_get_max_threads()) { omp_set_num_threads(n); }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
#else
  explicit Threads(int) {}
  ~Threads() {}
#endif
};

inline void launch(KernelFn kernel, std::vector<View> out, std::vector<View> in, const void* params = nullptr) {
  kernel({.stream = nullptr, .out = out, .in = in, .params = params});
}

}  // namespace gradwire::engine::test
