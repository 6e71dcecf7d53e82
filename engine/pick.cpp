#include "engine/pick.h"

#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/shape.h"

namespace gradwire::engine {
namespace {

Tensor array_of(Context& cx, const IndexItem<Tensor>& item) {
  const bool ints = item.kind == ArgKind::int_array;
  const int64_t n = checked_numel(item.sizes);
  if (n != static_cast<int64_t>(item.values.size()))
    throw Error(Code::bad_argument, "an index list of shape " + to_string(item.sizes) + " has " +
                                        std::to_string(item.values.size()) + " values");
  if (ints) return from_bytes(cx, DType::int64, item.sizes, std::as_bytes(std::span(item.values)));
  std::vector<uint8_t> bits(item.values.size());
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = item.values[i] != 0;
  return from_bytes(cx, DType::boolean, item.sizes, std::as_bytes(std::span(bits)));
}

// How many dims of x an item takes.
int consumed(const IndexItem<Tensor>& item) {
  switch (item.kind) {
    case ArgKind::none:
    case ArgKind::boolean:
    case ArgKind::ellipsis:
      return 0;
    case ArgKind::bool_array:
      return static_cast<int>(item.sizes.size());
    case ArgKind::tensor: {
      const DType t = item.tensor.dtype();
      return t == DType::boolean || t == DType::uint8 ? item.tensor.ndim() : 1;
    }
    default:
      return 1;
  }
}

class Picker {
 public:
  Picker(Context& cx, const Tensor& x) : cx_(cx), x_(x), offset_(x->offset) {}

