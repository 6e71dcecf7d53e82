#pragma once

#include <cmath>
#include <optional>
#include <source_location>
#include <string>

#include "client/nn/init.h"
#include "client/nn/module.h"

namespace gradwire::nn {

struct LinearOptions {
  bool bias = true;
  std::optional<DType> dtype{};  // left out: the session's default
};
struct FlattenOptions {
  int64_t start_dim = 1, end_dim = -1;
};

namespace basic {

/// A layer's weight: uniform in +- sqrt(3) * kaiming_std(a = sqrt 5), as PyTorch's layers; then it is a parameter.
template <class T>
T kaiming_weight(MakerOf<T>& m, const Shape& shape, std::optional<DType> dtype, const std::source_location& at) {
  const bool none = init::calculate_fans(shape).in == 0;  // there is nothing to draw
  const double bound = none ? 0 : std::sqrt(3.) * init::kaiming_std(shape, {.a = std::sqrt(5.)});
  const T t = empty(m, shape, dtype, {}, false, at);
  return t.uniform_(-bound, bound, T(), at).requires_grad_(true, at);
}
/// A layer's bias: uniform in +- 1 / sqrt(inputs of the weight).
template <class T>
T fan_in_bias(MakerOf<T>& m, int64_t size, const Shape& weight, std::optional<DType> dtype,
              const std::source_location& at) {
  const int64_t fan = init::calculate_fans(weight).in;
  const double bound = fan > 0 ? 1 / std::sqrt(static_cast<double>(fan)) : 0;
  const T t = empty(m, {size}, dtype, {}, false, at);
  return t.uniform_(-bound, bound, T(), at).requires_grad_(true, at);
}
inline int64_t at_least(int64_t value, int64_t least, const char* what) {
  if (value < least)
    raise(Error(Code::bad_argument,
                std::string(what) + " must be at least " + std::to_string(least) + ", got " + std::to_string(value)));
  return value;
}

/// x @ weight.T + bias
template <class T> class Linear : public Module<T> {
 public:
  Linear(MakerOf<T>& m, int64_t in_features, int64_t out_features, LinearOptions o = {},
         std::source_location at = std::source_location::current())
      : Module<T>("Linear", "in_features=" + std::to_string(in_features) +
                                ", out_features=" + std::to_string(out_features) + ", bias=" + py(o.bias)) {
    const Shape shape{at_least(out_features, 0, "out_features"), at_least(in_features, 0, "in_features")};
    this->set_parameter("weight", kaiming_weight<T>(m, shape, o.dtype, at));
    this->set_parameter("bias", o.bias ? fan_in_bias<T>(m, out_features, shape, o.dtype, at) : T());
  }
  Linear(int64_t in_features, int64_t out_features, LinearOptions o = {},
         std::source_location at = std::source_location::current())
      : Linear(default_maker<T>(), in_features, out_features, o, at) {}

  const T& weight() const { return this->state().parameters[0].tensor; }
  const T& bias() const { return this->state().parameters[1].tensor; }
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return linear(v, weight(), bias(), at); });
  }
};

/// Rows of a table by their numbers. It has PyTorch's `num_embeddings` rows of `embedding_dim` normal values.
template <class T> class Embedding : public Module<T> {
 public:
  Embedding(MakerOf<T>& m, int64_t num_embeddings, int64_t embedding_dim, std::optional<DType> dtype = {},
            std::source_location at = std::source_location::current())
      : Module<T>("Embedding", std::to_string(num_embeddings) + ", " + std::to_string(embedding_dim)) {
    const T t = empty(m, {at_least(num_embeddings, 0, "num_embeddings"), at_least(embedding_dim, 0, "embedding_dim")},
                      dtype, {}, false, at);
    this->set_parameter("weight", t.normal_(0, 1, T(), at).requires_grad_(true, at));
  }
  Embedding(int64_t num_embeddings, int64_t embedding_dim, std::optional<DType> dtype = {},
            std::source_location at = std::source_location::current())
      : Embedding(default_maker<T>(), num_embeddings, embedding_dim, dtype, at) {}
  const T& weight() const { return this->state().parameters[0].tensor; }
  T operator()(const T& indices, std::source_location at = std::source_location::current()) const {
    return this->call(indices, [&](const T& i) { return index(weight(), {i}, at); });
  }
};

template <class T> class Flatten : public Module<T> {
 public:
  explicit Flatten(FlattenOptions o = {})
      : Module<T>("Flatten", "start_dim=" + std::to_string(o.start_dim) + ", end_dim=" + std::to_string(o.end_dim)),
        o_(o) {}
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) { return flatten(v, o_.start_dim, o_.end_dim, at); });
  }

 private:
  FlattenOptions o_;
};

template <class T> class Identity : public Module<T> {
 public:
  Identity() : Module<T>("Identity") {}
  T operator()(const T& x) const {
    return this->call(x, [](const T& v) { return v; });
  }
};

}  // namespace basic
}  // namespace gradwire::nn
