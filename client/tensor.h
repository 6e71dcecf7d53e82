#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <ranges>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/data.h"
#include "client/future.h"
#include "client/session.h"
#include "schema/ops.h"

namespace gradwire {

namespace client {

struct Extra;

/// What the handles of one tensor share; lives in a slab of its session's Core.
struct alignas(64) Node {
  std::atomic<uint32_t> refs{0};
  uint32_t step = 0;  // the call that makes it: its place in the batch ...
  uint64_t seq = 0;   // ... of this number
  uint64_t id = 0;    // in the session's table
  Session* session = nullptr;
  Extra* extra = nullptr;  // what is known of it; null: nothing yet
  Node* next = nullptr;    // of the free list
};
void release(Node*) noexcept;

/// The only element of a tensor.
class ScalarArrival final : public Arrival {
 public:
  explicit ScalarArrival(const std::source_location& at) : at_(at) {}
  /// Throws if there is not exactly one; the error has the line that asked.
  Scalar take();

 private:
  std::byte* room(const TensorInfo&, size_t) override;
  std::source_location at_;
  std::byte bytes_[8];
};

template <class T> class VectorArrival final : public Arrival {
 public:
  std::vector<T> take() {
    if (!raw_.empty()) {
      values_.resize(raw_.size() / static_cast<size_t>(size_of(info().dtype)));
      convert(info().dtype, raw_.data(), kDTypeOf<T>, reinterpret_cast<std::byte*>(values_.data()), values_.size());
    }
    return std::move(values_);
  }

 private:
  std::byte* room(const TensorInfo& info, size_t size) override {
    if (info.dtype != kDTypeOf<T>) return raw_.resize(size), raw_.data();
    values_.resize(size / sizeof(T));
    return reinterpret_cast<std::byte*>(values_.data());
  }
  std::vector<T> values_;
  std::vector<std::byte> raw_;  // of another dtype
};

}  // namespace client

/// A tensor on the server: a handle with value semantics (a copy is a second handle of the same tensor, as in PyTorch;
/// `clone()` copies the values). The server forgets the tensor with its last handle. Operators, functions and methods
/// are those of schema/ops.md. A default-made one stands for no tensor.
///
/// Nothing here waits for the server but what returns values or facts: item, to_vector, copy_to, shape, dtype, ... Each
/// of these costs one round trip (facts only once); they throw the error of any call before them.
class Tensor : public Methods<Tensor> {
 public:
  Tensor() = default;
  Tensor(const Tensor& t) : node_(t.node_), part_(t.part_) {
    if (node_) node_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& t) noexcept : node_(std::exchange(t.node_, nullptr)), part_(t.part_) {}
  Tensor& operator=(const Tensor& t) {
    Tensor copy(t);
    return swap(copy), *this;
  }
  Tensor& operator=(Tensor&& t) noexcept {
    Tensor moved(std::move(t));
    return swap(moved), *this;
  }
  ~Tensor() { drop(); }
  void swap(Tensor& t) noexcept { std::swap(node_, t.node_), std::swap(part_, t.part_); }

  /// Whether it stands for a tensor.
  bool defined() const { return node_ != nullptr; }
  explicit operator bool() const { return defined(); }

  // Facts.
  Shape shape() const { return facts().shape; }
  int64_t size(int64_t dim, std::source_location at = std::source_location::current()) const;
  int64_t dim() const { return static_cast<int64_t>(facts().shape.size()); }
  int64_t numel() const;
  DType dtype() const { return facts().dtype; }
  std::string device() const { return facts().device; }
  /// "torch.FloatTensor", "torch.cuda.LongTensor"; with a dtype or such a name: the tensor converted.
  std::string type() const;
  using Methods<Tensor>::type;
  /// These may change, so each call asks.
  bool requires_grad() const { return info().requires_grad; }
  bool is_leaf() const { return info().is_leaf; }
  std::string grad_fn() const { return info().grad_fn; }
  TensorInfo info() const;
  /// The same without waiting; nothing where there is no gradient.
  Future<std::optional<TensorInfo>> async_info() const;
  /// Equal for two handles of one tensor, as Python's id().
  const void* id() const { return reinterpret_cast<const char*>(node_) + static_cast<int>(part_); }

