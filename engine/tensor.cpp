#include "engine/tensor.h"

#include <algorithm>
#include <cstring>

#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/exchange.h"
#include "engine/kernels.h"
#include "engine/shape.h"
#include "schema/half.h"

namespace gradwire::engine {

Context::Context(Backend& b, Limits limits)
    : backend(b), on_cpu(b.is_cpu()), pool(*Pool::make(limits.bytes)), limits_(limits) {}

uint32_t Tensor::version() const { return p_->own_version ? p_->own_version->value : p_->storage->version; }
void bump_version(const Tensor& t) { ++(t->own_version ? t->own_version->value : t->storage->version); }

bool Tensor::requires_grad() const {
  refresh(*this);
  return p_->node != nullptr;
}
bool Tensor::is_leaf() const {
  refresh(*this);
  return !p_->node || p_->node->is_leaf();
}

Tensor Context::empty(std::span<const int64_t> shape, DType dtype) { return fresh(shape, checked_numel(shape), dtype); }
Tensor Context::empty_like(const Tensor& t, DType dtype) { return fresh(t.shape(), t.numel(), dtype); }

Tensor Context::fresh(std::span<const int64_t> shape, int64_t n, DType dtype) {
  Storage* s = Storage::make(*this, static_cast<size_t>(bytes_of(n, dtype)));
  TensorImpl* t;
  try {
    t = static_cast<TensorImpl*>(pool.take(TensorImpl::block(shape.size())));
  } catch (...) {
    Storage::drop(s);
    throw;
  }
  *t = {.refs = 1,
        .dtype = dtype,
        .ndim = static_cast<uint8_t>(shape.size()),
        .contiguous = true,
        .retains_grad = false,
        .numel = n,
        .offset = 0,
        .storage = s,
        .own_version = nullptr,
        .node = nullptr,
        .extra = nullptr,
        .cx = this};
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    t->dims()[d] = shape[d];
    t->dims()[shape.size() + d] = step;
    step *= std::max<int64_t>(shape[d], 1);
  }
  return Tensor(t);
}

Tensor Context::full(std::span<const int64_t> shape, Scalar value, DType dtype) {
  Tensor t = empty(shape, dtype);
  if (t.numel() == 0) return t;
  const FillParams params{value};
  launch(*this, GW_KERNEL(fill), {out_view(t)}, {}, &params);
  return t;
}

Tensor Context::alias(const Tensor& t, std::span<const int64_t> shape, std::span<const int64_t> strides,
                      int64_t offset) {
  const int64_t numel = checked_numel(shape);  // may throw: before memory is taken
  auto* p = static_cast<TensorImpl*>(pool.take(TensorImpl::block(shape.size())));
  *p = {.refs = 1,
        .dtype = t.dtype(),
        .ndim = static_cast<uint8_t>(shape.size()),
        .contiguous = is_contiguous(shape, strides),
        .retains_grad = false,
        .numel = numel,
        .offset = offset,
        .storage = t->storage,
        .own_version = t->own_version,
        .node = nullptr,
        .extra = nullptr,
        .cx = this};
  ++p->storage->refs;
  if (p->own_version) ++p->own_version->refs;
  std::copy(shape.begin(), shape.end(), p->dims());
  std::copy(strides.begin(), strides.end(), p->dims() + shape.size());
  return Tensor(p);
}

View out_view(const Tensor& t) {
  View v = t.view();
  v.data = static_cast<char*>(t->storage->writable(*t->cx)) + t->offset * size_of(t.dtype());
  return v;
}

void launch(Context& cx, const Kernel& kernel, std::initializer_list<View> out, std::initializer_list<View> in,
            const void* params) {
  Launch l;
  l.out = {out.begin(), out.size()}, l.in = {in.begin(), in.size()}, l.params = params;
  cx.backend.run(kernel, l);
}

void Context::copy(const Tensor& to, const Tensor& from) {
  if (to.numel() > 0) launch(*this, GW_KERNEL(convert), {out_view(to)}, {from.view()});
}

Tensor Context::contiguous(const Tensor& t, DType dtype) {
  if (t->contiguous && t.dtype() == dtype) return t;
  Tensor made = empty(t.shape(), dtype);
  copy(made, t);
  return made;
}

Tensor copy_of(Context& cx, const Tensor& t) {
  Tensor made = cx.empty(t.shape(), t.dtype());
  cx.copy(made, t);
  return made;
}

Scalar item(const Tensor& t) {
  if (t.numel() != 1)
    throw Error(Code::shape_mismatch, "only one element tensors can be converted to Python scalars", "item");
  std::byte raw[8];
  t.maker().backend.to_host(raw, t.data(), static_cast<size_t>(size_of(t.dtype())));
  auto as = [&raw]<class T>(T v) { return std::memcpy(&v, raw, sizeof v), v; };
  switch (t.dtype()) {
    case DType::boolean:
      return Scalar(as(uint8_t{}) != 0);
    case DType::uint8:
      return Scalar(as(uint8_t{}));
    case DType::int8:
      return Scalar(as(int8_t{}));
    case DType::int16:
      return Scalar(as(int16_t{}));
    case DType::int32:
      return Scalar(as(int32_t{}));
    case DType::int64:
      return Scalar(as(int64_t{}));
    case DType::float16:
      return Scalar(half_to_float(as(uint16_t{})));
    case DType::bfloat16:
      return Scalar(bfloat16_to_float(as(uint16_t{})));
    case DType::float32:
      return Scalar(as(float{}));
    case DType::float64:
      break;
  }
  return Scalar(as(double{}));
}

