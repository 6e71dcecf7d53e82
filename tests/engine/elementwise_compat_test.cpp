#include <catch2/catch_test_macros.hpp>

#include <string>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

const std::string kFalling =
    ", but they have the same number of elements.  Falling back to deprecated pointwise behavior.";
const std::string kFell =
    " not broadcastable, but have the same number of elements.  Falling back to deprecated pointwise behavior.";
const std::string kDiffer =
    " do not have the same shape, but are broadcastable, and have the same number of elements.  Changing behavior in a "
    "backwards incompatible manner to broadcasting rather than viewing as 1-dimensional.";

std::string warned(Engine& e) {
  std::string all;
  for (const Warning& w : e.cx.warnings) all += (all.empty() ? "" : "|") + w.op + ": " + w.message;
  e.cx.warnings.clear();
  return all;
}

std::string refusal(auto f) {
  try {
    f();
  } catch (const Error& err) {
    return err.message();
  }
  return "";
}

}  // namespace

TEST_CASE("Shapes that do not broadcast fall back to the flat order, and the result has the first one's shape",
          "[B14][X3][B22]") {
  Engine e;
  const Tensor a = e.doubles({4}, {1, 2, 3, 4}), b = e.doubles({2, 2}, {10, 20, 30, 40});
  CHECK(refusal([&] { add(a, b); }).find("must match the size of tensor b") != std::string::npos);
  CHECK(warned(e) == "");
  e.cx.compat.pointwise_fallback = true;
  const Tensor sum = add(a, b), other = add(b, a);
  CHECK(warned(e) == "add: self and other" + kFell + "|add: self and other" + kFell);
  CHECK(Shape(sum.shape()) == Shape{4});
  CHECK(values(sum) == Values{11, 22, 33, 44});
  CHECK(Shape(other.shape()) == Shape{2, 2});
  CHECK(values(add(a, transpose(b, 0, 1))) == Values{11, 32, 23, 44});  // the order of its elements, not of its memory
  warned(e);

  CHECK(refusal([&] { add(a, e.doubles({3, 1, 4}, Values(12))); }) == "");  // these broadcast
  CHECK(refusal([&] { add(a, e.doubles({2, 3}, Values(6))); }) != "");      // and these have other counts
  CHECK(refusal([&] { add(e.doubles({0, 3}, {}), e.doubles({2, 0}, {})); }) != "");
  CHECK(warned(e) == "");
}

TEST_CASE("Every operator that broadcast in 0.2 falls back, and later ones do not", "[B22][B14]") {
  Engine e;
  e.cx.compat.pointwise_fallback = true;
  const Tensor a = e.doubles({4}, {1, 2, 3, 4}), b = e.doubles({2, 2}, {4, 3, 2, 1});
  const auto check = [&](const std::string& names, const Tensor& got, const Values& want) {
    INFO(names);
    CHECK(Shape(got.shape()) == Shape{4});
    CHECK(values(got) == want);
    CHECK(warned(e) == names + kFell);
  };
  check("sub: self and other", sub(a, b), {-3, -1, 1, 3});
  check("mul: self and other", mul(a, b), {4, 6, 6, 4});
  check("div: self and other", div(a, b), {0.25, 2.0 / 3, 1.5, 4});
  check("fmod: self and other", fmod(a, b), {1, 2, 1, 0});
  check("remainder: self and other", remainder(a, b), {1, 2, 1, 0});
  check("pow: self and exponent", pow(a, b), {1, 8, 9, 4});
  check("maximum: self and other", maximum(a, b), {4, 3, 3, 4});
  check("minimum: self and other", minimum(a, b), {1, 2, 2, 1});
  check("lerp: self and end", lerp(a, b, 0.5), {2.5, 2.5, 2.5, 2.5});
  check("lt: self and other", lt(a, b), {1, 1, 0, 0});
  check("le: self and other", le(a, b), {1, 1, 0, 0});
  check("gt: self and other", gt(a, b), {0, 0, 1, 1});
  check("ge: self and other", ge(a, b), {0, 0, 1, 1});
  check("eq: self and other", eq(a, b), {0, 0, 0, 0});
  check("ne: self and other", ne(a, b), {1, 1, 1, 1});
  check("masked_fill: self and mask", masked_fill(a, b > 2, 9), {9, 9, 3, 4});
  CHECK(refusal([&] { atan2(a, b); }) != "");
  CHECK(refusal([&] { where(a > 2, a, b); }) != "");
  CHECK(warned(e) == "");
}

TEST_CASE("An in-place form falls back by the shape of self", "[B15][B22]") {
  Engine e;
  const Tensor other = e.doubles({4}, {10, 20, 30, 40});
  Tensor self = e.doubles({2, 2}, {1, 2, 3, 4});
  CHECK(refusal([&] { add_(self, other); }) != "");
  CHECK(self.version() == 0);
  e.cx.compat.pointwise_fallback = true;
  add_(self, other);
  CHECK(values(self) == Values{11, 22, 33, 44});
  CHECK(self.version() == 1);
  CHECK(warned(e) == "add_: other is not broadcastable to self" + kFalling);

  // (4) broadcasts with (4, 1), but not to it
  self = e.doubles({4, 1}, {1, 2, 3, 4});
  mul_(self, other);
  CHECK(values(self) == Values{10, 40, 90, 160});
  CHECK(warned(e) == "mul_: other is not broadcastable to self" + kFalling);

  self = e.doubles({4}, {1, 2, 3, 4});
  addcmul_(self, reshape(other, Ints{2, 2}), other);
  CHECK(values(self) == Values{101, 402, 903, 1604});
  CHECK(warned(e) == "addcmul_: tensor1 is not broadcastable to self" + kFalling);
  masked_fill_(self, reshape(other, Ints{2, 2}) > 25, 0);
  CHECK(values(self) == Values{101, 402, 0, 0});
  CHECK(warned(e) == "masked_fill_: mask is not broadcastable to self" + kFalling);
}

