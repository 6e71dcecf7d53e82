#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <limits>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

std::string message_of(const std::function<Tensor()>& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(!e.op().empty());
    return e.message();
  }
  return "";
}

Tensor ones(Engine& e, Shape shape, DType t = DType::float32) { return e.cx.full(shape, 1, t); }
std::vector<int64_t> shape_of(const Tensor& t) { return {t.shape().begin(), t.shape().end()}; }
using Sizes = std::vector<int64_t>;

}  // namespace

TEST_CASE("The first argument of addmm and its kin expands to the product's shape", "[linalg][B23]") {
  Engine e;
  const auto f = [&](Shape s) { return ones(e, s); };
  const auto check = [](const Tensor& t, Sizes shape, double all) {
    CHECK(shape_of(t) == shape);
    CHECK(values(t) == Values(static_cast<size_t>(t.numel()), all));
  };
  for (const Shape& self : {Shape{3}, Shape{}, Shape{2, 3}, Shape{2, 1}}) {
    check(addmm(f(self), f({2, 4}), f({4, 3})), {2, 3}, 5);
    check(addr(f(self), f({2}), f({3})), {2, 3}, 2);
    check(addbmm(f(self), f({5, 2, 4}), f({5, 4, 3})), {2, 3}, 21);
    check(baddbmm(f(self), f({5, 2, 4}), f({5, 4, 3})), {5, 2, 3}, 5);
  }
  check(addmv(f({}), f({2, 4}), f({4})), {2}, 5);
  check(addmv(f({1}), f({2, 4}), f({4})), {2}, 5);
  CHECK(message_of([&] {
          return addmm(f({2}), f({2, 4}), f({4, 3}));
        }) ==
        "The expanded size of the tensor (3) must match the existing size (2) at non-singleton dimension 1.  Target "
        "sizes: [2, 3].  Tensor sizes: [2]");
  CHECK(message_of([&] {
          return addmv(f({3}), f({2, 4}), f({4}));
        }) == "size mismatch, got input (3), mat (2x4), vec (4)");
  CHECK(message_of([&] {
          return addmm(f({1, 1, 1}), f({2, 4}), f({4, 3}));
        }).starts_with("expand(torch.FloatTensor{[1, 1, 1]}, size=[2, 3]): the number of sizes provided (2)"));
}

TEST_CASE("With beta 0 self takes no part, not even as NaN, and its gradient is zero", "[linalg][B23]") {
  Engine e;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor self = e.leaf({2}, {nan, nan}), a = e.doubles({1, 2}, {1, 2}), b = e.doubles({2, 2}, {1, 2, 3, 4});
  const Tensor y = addmm(self, a, b, {.beta = 0, .alpha = 2});
  CHECK(values(y) == Values{14, 20});
  sum(y).backward();
  CHECK(values(grad_of(self)) == Values{0, 0});
}

TEST_CASE("For whole numbers beta and alpha lose their fraction and must fit", "[linalg]") {
  Engine e;
  const auto f = [&](Shape s) { return ones(e, s, DType::int8); };
  CHECK(values(addmm(f({1}), f({1, 4}), f({4, 1}), {.beta = -1.9, .alpha = 2.7})) == Values{7});
  CHECK(message_of([&] {
          return addmm(f({1}), f({1, 4}), f({4, 1}), {.beta = 300});
        }).find("without overflow") != std::string::npos);
  CHECK(message_of([&] {
          return addmm(f({1}), f({1, 4}), f({4, 1}), {.alpha = 0.0 / 0.0});
        }).find("without overflow") != std::string::npos);
  CHECK(message_of([&] { return addr(f({1}), f({1}), f({1}), {.alpha = 1.5}); }) ==
        "For integral input tensors, argument alpha must not be a floating point number.");
  CHECK(message_of([&] { return addr(f({1}), f({1}), f({1}), {.beta = true}); }) ==
        "Boolean beta only supported for Boolean results.");
}

