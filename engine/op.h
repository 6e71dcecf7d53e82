#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.h"
#include "schema/error.h"

namespace gradwire::engine {

using Bound = Value<Tensor>;  // one argument, bound to its parameter
inline constexpr int kMaxParams = 24;

struct OpRow;

/// The results of a call: a few, or a list for `Tensor[]`.
struct Results {
  Tensor at[3];
  std::vector<Tensor> list;
  bool is_list = false;
  Results() = default;
  Results(Tensor a) : at{std::move(a)} {}
  Results(Tensor a, Tensor b) : at{std::move(a), std::move(b)} {}
  Results(Tensor a, Tensor b, Tensor c) : at{std::move(a), std::move(b), std::move(c)} {}
  Results(std::vector<Tensor> l) : list(std::move(l)), is_list(true) {}
};

/// What a row's functions see of a call: all its arguments, defaults filled in, kinds checked.
class Call {
 public:
  Call(Context& context, const OpRow& r, const Bound* a) : cx(context), row(r), args(a) {}
  Context& cx;
  const OpRow& row;
  const Bound* args;

  bool has(int i) const { return args[i].kind != ArgKind::none; }
  const Tensor& tensor(int i) const { return *args[i].tensors; }
  bool is_tensor(int i) const { return args[i].kind == ArgKind::tensor; }
  std::span<const Tensor> tensors(int i) const { return {args[i].tensors, args[i].count}; }
  Scalar scalar(int i) const { return args[i].scalar(); }
  int64_t integer(int i) const { return args[i].scalar().integer(); }
  bool flag(int i) const { return args[i].kind == ArgKind::boolean && args[i].b; }
  DType dtype(int i, DType otherwise) const { return has(i) ? args[i].dtype : otherwise; }
  std::string_view text(int i) const {
    return has(i) ? std::string_view(args[i].text, args[i].count) : std::string_view();
  }
  /// An int stands for a list of one.
  std::span<const int64_t> ints(int i) const;
  /// Element k of a float[], in which whole numbers may stand; args[i].count says how many there are.
  double real(int i, uint32_t k) const {
    return args[i].kind == ArgKind::ints ? static_cast<double>(args[i].ints[k]) : args[i].floats[k];
  }
  std::span<const IndexItem<Tensor>> index(int i) const { return {args[i].index, args[i].count}; }
};

/// What a vjp sees: the node that is differentiated, and the gradients of its results. It answers with operators, so
/// that second and third derivatives need no code of their own. Reading what the row does not save throws.
class Vjp {
 public:
  Vjp(Context& context, Node& n, const OpRow& r, std::span<Tensor> douts, bool pruned)
      : cx(context), node(n), row(r), douts_(douts), pruned_(pruned) {}
  Context& cx;
  Node& node;
  const OpRow& row;

  /// The gradient of result i; zeros if nothing came. has(i) asks.
  const Tensor& dout(int i = 0) const;
  bool has(int i) const { return static_cast<bool>(douts_[i]); }
  /// Saved values; i counts parameters, or results. An operand that was a number comes as that number.
  const Tensor& in(int i) const;
  bool has_in(int i) const;  // whether an optional tensor was given and saved
  Operand<Tensor> operand(int i) const;
  const Tensor& out(int i = 0) const;
  /// Whether parameter i (element k of a list) wants a gradient: the others are not worth computing.
  bool needs(int i, int k = 0) const;
  /// The other arguments, as the call had them.
  Scalar scalar(int i) const { return args()[i].scalar(); }
  int64_t integer(int i) const { return args()[i].scalar().integer(); }
  bool flag(int i) const { return args()[i].kind == ArgKind::boolean && args()[i].b; }
  bool given(int i) const { return args()[i].kind != ArgKind::none; }
  std::span<const int64_t> ints(int i) const;
  std::span<const IndexItem<Tensor>> index(int i) const;  // throws where an index tensor was changed since
  std::string_view text(int i) const {
    return given(i) ? std::string_view(args()[i].text, args()[i].count) : std::string_view();
  }
  /// Always there, without saving.
  std::span<const int64_t> shape(int i, int k = 0) const;
  DType dtype(int i, int k = 0) const;
  std::span<const int64_t> out_shape() const;

