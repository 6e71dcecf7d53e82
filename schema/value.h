#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <vector>

#include "schema/op_call.h"

// The arguments of the functions of ops.h, for any tensor type T: the engine's own, and the client's handle of a tensor
// on a server.

namespace gradwire {

template <class T>
class IndexItem;

/// One argument of a call, borrowed for the call's duration. For a T that is engine::Tensor it is what the engine
/// computes with; for the client's Tensor it is what is written on the wire.
template <class T>
struct Value {
  ArgKind kind = ArgKind::none;
  bool left_out = false;  // the default of an argument that the caller did not give
  uint32_t count = 0;     // of the lists, and of a text's bytes
  union {
    bool b;
    int64_t i = 0;
    double f;
    DType dtype;
    const char* text;
    const T* tensors;  // one for `tensor`, `count` for `tensors` (an empty T is "none")
    const int64_t* ints;
    const double* floats;
    const IndexItem<T>* index;
  };

  Value() = default;
  Value(const T& t) : kind(t ? ArgKind::tensor : ArgKind::none), tensors(&t) {}
  Value(std::span<const T> t) : kind(ArgKind::tensors), count(static_cast<uint32_t>(t.size())), tensors(t.data()) {}
  Value(Scalar s) {
    switch (s.kind) {
      case Category::boolean: kind = ArgKind::boolean, b = s.b; break;
      case Category::integer: kind = ArgKind::integer, i = s.i; break;
      case Category::floating: kind = ArgKind::real, f = s.f; break;
    }
  }
  Value(DType t) : kind(ArgKind::dtype), dtype(t) {}
  Value(std::string_view s) : kind(ArgKind::text), count(static_cast<uint32_t>(s.size())), text(s.data()) {}
  Value(std::span<const int64_t> v) : kind(ArgKind::ints), count(static_cast<uint32_t>(v.size())), ints(v.data()) {}
  Value(std::span<const double> v) : kind(ArgKind::floats), count(static_cast<uint32_t>(v.size())), floats(v.data()) {}
  Value(std::span<const IndexItem<T>> v)
      : kind(ArgKind::index), count(static_cast<uint32_t>(v.size())), index(v.data()) {}
  template <class U>
  Value(const std::optional<U>& v) : Value() {
    if (v) *this = Value(*v);
  }

  bool is_scalar() const { return kind == ArgKind::boolean || kind == ArgKind::integer || kind == ArgKind::real; }
  Scalar scalar() const {
    return kind == ArgKind::boolean ? Scalar(b) : kind == ArgKind::integer ? Scalar(i) : Scalar(f);
  }
};

/// A tensor or a number, and the line of the program that wrote it: the converting constructors take the line of their
/// caller, so that `a + 2` knows where it stands. Borrows the tensor for the duration of the call.
template <class T>
class Operand {
 public:
  Operand(const T& t, std::source_location at = std::source_location::current()) : tensor_(&t), at_(at) {}
  template <class N>
    requires std::is_arithmetic_v<N>
  Operand(N n, std::source_location at = std::source_location::current()) : scalar_(n), at_(at) {}
  Operand(Scalar s, std::source_location at = std::source_location::current()) : scalar_(s), at_(at) {}

  bool is_tensor() const { return tensor_ != nullptr; }
  const T& tensor() const { return *tensor_; }
  Scalar scalar() const { return scalar_; }
  const std::source_location& at() const { return at_; }
  Value<T> value() const { return is_tensor() ? Value<T>(*tensor_) : Value<T>(scalar_); }

 private:
  const T* tensor_ = nullptr;
  Scalar scalar_;
  std::source_location at_;
};

/// Stands for "up to the end" in a slice, for "..." and for a new axis.
struct Ellipsis {};
struct NewAxis {};
inline constexpr Ellipsis ellipsis;
inline constexpr NewAxis newaxis;

/// start:stop:step, each part may be absent.
struct Slice {
  std::optional<int64_t> start{}, stop{};
  int64_t step = 1;
};

/// One element of x[...]: an integer, a slice, "...", a new axis, true or false, a tensor, or a nested list of integers
/// or booleans (sizes and values in row-major order).
template <class T>
class IndexItem {
 public:
  ArgKind kind = ArgKind::none;  // a new axis
  int64_t integer = 0;           // of `integer` and `boolean`
  Slice slice;
  T tensor;
  Shape sizes;                  // of int_array and bool_array
  std::vector<int64_t> values;

  IndexItem() = default;
  template <class I>
    requires(std::is_integral_v<I> && !std::is_same_v<I, bool>)
  IndexItem(I i) : kind(ArgKind::integer), integer(static_cast<int64_t>(i)) {}
  IndexItem(bool b) : kind(ArgKind::boolean), integer(b) {}
  IndexItem(Slice s) : kind(ArgKind::slice), slice(s) {}
  IndexItem(Ellipsis) : kind(ArgKind::ellipsis) {}
  IndexItem(NewAxis) {}
  IndexItem(const T& t) : kind(ArgKind::tensor), tensor(t) {}
  IndexItem(std::vector<int64_t> v)
      : kind(ArgKind::int_array), sizes{static_cast<int64_t>(v.size())}, values(std::move(v)) {}
};

// How the functions of ops.h reach whoever computes. A maker M is engine::Context or the client's Session; every T
// names its own by `t.maker()`. M has
//   T one(uint16_t op, std::source_location, std::span<const Value<T>>)            for one result
//   std::array<T, N> several<N>(...)                                                for a fixed number of results
//   std::vector<T> list(...)                                                        for `Tensor[]`
//   void none(...)                                                                  for `()`

}  // namespace gradwire
