#include <catch2/catch_test_macros.hpp>

#include "engine/einsum.h"
#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;
using contraction::Labels;
using List = std::vector<Tensor>;

namespace {

std::string error_of(const List& operands, std::string_view equation) {
  try {
    gradwire::einsum(equation, operands);
  } catch (const Error& e) {
    CHECK(e.op() == "einsum");
    return e.message();
  }
  return "";
}

std::vector<int64_t> shape_of(const Tensor& t) { return {t.shape().begin(), t.shape().end()}; }
using Sizes = std::vector<int64_t>;

}  // namespace

TEST_CASE("An equation without an arrow has the letters that stand there once, capitals first", "[linalg][J20]") {
  const int two[] = {2, 2};
  CHECK(contraction::parse("ij,jk", two).out == Labels{26 + 'i' - 'a', 26 + 'k' - 'a'});
  CHECK(contraction::parse("bA,Ca", two).out == Labels{'A' - 'A', 'C' - 'A', 26, 27});
  CHECK(contraction::parse(" i j , j k ", two).in[1] == Labels{26 + 9, 26 + 10});
  const int wide[] = {4, 3};
  const contraction::Equation e = contraction::parse("...ij,...jk", wide);
  CHECK(e.in[0] == Labels{52, 53, 34, 35});
  CHECK(e.in[1] == Labels{53, 35, 36});  // from the right
  CHECK(e.out == Labels{52, 53, 34, 36});
}

TEST_CASE("einsum reads every kind of equation", "[linalg][J20]") {
  Engine e;
  const Tensor a = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6}), b = e.doubles({3, 2}, {1, 0, 0, 1, 1, 1}),
               square = e.doubles({2, 2}, {1, 2, 3, 4}), v = e.doubles({3}, {1, 10, 100});
  CHECK(values(gradwire::einsum<Tensor>("ij,jk->ik", {a, b})) == Values{4, 5, 10, 11});
  CHECK(values(gradwire::einsum<Tensor>("ij,jk", {a, b})) == Values{4, 5, 10, 11});
  CHECK(values(gradwire::einsum<Tensor>(" i j , j k -> k i ", {a, b})) == Values{4, 10, 5, 11});
  CHECK(values(gradwire::einsum("ba", a)) == Values{1, 4, 2, 5, 3, 6});
  CHECK(values(gradwire::einsum("aB", a)) == Values{1, 4, 2, 5, 3, 6});
  CHECK(values(gradwire::einsum("ij->", a)) == Values{21});
  CHECK(values(gradwire::einsum("...->...", a)) == values(a));
  CHECK(values(gradwire::einsum("...i->i", a)) == Values{5, 7, 9});
  CHECK(values(gradwire::einsum("ii", square)) == Values{5});
  CHECK(values(gradwire::einsum("ii->i", square)) == Values{1, 4});
  CHECK(values(gradwire::einsum<Tensor>("ij,j->ij", {a, v})) == Values{1, 20, 300, 4, 50, 600});
  CHECK(values(gradwire::einsum<Tensor>("ij,j,j->i", {a, v, v})) == Values{30201, 60504});
  const Tensor batches = e.cx.full(Shape{5, 1, 2, 3}, 1, DType::float64),
               others = e.cx.full(Shape{4, 3, 2}, 1, DType::float64);
  CHECK(shape_of(gradwire::einsum<Tensor>("...ij,...jk", {batches, others})) == Sizes{5, 4, 2, 2});
  // A diagonal and a transposed operand are views.
  const Tensor d = gradwire::einsum("ii->i", square), t = gradwire::einsum("ij->ji", a);
  CHECK(d->storage == square->storage);
  CHECK(t->storage == a->storage);
}

TEST_CASE("einsum sums a single operand as sum does, and keeps the dtype of a product", "[linalg][A23]") {
  Engine e;
  const Tensor t = e.cx.full(Shape{2, 3}, 1, DType::int8);
  CHECK(gradwire::einsum("ij->i", t).dtype() == DType::int64);
  CHECK(gradwire::einsum<Tensor>("ij,kj->ik", {t, t}).dtype() == DType::int8);
  CHECK(gradwire::einsum<Tensor>("ij,kl->ik", {t, t}).dtype() == DType::int64);  // j and l are summed alone
  CHECK(values(gradwire::einsum<Tensor>("ij,kl->ik", {t, t})) == Values{9, 9, 9, 9});
}

