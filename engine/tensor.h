#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/storage.h"
#include "engine/view.h"
#include "schema/op_call.h"
#include "schema/ops.h"

namespace gradwire::engine {

using OpId = uint16_t;
class Context;
class Optimizer;
class Exchange;
class Tensor;
struct Extra;
struct Node;
struct Pending;
class Reducer;
struct TensorImpl;

/// Version counter of its own, for `.data`: views and detach() share it. Other tensors use their storage's.
struct Version {
  int32_t refs;
  uint32_t value;
};

/// A shared handle to one tensor of one Context; empty by default. Belongs to the Context's thread, like all of this
/// file: nothing is atomic.
class Tensor : public Methods<Tensor> {
 public:
  Tensor() = default;
  explicit Tensor(TensorImpl* owned) : p_(owned) {}
  inline Tensor(const Tensor& t);
  Tensor(Tensor&& t) noexcept : p_(std::exchange(t.p_, nullptr)) {}
  Tensor& operator=(Tensor t) noexcept { return std::swap(p_, t.p_), *this; }
  inline ~Tensor();

  explicit operator bool() const { return p_ != nullptr; }
  TensorImpl* operator->() const { return p_; }
  TensorImpl* get() const { return p_; }
  TensorImpl* take() { return std::exchange(p_, nullptr); }

  inline std::span<const int64_t> shape() const;
  inline std::span<const int64_t> strides() const;
  inline int ndim() const;
  inline int64_t numel() const;
  inline DType dtype() const;
  inline int64_t size(int dim) const;  // no wrapping
  inline View view() const;
  inline void* data() const;  // of the first element
  uint32_t version() const;
  /// True for a leaf that asks for it, and for what was made from one.
  bool requires_grad() const;
  bool is_leaf() const;
  /// The context that made it: what ops.h calls.
  inline Context& maker() const;

 private:
  friend struct Graveyard;
  static void free(TensorImpl*);  // iterative: a graph of any depth, on any stack
  TensorImpl* p_ = nullptr;
};

struct TensorImpl {
  int32_t refs;
  DType dtype;
  uint8_t ndim;
  bool contiguous;
  bool retains_grad : 1;   // retain_grad(): its node puts the gradient here
  bool saved : 1 = false;  // a node keeps it, or kept it
  int64_t numel, offset;
  Storage* storage;
  Version* own_version;  // null: the storage's
  Node* node;            // what made it, or its leaf node; null: no gradient
  Extra* extra;          // null for most
  Context* cx;
  int64_t* dims() { return reinterpret_cast<int64_t*>(this + 1); }  // ndim sizes, then ndim strides
  const int64_t* dims() const { return reinterpret_cast<const int64_t*>(this + 1); }
  static size_t block(size_t ndim) { return sizeof(TensorImpl) + 2 * ndim * sizeof(int64_t); }
};
static_assert(sizeof(TensorImpl) == 64);

/// What few tensors have.
struct Extra {
  Tensor grad;                // .grad
  Tensor base;                // of a view: the tensor that owns the storage
  uint64_t base_history = 0;  // base's `history` when this view's node was made
  uint64_t history = 0;       // counts how often this base's history was rewritten
  uint32_t output = 0;        // which result of its node this is
  bool multi_view = false;    // one of several views made at once: refuses in-place writes
  bool has_views = false;
  Optimizer* optimizer = nullptr;    // that this tensor stands for; owned
  std::shared_ptr<Reducer> reducer;  // averages this leaf's gradient with other ranks'
  uint32_t reducer_slot = 0;
  Extra *next = nullptr,
        *prev = nullptr;  // all of a context's: its end drops their gradients, which may lead in circles
};

inline Tensor::Tensor(const Tensor& t) : p_(t.p_) {
  if (p_) ++p_->refs;
}
inline Tensor::~Tensor() {
  if (p_ && --p_->refs == 0) free(p_);
}
inline std::span<const int64_t> Tensor::shape() const { return {p_->dims(), p_->ndim}; }
inline std::span<const int64_t> Tensor::strides() const { return {p_->dims() + p_->ndim, p_->ndim}; }
inline int Tensor::ndim() const { return p_->ndim; }
inline int64_t Tensor::numel() const { return p_->numel; }
inline DType Tensor::dtype() const { return p_->dtype; }
inline int64_t Tensor::size(int dim) const { return p_->dims()[dim]; }
inline Context& Tensor::maker() const { return *p_->cx; }
inline void* Tensor::data() const { return static_cast<char*>(p_->storage->data()) + p_->offset * size_of(p_->dtype); }
inline View Tensor::view() const { return {data(), p_->dims(), p_->dims() + p_->ndim, p_->ndim, p_->dtype}; }

/// Philox state: one generator a session. A call takes ceil(numel / 4) counters.
struct Generator {
  uint64_t seed = 0, offset = 0;
};

/// Older behaviour that a session asks for.
struct Compat {
  bool arange_float = false;        // whole numbers count in the default dtype
  bool pointwise_fallback = false;  // other shapes with as many elements are taken in flat order, with a warning
  bool broadcast_warning = false;   // warns where broadcasting replaced that
  bool keepdim_warning = false;     // warns where a reduction leaves keepdim out
  bool no_type_promotion = false;   // operands with dims have one dtype
  bool integer_division = false;    // div of whole numbers drops the fraction
  bool operator==(const Compat&) const = default;
};
struct CompatRow {
  const char* name;
  bool Compat::*flag;
};
inline constexpr CompatRow kCompatRows[] = {
    {"arange_float", &Compat::arange_float},           {"pointwise_fallback", &Compat::pointwise_fallback},
    {"broadcast_warning", &Compat::broadcast_warning}, {"keepdim_warning", &Compat::keepdim_warning},
    {"no_type_promotion", &Compat::no_type_promotion}, {"integer_division", &Compat::integer_division}};
/// Throws bad_argument for a name that is not there.
bool Compat::*compat_flag(std::string_view name);

struct Limits {
  int64_t bytes = int64_t{1} << 30;
  int64_t nodes = 4000000;
};

inline constexpr size_t kMaxWarnings = 256;

/// One owner's engine state: a session's. Touched by one thread at a time.
class Context {
 public:
  Context(Backend& backend, Limits limits);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();  // every Tensor must be gone