  /// The gradient that backward() leaves here, as it is when it is used. Using it where there is none is the error
  /// `no_grad`; `has_grad()` asks.
  Tensor grad() const;
  bool has_grad() const;

  // Values.
  /// The only element. Throws Error{bad_argument} if there is not exactly one.
  template <class T> T item(std::source_location at = std::source_location::current()) const {
    return async_item<T>(at).get();
  }
  template <class T> Future<T> async_item(std::source_location at = std::source_location::current()) const {
    static_assert(std::is_arithmetic_v<T>);
    auto arrival = std::make_shared<client::ScalarArrival>(at);
    fetch(arrival, FetchKind::value);
    return {arrival, [](client::Arrival& a) {
              const Scalar s = static_cast<client::ScalarArrival&>(a).take();
              return s.kind == Category::floating ? static_cast<T>(s.f) : static_cast<T>(s.integer());
            }};
  }
  /// All elements in row-major order, converted where T is not the dtype's type.
  template <class T> std::vector<T> to_vector(std::chrono::milliseconds timeout = {}) const {
    return async_to_vector<T>().get(timeout);
  }
  template <class T> Future<std::vector<T>> async_to_vector() const {
    using A = client::VectorArrival<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;
    auto arrival = std::make_shared<A>();
    fetch(arrival, FetchKind::value);
    return {arrival, [](client::Arrival& a) {
              if constexpr (std::is_same_v<T, bool>) {
                const std::vector<uint8_t> v = static_cast<A&>(a).take();
                return std::vector<bool>(v.begin(), v.end());
              } else {
                return static_cast<A&>(a).take();
              }
            }};
  }
  /// Fills `out`, which has as many elements of the dtype's own type as the tensor.
  template <class T>
  void copy_to(std::span<T> out, std::chrono::milliseconds timeout = {},
               std::source_location at = std::source_location::current()) const {
    copy_bytes(std::as_writable_bytes(out), kDTypeOf<std::remove_const_t<T>>, timeout, at);
  }

  /// The elements as they are, row-major: of dtypes that have no C++ type, too.
  Future<std::vector<std::byte>> async_bytes() const;

  // For ops.h and the SDK itself.
  Session& maker() const;
  /// Fetches the value and waits for it.
  void fetch_into(const std::shared_ptr<client::Arrival>& arrival, std::chrono::milliseconds timeout = {}) const {
    fetch(arrival, FetchKind::value);
    arrival->wait(timeout);
  }

 private:
  friend class Session;
  friend class client::Core;
  explicit Tensor(client::Node* node, Part part = Part::value) : node_(node), part_(part) {}
  void drop() noexcept {
    if (node_ && node_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) client::release(node_);
    node_ = nullptr;
  }
  void fetch(std::shared_ptr<client::Arrival>, FetchKind) const;
  TensorInfo facts() const;
  void copy_bytes(std::span<std::byte>, DType, std::chrono::milliseconds, const std::source_location&) const;

  client::Node* node_ = nullptr;
  Part part_ = Part::value;
};

template <size_t N>
std::array<Tensor, N> Session::several(uint16_t op, const std::source_location& at,
                                       std::span<const Value<Tensor>> args) {
  std::array<Tensor, N> out;
  fill(op, at, args, out);
  return out;
}

template <> struct DefaultMaker<void> {
  using Tensor = gradwire::Tensor;
  static Session& get() { return default_session(); }
};

/// Prints the values as PyTorch does (and so waits for them): `tensor([[1., 2.],\n        [3., 4.]])`.
std::ostream& operator<<(std::ostream&, const Tensor&);
std::string to_string(const Tensor&);

/// While one of these lives, this thread's calls record no history (enable_grad: do).
class GradMode {
 public:
  explicit GradMode(bool on) : before_(enabled()) { enabled() = on; }
  ~GradMode() { enabled() = before_; }
  GradMode(const GradMode&) = delete;
  static bool& enabled();

