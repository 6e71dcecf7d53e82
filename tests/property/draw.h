#pragma once

#include <functional>

#include "tests/property/rows.h"

// Drawing a program: the interpreter runs beside, so that arguments fit what is there.

namespace gradwire::property {

/// A small generator of its own, so that a seed means one program everywhere.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  template <class T> const T& one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }

 private:
  uint64_t state_;
};

class Draw {
 public:
  using Fits = std::function<bool(const Array&)>;
  Draw(uint64_t seed, uint64_t index, bool gradients);

  Dice dice;
  Program program;
  std::vector<Array> env;
  /// The arguments of the step that is drawn.
  std::vector<Arg> args;
  bool inplace = false;  // the in-place form is wanted

  /// A variable that fits, or -1.
  int pick(const Fits& fits);
  /// As argument i; false if there is none.
  bool array(size_t i, const Fits& fits = nullptr);
  const Array& at(size_t i) const { return env[static_cast<size_t>(args[i].list[0])]; }
  /// A variable of this dtype that broadcasts with `shape` and stays small; a new literal if there is none.
  int partner(const Sizes& shape, DType dtype, bool into = false);
  void set(size_t i, Arg a) { args[i] = std::move(a); }
  /// A new literal tensor.
  int input(DType dtype, const Sizes& shape);
  int input(DType dtype, const Sizes& shape, std::vector<Num> values);
  /// Small integers in [low, high).
  int indices(const Sizes& shape, int64_t low, int64_t high);

  Sizes shape();
  DType dtype();
  DType float_type();
  Scalar scalar(DType beside);
  int64_t dim(int64_t ndim);  // of either sign
  Num value(DType dtype);

 private:
  int add(Step step);
};

/// A row that the engine has, and whether it has its in-place form.
struct Known {
  const Row* row;
  bool inplace;
};
using Rows = std::vector<Known>;

struct Redraws {
  int64_t drawn = 0, redrawn = 0;
};
/// A program of up to 64 operators; drawn again where a bound exceeds 1e-3 (of values above 1: of the value).
Program draw_program(const Rows& rows, uint64_t seed, uint64_t index, bool gradients, Redraws& redraws);

}  // namespace gradwire::property