  using Tensor = engine::Tensor;
  Backend& backend;
  const bool on_cpu;
  Pool& pool;
  bool grad_mode = true;
  DType default_dtype = DType::float32;
  Generator generator;
  std::vector<Warning> warnings;  // whoever runs the calls takes them
  /// One more, unless there are kMaxWarnings.
  void warn(std::string op, std::string message) {
    if (warnings.size() < kMaxWarnings) warnings.push_back({.op = std::move(op), .message = std::move(message)});
  }
  Compat compat;
  /// How rows reach other ranks; null: no groups. A call that waits for them leaves `pending` for whoever runs the
  /// calls, and the results that it gives then are none yet.
  Exchange* exchange = nullptr;
  std::unique_ptr<Pending> pending;
  std::vector<Reducer*> reducers;  // that leaves have, in the order in which they were attached

  /// Host and device memory of live tensors and graph nodes.
  int64_t bytes_used() const { return pool.used(); }
  int64_t nodes() const { return nodes_; }
  const Limits& limits() const { return limits_; }

  // What ops.h calls (see schema/value.h).
  Tensor one(OpId, std::source_location, std::span<const Value<Tensor>>);
  template <size_t N>
  std::array<Tensor, N> several(OpId op, std::source_location at, std::span<const Value<Tensor>> args) {
    std::array<Tensor, N> out;
    fill(op, at, args, out);
    return out;
  }
  std::vector<Tensor> list(OpId, std::source_location, std::span<const Value<Tensor>>);
  void none(OpId, std::source_location, std::span<const Value<Tensor>>);

  /// Uninitialised unless the shape is empty. Throws memory_limit, bad_argument.
  Tensor empty(std::span<const int64_t> shape, DType);
  /// In the shape of t.
  Tensor empty_like(const Tensor& t, DType);
  Tensor full(std::span<const int64_t> shape, Scalar, DType);
  /// Shares t's storage. The strides must stay inside it.
  Tensor alias(const Tensor& t, std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset);
  /// A copy in row-major order and another dtype, without history; t itself where nothing changes.
  Tensor contiguous(const Tensor& t, DType);
  Tensor contiguous(const Tensor& t) { return contiguous(t, t.dtype()); }
  /// t's elements into `to` (same shape), converted; no history, no version.
  void copy(const Tensor& to, const Tensor& from);

 private:
  Tensor fresh(std::span<const int64_t> shape, int64_t numel, DType);
  void fill(OpId, std::source_location, std::span<const Value<Tensor>>, std::span<Tensor> out);
  friend struct Storage;
  friend struct Node;
  friend Tensor;
  friend Extra& extra(const Tensor&);
  friend struct Graveyard;
  Limits limits_;
  int64_t nodes_ = 0;
  uint64_t sequence_ = 0;
  Extra* extras_ = nullptr;
};

/// Turns history recording on or off for a scope.
class GradMode {
 public:
  GradMode(Context& cx, bool on) : cx_(cx), was_(std::exchange(cx.grad_mode, on)) {}
  ~GradMode() { cx_.grad_mode = was_; }
  GradMode(const GradMode&) = delete;

 private:
  Context& cx_;
  bool was_;
};

/// Extra of t, made at first use.
Extra& extra(const Tensor& t);
/// t.grad; empty if there is none.
Tensor grad_of(const Tensor& t);
/// The number of a tensor's elements as one host value; t has one element.
Scalar item(const Tensor& t);
TensorInfo info(const Tensor& t);

/// A tensor's bytes for any thread: contiguous, row-major, and never changing. Costs no copy for contiguous host
/// tensors.
struct Snapshot {
  std::shared_ptr<const void> hold;
  const void* data = nullptr;
  size_t bytes = 0;
};
Snapshot snapshot(const Tensor& t);

/// Memory for an upload, charged to the session, that another thread may fill; adopt() makes it a tensor.
struct Upload {
  std::shared_ptr<void> hold;
  void* data = nullptr;
  size_t bytes = 0;
  DType dtype = DType::float32;
  Shape shape;
};
Upload reserve(Context&, DType, std::span<const int64_t> shape);
Tensor adopt(Context&, const Upload&);
/// Around contiguous host memory that `owner` keeps (Buffer::borrow); for a CPU.
Tensor borrow(Context&, DType, std::span<const int64_t> shape, void* data, std::shared_ptr<void> owner);
/// Copies `bytes` (contiguous, row-major); throws bad_tensor if there are not exactly as many as the shape needs, or a
/// bool is neither 0 nor 1.
Tensor from_bytes(Context&, DType, std::span<const int64_t> shape, std::span<const std::byte> bytes);

}  // namespace gradwire::engine