 private:
  bool before_;
};
class no_grad : public GradMode {
 public:
  no_grad() : GradMode(false) {}
};
class enable_grad : public GradMode {
 public:
  enable_grad() : GradMode(true) {}
};
inline void set_grad_enabled(bool on) { GradMode::enabled() = on; }

/// Elements in row-major order as a new tensor; `bytes` are copied before this returns. Up to 64 KiB travel with the
/// next batch; more are sent at once, which waits.
Tensor from_bytes(Session&, DType, std::span<const std::byte> bytes, std::span<const int64_t> shape,
                  bool requires_grad = false, std::source_location at = std::source_location::current());

struct TensorOptions {
  std::optional<DType> dtype{};  // left out: as the data
  bool requires_grad = false;
};

/// A nested list of numbers, borrowed: {{1, 2}, {3, 4}}.
class Literal {
 public:
  Literal() = default;  // an empty list
  template <class N>
  requires std::is_arithmetic_v<N> Literal(N n) : number_(n), is_number_(true) {}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
  Literal(std::initializer_list<Literal> list) : list_(list.begin()), count_(list.size()) {}
#pragma GCC diagnostic pop
  bool is_number() const { return is_number_; }
  const Scalar& number() const { return number_; }
  std::span<const Literal> list() const { return {list_, count_}; }

 private:
  Scalar number_;
  bool is_number_ = false;
  const Literal* list_ = nullptr;
  size_t count_ = 0;
};

/// A tensor of these numbers: float32 if one of them is a floating number (or there is none), else int64, else bool.
Tensor tensor(Session&, Literal, TensorOptions = {}, std::source_location at = std::source_location::current());
Tensor tensor(Literal, TensorOptions = {}, std::source_location at = std::source_location::current());

/// The elements of a vector, span, array, ... as a new tensor of this shape.
Tensor from_data(Session&, DType, std::span<const std::byte>, std::span<const int64_t> shape, const TensorOptions&,
                 std::source_location);
template <std::ranges::contiguous_range R>
Tensor from_span(Session& session, const R& data, Ints shape, TensorOptions options = {},
                 std::source_location at = std::source_location::current()) {
  return from_data(session, kDTypeOf<std::ranges::range_value_t<R>>, std::as_bytes(std::span(data)), shape, options,
                   at);
}
template <std::ranges::contiguous_range R>
Tensor from_span(const R& data, Ints shape, TensorOptions options = {},
                 std::source_location at = std::source_location::current()) {
  return from_span(default_session(), data, shape, options, at);
}
template <std::ranges::contiguous_range R>
Tensor from_span(const R& data, TensorOptions options = {}, std::source_location at = std::source_location::current()) {
  return from_span(default_session(), data, Ints(std::ranges::size(data)), options, at);
}

/// tensor() of a vector, array, span, ...: of floating numbers in the session's default dtype, of integers in int64.
Tensor tensor_of(Session&, DType, std::span<const std::byte>, TensorOptions, std::source_location);
template <std::ranges::contiguous_range R>
Tensor tensor(Session& session, const R& data, TensorOptions options = {},
              std::source_location at = std::source_location::current()) {
  return tensor_of(session, kDTypeOf<std::ranges::range_value_t<R>>, std::as_bytes(std::span(data)), options, at);
}
template <std::ranges::contiguous_range R>
Tensor tensor(const R& data, TensorOptions options = {}, std::source_location at = std::source_location::current()) {
  return tensor(default_session(), data, options, at);
}

/// The constructors of old: integers are a shape, whose values are zeros, and a list is data. FloatTensor(5, 7, 3) has
/// three dims, FloatTensor({3}) one element, 3.
template <DType kType> struct TypedConstructor {
  template <std::integral... N> Tensor operator()(N... sizes) const {
    const int64_t shape[] = {static_cast<int64_t>(sizes)..., 0};
    return empty(std::span<const int64_t>(shape, sizeof...(N)), {.dtype = kType});
  }
  Tensor operator()(Literal data, std::source_location at = std::source_location::current()) const {
    return tensor(data, {.dtype = kType}, at);
  }
};
inline constexpr TypedConstructor<DType::float32> FloatTensor;
inline constexpr TypedConstructor<DType::float64> DoubleTensor;
inline constexpr TypedConstructor<DType::float16> HalfTensor;
inline constexpr TypedConstructor<DType::uint8> ByteTensor;
inline constexpr TypedConstructor<DType::int8> CharTensor;
inline constexpr TypedConstructor<DType::int16> ShortTensor;
inline constexpr TypedConstructor<DType::int32> IntTensor;
inline constexpr TypedConstructor<DType::int64> LongTensor;

}  // namespace gradwire
