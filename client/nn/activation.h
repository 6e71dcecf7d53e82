#pragma once

#include <optional>
#include <source_location>
#include <string>

#include "client/nn/module.h"

namespace gradwire::nn {

struct ReLUOptions {
  bool inplace = false;
};
struct DropoutOptions {
  double p = 0.5;
  bool inplace = false;
};

namespace basic {

template <class T> class ReLU : public Module<T> {
 public:
  explicit ReLU(ReLUOptions o = {}) : Module<T>("ReLU", o.inplace ? "inplace=True" : ""), inplace_(o.inplace) {}
  explicit ReLU(Flag inplace) : ReLU(ReLUOptions{.inplace = inplace}) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return inplace_ ? T(v.relu_(at)) : v.relu(at); });
  }

 private:
  bool inplace_;
};

template <class T> class LeakyReLU : public Module<T> {
 public:
  explicit LeakyReLU(double negative_slope = 0.01)
      : Module<T>("LeakyReLU", "negative_slope=" + py(negative_slope)), slope_(negative_slope) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return leaky_relu(v, slope_, at); });
  }

 private:
  double slope_;
};

/// The normal distribution's; approximate: "none" or "tanh".
template <class T> class GELU : public Module<T> {
 public:
  explicit GELU(std::string approximate = "none")
      : Module<T>("GELU", "approximate='" + approximate + "'"), approximate_(std::move(approximate)) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return gelu(v, approximate_, at); });
  }

 private:
  std::string approximate_;
};

template <class T> class SiLU : public Module<T> {
 public:
  SiLU() : Module<T>("SiLU") {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return silu(v, at); });
  }
};

template <class T> class Sigmoid : public Module<T> {
 public:
  Sigmoid() : Module<T>("Sigmoid") {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return v.sigmoid(at); });
  }
};

template <class T> class Tanh : public Module<T> {
 public:
  Tanh() : Module<T>("Tanh") {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return v.tanh(at); });
  }
};

template <class T> class Softplus : public Module<T> {
 public:
  explicit Softplus(double beta = 1, double threshold = 20)
      : Module<T>("Softplus", "beta=" + py_number(beta) + ", threshold=" + py_number(threshold)),
        beta_(beta),
        threshold_(threshold) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return softplus(v, beta_, threshold_, at); });
  }

 private:
  double beta_, threshold_;
};

/// Softmax, Softmin and LogSoftmax over one dim; without one, over that which PyTorch's functions choose.
template <class T> class Softmax : public Module<T> {
 public:
  explicit Softmax(std::optional<int64_t> dim = {})
      : Module<T>("Softmax", "dim=" + (dim ? std::to_string(*dim) : "None")), dim_(dim) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return softmax(v, dim_, {}, at); });
  }

 private:
  std::optional<int64_t> dim_;
};

template <class T> class Softmin : public Module<T> {
 public:
  explicit Softmin(std::optional<int64_t> dim = {})
      : Module<T>("Softmin", "dim=" + (dim ? std::to_string(*dim) : "None")), dim_(dim) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return softmin(v, dim_, {}, at); });
  }

 private:
  std::optional<int64_t> dim_;
};

template <class T> class LogSoftmax : public Module<T> {
 public:
  explicit LogSoftmax(std::optional<int64_t> dim = {})
      : Module<T>("LogSoftmax", "dim=" + (dim ? std::to_string(*dim) : "None")), dim_(dim) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return log_softmax(v, dim_, {}, at); });
  }

 private:
  std::optional<int64_t> dim_;
};

/// In training each element is 0 with probability p, and the others are 1 / (1 - p) times as large. Draws from the
/// session's generator.
template <class T> class Dropout : public Module<T> {
 public:
  explicit Dropout(DropoutOptions o = {}) : Module<T>("Dropout", "p=" + py(o.p) + ", inplace=" + py(o.inplace)), o_(o) {
    if (!(o.p >= 0 && o.p <= 1))
      raise(Error(Code::bad_argument, "dropout probability has to be between 0 and 1, but got " + py_number(o.p)));
  }
  explicit Dropout(double p) : Dropout(DropoutOptions{.p = p}) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return dropout(v, o_.p, this->is_training(), o_.inplace, at); });
  }

 private:
  DropoutOptions o_;
};

}  // namespace basic
}  // namespace gradwire::nn
