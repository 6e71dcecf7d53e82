#include "engine/cpu/walk.h"

namespace gradwire::engine::cpu {

Split::Split(const View& in, std::span<const View> outs, bool in_order) {
  View views[3] = {in};
  int64_t strides[2][kMaxDims];
  for (size_t k = 0; k < outs.size(); ++k) {
    for (int d = 0; d < in.ndim; ++d) strides[k][d] = outs[k].shape[d] == in.shape[d] ? outs[k].strides[d] : 0;
    views[k + 1] = outs[k];
    views[k + 1].shape = in.shape, views[k + 1].strides = strides[k];
  }
  nest = nest_of({views, outs.size() + 1}, in_order);
  for (int d = 0; d < nest.ndim; ++d) (nest.stride[d][1] ? kept : reduced).push(nest, d);
  if (reduced.ndim == 0) reduced.push(1, nest.bytes[0], 0, 0);  // every result is of one element
}

}  // namespace gradwire::engine::cpu
