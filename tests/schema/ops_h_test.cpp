// The functions of ops.h, on a maker that only writes down what it is asked: overloads, named options, operators,
// lines.

#include "schema/ops.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace gradwire;

namespace outside {  // not in gradwire: functions are found through the base class

struct Maker;
struct Tensor : Methods<outside::Tensor> {
  int id = 0;
  Tensor() = default;
  explicit Tensor(int i) : id(i) {}
  explicit operator bool() const { return id != 0; }
  Maker& maker() const;
};

std::string text(const Value<Tensor>& v) {
  const auto number = [](double d) {
    std::string s = std::to_string(d);
    s.erase(s.find_last_not_of('0') + 1);
    return s.back() == '.' ? s + "0" : s;
  };
  switch (v.kind) {
    case ArgKind::none:
      return "None";
    case ArgKind::boolean:
      return v.b ? "True" : "False";
    case ArgKind::integer:
      return std::to_string(v.i);
    case ArgKind::real:
      return number(v.f);
    case ArgKind::text:
      return "'" + std::string(v.text, v.count) + "'";
    case ArgKind::dtype:
      return name(v.dtype);
    case ArgKind::tensor:
      return "#" + std::to_string(v.tensors->id);
    case ArgKind::tensors: {
      std::string s = "[";
      for (uint32_t i = 0; i < v.count; ++i) s += (i ? ", #" : "#") + std::to_string(v.tensors[i].id);
      return s + "]";
    }
    case ArgKind::ints:
      return to_string(std::span(v.ints, v.count));
    case ArgKind::index:
      return "index of " + std::to_string(v.count);
    default:
      return "?";
  }
}

struct Maker {
  using Tensor = outside::Tensor;
  std::string said;
  uint32_t line = 0;
  void say(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) {
    said = std::string(kOperatorNames[op]) + "(";
    for (size_t i = 0; i < args.size(); ++i) said += (i ? ", " : "") + text(args[i]);
    said += ")";
    line = at.line();
  }
  Tensor one(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) {
    say(op, at, args);
    return Tensor(100);
  }
  void none(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) { say(op, at, args); }
  std::vector<Tensor> list(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) {
    say(op, at, args);
    return {Tensor(1), Tensor(2)};
  }
  template <size_t N>
  std::array<Tensor, N> several(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) {
    say(op, at, args);
    return {};
  }
};
Maker the_maker;
Maker& Tensor::maker() const { return the_maker; }

}  // namespace outside

template <> struct gradwire::DefaultMaker<void> {
  using Tensor = outside::Tensor;
  static outside::Maker& get() { return outside::the_maker; }
};

namespace {
const outside::Tensor a(1), b(2);
std::string& said = outside::the_maker.said;
}  // namespace

TEST_CASE("Symbols take tensors and numbers on either side, and know their line", "[ops_h]") {
  a + b;
  CHECK(said == "add(#1, #2)");
  a - 2;
  CHECK(said == "sub(#1, 2)");
  2.5 / a;
  CHECK(said == "div(2.5, #1)");
  -a;
  CHECK(said == "neg(#1)");
  CHECK(outside::the_maker.line == __LINE__ - 2);
  a *= b;
  CHECK(said == "mul_(#1, #2)");
  1 < a;
  CHECK(said == "lt(1, #1)");
  a == b;
  CHECK(said == "eq(#1, #2)");
  a[0];
  CHECK(said == "index(#1, index of 1)");
  CHECK(outside::the_maker.line == __LINE__ - 2);
  a[{Slice{.start = 1}, ellipsis, b, newaxis}];
  CHECK(said == "index(#1, index of 4)");
}

TEST_CASE("Optional arguments go by place or by name", "[ops_h]") {
  sum(a);
  CHECK(said == "sum(#1, None, False, None)");
  sum(a, 1);
  CHECK(said == "sum(#1, [1], False, None)");
  sum(a, {0, 1});
  CHECK(said == "sum(#1, [0, 1], False, None)");
  sum(a, {0, 1}, true);
  CHECK(said == "sum(#1, [0, 1], True, None)");
  sum(a, {.dim = 1, .keepdim = true});
  CHECK(said == "sum(#1, [1], True, None)");
  sum(a, {.dim = {0, 1}});
  CHECK(said == "sum(#1, [0, 1], False, None)");
  a.sum({.dtype = DType::float64});
  CHECK(said == "sum(#1, None, False, float64)");
  CHECK(outside::the_maker.line == __LINE__ - 2);
  a.sum({0});
  CHECK(said == "sum(#1, [0], False, None)");
  const sum_options kept{.dim = {0, 1}, .keepdim = true};  // may be kept: it holds its dims itself
  a.sum(kept);
  CHECK(said == "sum(#1, [0, 1], True, None)");
  a.add(b, 2);
  CHECK(said == "add(#1, #2, 2)");
  a.add_(b, {.alpha = 0.5});
  CHECK(said == "add_(#1, #2, 0.5)");
}

TEST_CASE("Shapes come as lists, vectors, a Shape or one number", "[ops_h]") {
  a.reshape({2, -1});
  CHECK(said == "reshape(#1, [2, -1])");
  a.reshape(std::vector<int64_t>{6});
  CHECK(said == "reshape(#1, [6])");
  a.reshape(Shape{3, 2});
  CHECK(said == "reshape(#1, [3, 2])");
  a.reshape(-1);
  CHECK(said == "reshape(#1, [-1])");
}

TEST_CASE("Creation functions take a maker, or the default one", "[ops_h]") {
  zeros(outside::the_maker, {2, 3});
  CHECK(said == "zeros([2, 3], None, None, False)");
  zeros({2, 3}, {.dtype = DType::int64, .requires_grad = true});
  CHECK(said == "zeros([2, 3], int64, None, True)");
  zeros({});
  CHECK(said == "zeros([], None, None, False)");
  zeros(4);
  CHECK(said == "zeros([4], None, None, False)");
  manual_seed(3);
  CHECK(said == "manual_seed(3)");
}

TEST_CASE("Lists of tensors come as lists, vectors, spans or one tensor", "[ops_h]") {
  grad(a, {b}, {.create_graph = true});
  CHECK(said == "grad([#1], [#2], None, None, True, False)");
  grad({a, b}, b);
  CHECK(said == "grad([#1, #2], [#2], None, None, False, False)");
  const std::vector<outside::Tensor> both{a, b};
  grad(both, both, {.grad_outputs = {b, a}, .allow_unused = true});
  CHECK(said == "grad([#1, #2], [#1, #2], [#2, #1], None, False, True)");
  grad(both, both, {.grad_outputs = both});
  CHECK(said == "grad([#1, #2], [#1, #2], [#1, #2], None, False, False)");
  grad(a, b, {.grad_outputs = a, .create_graph = true});
  CHECK(said == "grad([#1], [#2], [#1], None, True, False)");
  a.backward(b);
  CHECK(said.starts_with("backward(#1, #2, None, False"));
  a.backward({.retain_graph = true});
  CHECK(said.starts_with("backward(#1, None, True, False"));
  CHECK_THROWS_AS(grad(std::vector<outside::Tensor>{}, b), Error);
}

TEST_CASE("A tensor that stands for nothing is None", "[ops_h]") {
  nll_loss(a, b);
  CHECK(said.starts_with("nll_loss(#1, #2, None, "));
  nll_loss(a, b, {.weight = outside::Tensor(7), .reduction = "sum"});
  CHECK(said.starts_with("nll_loss(#1, #2, #7, "));
  CHECK(said.ends_with("'sum')"));
}
