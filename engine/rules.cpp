#include "engine/rules.h"

#include <algorithm>

#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine::rule {

Reduced reduced(std::span<const int64_t> shape, const Bound& dims, bool keepdim) {
  const std::span<const int64_t> list = dims.kind == ArgKind::none ? std::span<const int64_t>()
                                        : dims.kind == ArgKind::integer
                                            ? std::span<const int64_t>(&dims.i, 1)
                                            : std::span<const int64_t>(dims.ints, dims.count);
  const int n = static_cast<int>(shape.size());
  bool drop[kMaxDims] = {};
  for (const int64_t given : list) {
    const int d = wrap_dim(given, n);
    if (n == 0) continue;
    if (drop[d])
      throw Error(Code::bad_argument, "dim " + std::to_string(d) + " appears multiple times in the list of dims");
    drop[d] = true;
  }
  Reduced r;
  for (int d = 0; d < n; ++d) {
    const bool gone = list.empty() || drop[d];
    r.kept.push_back(gone ? 1 : shape[d]);
    if (!gone || keepdim) r.dropped.push_back(r.kept[d]);
  }
  return r;
}

Tensor unreduced(const Tensor& t, std::span<const int64_t> shape, const Bound& dims) {
  const Reduced r = reduced(shape, dims, true);
  return t.ndim() == static_cast<int>(r.kept.size()) ? t : reshape(t, Ints(std::span<const int64_t>(r.kept)));
}

DimLast::DimLast(const Tensor& t, int dim) : shape(t.shape()), strides(t.strides()) {
  if (shape.empty()) {
    shape.push_back(1), strides.push_back(1);
    return;
  }
  const int64_t size = shape[dim], stride = strides[dim];
  shape.erase(dim), strides.erase(dim);
  shape.push_back(size), strides.push_back(stride);
}

View DimLast::reversed(const Tensor& t) {
  View v = view(t);
  int64_t& stride = strides[strides.size() - 1];
  const int64_t last = std::max<int64_t>(shape[shape.size() - 1] - 1, 0) * stride;
  v.data = static_cast<char*>(v.data) + last * size_of(t.dtype());
  stride = -stride;  // which v refers to
  return v;
}

Tensor shifted(const Tensor& x, int dim, double fill) {
  Context& cx = x.maker();
  if (x.ndim() == 0) return cx.full({}, fill, x.dtype());
  const int64_t n = x.size(dim);
  if (x.numel() == 0) return x;
  Tensor edge = cx.full(x.shape(), 0, x.dtype());
  Shape first(x.shape());
  first[static_cast<size_t>(dim)] = 1;
  if (fill != 0) cx.copy(cx.alias(edge, first, edge.strides(), 0), cx.full(first, fill, x.dtype()));
  if (n == 1) return edge;
  std::vector<IndexItem<Tensor>> from(static_cast<size_t>(dim), Slice{}), to = from;
  from.push_back(Slice{0, n - 1}), to.push_back(Slice{1, n});
  return index_backward(index(x, from), Ints(x.shape()), to) + edge;
}

Tensor as(const Tensor& x, DType t) { return x.dtype() == t ? x : cast(x, t); }

Tensor wide(Context& cx, const Tensor& x) {
  const bool half = x.dtype() == DType::float16 || x.dtype() == DType::bfloat16;
  return half ? cx.contiguous(x, DType::float32) : x;
}

void device(const Call& c, int i) {
  if (!c.has(i)) return;
  const std::string_view want = c.text(i), have = c.cx.backend.device();
  if (want == have || (want == "cuda" && have.starts_with("cuda:"))) return;
  const std::string_view type = want.substr(0, want.find(':'));
  if (type != "cpu" && type != "cuda") {
    throw Error(Code::bad_argument,
                "Expected one of cpu, cuda device type at start of device string: " + std::string(type.substr(0, 64)));
  }
  const std::string_view ordinal = type.size() < want.size() ? want.substr(type.size() + 1) : "0";
  if (ordinal.empty() || ordinal.size() > 3 || ordinal.find_first_not_of("0123456789") != std::string_view::npos) {
    throw Error(Code::bad_argument, "Invalid device string: '" + std::string(want.substr(0, 64)) + "'");
  }
  throw Error(Code::device_mismatch, "the session computes on " + std::string(have) + ", not on " + std::string(want));
}

}  // namespace gradwire::engine::rule
