#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>

#include "client/nn/module.h"

namespace gradwire::nn {

struct MaxPoolOptions {
  Dims stride{};  // left out: kernel_size
  Dims padding = 0, dilation = 1;
  bool ceil_mode = false;
};
struct AvgPoolOptions {
  Dims stride{};
  Dims padding = 0;
  bool ceil_mode = false, count_include_pad = true;
  std::optional<int64_t> divisor_override{};  // not of AvgPool1d
};

namespace basic {

inline Shape kept(Ints v) { return Shape(std::span<const int64_t>(v)); }
/// The stride, or the kernel's size where it is left out.
inline Shape stride_or(const Dims& stride, Ints kernel) {
  const OptionalInts s = stride;
  return s.has_value() ? kept(*s) : kept(kernel);
}

template <class T, int N> class MaxPool : public Module<T> {
 public:
  explicit MaxPool(Ints kernel_size, const MaxPoolOptions& o = {})
      : Module<T>("MaxPool" + std::to_string(N) + "d"),
        kernel_(kept(kernel_size)),
        stride_(stride_or(o.stride, kernel_size)),
        padding_(kept(o.padding)),
        dilation_(kept(o.dilation)),
        ceil_(o.ceil_mode) {
    this->state().extra = "kernel_size=" + py_size(kernel_) + ", stride=" + py_size(stride_) +
                          ", padding=" + py_size(padding_) + ", dilation=" + py_size(dilation_) +
                          ", ceil_mode=" + py(ceil_);
  }
  /// Stride and padding in PyTorch's places: MaxPool2d(3, 2, 1).
  template <std::integral S>
  MaxPool(Ints kernel_size, S stride) : MaxPool(kernel_size, MaxPoolOptions{.stride = stride}) {}
  template <std::integral S, std::integral P>
  MaxPool(Ints kernel_size, S stride, P padding, MaxPoolOptions o = {})
      : MaxPool(kernel_size, (o.stride = stride, o.padding = padding, o)) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      if constexpr (N == 1)
        return max_pool1d(v, kernel_, stride_, padding_, dilation_, ceil_, at);
      else if constexpr (N == 2)
        return max_pool2d(v, kernel_, stride_, padding_, dilation_, ceil_, at);
      else
        return max_pool3d(v, kernel_, stride_, padding_, dilation_, ceil_, at);
    });
  }

 private:
  Shape kernel_, stride_, padding_, dilation_;
  bool ceil_;
};
template <class T> using MaxPool1d = MaxPool<T, 1>;
template <class T> using MaxPool2d = MaxPool<T, 2>;
template <class T> using MaxPool3d = MaxPool<T, 3>;

template <class T, int N> class AvgPool : public Module<T> {
 public:
  explicit AvgPool(Ints kernel_size, const AvgPoolOptions& o = {})
      : Module<T>("AvgPool" + std::to_string(N) + "d"),
        kernel_(kept(kernel_size)),
        stride_(stride_or(o.stride, kernel_size)),
        padding_(kept(o.padding)),
        ceil_(o.ceil_mode),
        include_(o.count_include_pad),
        divisor_(o.divisor_override) {
    // PyTorch's AvgPool1d keeps tuples.
    const auto text = [](const Shape& s) { return N == 1 ? py_tuple(s) : py_size(s); };
    this->state().extra = "kernel_size=" + text(kernel_) + ", stride=" + text(stride_) + ", padding=" + text(padding_);
  }
  template <std::integral S>
  AvgPool(Ints kernel_size, S stride) : AvgPool(kernel_size, AvgPoolOptions{.stride = stride}) {}
  template <std::integral S, std::integral P>
  AvgPool(Ints kernel_size, S stride, P padding, AvgPoolOptions o = {})
      : AvgPool(kernel_size, (o.stride = stride, o.padding = padding, o)) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      if constexpr (N == 1)
        return avg_pool1d(v, kernel_, stride_, padding_, ceil_, include_, at);
      else if constexpr (N == 2)
        return avg_pool2d(v, kernel_, stride_, padding_, ceil_, include_, divisor_, at);
      else
        return avg_pool3d(v, kernel_, stride_, padding_, ceil_, include_, divisor_, at);
    });
  }

 private:
  Shape kernel_, stride_, padding_;
  bool ceil_, include_;
  std::optional<int64_t> divisor_;
};
template <class T> using AvgPool1d = AvgPool<T, 1>;
template <class T> using AvgPool2d = AvgPool<T, 2>;
template <class T> using AvgPool3d = AvgPool<T, 3>;

template <class T, int N> class AdaptiveAvgPool : public Module<T> {
 public:
  explicit AdaptiveAvgPool(Ints output_size)
      : Module<T>("AdaptiveAvgPool" + std::to_string(N) + "d", "output_size=" + py_size(output_size)),
        size_(kept(output_size)) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      if constexpr (N == 1)
        return adaptive_avg_pool1d(v, size_, at);
      else if constexpr (N == 2)
        return adaptive_avg_pool2d(v, size_, at);
      else
        return adaptive_avg_pool3d(v, size_, at);
    });
  }

 private:
  Shape size_;
};
template <class T> using AdaptiveAvgPool1d = AdaptiveAvgPool<T, 1>;
template <class T> using AdaptiveAvgPool2d = AdaptiveAvgPool<T, 2>;
template <class T> using AdaptiveAvgPool3d = AdaptiveAvgPool<T, 3>;

}  // namespace basic
}  // namespace gradwire::nn
