#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>

#include "client/nn/linear.h"

namespace gradwire::nn {

/// A convolution's padding: sizes, or "same" or "valid".
struct Padding : Dims {
  using Dims::Dims;
  Padding(const char* name) : mode(name) {}
  std::string mode{};
};

struct ConvOptions {
  Dims stride = 1;
  Padding padding = 0;
  Dims dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  // or "reflect", "replicate", "circular"
  std::optional<DType> dtype{};
};
struct ConvTransposeOptions {
  Dims stride = 1, padding = 0, output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Dims dilation = 1;
  std::optional<DType> dtype{};
};

/// One number for each of n dims, or n numbers. Throws Error{bad_argument} for another count.
Shape each_dim(Ints, size_t n, const char* what);

namespace basic {

/// What convolutions keep of their arguments; every member has a number a dim.
struct ConvArgs {
  Shape kernel, stride, padding, output_padding, dilation;
  int64_t groups = 1;
  Shape pad{};             // first, by padding_mode, where padding does not do
  std::string pad_mode{};  // of `pad`; empty: none
};
/// Checks and fills in; `extra` gets what is printed.
ConvArgs conv_args(size_t n, int64_t in, int64_t out, Ints kernel, const ConvOptions&, std::string& extra);
ConvArgs conv_args(size_t n, int64_t in, int64_t out, Ints kernel, const ConvTransposeOptions&, std::string& extra);

/// conv1d, conv2d or conv3d with a weight of [out, in / groups, kernel...].
template <class T, int N> class Conv : public Module<T> {
 public:
  Conv(MakerOf<T>& m, int64_t in_channels, int64_t out_channels, Ints kernel_size, const ConvOptions& o = {},
       std::source_location at = std::source_location::current())
      : Module<T>("Conv" + std::to_string(N) + "d"),
        a_(conv_args(N, in_channels, out_channels, kernel_size, o, this->state().extra)) {
    Shape shape{out_channels, in_channels / a_.groups};
    for (const int64_t k : a_.kernel) shape.push_back(k);
    this->set_parameter("weight", kaiming_weight<T>(m, shape, o.dtype, at));
    this->set_parameter("bias", o.bias ? fan_in_bias<T>(m, out_channels, shape, o.dtype, at) : T());
  }
  Conv(int64_t in_channels, int64_t out_channels, Ints kernel_size, const ConvOptions& o = {},
       std::source_location at = std::source_location::current())
      : Conv(default_maker<T>(), in_channels, out_channels, kernel_size, o, at) {}
  /// Stride and padding in PyTorch's places: Conv2d(3, 16, 3, 2, 1).
  template <std::integral S>
  Conv(int64_t in_channels, int64_t out_channels, Ints kernel_size, S stride,
       std::source_location at = std::source_location::current())
      : Conv(in_channels, out_channels, kernel_size, ConvOptions{.stride = stride}, at) {}
  template <std::integral S, std::integral P>
  Conv(int64_t in_channels, int64_t out_channels, Ints kernel_size, S stride, P padding, ConvOptions o = {},
       std::source_location at = std::source_location::current())
      : Conv(in_channels, out_channels, kernel_size, (o.stride = stride, o.padding = padding, o), at) {}

  const T& weight() const { return this->state().parameters[0].tensor; }
  const T& bias() const { return this->state().parameters[1].tensor; }
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      return a_.pad_mode.empty() ? forward(v, at) : forward(pad(v, a_.pad, a_.pad_mode, {}, at), at);
    });
  }

 private:
  T forward(const T& x, const std::source_location& at) const {
    if constexpr (N == 1)
      return conv1d(x, weight(), bias(), a_.stride, a_.padding, a_.dilation, a_.groups, at);
    else if constexpr (N == 2)
      return conv2d(x, weight(), bias(), a_.stride, a_.padding, a_.dilation, a_.groups, at);
    else
      return conv3d(x, weight(), bias(), a_.stride, a_.padding, a_.dilation, a_.groups, at);
  }
  ConvArgs a_;
};
template <class T> using Conv1d = Conv<T, 1>;
template <class T> using Conv2d = Conv<T, 2>;
template <class T> using Conv3d = Conv<T, 3>;

/// conv_transpose1d, 2d or 3d with a weight of [in, out / groups, kernel...].
template <class T, int N> class ConvTranspose : public Module<T> {
 public:
  ConvTranspose(MakerOf<T>& m, int64_t in_channels, int64_t out_channels, Ints kernel_size,
                const ConvTransposeOptions& o = {}, std::source_location at = std::source_location::current())
      : Module<T>("ConvTranspose" + std::to_string(N) + "d"),
        a_(conv_args(N, in_channels, out_channels, kernel_size, o, this->state().extra)) {
    Shape shape{in_channels, out_channels / a_.groups};
    for (const int64_t k : a_.kernel) shape.push_back(k);
    this->set_parameter("weight", kaiming_weight<T>(m, shape, o.dtype, at));
    this->set_parameter("bias", o.bias ? fan_in_bias<T>(m, out_channels, shape, o.dtype, at) : T());
  }
  ConvTranspose(int64_t in_channels, int64_t out_channels, Ints kernel_size, const ConvTransposeOptions& o = {},
                std::source_location at = std::source_location::current())
      : ConvTranspose(default_maker<T>(), in_channels, out_channels, kernel_size, o, at) {}
  /// Stride and padding in PyTorch's places: ConvTranspose2d(3, 16, 3, 2, 1).
  template <std::integral S>
  ConvTranspose(int64_t in_channels, int64_t out_channels, Ints kernel_size, S stride,
                std::source_location at = std::source_location::current())
      : ConvTranspose(in_channels, out_channels, kernel_size, ConvTransposeOptions{.stride = stride}, at) {}
  template <std::integral S, std::integral P>
  ConvTranspose(int64_t in_channels, int64_t out_channels, Ints kernel_size, S stride, P padding,
                ConvTransposeOptions o = {}, std::source_location at = std::source_location::current())
      : ConvTranspose(in_channels, out_channels, kernel_size, (o.stride = stride, o.padding = padding, o), at) {}

  const T& weight() const { return this->state().parameters[0].tensor; }
  const T& bias() const { return this->state().parameters[1].tensor; }
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return forward(v, at); });
  }

 private:
  T forward(const T& x, const std::source_location& at) const {
    const ConvArgs& a = a_;
    if constexpr (N == 1)
      return conv_transpose1d(x, weight(), bias(), a.stride, a.padding, a.output_padding, a.groups, a.dilation, at);
    else if constexpr (N == 2)
      return conv_transpose2d(x, weight(), bias(), a.stride, a.padding, a.output_padding, a.groups, a.dilation, at);
    else
      return conv_transpose3d(x, weight(), bias(), a.stride, a.padding, a.output_padding, a.groups, a.dilation, at);
  }
  ConvArgs a_;
};
template <class T> using ConvTranspose1d = ConvTranspose<T, 1>;
template <class T> using ConvTranspose2d = ConvTranspose<T, 2>;
template <class T> using ConvTranspose3d = ConvTranspose<T, 3>;

}  // namespace basic
}  // namespace gradwire::nn
