#pragma once

// Stands in for engine/ until it is there: tensors without operators (but for `add` of equal shapes in float32).

#include <cstring>
#include <memory>

#include "schema/error.h"
#include "schema/value.h"

namespace gradwire::engine {

class Tensor {
 public:
  struct Body {
    DType dtype;
    Shape shape;
    bool requires_grad = false;
    std::vector<std::byte> bytes;
  };
  Tensor() = default;
  explicit Tensor(std::shared_ptr<Body> b) : body(std::move(b)) {}
  explicit operator bool() const { return body != nullptr; }
  bool requires_grad() const { return body->requires_grad; }
  std::shared_ptr<Body> body;
};
using Bound = Value<Tensor>;
using OpId = uint16_t;
class Backend {};
inline std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<Backend>(); }
struct Limits {
  int64_t bytes = 0, nodes = 0;
};
struct Generator {
  uint64_t seed = 0, offset = 0;
};
class Context {
 public:
  Context(Backend&, Limits) {}
  bool grad_mode = true;
  DType default_dtype = DType::float32;
  Generator generator;
  std::vector<Warning> warnings;
  bool pointwise_fallback = false, broadcast_warning = false, keepdim_warning = false;
  int64_t bytes_used() const { return 0; }
};
struct Results {
  Tensor at[3];
  std::vector<Tensor> list;
  bool is_list = false;
};
struct Snapshot {
  std::shared_ptr<const void> hold;
  const void* data = nullptr;
  size_t bytes = 0;
};
struct Upload {
  std::shared_ptr<void> hold;
  void* data = nullptr;
  size_t bytes = 0;
  DType dtype = DType::float32;
  Shape shape;
};
inline size_t size_in_bytes(DType t, std::span<const int64_t> shape) {
  int64_t n = size_of(t);
  for (const int64_t s : shape) {
    if (s < 0 || __builtin_mul_overflow(n, s, &n) || n > (int64_t{1} << 30))
      throw Error(Code::bad_argument, "bad shape");
  }
  return static_cast<size_t>(n);
}
inline Tensor from_bytes(Context&, DType t, std::span<const int64_t> shape, std::span<const std::byte> bytes) {
  if (bytes.size() != size_in_bytes(t, shape)) throw Error(Code::bad_tensor, "wrong number of bytes");
  return Tensor(std::make_shared<Tensor::Body>(Tensor::Body{t, Shape(shape), false, {bytes.begin(), bytes.end()}}));
}
inline Upload reserve(Context&, DType t, std::span<const int64_t> shape) {
  const size_t n = size_in_bytes(t, shape);
  auto v = std::make_shared<std::vector<std::byte>>(n);
  return {v, v->data(), n, t, Shape(shape)};
}
inline Tensor adopt(Context& cx, const Upload& u) {
  return from_bytes(cx, u.dtype, u.shape, {static_cast<const std::byte*>(u.data), u.bytes});
}
inline Tensor grad_of(const Tensor&) { return {}; }
inline void set_requires_grad(const Tensor& t, bool on) { t.body->requires_grad = on; }
inline TensorInfo info(const Tensor& t) {
  TensorInfo i;
  i.dtype = t.body->dtype, i.shape = t.body->shape, i.device = "cpu", i.requires_grad = t.body->requires_grad;
  i.strides = Shape(i.shape.size(), 1);
  for (size_t d = i.shape.size(); d-- > 1;) i.strides[d - 1] = i.strides[d] * i.shape[d];
  i.bytes = static_cast<int64_t>(t.body->bytes.size());
  return i;
}
inline Snapshot snapshot(const Tensor& t) { return {t.body, t.body->bytes.data(), t.body->bytes.size()}; }
inline OpId bind(std::string_view name, std::span<const Bound> args,
                 std::span<const std::pair<std::string_view, Bound>>, std::vector<Bound>& full) {
  if (name != "add")
    throw Error(Code::unknown_operator, "there is no operator '" + std::string(name) + "'", std::string(name));
  full.assign(args.begin(), args.end());
  return 0;
}
inline std::string_view op_name(OpId) { return "add"; }
inline size_t op_count() { return 1; }
inline void check(OpId id, std::span<const Bound> args) {
  if (id != 0 || args.size() != 2 || args[0].kind != ArgKind::tensor || args[1].kind != ArgKind::tensor)
    throw Error(Code::bad_argument, "add(): bad arguments", "add");
}
inline Results call(Context&, OpId id, std::span<const Bound> args) {
  check(id, args);
  const auto &a = *args[0].tensors->body, &b = *args[1].tensors->body;
  if (!(a.shape == b.shape) || a.dtype != DType::float32 || b.dtype != DType::float32)
    throw Error(Code::shape_mismatch, "shapes differ", "add");
  auto out = std::make_shared<Tensor::Body>(a);
  for (size_t i = 0; i < a.bytes.size(); i += 4) {
    float x, y;
    std::memcpy(&x, &a.bytes[i], 4), std::memcpy(&y, &b.bytes[i], 4);
    x += y;
    std::memcpy(&out->bytes[i], &x, 4);
  }
  Results r;
  r.at[0] = Tensor(out);
  return r;
}
inline bool is_backward(OpId) { return false; }
class BackwardTask {
 public:
  BackwardTask(Context&, OpId, std::span<const Bound>) {}
  template <class D> bool step(D) { return true; }
  Results take() { return {}; }
};

}  // namespace gradwire::engine
