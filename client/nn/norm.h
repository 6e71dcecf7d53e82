#pragma once

#include <optional>
#include <source_location>
#include <string>

#include "client/nn/linear.h"

namespace gradwire::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // nullopt: the running values are plain averages
  bool affine = true, track_running_stats = true;
  std::optional<DType> dtype{};
};
struct InstanceNormOptions {
  double eps = 1e-5, momentum = 0.1;
  bool affine = false, track_running_stats = false;
  std::optional<DType> dtype{};
};
struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  std::optional<DType> dtype{};
};
struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
  std::optional<DType> dtype{};
};

namespace basic {

/// A weight of ones and a bias of zeros, each a parameter.
template <class T, class S>
void set_affine(MakerOf<T>& m, const S& shape, std::optional<DType> dtype, const std::source_location& at, T& weight,
                T& bias) {
  weight = ones(m, shape, dtype, {}, true, at);
  bias = zeros(m, shape, dtype, {}, true, at);
}

/// What batch and instance norm share: weight, bias, running_mean, running_var and num_batches_tracked.
template <class T> class RunningNorm : public Module<T> {
 public:
  const T& weight() const { return this->state().parameters[0].tensor; }
  const T& bias() const { return this->state().parameters[1].tensor; }
  const T& running_mean() const { return this->state().buffers[0].tensor; }
  const T& running_var() const { return this->state().buffers[1].tensor; }
  const T& num_batches_tracked() const { return this->state().buffers[2].tensor; }

 protected:
  RunningNorm(MakerOf<T>& m, std::string kind, int64_t num_features, double eps, std::optional<double> momentum,
              bool affine, bool track, std::optional<DType> dtype, const std::source_location& at)
      : Module<T>(std::move(kind), std::to_string(at_least(num_features, 0, "num_features")) + ", eps=" + py(eps) +
                                       ", momentum=" + (momentum ? py(*momentum) : "None") + ", affine=" + py(affine) +
                                       ", track_running_stats=" + py(track)) {
    T weight, bias, mean, var, count;
    if (affine) set_affine(m, Shape{num_features}, dtype, at, weight, bias);
    if (track) {
      mean = zeros(m, {num_features}, dtype, {}, false, at);
      var = ones(m, {num_features}, dtype, {}, false, at);
      count = zeros(m, Shape{}, DType::int64, {}, false, at);
    }
    this->set_parameter("weight", weight);
    this->set_parameter("bias", bias);
    this->set_buffer("running_mean", mean);
    this->set_buffer("running_var", var);
    this->set_buffer("num_batches_tracked", count, true, true);
  }
};

/// Each channel (dim 1) to mean 0 and variance 1: in training by the batch's own, which the running values follow;
/// after eval() by the running ones. The input's rank is not looked at, which would wait.
template <class T, int N> class BatchNorm : public RunningNorm<T> {
 public:
  BatchNorm(MakerOf<T>& m, int64_t num_features, BatchNormOptions o = {},
            std::source_location at = std::source_location::current())
      : RunningNorm<T>(m, "BatchNorm" + std::to_string(N) + "d", num_features, o.eps, o.momentum, o.affine,
                       o.track_running_stats, o.dtype, at),
        eps_(o.eps),
        momentum_(o.momentum) {}
  explicit BatchNorm(int64_t num_features, BatchNormOptions o = {},
                     std::source_location at = std::source_location::current())
      : BatchNorm(default_maker<T>(), num_features, o, at) {}

  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return forward(v, at); });
  }

 private:
  T forward(const T& x, const std::source_location& at) const {
    const bool tracks = static_cast<bool>(this->running_mean()), training = this->is_training();
    double factor = momentum_.value_or(0);
    if (training && tracks) {
      const T& count = this->num_batches_tracked();
      count.add_(1, 1, at);
      // The average so far weighs as many batches as there were: their number has to be known here, which waits.
      if (!momentum_) factor = 1 / TensorTraits<T>::number(count);
    }
    return batch_norm(x, this->running_mean(), this->running_var(), this->weight(), this->bias(), training || !tracks,
                      factor, eps_, at);
  }
  double eps_;
  std::optional<double> momentum_;
};
template <class T> using BatchNorm1d = BatchNorm<T, 1>;
template <class T> using BatchNorm2d = BatchNorm<T, 2>;
template <class T> using BatchNorm3d = BatchNorm<T, 3>;