TEST_CASE("matmul broadcasts batches, and takes vectors as rows and columns", "[linalg][B24][I3]") {
  Engine e;
  const auto product = [&](Shape a, Shape b) { return shape_of(matmul(ones(e, a), ones(e, b))); };
  CHECK(product({1, 2, 3, 4}, {5, 1, 4, 6}) == Sizes{5, 2, 3, 6});
  CHECK(product({3}, {3}) == Sizes{});
  CHECK(product({3, 4}, {4}) == Sizes{3});
  CHECK(product({3}, {3, 4}) == Sizes{4});
  CHECK(product({10, 3, 4}, {4}) == Sizes{10, 3});
  CHECK(product({4}, {10, 4, 3}) == Sizes{10, 3});
  CHECK(product({10, 3, 4}, {10, 4, 5}) == Sizes{10, 3, 5});
  CHECK(product({10, 3, 4}, {4, 5}) == Sizes{10, 3, 5});
  CHECK(product({2, 0}, {0, 3}) == Sizes{2, 3});
}

TEST_CASE("Products whose sizes or dtypes do not fit are refused in PyTorch's words", "[linalg][I3]") {
  Engine e;
  const auto f = [&](Shape s) { return ones(e, s); };
  const auto d = [&](Shape s) { return ones(e, s, DType::float64); };
  const auto product = [&](const Tensor& a, const Tensor& b) { return message_of([&] { return matmul(a, b); }); };
  CHECK(product(f({}), f({2})) == "both arguments to matmul need to be at least 1D, but they are 0D and 1D");
  CHECK(product(f({2, 3}), f({2, 3})) == "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
  CHECK(product(f({3}), f({4, 2})) == "mat1 and mat2 shapes cannot be multiplied (1x3 and 4x2)");
  CHECK(product(f({2, 2, 3}), f({4, 2})) == "mat1 and mat2 shapes cannot be multiplied (4x3 and 4x2)");
  CHECK(product(f({2, 3}), f({2, 4, 2})) == "mat1 and mat2 shapes cannot be multiplied (4x4 and 3x2)");
  CHECK(product(f({2, 3}), f({4})) == "size mismatch, got input (2), mat (2x3), vec (4)");
  CHECK(product(f({2, 2, 3}), f({4})) == "size mismatch, got input (4), mat (4x3), vec (4)");
  CHECK(product(f({3}), f({2, 4, 2})) == "size mismatch, got input (4), mat (4x4), vec (3)");
  CHECK(product(f({5, 2, 2, 3}), f({2, 4, 2})) ==
        "Expected size for first two dimensions of batch2 tensor to be: [10, 3] but got: [10, 4].");
  CHECK(product(f({2, 2, 3}), f({3, 3, 2})) ==
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0");
  CHECK(product(d({3}), f({3})) == "dot : expected both vectors to have same dtype, but found Double and Float");
  CHECK(product(d({2, 3}), f({3})) == "expected scalar type Double but found Float");
  CHECK(product(f({2, 3}), d({3, 2})) == "expected m1 and m2 to have the same dtype, but got: float != double");
  CHECK(message_of([&] { return mm(f({2}), f({2, 3})); }) == "self must be a matrix");
  CHECK(message_of([&] { return mm(f({2, 2}), f({2})); }) == "mat2 must be a matrix");
  CHECK(message_of([&] { return bmm(f({2, 3}), f({2, 3})); }) == "batch1 must be a 3D tensor");
  CHECK(message_of([&] {
          return bmm(f({2, 3, 4}), f({3, 4, 4}));
        }) == "Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [3, 4].");
  CHECK(message_of([&] { return mv(f({2, 3}), f({3, 1})); }) == "vector + matrix @ vector expected, got 1, 2, 2");
  CHECK(message_of([&] { return dot(f({2, 1}), f({2})); }) == "1D tensors expected, but got 2D and 1D tensors");
  CHECK(message_of([&] { return outer(f({2}), f({3, 1})); }) == "outer: Expected 1-D argument vec2, but got 2-D");
  CHECK(message_of([&] {
          return addmm(d({3}), f({2, 4}), f({4, 3}));
        }) == "self and mat2 must have the same dtype, but got Double and Float");
  CHECK(message_of([&] { return trace(f({2})); }) == "trace: expected a matrix, but got tensor with dim 1");
  CHECK(message_of([&] {
          return tensordot(f({2, 3}), f({3, 2}), -1);
        }) == "tensordot expects dims >= 0, but got dims=-1");
  CHECK(message_of([&] {
          return tensordot(f({2, 3}), f({3, 2}), int64_t{1} << 62);
        }).starts_with("Dimension out of range (expected to be in range of [-2, 1]"));
}

TEST_CASE("linear keeps the dims before the last and adds what its bias expands to", "[linalg][I3]") {
  Engine e;
  const auto f = [&](Shape s) { return ones(e, s); };
  CHECK(shape_of(linear(f({3}), f({4, 3}), f({4}))) == Sizes{4});
  CHECK(shape_of(linear(f({5, 2, 3}), f({4, 3}), f({4}))) == Sizes{5, 2, 4});
  CHECK(values(linear(f({5, 2, 3}), f({4, 3}), f({1}))) == Values(40, 4));
  CHECK(shape_of(linear(f({2, 3}), f({3}))) == Sizes{2});
  CHECK(shape_of(linear(f({5, 0, 3}), f({4, 3}), f({4}))) == Sizes{5, 0, 4});
  CHECK(values(linear(f({2, 0}), f({4, 0}), f({4}))) == Values(8, 1));
  CHECK(message_of([&] {
          return linear(f({2, 3}), f({4, 2}));
        }) == "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x4)");
  CHECK(message_of([&] {
          return linear(f({5, 2, 3}), f({4, 3}), f({3}));
        }) ==
        "The expanded size of the tensor (4) must match the existing size (3) at non-singleton dimension 1.  Target "
        "sizes: [10, 4].  Tensor sizes: [3]");
  CHECK(message_of([&] {
          return linear(f({3}), f({4, 3}), f({3}));
        }) == "The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 0");
}

TEST_CASE("The in-place form of an operator made of others writes all or nothing", "[linalg][A34][D30]") {
  Engine e;
  const Tensor x = e.leaf({2, 2}, {1, 2, 3, 4}), a = e.leaf({2, 2}, {1, 0, 0, 1});
  const Tensor y = x * 1;
  y.addmm_(a, a, {.beta = 2});
  CHECK(values(y) == Values{3, 4, 6, 9});
  CHECK(y.version() == 1);
  sum(y).backward();
  CHECK(values(grad_of(x)) == Values{2, 2, 2, 2});
  CHECK(values(grad_of(a)) == Values{2, 2, 2, 2});
  const Tensor z = e.doubles({2}, {1, 2});
  CHECK(message_of([&] { return addmm_(z, a, a); }).starts_with("output with shape [2] doesn't match"));
  CHECK(message_of([&] { return addmm_(x, a, a); }).starts_with("a leaf Variable that requires grad"));
  CHECK(values(z) == Values{1, 2});
  CHECK(z.version() == 0);
}

TEST_CASE("tensordot takes dims as a number and as lists, and sums over a size of 1", "[linalg][J20]") {
  Engine e;
  const Tensor a = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6}), b = e.doubles({3, 2}, {1, 0, 0, 1, 1, 1});
  CHECK(values(tensordot(a, b, 1)) == Values{4, 5, 10, 11});
  CHECK(values(tensordot(a, b, {0}, {1})) == Values{1, 4, 5, 2, 5, 7, 3, 6, 9});
  CHECK(values(tensordot(a, b, {-1, 0}, {0, 1})) == Values{15});
  CHECK(values(tensordot(a, e.doubles({1}, {2}), {1}, {0})) == Values{12, 30});
  CHECK(shape_of(tensordot(a, b, 0)) == Sizes{2, 3, 3, 2});
  CHECK(message_of([&] {
          return tensordot(a, b, {0, 0}, {1, 1});
        }) == "dim 0 appears multiple times in the list of dims");
  CHECK(message_of([&] { return tensordot(a, b, {0}, {0}); }) ==
        "contracted dimensions need to match, but first has size 2 in dim 0 and second has size 3 in dim 0");
}
