#include "engine/nest.h"

#include <algorithm>
#include <cstdlib>

namespace gradwire::engine {

Nest nest_of(std::span<const View> views, bool in_order) {
  Nest n;
  n.operands = static_cast<int>(views.size());
  const View& out = views[0];
  for (int k = 0; k < n.operands; ++k) {
    n.at[k] = static_cast<char*>(views[k].data), n.bytes[k] = size_of(views[k].dtype);
  }
  int order[kMaxDims], dims = 0;
  for (int d = out.ndim - 1; d >= 0; --d) {
    n.total *= out.shape[d];
    if (out.shape[d] == 1) continue;
    int at = dims++;  // insertion sort by the output's stride
    for (; !in_order && at > 0 && std::abs(out.strides[order[at - 1]]) > std::abs(out.strides[d]); --at) {
      order[at] = order[at - 1];
    }
    order[at] = d;
  }
  if (n.total == 0) return n;
  for (int i = 0; i < dims; ++i) {
    const int d = order[i];
    const bool backward = !in_order && out.strides[d] < 0;
    bool merge = n.ndim > 0;
    int64_t stride[kMaxOperands] = {};
    for (int k = 0; k < n.operands; ++k) {
      stride[k] = views[k].strides[d] * n.bytes[k];
      if (backward) n.at[k] += stride[k] * (out.shape[d] - 1), stride[k] = -stride[k];
      merge = merge && stride[k] == n.stride[n.ndim - 1][k] * n.size[n.ndim - 1];
    }
    if (merge) {
      n.size[n.ndim - 1] *= out.shape[d];
    } else {
      n.size[n.ndim] = out.shape[d];
      std::copy_n(stride, kMaxOperands, n.stride[n.ndim++]);
    }
  }
  if (n.ndim == 0) {  // one element
    n.ndim = 1, n.size[0] = 1;
    for (int k = 0; k < kMaxOperands; ++k) n.stride[0][k] = n.bytes[k];
  }
  return n;
}

}  // namespace gradwire::engine
