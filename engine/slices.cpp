#include "engine/slices.h"

#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/pick.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {

namespace {

// A tensor along a dim; one without dims counts as a vector of one element.
struct Along {
  int dim;
  size_t d;
  Shape shape, strides;
  Along(const Tensor& x, int64_t given) : dim(wrap_dim(given, x.ndim())), d(static_cast<size_t>(dim)) {
    shape = x.ndim() == 0 ? Shape{1} : Shape(x.shape());
    strides = x.ndim() == 0 ? Shape{1} : Shape(x.strides());
  }
  int64_t size() const { return shape[d]; }
  /// Strides that stay where they are along the dim: the index says how far to go.
  Shape held() const {
    Shape s = strides;
    s[d] = 0;
    return s;
  }
};

constexpr LinearIndexParams kFromStart{{}, {}, {}, false, nullptr};

}  // namespace

// index * stride, checked against the size; of the index's shape.
Tensor places(Context& cx, const Tensor& index, LinearIndexParams p, int dim, int64_t size, int64_t stride) {
  p.size[0] = size, p.stride[0] = stride, p.dim[0] = dim;
  const Tensor whole = cx.contiguous(index, DType::int64), out = cx.empty(index.shape(), DType::int64);
  if (out.numel() > 0) launch(cx, GW_KERNEL(linear_index), {out.view()}, {whole.view()}, &p);
  return out;
}

namespace {

Tensor places(Context& cx, const Tensor& index, LinearIndexParams p, const Along& x) {
  return places(cx, index, p, x.dim, x.size(), x.strides[x.d]);
}

Error outside_self(int64_t, int, int64_t) { return Error(Code::index_out_of_range, "index out of range in self"); }

}  // namespace

Error outside_all(int64_t value, int, int64_t size) {
  return Error(Code::index_out_of_range, "out of range: tried to access index " + std::to_string(value) +
                                             " on a tensor of " + std::to_string(size) + " elements.");
}

namespace {

Error outside_copy(int64_t value, int dim, int64_t size) {
  LinearIndexParams p{};
  p.dim[0] = dim, p.size[0] = size;
  return Error(Code::index_out_of_range, "index_copy_(): " + index_error(p, 0, value).message());
}

}  // namespace

void put_at(Context& cx, const Shape& shape, Seen target, Seen place, Seen values, bool accumulate) {
  if (checked_numel(shape) == 0) return;
  const PutParams params{accumulate};
  View out = out_view(target.tensor);
  out.shape = shape.data(), out.strides = target.strides.data(), out.ndim = static_cast<int32_t>(shape.size());
  launch(cx, GW_KERNEL(put), {out},
         {at_result(place.tensor, shape, place.strides), at_result(values.tensor, shape, values.strides)}, &params);
}

namespace {

// ---- one index for whole slices: index_select and its kind ----

void check_vector(const char* op, const Tensor& index) {
  if (index.ndim() > 1) throw Error(Code::shape_mismatch, std::string(op) + "(): Index is supposed to be a vector");
  if (index.dtype() != DType::int32 && index.dtype() != DType::int64)
    throw Error(Code::dtype_mismatch, std::string(op) + "(): Expected dtype int32 or int64 for index");
}

// Strides of places at a shape whose dim d they have.
Shape only_along(size_t n, size_t d) {
  Shape s(n, 0);
  s[d] = 1;
  return s;
}

}  // namespace

Results selected_slices(const Call& c) {
  const Tensor &x = c.tensor(0), &index = c.tensor(2);
  const Along a(x, c.integer(1));
  check_vector("index_select", index);
  if (a.size() == 0 && index.numel() > 0)
    throw Error(Code::index_out_of_range, "index_select(): self indexing axis dim should be positive");
  LinearIndexParams p = kFromStart;
  p.refuse = outside_self;
  Shape shape = a.shape;
  shape[a.d] = index.numel();
  checked_numel(shape);
  const Tensor at = places(c.cx, index, p, a);
  const Tensor out = c.cx.empty(x.ndim() == 0 ? Shape() : shape, x.dtype());
  if (x.ndim() == 0) {
    if (index.numel() == 0)
      throw Error(Code::shape_mismatch, "index_select(): Index to scalar can have only 1 value, got 0 value(s)");
    c.cx.copy(out, x);
    return out;
  }
  if (out.numel() > 0) {
    const Shape held = a.held(), along = only_along(shape.size(), a.d);
    launch(c.cx, GW_KERNEL(take), {out.view()}, {at_result(x, shape, held), at_result(at, shape, along)});
  }
  return out;
}

namespace {

// target[index] = source or += source, slice by slice.
void put_slices(Context& cx, const Along& a, const Tensor& target, const Tensor& at, const Tensor& source, bool add) {
  const Tensor values = source->storage == target->storage ? copy_of(cx, source) : source;
  const Along s(values, a.dim);
  const Shape held = a.held(), along = only_along(s.shape.size(), a.d);
  put_at(cx, s.shape, {target, held}, {at, along}, {values, s.strides}, add);
}

// Sizes but that along the dim are the same.
bool same_slices(const Along& a, const Tensor& source) {
  const Along s(source, a.dim < std::max(source.ndim(), 1) ? a.dim : 0);
  if (s.shape.size() != a.shape.size()) return false;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (d != a.d && s.shape[d] != a.shape[d]) return false;
  }
  return true;
}

}  // namespace

