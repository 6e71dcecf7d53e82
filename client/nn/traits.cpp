#include "client/nn/traits.h"

#include <algorithm>
#include <deque>

namespace gradwire::nn {

std::vector<TensorInfo> TensorTraits<Tensor>::infos(std::span<const Tensor> tensors) {
  std::vector<Future<std::optional<TensorInfo>>> asked;
  asked.reserve(tensors.size());
  for (const Tensor& t : tensors) asked.push_back(t.async_info());
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (auto& a : asked) infos.push_back(a.get().value());
  return infos;
}

std::vector<Tensor> TensorTraits<Tensor>::grads(std::span<const Tensor> tensors) {
  std::vector<Future<std::optional<TensorInfo>>> asked;
  asked.reserve(tensors.size());
  for (const Tensor& t : tensors) asked.push_back(t.grad().async_info());
  std::vector<Tensor> grads;
  grads.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) grads.push_back(asked[i].get() ? tensors[i].grad() : Tensor());
  return grads;
}

Tensor TensorTraits<Tensor>::make(Session& session, DType dtype, std::span<const std::byte> bytes,
                                  std::span<const int64_t> shape) {
  return from_bytes(session, dtype, bytes, shape);
}

void TensorTraits<Tensor>::read(std::span<const Tensor> tensors,
                                const std::function<void(size_t, std::span<const std::byte>)>& take) {
  constexpr int64_t kAhead = 32 << 20;
  const std::vector<TensorInfo> known = infos(tensors);
  const auto size = [&](size_t i) {
    int64_t n = size_of(known[i].dtype);
    for (const int64_t d : known[i].shape) n *= d;
    return n;
  };
  std::deque<Future<std::vector<std::byte>>> coming;
  int64_t ahead = 0;
  for (size_t taken = 0, asked = 0; taken < tensors.size(); ++taken) {
    while (asked < tensors.size() && coming.size() < 1000 && (coming.empty() || ahead + size(asked) <= kAhead)) {
      coming.push_back(tensors[asked].async_bytes());
      ahead += size(asked++);
    }
    const std::vector<std::byte> bytes = coming.front().get();
    coming.pop_front();
    ahead -= size(taken);
    take(taken, bytes);
  }
}

}  // namespace gradwire::nn
