#pragma once

#include "client/nn/traits.h"
#include "engine/tensor.h"

namespace gradwire::nn {

/// Lets models compute on an engine of this process: T = engine::Tensor, with an engine::Context as the maker.
template <> struct TensorTraits<engine::Tensor> {
  using Maker = engine::Context;
  struct NoGrad : engine::GradMode {
    explicit NoGrad(Maker& maker) : GradMode(maker, false) {}
  };
  static const void* id(const engine::Tensor& t) { return t.get(); }
  static std::vector<TensorInfo> infos(std::span<const engine::Tensor> tensors) {
    std::vector<TensorInfo> infos;
    for (const auto& t : tensors) infos.push_back(engine::info(t));
    return infos;
  }
  static std::vector<engine::Tensor> grads(std::span<const engine::Tensor> tensors) {
    std::vector<engine::Tensor> grads;
    for (const auto& t : tensors) grads.push_back(engine::grad_of(t));
    return grads;
  }
  static double number(const engine::Tensor& t) { return engine::item(t).real(); }
  static engine::Tensor make(Maker& maker, DType dtype, std::span<const std::byte> bytes,
                             std::span<const int64_t> shape) {
    return engine::from_bytes(maker, dtype, shape, bytes);
  }
  static void read(std::span<const engine::Tensor> tensors,
                   const std::function<void(size_t, std::span<const std::byte>)>& take) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const engine::Snapshot s = engine::snapshot(tensors[i]);
      take(i, {static_cast<const std::byte*>(s.data), s.bytes});
    }
  }
};

}  // namespace gradwire::nn
