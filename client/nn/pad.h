#pragma once

#include <source_location>
#include <string>

#include "client/nn/module.h"

namespace gradwire::nn::basic {

/// Borders around the last N dims: one size for all, or two a dim, the last dim first, as for the function pad.
template <class T, int N> class Pad : public Module<T> {
 public:
  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      return mode_ == "constant" ? pad(v, sizes_, mode_, value_, at) : pad(v, sizes_, mode_, {}, at);
    });
  }

 protected:
  Pad(const char* kind, Ints padding, const char* mode, double value = 0)
      : Module<T>(kind + std::to_string(N) + "d"),
        sizes_(std::span<const int64_t>(padding)),
        mode_(mode),
        value_(value) {
    if (sizes_.size() == 1) sizes_ = Shape(2 * N, sizes_[0]);
    if (sizes_.size() != 2 * N)
      raise(Error(Code::bad_argument, "padding must be one integer or " + std::to_string(2 * N) + ", got " +
                                          std::to_string(sizes_.size())));
    this->state().extra = py_tuple(sizes_);
  }
  Shape sizes_;

 private:
  std::string mode_;
  double value_;
};

template <class T, int N> class ConstantPad : public Pad<T, N> {
 public:
  ConstantPad(Ints padding, double value) : Pad<T, N>("ConstantPad", padding, "constant", value) {
    this->state().extra = "padding=" + py_tuple(this->sizes_) + ", value=" + py_number(value);
  }
};
template <class T, int N> class ZeroPad : public Pad<T, N> {
 public:
  explicit ZeroPad(Ints padding) : Pad<T, N>("ZeroPad", padding, "constant") {}
};
template <class T, int N> class ReflectionPad : public Pad<T, N> {
 public:
  explicit ReflectionPad(Ints padding) : Pad<T, N>("ReflectionPad", padding, "reflect") {}
};
template <class T, int N> class ReplicationPad : public Pad<T, N> {
 public:
  explicit ReplicationPad(Ints padding) : Pad<T, N>("ReplicationPad", padding, "replicate") {}
};
template <class T> using ConstantPad1d = ConstantPad<T, 1>;
template <class T> using ConstantPad2d = ConstantPad<T, 2>;
template <class T> using ConstantPad3d = ConstantPad<T, 3>;
template <class T> using ZeroPad2d = ZeroPad<T, 2>;
template <class T> using ReflectionPad1d = ReflectionPad<T, 1>;
template <class T> using ReflectionPad2d = ReflectionPad<T, 2>;
template <class T> using ReflectionPad3d = ReflectionPad<T, 3>;
template <class T> using ReplicationPad1d = ReplicationPad<T, 1>;
template <class T> using ReplicationPad2d = ReplicationPad<T, 2>;
template <class T> using ReplicationPad3d = ReplicationPad<T, 3>;

}  // namespace gradwire::nn::basic