TEST_CASE("Three operands fall back together", "[B16][B22]") {
  Engine e;
  e.cx.compat.pointwise_fallback = true;
  const Tensor a = e.doubles({4}, {1, 2, 3, 4}), b = e.doubles({2, 2}, {4, 3, 2, 1}),
               c = e.doubles({2, 2, 1}, {1, 1, 1, 2});
  CHECK(values(addcmul(a, b, c)) == Values{5, 5, 5, 6});
  CHECK(warned(e) == "addcmul: self, tensor1, and tensor2" + kFell);
  CHECK(values(addcdiv(a, b, c)) == Values{5, 5, 5, 4.5});
  CHECK(warned(e) == "addcdiv: self, tensor1, and tensor2" + kFell);
  CHECK(Shape(lerp(b, a, e.doubles({4}, {0, 1, 0, 1})).shape()) == Shape{2, 2});
  CHECK(warned(e) == "lerp: self, end, and weight" + kFell);
  CHECK(refusal([&] { addcmul(a, b, e.doubles({3}, {1, 1, 1})); }) != "");  // one of another count
  CHECK(warned(e) == "");
}

TEST_CASE("Gradients go through the fallback in each operand's own shape", "[B14][B15]") {
  Engine e;
  e.cx.compat.pointwise_fallback = true;
  const Tensor a = e.leaf({4}, {1, 2, 3, 4}), b = e.leaf({2, 2}, {10, 20, 30, 40});
  const Tensor loss = sum(mul(a, b));
  backward(loss);
  CHECK(values(grad_of(a)) == Values{10, 20, 30, 40});
  CHECK(Shape(grad_of(b).shape()) == Shape{2, 2});
  CHECK(values(grad_of(b)) == Values{1, 2, 3, 4});

  const Tensor x = a * 1;
  mul_(x, b);
  backward(sum(x));
  CHECK(values(grad_of(b)) == Values{2, 4, 6, 8});
}

TEST_CASE("The broadcast warning tells of shapes that were flat once, and is off by default", "[B17][B18][B22]") {
  Engine e;
  const Tensor column = e.doubles({4, 1}, {1, 1, 1, 1}), row = e.doubles({4}, {1, 2, 3, 4});
  CHECK(Shape(add(column, row).shape()) == Shape{4, 4});
  CHECK(warned(e) == "");
  e.cx.compat.broadcast_warning = true;
  CHECK(Shape(add(column, row).shape()) == Shape{4, 4});
  CHECK(warned(e) == "add: self and other" + kDiffer);
  CHECK(Shape(addcmul(column, row, row).shape()) == Shape{4, 4});
  CHECK(warned(e) == "addcmul: self, tensor1, and tensor2" + kDiffer);
  const Tensor self = e.doubles({1, 4}, {1, 2, 3, 4});
  add_(self, row);
  CHECK(warned(e) == "add_: self and other" + kDiffer);

  add(row, row), add(row, 2), add(row, e.doubles({2, 1}, {1, 2})), atan2(column, row);
  CHECK(refusal([&] { add(row, e.doubles({2, 2}, {1, 2, 3, 4})); }) != "");  // it alone falls back nowhere
  CHECK(warned(e) == "");
}

TEST_CASE("Without promotion operands of two types are refused, but numbers and 0-dim tensors join", "[X11][A53]") {
  Engine e;
  const Tensor f = e.make<float>(DType::float32, {2}, {1, 2}), l = e.make<int64_t>(DType::int64, {2}, {3, 4});
  CHECK(values(add(f, l)) == Values{4, 6});
  e.cx.compat.no_type_promotion = true;
  CHECK(refusal([&] { add(f, l); }) ==
        "Expected object of type torch.FloatTensor but found type torch.LongTensor for argument #2 'other'");
  CHECK(refusal([&] { mul_(f, l); }) != "");
  CHECK(values(f) == Values{1, 2});
  CHECK(values(add(f, 1)) == Values{2, 3});
  CHECK(values(add(f, e.make<int64_t>(DType::int64, {}, {5}))) == Values{6, 7});
  CHECK(values(where(gt(f, 1), f, f)) == Values{1, 2});
}

TEST_CASE("Division of whole numbers drops the fraction where the session asks for it", "[X12]") {
  Engine e;
  const Tensor a = e.make<int64_t>(DType::int64, {2}, {-7, 7});
  CHECK(values(a / 2) == Values{-3.5, 3.5});
  e.cx.compat.integer_division = true;
  CHECK((a / 2).dtype() == DType::int64);
  CHECK(values(a / 2) == Values{-3, 3});
  CHECK(values(a / 2.0) == Values{-3.5, 3.5});
  CHECK(refusal([&] { a / 0; }) == "ZeroDivisionError");
}
