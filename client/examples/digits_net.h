#pragma once

#include "client/nn/nn.h"

/// A small convolutional net for images of 8x8 pixels: two stages of convolution, batch norm and pooling, then a linear
/// layer. A template over the tensor: the same text runs on a server and on the engine in this process.
template <class T> class DigitsNet : public gradwire::nn::basic::Module<T> {
 public:
  explicit DigitsNet(gradwire::nn::MakerOf<T>& maker)
      : gradwire::nn::basic::Module<T>("DigitsNet"),
        conv1_(maker, 1, 32, 3, {.padding = 1}),
        bn1_(maker, 32),
        conv2_(maker, 32, 64, 3, {.padding = 1}),
        bn2_(maker, 64),
        fc_(maker, 64 * 2 * 2, 10) {
    this->add_module("conv1", conv1_);
    this->add_module("bn1", bn1_);
    this->add_module("conv2", conv2_);
    this->add_module("bn2", bn2_);
    this->add_module("fc", fc_);
  }

  /// x: (N, 1, 8, 8); the result: (N, 10), the score of each digit.
  T operator()(const T& x) const {
    const T half = max_pool2d(relu(bn1_(conv1_(x))), 2);
    const T quarter = max_pool2d(relu(bn2_(conv2_(half))), 2);
    return fc_(flatten(quarter, 1));
  }

 private:
  gradwire::nn::basic::Conv2d<T> conv1_;
  gradwire::nn::basic::BatchNorm2d<T> bn1_;
  gradwire::nn::basic::Conv2d<T> conv2_;
  gradwire::nn::basic::BatchNorm2d<T> bn2_;
  gradwire::nn::basic::Linear<T> fc_;
};