// A value for a tensor of this dtype.
Tensor number(const Call& c, Scalar value, DType dtype) {
  char bytes[16];
  store_scalar(bytes, dtype, value);  // refuses what does not fit
  return c.cx.full({}, value, dtype);
}

namespace {

Tensor one_value(const Call& c, int i, DType dtype, const char* op) {
  if (!c.is_tensor(i)) return number(c, c.scalar(i), dtype);
  const Tensor& t = c.tensor(i);
  if (t.ndim() > 0) {
    throw Error(Code::shape_mismatch, std::string(op) +
                                          " only supports a 0-dimensional value tensor, but got tensor with " +
                                          std::to_string(t.ndim()) + " dimension(s).");
  }
  return t.dtype() == dtype ? copy_of(c.cx, t) : c.cx.contiguous(t, dtype);
}

}  // namespace

void add_slices(const Call& c, const Tensor& target) {
  const Tensor &index = c.tensor(2), &source = c.tensor(3);
  const Along a(target, c.integer(1));
  check_vector("index_add_", index);
  if (source.dtype() != target.dtype()) {
    throw Error(Code::dtype_mismatch, std::string("index_add_(): self (") + row(target.dtype()).torch +
                                          ") and source (" + row(source.dtype()).torch +
                                          ") must have the same scalar type");
  }
  const int64_t n = Along(source, a.dim < std::max(source.ndim(), 1) ? a.dim : 0).size();
  if (!same_slices(a, source)) {
    throw Error(Code::shape_mismatch, "index_add_(): self of shape " + to_string(target.shape()) +
                                          " and source of shape " + to_string(source.shape()) +
                                          " may differ along dim " + std::to_string(a.dim) + " only");
  }
  if (index.numel() != n) {
    throw Error(Code::shape_mismatch, "index_add_(): Number of indices (" + std::to_string(index.numel()) +
                                          ") should be equal to source.size(dim): (" + std::to_string(n) +
                                          "), for dim: " + std::to_string(a.dim));
  }
  LinearIndexParams p = kFromStart;
  p.refuse = outside_self;
  const Tensor at = places(c.cx, index, p, a);
  const Scalar alpha = c.scalar(4);
  Tensor values = source;
  if (alpha.real() != 1) {
    values = mul(source, number(c, alpha, target.dtype()));
  }
  put_slices(c.cx, a, target, at, values, true);
}

void copy_slices(const Call& c, const Tensor& target) {
  const Tensor &index = c.tensor(2), &source = c.tensor(3);
  const Along a(target, c.integer(1));
  if (index.ndim() > 1) {
    throw Error(Code::shape_mismatch,
                "index_copy_(): Index should have dimension 1 or 0 (got " + std::to_string(index.ndim()) + ")");
  }
  if (index.dtype() != DType::int64) {
    throw Error(Code::dtype_mismatch,
                std::string("index_copy_(): Expected a long tensor for index, but got ") + row(index.dtype()).torch);
  }
  if (source.dtype() != target.dtype()) {
    throw Error(Code::dtype_mismatch,
                std::string("index_copy_(): self and source expected to have the same dtype, but got (self) ") +
                    row(target.dtype()).torch + " and (source) " + row(source.dtype()).torch);
  }
  if (source.ndim() != target.ndim() && source.ndim() != 0 && target.ndim() != 0) {
    throw Error(Code::shape_mismatch,
                "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
                "dimensionality (" +
                    std::to_string(source.ndim()) + "), destination dimensionality (" + std::to_string(target.ndim()) +
                    ")");
  }
  if (!same_slices(a, source)) {
    throw Error(Code::shape_mismatch,
                "index_copy_(): Source/destination tensor must have same slice shapes. Destination shape: " +
                    to_string(target.shape()) + " and source shape: " + to_string(source.shape()) + " at dimension " +
                    std::to_string(a.dim));
  }
  const int64_t n = Along(source, a.dim).size();
  if (index.numel() != n) {
    throw Error(Code::shape_mismatch, "index_copy_(): Number of indices (" + std::to_string(index.numel()) +
                                          ") should be equal to source.size(dim) (" + std::to_string(n) + ")");
  }
  LinearIndexParams p = kFromStart;
  p.refuse = outside_copy;
  put_slices(c.cx, a, target, places(c.cx, index, p, a), source, false);
}