 private:
  const Bound* args() const;
  std::span<Tensor> douts_;
  bool pruned_;
  mutable Tensor outs_[3];  // saved results with their node
};

/// One gradient a parameter; an empty Tensor means zero. The engine sums a gradient over what was broadcast and
/// converts it to the input's dtype.
struct Grads {
  Tensor at[6] = {};
  std::vector<Tensor> list = {};  // of the parameter that is a Tensor[]
};

/// What a node keeps for its vjp.
struct Save {
  bool is_out = false;
  uint8_t index = 0;
  int8_t if_needs = -1;  // only if this parameter wants a gradient
  constexpr Save when(int j) const { return {is_out, index, static_cast<int8_t>(j)}; }
};
constexpr Save in(int i) { return {false, static_cast<uint8_t>(i), -1}; }
constexpr Save out(int i) { return {true, static_cast<uint8_t>(i), -1}; }
struct Saves {
  Save at[6] = {};
  int count = 0;
  constexpr Saves() = default;
  constexpr Saves(std::initializer_list<Save> list) {
    for (const Save& s : list) at[count++] = s;
  }
};

/// The dtype of a pointwise operator: in which one it computes, and which one comes out.
struct DTypes {
  DType compute, result;
};
using DTypeRule = DTypes (*)(const Call&, DType promoted);

/// Which functor computes a pointwise call, where its arguments decide.
struct Chosen {
  const char* functor = nullptr;  // null: the row's own
  struct Params {
    Scalar alpha;
  } params;
};

/// An example of the reference, run as a test: arguments separated by ';', then results likewise. "[[1., 2.]]" is a
/// tensor, its dtype inferred as torch.tensor does; "2" a number; "(1, 2)" a list of integers; "{0, 1:3, ..., [0, 2]}"
/// an index; "'mean'" a text; "None"; "name=..." names its parameter.
struct Example {
  const char* args;
  const char* results;
};
/// Arguments for the property and gradient tests, written as an example's, with tensors by shape: "f(2, 3)" floating
/// values of either sign, "p(2)" positive ones, "i5(4)" int64 in [0, 5), "b(3)" bool.
using Sample = const char*;

/// One operator: a constexpr value in its family's file. Exactly one of pointwise, compute, view, compose; exactly one
/// of vjp, compose, no_grad.
struct OpDef {
  const char* sig = nullptr;
  bool inplace = false;  // and name_, whose result is self
  const char* doc = nullptr;
  // pointwise: a functor of engine/functors over the first `pointwise` parameters, broadcast and promoted; where no
  // functor has the row's name, `choose` always says which. For a parameter that is left out self stands in.
  int pointwise = 0;
  DTypeRule dtype = nullptr;
  Chosen (*choose)(const Call&) = nullptr;
  // or: checks, allocates, launches; nothing is recorded inside
  Results (*compute)(const Call&) = nullptr;
  // or: checks, then writes into `target`, which is a copy of the first parameter, or itself in the in-place form. A
  // row of this kind whose own name ends in "_" is an in-place form alone
  void (*write)(const Call&, const Tensor& target) = nullptr;
  // or: an alias of the first parameter (a fresh tensor where there is none)
  Results (*view)(const Call&) = nullptr;
  // or: made of other operators, which record themselves
  Results (*compose)(const Call&) = nullptr;
  Saves saves = {};
  int8_t constant = -1;  // a floating parameter without a gradient: what requires grad is refused there
  Grads (*vjp)(const Vjp&) = nullptr;
  const char* no_grad = nullptr;  // or why there is no gradient
  bool since_0_2 = false;         // heeds the `compat` switches pointwise_fallback and broadcast_warning
  bool by_strides = false;        // what it gives depends on its input's strides, not on the values alone
  bool cuda = true;
  std::initializer_list<Example> examples = {};
  std::initializer_list<Sample> samples = {};
};

}  // namespace gradwire::engine