  Picked run(Items items) {
    int wanted = 0, ellipses = 0;
    for (const auto& item : items) wanted += consumed(item), ellipses += item.kind == ArgKind::ellipsis;
    if (x_.ndim() == 0 && wanted > 0) {
      throw Error(Code::index_out_of_range,
                  "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                  "convert a 0-dim tensor to a number");
    }
    if (wanted > x_.ndim())
      throw Error(Code::index_out_of_range, "too many indices for tensor of dimension " + std::to_string(x_.ndim()));
    if (ellipses > 1) throw Error(Code::bad_argument, "an index can only have a single ellipsis ('...')");
    for (const auto& item : items) {
      if (item.kind == ArgKind::ellipsis) {
        for (int k = x_.ndim() - wanted; k > 0; --k) keep();
      } else {
        take(item);
      }
    }
    while (dim_ < x_.ndim()) keep();
    checked_numel(shape_);
    Picked p;
    p.view = cx_.alias(x_, shape_, strides_, offset_);
    if (!any_) {
      p.result = shape_;
      return p;
    }
    return pick(std::move(p));
  }

 private:
  void keep() { push(x_.shape()[dim_], x_.strides()[dim_], Tensor()), ++dim_; }
  void push(int64_t size, int64_t stride, Tensor index) {
    shape_.push_back(size), strides_.push_back(stride), dims_.push_back(dim_);
    any_ = any_ || index;
    index_.push_back(std::move(index));
  }

  void take(const IndexItem<Tensor>& item) {
    switch (item.kind) {
      case ArgKind::none:
        return push(1, 0, Tensor());
      case ArgKind::integer:
        return select(item.integer);
      case ArgKind::boolean:
        return boolean(item.integer != 0);
      case ArgKind::slice: {
        const Range r = slice_range(item.slice.start, item.slice.stop, item.slice.step, x_.shape()[dim_]);
        const int64_t stride = x_.strides()[dim_];
        offset_ += r.length > 0 ? r.start * stride : 0;
        push(r.length, r.length > 1 ? stride * item.slice.step : stride, Tensor());
        ++dim_;
        return;
      }
      case ArgKind::int_array:
      case ArgKind::bool_array:
        return tensor(array_of(cx_, item));
      case ArgKind::tensor:
        return tensor(item.tensor);
      default:
        throw Error(Code::bad_argument,
                    "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices");
    }
  }

  void select(int64_t i) {
    const int64_t size = x_.shape()[dim_];
    if (i < -size || i >= size) throw index_error({{size}, {}, {dim_}}, 0, i);
    offset_ += (i < 0 ? i + size : i) * x_.strides()[dim_];
    ++dim_;
  }

  // A new axis of size 1 of which one element, or none, is picked.
  void boolean(bool yes) { push(1, 0, cx_.full(Shape{yes ? 1 : 0}, 0, DType::int64)); }

  void tensor(const Tensor& t) {
    if (t.dtype() == DType::boolean || t.dtype() == DType::uint8) {
      if (t.dtype() == DType::uint8) {
        cx_.warn("index", "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
      }
      return mask(t);
    }
    if (t.ndim() == 0 && category(t.dtype()) == Category::integer) return select(item(t).integer());
    if (t.dtype() != DType::int64)
      throw Error(Code::bad_argument, "tensors used as indices must be long, byte or bool tensors");
    push(x_.shape()[dim_], x_.strides()[dim_], t);
    ++dim_;
  }

  void mask(const Tensor& m) {
    if (m.ndim() == 0) return boolean(item(m).real() != 0);
    for (int k = 0; k < m.ndim(); ++k) {
      if (m.size(k) != x_.shape()[dim_ + k]) {
        throw Error(Code::index_out_of_range, "The shape of the mask " + to_string(m.shape()) + " at index " +
                                                  std::to_string(k) +
                                                  " does not match the shape of the indexed tensor " +
                                                  to_string(x_.shape()) + " at index " + std::to_string(dim_ + k));
      }
    }
    const Tensor count = cx_.empty({}, DType::int64);
    launch(cx_, GW_KERNEL(count_nonzero), {count.view()}, {m.view()});
    const int64_t n = item(count).integer();
    const Tensor places = cx_.empty(Shape{n, m.ndim()}, DType::int64);
    if (n > 0) launch(cx_, GW_KERNEL(nonzero), {places.view()}, {m.view()});
    for (int k = 0; k < m.ndim(); ++k) {
      push(x_.shape()[dim_], x_.strides()[dim_], cx_.alias(places, Shape{n}, Shape{m.ndim()}, k));
      ++dim_;
    }
  }

  Picked pick(Picked p) {
    Shape common, rest, rest_strides;
    std::vector<Tensor> indices;
    LinearIndexParams params{};
    int first = -1, last = -1;
    std::string shapes;
    for (size_t d = 0; d < index_.size(); ++d) {
      if (!index_[d]) continue;
      shapes += (shapes.empty() ? "" : ", ") + to_string(index_[d].shape());
    }
    for (size_t d = 0; d < index_.size(); ++d) {
      if (!index_[d]) {
        rest.push_back(shape_[d]), rest_strides.push_back(strides_[d]);
        continue;
      }
      if (indices.size() == 8) throw Error(Code::bad_argument, "more than 8 index tensors");
      const size_t k = indices.size();
      params.size[k] = shape_[d], params.stride[k] = strides_[d], params.dim[k] = static_cast<int>(dims_[d]);
      if (first < 0) first = static_cast<int>(d);
      last = static_cast<int>(d);
      try {
        common = k == 0 ? Shape(index_[d].shape()) : broadcast_shapes(common, index_[d].shape());
      } catch (const Error&) {
        throw Error(Code::shape_mismatch,
                    "shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes);
      }
      indices.push_back(index_[d]);
    }
    // Neighbours are replaced where they stand; others go to the front.
    const size_t at = last - first + 1 == static_cast<int>(indices.size()) ? static_cast<size_t>(first) : 0;
    p.offsets = cx_.empty(common, DType::int64);
    std::vector<View> views;
    std::vector<Shape> strides(indices.size(), Shape(common.size(), 0));
    for (size_t k = 0; k < indices.size(); ++k) {
      expand_strides(indices[k].shape(), indices[k].strides(), common, strides[k].data());
      views.push_back(
          {indices[k].data(), common.data(), strides[k].data(), static_cast<int32_t>(common.size()), DType::int64});
    }
    const View out = p.offsets.view();
    Launch l;
    l.out = {&out, 1}, l.in = views, l.params = &params;
    if (p.offsets.numel() > 0) cx_.backend.run(GW_KERNEL(linear_index), l);
    for (size_t d = 0; d < at; ++d) add(p, rest[d], rest_strides[d], 0);
    for (size_t d = 0; d < common.size(); ++d) add(p, common[d], 0, p.offsets.strides()[d]);
    for (size_t d = at; d < rest.size(); ++d) add(p, rest[d], rest_strides[d], 0);
    checked_numel(p.result);
    return p;
  }
  static void add(Picked& p, int64_t size, int64_t self_stride, int64_t offset_stride) {
    p.result.push_back(size), p.self_strides.push_back(self_stride), p.offset_strides.push_back(offset_stride);
  }

  Context& cx_;
  const Tensor& x_;
  int64_t offset_;
  int dim_ = 0;                   // of x, next
  Shape shape_, strides_, dims_;  // dims_: which of x
  std::vector<Tensor> index_;     // one a dim of the view; empty: not picked
  bool any_ = false;
};

}  // namespace

Error index_error(const LinearIndexParams& p, size_t k, int64_t value) {
  if (p.refuse) return p.refuse(value, p.dim[k], p.size[k]);
  return Error(Code::index_out_of_range, "index " + std::to_string(value) + " is out of bounds for dimension " +
                                             std::to_string(p.dim[k]) + " with size " + std::to_string(p.size[k]));
}

Picked pick(Context& cx, const Tensor& x, Items items) { return Picker(cx, x).run(items); }

HostInts::HostInts(Context& cx, const Tensor& t) : tensor_(cx.contiguous(t, DType::int64)) {
  const auto n = static_cast<size_t>(t.numel());
  if (cx.on_cpu) {
    values_ = {static_cast<const int64_t*>(tensor_.data()), n};
    return;
  }
  copy_.resize(n);
  if (n > 0) cx.backend.to_host(copy_.data(), tensor_.data(), n * sizeof(int64_t));
  values_ = copy_;
}

View at_result(const Tensor& t, const Shape& shape, const Shape& strides) {
  View v = t.view();
  v.shape = shape.data(), v.strides = strides.data(), v.ndim = static_cast<int32_t>(shape.size());
  return v;
}

void assign_picked(Context& cx, const Tensor& target, Items items, Tensor value, bool accumulate) {
  const Picked p = pick(cx, target, items);
  if (p.offsets && value.dtype() != target.dtype()) {
    throw Error(Code::dtype_mismatch, std::string("Index put requires the source and destination dtypes match, got ") +
                                          row(target.dtype()).torch + " for the destination and " +
                                          row(value.dtype()).torch + " for the source.");
  }
  std::span<const int64_t> shape = value.shape(), strides = value.strides();
  while (shape.size() > p.result.size() && shape[0] == 1) shape = shape.subspan(1), strides = strides.subspan(1);
  if (!broadcasts_to(shape, p.result)) {
    if (p.offsets)
      throw Error(Code::shape_mismatch, "shape mismatch: value tensor of shape " + to_string(value.shape()) +
                                            " cannot be broadcast to indexing result of shape " + to_string(p.result));
    size_t d = p.result.size();
    const size_t more = p.result.size() >= shape.size() ? p.result.size() - shape.size() : 0;
    while (d > more + 1 && (shape[d - 1 - more] == p.result[d - 1] || shape[d - 1 - more] == 1)) --d;
    const int64_t target_size = d > 0 ? p.result[d - 1] : 1,
                  size = shape.empty() ? 1 : shape[d > more ? d - 1 - more : 0];
    throw Error(Code::shape_mismatch,
                "The expanded size of the tensor (" + std::to_string(target_size) + ") must match the existing size (" +
                    std::to_string(size) + ") at non-singleton dimension " + std::to_string(d > 0 ? d - 1 : 0) +
                    ".  Target sizes: " + to_string(p.result) + ".  Tensor sizes: " + to_string(value.shape()));
  }
  if (value->storage == target->storage)
    value = copy_of(cx, value), shape = value.shape().last(shape.size()), strides = value.strides().last(shape.size());
  if (value.dtype() != target.dtype()) {
    const Tensor cast = cx.contiguous(value, target.dtype());
    strides = cast.strides().last(shape.size()), value = cast;
    shape = value.shape().last(shape.size());
  }
  Shape value_strides(p.result.size(), 0);
  expand_strides(shape, strides, p.result, value_strides.data());
  if (checked_numel(p.result) == 0) return;
  if (!p.offsets) {
    const Tensor wide = cx.alias(value, p.result, value_strides, value->offset);
    if (accumulate)
      add_into(cx, p.view, wide);
    else
      cx.copy(p.view, wide);
    return;
  }
  const PutParams params{accumulate};
  View out = out_view(p.view);
  out.shape = p.result.data(), out.strides = p.self_strides.data(), out.ndim = static_cast<int32_t>(p.result.size());
  launch(cx, GW_KERNEL(put), {out},
         {at_result(p.offsets, p.result, p.offset_strides), at_result(value, p.result, value_strides)}, &params);
}

Tensor sliced(Context& cx, const Tensor& x, int dim, int64_t start, int64_t length, int64_t step) {
  Shape shape(x.shape()), strides(x.strides());
  const auto d = static_cast<size_t>(dim);
  const int64_t offset = x->offset + (length > 0 ? start * strides[d] : 0);
  shape[d] = length;
  if (length > 1) strides[d] *= step;
  return cx.alias(x, shape, strides, offset);
}

Tensor selected(Context& cx, const Tensor& x, int dim, int64_t i) {
  Shape shape(x.shape()), strides(x.strides());
  const auto d = static_cast<size_t>(dim);
  const int64_t offset = x->offset + i * strides[d];
  shape.erase(d), strides.erase(d);
  return cx.alias(x, shape, strides, offset);
}

Tensor embedded(const Call& c, const Tensor& grad, std::span<const int64_t> size,
                Tensor (*view)(const Call&, const Tensor&)) {
  Tensor out = c.cx.full(size, 0, grad.dtype());
  const Tensor part = view(c, out);
  if (!std::ranges::equal(part.shape(), grad.shape())) {
    throw Error(Code::shape_mismatch,
                "grad of shape " + to_string(grad.shape()) + " for a view of shape " + to_string(part.shape()));
  }
  c.cx.copy(part, grad);
  return out;
}

}  // namespace gradwire::engine
