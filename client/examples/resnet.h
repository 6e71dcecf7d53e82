#pragma once

#include "client/nn/nn.h"

// ResNet-18 (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015) with the names of torchvision's
// parameters. A template over the tensor: the same text runs on a server and on the engine in this process.

template <class T> class BasicBlock : public gradwire::nn::basic::Module<T> {
 public:
  BasicBlock(gradwire::nn::MakerOf<T>& maker, int64_t in, int64_t out, int64_t stride)
      : gradwire::nn::basic::Module<T>("BasicBlock"),
        conv1_(maker, in, out, 3, {.stride = stride, .padding = 1, .bias = false}),
        bn1_(maker, out),
        conv2_(maker, out, out, 3, {.padding = 1, .bias = false}),
        bn2_(maker, out) {
    this->add_module("conv1", conv1_);
    this->add_module("bn1", bn1_);
    this->add_module("conv2", conv2_);
    this->add_module("bn2", bn2_);
    if (stride == 1 && in == out) return;
    namespace nn = gradwire::nn::basic;
    downsample_.emplace(nn::Conv2d<T>(maker, in, out, 1, {.stride = stride, .bias = false}),
                        nn::BatchNorm2d<T>(maker, out));
    this->add_module("downsample", *downsample_);
  }

  T operator()(const T& x) const {
    const T y = bn2_(conv2_(relu(bn1_(conv1_(x)))));
    return relu(y + (downsample_ ? (*downsample_)(x) : x));
  }

 private:
  gradwire::nn::basic::Conv2d<T> conv1_;
  gradwire::nn::basic::BatchNorm2d<T> bn1_;
  gradwire::nn::basic::Conv2d<T> conv2_;
  gradwire::nn::basic::BatchNorm2d<T> bn2_;
  std::optional<gradwire::nn::basic::Sequential<T>> downsample_;
};

template <class T> class ResNet18 : public gradwire::nn::basic::Module<T> {
 public:
  ResNet18(gradwire::nn::MakerOf<T>& maker, int64_t classes)
      : gradwire::nn::basic::Module<T>("ResNet"),
        conv1_(maker, 3, 64, 7, {.stride = 2, .padding = 3, .bias = false}),
        bn1_(maker, 64),
        layer1_(BasicBlock<T>(maker, 64, 64, 1), BasicBlock<T>(maker, 64, 64, 1)),
        layer2_(BasicBlock<T>(maker, 64, 128, 2), BasicBlock<T>(maker, 128, 128, 1)),
        layer3_(BasicBlock<T>(maker, 128, 256, 2), BasicBlock<T>(maker, 256, 256, 1)),
        layer4_(BasicBlock<T>(maker, 256, 512, 2), BasicBlock<T>(maker, 512, 512, 1)),
        fc_(maker, 512, classes) {
    this->add_module("conv1", conv1_);
    this->add_module("bn1", bn1_);
    this->add_module("layer1", layer1_);
    this->add_module("layer2", layer2_);
    this->add_module("layer3", layer3_);
    this->add_module("layer4", layer4_);
    this->add_module("fc", fc_);
  }

  /// x: (N, 3, H, W).
  T operator()(const T& x) const {
    const T y = max_pool2d(relu(bn1_(conv1_(x))), 3, 2, 1);
    return fc_(flatten(adaptive_avg_pool2d(layer4_(layer3_(layer2_(layer1_(y)))), 1), 1));
  }

 private:
  gradwire::nn::basic::Conv2d<T> conv1_;
  gradwire::nn::basic::BatchNorm2d<T> bn1_;
  gradwire::nn::basic::Sequential<T> layer1_, layer2_, layer3_, layer4_;
  gradwire::nn::basic::Linear<T> fc_;
};
