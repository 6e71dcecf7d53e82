#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "schema/error.h"
#include "schema/value.h"

// The parameter types of the functions of ops.h. Those called "view" borrow: they live as long as the call that they
// are written in.

namespace gradwire {

/// A tensor type that the functions of ops.h take; its maker computes.
template <class T>
concept Handle = requires(const T& t) {
  t.maker();
};

/// engine::Context, or the client's Session.
template <class M>
concept Maker = requires {
  typename M::Tensor;
};

/// Whose `get()` makes tensors when a creation function is called without a maker. The client specialises it.
template <class> struct DefaultMaker;

// A list constructor that keeps the address of its list is right for a parameter and wrong for a variable: these types
// are parameters.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"

/// A view of some integers, or one integer.
class Ints {
 public:
  Ints(std::initializer_list<int64_t> v) : data_(v.begin()), count_(v.size()) {}
  template <std::integral N>
  requires(!std::same_as<N, bool>) Ints(N one) : one_(static_cast<int64_t>(one)), count_(1) {}
  Ints(std::span<const int64_t> v) : data_(v.data()), count_(v.size()) {}
  Ints(const std::vector<int64_t>& v) : data_(v.data()), count_(v.size()) {}
  Ints(const Shape& v) : data_(v.data()), count_(v.size()) {}
  operator std::span<const int64_t>() const { return {data_ || !count_ ? data_ : &one_, count_}; }

 private:
  const int64_t* data_ = nullptr;  // null with a count of 1: one_
  int64_t one_ = 0;
  size_t count_ = 0;
};

/// A bool that no number becomes: beside an overload that takes dims, `var(x, 1)` means those.
class Flag {
 public:
  template <std::same_as<bool> B> Flag(B b) : b_(b) {}
  operator bool() const { return b_; }

 private:
  bool b_;
};

/// A text that no number becomes: 0 is no null pointer here, so that `norm(x, 0)` means the number.
class Text {
 public:
  template <class S>
  requires(std::convertible_to<const S&, std::string_view> && !std::is_arithmetic_v<S>) Text(const S& s) : s_(s) {}
  operator std::string_view() const { return s_; }

 private:
  std::string_view s_;
};

/// Ints, or nothing.
class OptionalInts {
 public:
  OptionalInts() = default;
  OptionalInts(std::nullopt_t) {}
  OptionalInts(std::initializer_list<int64_t> v) : ints_(v), present_(true) {}
  template <class V>
  requires std::convertible_to<const V&, Ints> OptionalInts(const V& v) : ints_(v), present_(true) {}
  bool has_value() const { return present_; }
  const Ints& operator*() const { return ints_; }

 private:
  Ints ints_{std::span<const int64_t>()};
  bool present_ = false;
};

/// Integers or nothing, kept: what a set of named options holds.
class Dims {
 public:
  Dims() = default;
  Dims(std::nullopt_t) {}
  Dims(std::initializer_list<int64_t> v) : shape_(v), present_(true) {}
  template <class V>
  requires std::convertible_to<const V&, Ints> Dims(const V& v)
      : shape_(std::span<const int64_t>(Ints(v))), present_(true) {}
  operator OptionalInts() const { return present_ ? OptionalInts(shape_) : OptionalInts(); }
  operator Ints() const { return shape_; }

 private:
  Shape shape_;
  bool present_ = false;
};

/// A view of some numbers, or one number; or nothing.
class Floats {
 public:
  Floats() = default;
  Floats(std::nullopt_t) {}
  Floats(std::initializer_list<double> v) : data_(v.begin()), count_(v.size()), present_(true) {}
  template <class N>
  requires std::is_arithmetic_v<N> Floats(N one) : one_(static_cast<double>(one)), count_(1), present_(true) {}
  Floats(std::span<const double> v) : data_(v.data()), count_(v.size()), present_(true) {}
  Floats(const std::vector<double>& v) : Floats(std::span<const double>(v)) {}
  bool has_value() const { return present_; }
  std::span<const double> span() const { return {data_ || !count_ ? data_ : &one_, count_}; }