void fill_slices(const Call& c, const Tensor& target) {
  const Tensor& index = c.tensor(2);
  const Along a(target, c.integer(1));
  if (index.ndim() > 1) throw Error(Code::shape_mismatch, "Index has to be a vector/scalar");
  if (index.dtype() != DType::int64)
    throw Error(Code::dtype_mismatch, "index_fill_(): Expected dtype int64 for index.");
  const Tensor value = one_value(c, 3, target.dtype(), "index_fill_");
  const Tensor at = places(c.cx, index, {}, a);
  Shape shape = a.shape;
  shape[a.d] = index.numel();
  const Shape held = a.held(), along = only_along(shape.size(), a.d), still(shape.size(), 0);
  put_at(c.cx, shape, {target, held}, {at, along}, {value, still}, false);
}

namespace {

// ---- an index for each element: gather, scatter and their kind ----

void check_index_type(const char* op, const Tensor& index) {
  if (index.dtype() != DType::int64)
    throw Error(Code::dtype_mismatch, std::string(op) + "(): Expected dtype int64 for index");
}

}  // namespace

Results gathered(const Call& c) {
  const Tensor &x = c.tensor(0), &index = c.tensor(2);
  const Along a(x, c.integer(1));
  check_index_type("gather", index);
  const Tensor out = c.cx.empty(index.shape(), x.dtype());
  if (index.numel() == 0) return out;
  const Along i(index, 0);
  if (i.shape.size() != a.shape.size())
    throw Error(Code::shape_mismatch, "Index tensor must have the same number of dimensions as input tensor");
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (d == a.d || i.shape[d] <= a.shape[d]) continue;
    throw Error(Code::shape_mismatch, "Size does not match at dimension " + std::to_string(d) + " expected index " +
                                          to_string(index.shape()) + " to be smaller than self " +
                                          to_string(x.shape()) + " apart from dimension " + std::to_string(a.dim));
  }
  const Tensor at = places(c.cx, index, kFromStart, a);
  const Shape held = a.held(), flat = contiguous_strides(i.shape);
  View to = out.view();
  to.shape = i.shape.data(), to.strides = flat.data(), to.ndim = static_cast<int32_t>(i.shape.size());
  launch(c.cx, GW_KERNEL(take), {to}, {at_result(x, i.shape, held), at_result(at, i.shape, flat)});
  return out;
}

// target[..., index, ...] = values, or += values; src is not there for a number.
void scatter_into(const Call& c, const Tensor& target, const Tensor* src, const Tensor& one, bool accumulate) {
  const Tensor& index = c.tensor(2);
  const Along a(target, c.integer(1));
  check_index_type("scatter", index);
  if (src && src->dtype() != target.dtype())
    throw Error(Code::dtype_mismatch, "scatter(): Expected self.dtype to be equal to src.dtype");
  if (index.numel() == 0) return;
  const Along i(index, 0);
  if (i.shape.size() != a.shape.size())
    throw Error(Code::shape_mismatch, "Index tensor must have the same number of dimensions as self tensor");
  if (src && std::max(src->ndim(), 1) != static_cast<int>(i.shape.size()))
    throw Error(Code::shape_mismatch, "Index tensor must have the same number of dimensions as src tensor");
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const bool fits_self = d == a.d || i.shape[d] <= a.shape[d];
    const bool fits_src = !src || i.shape[d] <= (src->ndim() == 0 ? 1 : src->shape()[d]);
    if (fits_self && fits_src) continue;
    throw Error(Code::shape_mismatch,
                "Expected index " + to_string(index.shape()) + " to be smaller than self " + to_string(target.shape()) +
                    " apart from dimension " + std::to_string(a.dim) +
                    (src ? " and to be smaller size than src " + to_string(src->shape()) : std::string()));
  }
  const Tensor at = places(c.cx, index, kFromStart, a);
  const Tensor values = !src ? one : (*src)->storage == target->storage ? copy_of(c.cx, *src) : *src;
  const Shape held = a.held(), flat = contiguous_strides(i.shape);
  const Shape steps = !src ? Shape(i.shape.size(), 0) : values.ndim() == 0 ? Shape{1} : Shape(values.strides());
  put_at(c.cx, i.shape, {target, held}, {at, flat}, {values, steps}, accumulate);
}

// The gradient of src, of which only the first part was scattered.
Tensor of_src(const Vjp& g) {
  const Tensor picked = gather(g.dout(), g.integer(1), g.in(2));
  const std::span<const int64_t> size = g.shape(3);
  if (std::ranges::equal(size, picked.shape())) return picked;
  if (picked.numel() == 0) return g.cx.full(size, 0, picked.dtype());
  std::vector<IndexItem<Tensor>> first;
  for (const int64_t n : picked.shape()) first.push_back(Slice{0, n, 1});
  return index_backward(picked, Ints(size), first);
}

// The elements of the gradient that index_fill overwrote.
Tensor overwritten(const Vjp& g) {
  const Tensor dout = g.dout().ndim() == 0 ? reshape(g.dout(), {1}) : g.dout();
  std::vector<IndexItem<Tensor>> items(static_cast<size_t>(wrap_dim(g.integer(1), dout.ndim())), Slice{});
  items.emplace_back(g.in(2));
  return gradwire::index(dout, items);
}

Tensor zeros_for(const Vjp& g) { return g.cx.full(g.shape(0), 0, g.dout().dtype()); }

}  // namespace gradwire::engine