TEST_CASE("An equation that does not fit is refused in PyTorch's words", "[linalg][L31]") {
  Engine e;
  const Tensor a = e.cx.full(Shape{2, 3}, 1, DType::float32), b = e.cx.full(Shape{2, 4}, 1, DType::float32),
               v = e.cx.full(Shape{3}, 1, DType::float32);
  CHECK(error_of({a}, "ij,jk->ik") == "einsum(): fewer operands were provided than specified in the equation");
  CHECK(error_of({a, v, v}, "ij,j->i") == "einsum(): more operands were provided than specified in the equation");
  CHECK(error_of({a}, "ij->ik") ==
        "einsum(): output subscript k does not appear in the equation for any input operand");
  CHECK(error_of({a}, "ij->ii") == "einsum(): output subscript i appears more than once in the output");
  CHECK(error_of({a}, "i1->i") ==
        "einsum(): invalid subscript given at index 1 in the equation string, subscripts must be in [a-zA-Z]");
  CHECK(error_of({a}, "ij->i->") ==
        "einsum(): invalid subscript given at index 5 in the equation string, subscripts must be in [a-zA-Z]");
  CHECK(error_of({a}, "i..j->i") == "einsum(): found '.' for operand 0 that is not part of any ellipsis");
  CHECK(error_of({a}, "...i...->i") == "einsum(): found '.' for operand 0 for which an ellipsis was already found");
  CHECK(error_of({a}, "ij->..") == "einsum(): found '.' for output that is not part of any ellipsis (...)");
  CHECK(error_of({a}, "ij->...i...") == "einsum(): found '.' for output but an ellipsis (...) was already found");
  CHECK(error_of({a}, "i->i") ==
        "einsum(): the number of subscripts in the equation (1) does not match the number of dimensions (2) for "
        "operand 0 and no ellipsis was given");
  CHECK(error_of({v}, "ij...->ij") ==
        "einsum(): the number of subscripts in the equation (2) is more than the number of dimensions (1) for operand "
        "0");
  CHECK(error_of({a, b}, "ij,jk->ik") ==
        "einsum(): subscript j has size 2 for operand 1 which does not broadcast with previously seen size 3");
  CHECK(error_of({a}, "ii->i") == "einsum(): subscript i is repeated for operand 0 but the sizes don't match, 3 != 2");
  CHECK(error_of({v, e.cx.full(Shape{3}, 1, DType::float64)}, "i,i") == "expected scalar type Float but found Double");
}

TEST_CASE("A long list of operands, a long equation or a rank too high is refused", "[linalg][L31][T18]") {
  Engine e({.bytes = 1 << 20});
  const Tensor s = e.cx.full({}, 2, DType::float64);
  const List few(64, s), many(65, s);
  CHECK(values(gradwire::einsum(std::string(63, ','), few)) == Values{0x1p64});
  CHECK(error_of(many, std::string(64, ',')) == "einsum(): takes at most 64 operands but got 65");
  CHECK(error_of({s}, std::string(100'000, 'a')).starts_with("einsum(): the number of subscripts in the equation "));
  CHECK(error_of({s}, std::string(100'000, ',')).starts_with("einsum(): fewer operands"));
  CHECK(error_of({s}, std::string(100'000, ' ')).empty());
  const Tensor wide = e.cx.full(Shape(20, 1), 1, DType::float64);
  CHECK(error_of({wide, wide}, "abcdefghijklmnopqrst,ABCDEFGHIJKLMNOPQRST").find("dimensions") != std::string::npos);
}

TEST_CASE("The order of products does not make an intermediate result larger than it must be", "[linalg][L31]") {
  // From left to right a and c, which share nothing, would make a million elements.
  Engine e({.bytes = 1 << 20});
  const Tensor a = e.cx.full(Shape{1000, 2}, 1, DType::float64), c = e.cx.full(Shape{1000, 2}, 1, DType::float64),
               x = e.cx.full(Shape{1000}, 1, DType::float64);
  CHECK(values(gradwire::einsum<Tensor>("ip,jq,i,j->pq", {a, c, x, x})) == Values(4, 1e6));
  // What one operand alone has is summed before anything grows.
  const Tensor w = e.cx.full(Shape{100, 100}, 1, DType::float64);
  CHECK(values(gradwire::einsum<Tensor>("ij,kl->", {w, w})) == Values{1e8});
  // A pair that shares what nobody else wants goes first.
  const std::vector<Labels> terms = {{0, 1}, {2, 3}, {1, 2}};
  const int64_t sizes[contraction::kLabels] = {10, 100, 100, 10};
  CHECK(contraction::best_pair(terms, {0, 3}, sizes) != std::pair<size_t, size_t>{0, 1});
}

TEST_CASE("einsum takes its operands one by one or as a list, with the equation first or by name", "[linalg][B32]") {
  Engine e;
  const Tensor a = e.doubles({2}, {1, 2}), b = e.doubles({2}, {10, 100});
  const List both = {a, b};
  const Bound equation(std::string_view("i,i")), list{std::span<const Tensor>(both)};
  const std::vector<std::vector<Bound>> positional = {{equation, a, b}, {equation, list}, {a, b}, {list}, {equation}};
  for (size_t k = 0; k < positional.size(); ++k) {
    std::vector<std::pair<std::string_view, Bound>> named;
    if (k == 2 || k == 3) named.emplace_back("equation", equation);
    if (k == 4) named.emplace_back("operands", list);
    BoundCall call;
    engine::bind("einsum", positional[k], named, call);
    CHECK(values(engine::call(e.cx, call.id, {call.args, static_cast<size_t>(call.count)}).at[0]) == Values{210});
  }
}