 private:
  const double* data_ = nullptr;
  double one_ = 0;
  size_t count_ = 0;
  bool present_ = false;
};

/// A view of some tensors, or one; or nothing.
template <class T> class Tensors {
 public:
  Tensors() = default;
  Tensors(std::nullopt_t) {}
  Tensors(std::initializer_list<T> v) : data_(v.begin()), count_(v.size()), present_(true) {}
  Tensors(const T& one) : data_(&one), count_(1), present_(true) {}
  Tensors(std::span<const T> v) : data_(v.data()), count_(v.size()), present_(true) {}
  Tensors(const std::vector<T>& v) : data_(v.data()), count_(v.size()), present_(true) {}
  template <size_t N> Tensors(const std::array<T, N>& v) : data_(v.data()), count_(N), present_(true) {}
  bool has_value() const { return present_; }
  std::span<const T> span() const { return {data_, count_}; }

 private:
  const T* data_ = nullptr;
  size_t count_ = 0;
  bool present_ = false;
};

/// A view of what stands between the brackets of x[...], and the line that it stands in.
template <class T> class Indices {
 public:
  Indices(std::initializer_list<IndexItem<T>> v, std::source_location at = std::source_location::current())
      : data_(v.begin()), count_(v.size()), at_(at) {}
  template <class I>
  requires std::convertible_to<const I&, IndexItem<T>> Indices(
      const I& one, std::source_location at = std::source_location::current())
      : one_(one), count_(1), at_(at) {}
  Indices(std::span<const IndexItem<T>> v, std::source_location at = std::source_location::current())
      : data_(v.data()), count_(v.size()), at_(at) {}
  Indices(const std::vector<IndexItem<T>>& v, std::source_location at = std::source_location::current())
      : data_(v.data()), count_(v.size()), at_(at) {}
  std::span<const IndexItem<T>> span() const { return {data_ || !count_ ? data_ : &one_, count_}; }
  const std::source_location& at() const { return at_; }

 private:
  IndexItem<T> one_;
  const IndexItem<T>* data_ = nullptr;  // null with a count of 1: one_
  size_t count_ = 0;
  std::source_location at_;
};
#pragma GCC diagnostic pop

/// Tensors, kept: what a set of named options holds. One tensor is a list of it.
template <class T> struct TensorVector : std::vector<T> {
  using std::vector<T>::vector;
  TensorVector() = default;
  TensorVector(std::vector<T> v) : std::vector<T>(std::move(v)) {}
  TensorVector(const T& one) : std::vector<T>{one} {}
};
/// Tensors that a set of named options holds; an empty list stands for none.
template <class T> Tensors<T> kept(const std::vector<T>& v) { return v.empty() ? Tensors<T>() : Tensors<T>(v); }

/// The first member of every set of named options: no number becomes one, so `sum(x, {0, 1})` means dims and only
/// `sum(x, {.dim = 1})` means options.
struct Named {
  constexpr Named() {}  // no aggregate: brace elision must not skip it
};

/// V, spelt so that a function template that takes it is less specialised than one that takes a plain type. GCC 12 lets
/// `{.dim = 1}` convert to any class that `{1}` converts to; this makes the function with the named options win.
template <class T, class V> struct AsOf { using type = V; };
template <class T, class V> using As = typename AsOf<T, V>::type;

// The wire's argument for each of these.
template <class T, class V> Value<T> to_value(const V& v) { return Value<T>(v); }
template <class T> Value<T> to_value(bool v) { return Value<T>(Scalar(v)); }
template <class T> Value<T> to_value(const Text& v) { return Value<T>(static_cast<std::string_view>(v)); }
template <class T> Value<T> to_value(const Flag& v) { return Value<T>(Scalar(static_cast<bool>(v))); }
template <class T> Value<T> to_value(int64_t v) { return Value<T>(Scalar(v)); }
template <class T> Value<T> to_value(double v) { return Value<T>(Scalar(v)); }
template <class T, class N>
requires std::is_arithmetic_v<N> Value<T> to_value(const std::optional<N>& v) {
  return v ? Value<T>(Scalar(*v)) : Value<T>();
}
template <class T> Value<T> to_value(const Ints& v) { return Value<T>(std::span<const int64_t>(v)); }
template <class T> Value<T> to_value(const OptionalInts& v) { return v.has_value() ? to_value<T>(*v) : Value<T>(); }
template <class T> Value<T> to_value(const Floats& v) { return v.has_value() ? Value<T>(v.span()) : Value<T>(); }
template <class T> Value<T> to_value(const Tensors<T>& v) { return v.has_value() ? Value<T>(v.span()) : Value<T>(); }
template <class T> Value<T> to_value(const Indices<T>& v) { return Value<T>(v.span()); }
template <class T> Value<T> to_value(const Operand<T>& v) { return v.value(); }
template <class T> Value<T> to_value(const std::optional<Operand<T>>& v) { return v ? v->value() : Value<T>(); }

/// The maker of a list of tensors: that of its first one.
template <class T> auto& maker_of(std::span<const T> list, const char* op) {
  for (const T& t : list) {
    if (t) return t.maker();
  }
  throw Error(Code::bad_argument, std::string(op) + "(): expected a non-empty list of Tensors", op);
}

/// What `a + b` does: one of the two is a tensor.
template <class T> T binary(uint16_t op, const Operand<T>& a, const Operand<T>& b) {
  const Value<T> args[] = {a.value(), b.value()};
  return (a.is_tensor() ? a : b).tensor().maker().one(op, a.at(), args);
}

}  // namespace gradwire
