#pragma once

#include <functional>
#include <span>
#include <vector>

#include "client/tensor.h"

namespace gradwire::nn {

/// What modules need of a tensor type besides the functions of schema/ops.h. The only place that knows which tensors a
/// model computes with; tests/support/in_process.h has the same for the engine's.
template <class T> struct TensorTraits;

template <> struct TensorTraits<Tensor> {
  using Maker = Session;
  static Session& default_maker() { return default_session(); }
  /// While one lives, calls record no history.
  struct NoGrad : no_grad {
    explicit NoGrad(Session&) {}
  };
  /// Equal for two handles of one tensor.
  static const void* id(const Tensor& t) { return t.id(); }
  /// What is known of these tensors: one round trip for all.
  static std::vector<TensorInfo> infos(std::span<const Tensor>);
  /// Their gradients, an undefined tensor for each that has none: one round trip for all.
  static std::vector<Tensor> grads(std::span<const Tensor>);
  /// The only element; waits.
  static double number(const Tensor& t) { return t.item<double>(); }
  /// A tensor of these bytes, row-major; they are copied.
  static Tensor make(Session&, DType, std::span<const std::byte>, std::span<const int64_t> shape);
  /// Gives the bytes of each tensor to `take`, in order. Some are on their way at a time: few round trips, and no more
  /// memory than 64 MiB or the two largest tensors.
  static void read(std::span<const Tensor>, const std::function<void(size_t, std::span<const std::byte>)>& take);
};

template <class T> using MakerOf = typename TensorTraits<T>::Maker;
/// Where layers that are made without a maker get their tensors from.
template <class T> MakerOf<T>& default_maker() { return TensorTraits<T>::default_maker(); }

}  // namespace gradwire::nn
