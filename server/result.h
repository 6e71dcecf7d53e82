#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "schema/error.h"

namespace gradwire::server {

/// A value or the error in its place.
template <class T>
class Result {
 public:
  Result(T v) : v_(std::move(v)) {}
  Result(Error e) : v_(std::move(e)) {}
  explicit operator bool() const { return v_.index() == 0; }
  T& operator*() { return std::get<0>(v_); }
  const T& operator*() const { return std::get<0>(v_); }
  T* operator->() { return &std::get<0>(v_); }
  const Error& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, Error> v_;
};
template <>
class Result<void> {
 public:
  Result() = default;
  Result(Error e) : error_(std::make_unique<Error>(std::move(e))) {}
  explicit operator bool() const { return !error_; }
  const Error& error() const { return *error_; }

 private:
  std::unique_ptr<Error> error_;
};

/// A function that is called once, on a compute thread, and may hold what can only be moved. It must only hand over:
/// it runs between two tasks of a lane.
template <class R>
class Done {
 public:
  Done() = default;
  template <class F>
    requires(!std::is_same_v<std::decay_t<F>, Done>)
  Done(F f) : call_(std::make_unique<Holder<F>>(std::move(f))) {}
  explicit operator bool() const { return call_ != nullptr; }
  void operator()(R r) { std::exchange(call_, nullptr)->run(std::move(r)); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void run(R) = 0;
  };
  template <class F>
  struct Holder final : Base {
    explicit Holder(F g) : f(std::move(g)) {}
    void run(R r) override { f(std::move(r)); }
    F f;
  };
  std::unique_ptr<Base> call_;
};

}  // namespace gradwire::server