/// Each channel of each sample to mean 0 and variance 1. The input has a batch dim.
template <class T, int N> class InstanceNorm : public RunningNorm<T> {
 public:
  InstanceNorm(MakerOf<T>& m, int64_t num_features, InstanceNormOptions o = {},
               std::source_location at = std::source_location::current())
      : RunningNorm<T>(m, "InstanceNorm" + std::to_string(N) + "d", num_features, o.eps, o.momentum, o.affine,
                       o.track_running_stats, o.dtype, at),
        o_(o) {}
  explicit InstanceNorm(int64_t num_features, InstanceNormOptions o = {},
                        std::source_location at = std::source_location::current())
      : InstanceNorm(default_maker<T>(), num_features, o, at) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      return instance_norm(v, this->running_mean(), this->running_var(), this->weight(), this->bias(),
                           this->is_training() || !o_.track_running_stats, o_.momentum, o_.eps, at);
    });
  }

 private:
  InstanceNormOptions o_;
};
template <class T> using InstanceNorm1d = InstanceNorm<T, 1>;
template <class T> using InstanceNorm2d = InstanceNorm<T, 2>;
template <class T> using InstanceNorm3d = InstanceNorm<T, 3>;

/// The last dims, of the sizes given, to mean 0 and variance 1.
template <class T> class LayerNorm : public Module<T> {
 public:
  LayerNorm(MakerOf<T>& m, Ints normalized_shape, LayerNormOptions o = {},
            std::source_location at = std::source_location::current())
      : Module<T>("LayerNorm", py_tuple(normalized_shape) + ", eps=" + py(o.eps) +
                                   ", elementwise_affine=" + py(o.elementwise_affine)),
        shape_(std::span<const int64_t>(normalized_shape)),
        eps_(o.eps) {
    T weight, bias;
    if (o.elementwise_affine) set_affine(m, shape_, o.dtype, at, weight, bias);
    this->set_parameter("weight", weight);
    this->set_parameter("bias", bias);
  }
  explicit LayerNorm(Ints normalized_shape, LayerNormOptions o = {},
                     std::source_location at = std::source_location::current())
      : LayerNorm(default_maker<T>(), normalized_shape, o, at) {}
  const T& weight() const { return this->state().parameters[0].tensor; }
  const T& bias() const { return this->state().parameters[1].tensor; }
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return layer_norm(v, shape_, weight(), bias(), eps_, at); });
  }

 private:
  Shape shape_;
  double eps_;
};

/// Groups of channels of each sample to mean 0 and variance 1.
template <class T> class GroupNorm : public Module<T> {
 public:
  GroupNorm(MakerOf<T>& m, int64_t num_groups, int64_t num_channels, GroupNormOptions o = {},
            std::source_location at = std::source_location::current())
      : Module<T>("GroupNorm", std::to_string(num_groups) + ", " + std::to_string(num_channels) + ", eps=" + py(o.eps) +
                                   ", affine=" + py(o.affine)),
        groups_(num_groups),
        eps_(o.eps) {
    if (num_groups < 1 || num_channels % num_groups != 0)
      raise(Error(Code::bad_argument, "num_channels must be divisible by num_groups"));
    T weight, bias;
    if (o.affine) set_affine(m, Shape{num_channels}, o.dtype, at, weight, bias);
    this->set_parameter("weight", weight);
    this->set_parameter("bias", bias);
  }
  GroupNorm(int64_t num_groups, int64_t num_channels, GroupNormOptions o = {},
            std::source_location at = std::source_location::current())
      : GroupNorm(default_maker<T>(), num_groups, num_channels, o, at) {}
  const T& weight() const { return this->state().parameters[0].tensor; }
  const T& bias() const { return this->state().parameters[1].tensor; }
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return group_norm(v, groups_, weight(), bias(), eps_, at); });
  }

 private:
  int64_t groups_;
  double eps_;
};

}  // namespace basic
}  // namespace gradwire::nn