TensorInfo info(const Tensor& t) {
  TensorInfo i;
  i.dtype = t.dtype();
  i.shape = Shape(t.shape()), i.strides = Shape(t.strides());
  i.device = t.maker().backend.device();
  i.requires_grad = t.requires_grad(), i.is_leaf = t.is_leaf();
  if (!i.is_leaf) i.grad_fn = node_name(*t->node);
  i.version = t.version();
  i.bytes = static_cast<int64_t>(t->storage->bytes());
  return i;
}

Snapshot snapshot(const Tensor& given) {
  Context& cx = given.maker();
  const Tensor t = cx.contiguous(given);
  const auto bytes = static_cast<size_t>(bytes_of(t.numel(), t.dtype()));
  if (!cx.backend.is_cpu()) {
    cx.pool.retain();
    Pool* pool = &cx.pool;
    void* host = pool->take(bytes);
    const std::shared_ptr<void> hold(host, [pool, bytes](void* p) {
      pool->give_remote(p, bytes);
      pool->release();
    });
    cx.backend.to_host(host, t.data(), bytes);
    return {hold, host, bytes};
  }
  Buffer* b = t->storage->buffer;
  b->hold();
  return {
      std::shared_ptr<const void>(b, [](const void* p) { Buffer::let_go(static_cast<Buffer*>(const_cast<void*>(p))); }),
      t.data(), bytes};
}

Upload reserve(Context& cx, DType dtype, std::span<const int64_t> shape) {
  const auto bytes = static_cast<size_t>(bytes_of(checked_numel(shape), dtype));
  Upload u;
  u.bytes = bytes, u.dtype = dtype, u.shape = Shape(shape);
  Pool* pool = &cx.pool;
  if (!cx.backend.is_cpu()) {
    u.data = pool->take(bytes);
    pool->retain();
    u.hold = std::shared_ptr<void>(u.data, [pool, bytes](void* p) {
      pool->give_remote(p, bytes);
      pool->release();
    });
    return u;
  }
  Buffer* b = Buffer::make(cx, bytes);  // its first hold is the upload's
  b->shared = true;
  pool->retain();
  u.data = b->data;
  u.hold = std::shared_ptr<void>(b, [](void* p) { Buffer::let_go(static_cast<Buffer*>(p)); });
  return u;
}

namespace {
// bool tensors hold 0 and 1 only: kernels count on it.
void check_bools(DType dtype, const void* data, size_t n) {
  if (dtype != DType::boolean) return;
  const auto* p = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < n; ++i) {
    if (p[i] > 1)
      throw Error(Code::bad_tensor,
                  "element " + std::to_string(i) + " of a bool tensor is " + std::to_string(p[i]) + ", not 0 or 1");
  }
}
}  // namespace

/// A contiguous tensor on a storage that comes from elsewhere.
template <class Make> static Tensor on(Context& cx, DType dtype, std::span<const int64_t> shape, Make make) {
  const Shape none{0};
  const Tensor made = cx.empty(none, dtype);
  Storage* old = std::exchange(made->storage, make());
  if (--old->refs == 0) Storage::drop(old);
  return cx.alias(made, shape, contiguous_strides(shape), 0);
}

Tensor adopt(Context& cx, const Upload& u) {
  check_bools(u.dtype, u.data, u.bytes);
  if (!cx.backend.is_cpu()) {
    Tensor t = cx.empty(u.shape, u.dtype);
    cx.backend.from_host(t.data(), u.data, u.bytes);
    return t;
  }
  return on(cx, u.dtype, u.shape, [&] { return Storage::around(cx, static_cast<Buffer*>(u.hold.get())); });
}

Tensor borrow(Context& cx, DType dtype, std::span<const int64_t> shape, void* data, std::shared_ptr<void> owner) {
  const auto bytes = static_cast<size_t>(bytes_of(checked_numel(shape), dtype));
  return on(cx, dtype, shape, [&] { return Storage::borrow(cx, data, bytes, std::move(owner)); });
}

Tensor from_bytes(Context& cx, DType dtype, std::span<const int64_t> shape, std::span<const std::byte> bytes) {
  const int64_t want = bytes_of(checked_numel(shape), dtype);
  if (static_cast<int64_t>(bytes.size()) != want) {
    throw Error(Code::bad_tensor, "a tensor of shape " + to_string(shape) + " and dtype " + name(dtype) + " has " +
                                      std::to_string(want) + " bytes, but " + std::to_string(bytes.size()) + " came");
  }
  check_bools(dtype, bytes.data(), bytes.size());
  Tensor t = cx.empty(shape, dtype);
  if (!bytes.empty()) cx.backend.from_host(t.data(), bytes.data(), bytes.size());
  return t;
}

}  // namespace gradwire::engine
