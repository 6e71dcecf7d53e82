#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/property/array.h"

// A program: steps that make variables, as data, so that it can be run twice, printed, and made smaller.

namespace gradwire::property {

struct Item;

/// One argument.
struct Arg {
  enum Kind { none, var, vars, scalar, ints, dtype, text, index };
  Kind kind = none;
  Sizes list;  // of var (one), vars and ints
  Scalar number;
  DType type = DType::float32;
  std::string words;
  std::vector<Item> items;
  bool named = false;  // given by its name

  static Arg of_var(int v);
  static Arg of_vars(Sizes v);
  static Arg of(Sizes v);
  static Arg of(Scalar s);
  static Arg of(DType t);
  static Arg of(const char* s);
  static Arg of(std::vector<Item> items);
};

/// One element of x[...].
struct Item {
  enum Kind { integer, boolean, slice, ellipsis, newaxis, ints, bools, var };
  Kind kind = newaxis;
  int64_t at = 0;  // of integer, boolean and var
  std::optional<int64_t> start, stop;
  int64_t step = 1;
  Sizes sizes, values;  // of ints and bools
};

struct Row;

/// A literal tensor (no row), or a call. An in-place call makes no variable: it changes its first argument's.
struct Step {
  const Row* row = nullptr;
  bool inplace = false;
  std::vector<Arg> args;  // one a parameter of the row
  Sizes outs;
  Array literal;  // made anew at each run
  bool leaf = false;

  /// Variables that it reads or writes.
  Sizes reads() const;
};

struct Program {
  std::vector<Step> steps;
  int variables = 0;
  bool gradients = false;
  uint64_t seed = 0, index = 0;
};

/// The name as a caller writes it: "add_", "max".
std::string call_name(const Step& s);
/// PyTorch-like lines.
std::string text(const Step& s);
std::string text(const Program& p);
std::string text(const Num& n, DType t);

/// What a row's functions see of a step: its arguments with the naive tensors.
class Args {
 public:
  Args(const Step& step, const std::vector<Array>& env) : step_(step), env_(env) {}
  bool has(size_t i) const { return i < step_.args.size() && step_.args[i].kind != Arg::none; }
  bool is_array(size_t i) const { return step_.args[i].kind == Arg::var; }
  const Array& array(size_t i) const { return at(step_.args[i].list[0]); }
  std::vector<Array> arrays(size_t i) const;
  Scalar scalar(size_t i) const { return step_.args[i].number; }
  int64_t integer(size_t i) const { return scalar(i).integer(); }
  bool flag(size_t i) const { return has(i) && scalar(i).integer() != 0; }
  /// One integer stands for a list of one.
  Sizes ints(size_t i) const;
  DType dtype(size_t i, DType otherwise) const { return has(i) ? step_.args[i].type : otherwise; }
  std::string words(size_t i) const { return has(i) ? step_.args[i].words : std::string(); }
  const std::vector<Item>& items(size_t i) const { return step_.args[i].items; }
  const Array& at(int64_t var) const;
  const Step& step() const { return step_; }

 private:
  const Step& step_;
  const std::vector<Array>& env_;
};

}  // namespace gradwire::property
