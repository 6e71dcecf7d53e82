#include <catch2/catch_test_macros.hpp>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

template <class F> std::string message(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was thrown";
}

Tensor whole(Engine& e, Shape shape, std::vector<int64_t> v) { return e.make(DType::int64, shape, std::move(v)); }

}  // namespace

TEST_CASE("The older calls for elements and slices give PyTorch's values", "[engine][C37][I7][I9][B26]") {
  Engine e;
  const Tensor m = whole(e, {2, 2}, {1, 2, 3, 4});
  CHECK(values(gather(m, 1, whole(e, {2, 2}, {0, 0, 1, 0}))) == Values{1, 1, 4, 3});
  CHECK(values(take(whole(e, {2, 3}, {4, 3, 5, 6, 7, 8}), whole(e, {3}, {0, 2, 5}))) == Values{4, 5, 8});
  CHECK(values(index_add(e.doubles({3}, {0, 0, 0}), 0, whole(e, {3}, {0, 0, 2}), e.doubles({3}, {1, 2, 3}))) ==
        Values{3, 0, 3});
  const Tensor zeros = gradwire::zeros(e.cx, {3, 5}), ones = gradwire::ones(e.cx, {2, 5});
  CHECK(values(scatter_add(zeros, 0, whole(e, {2, 5}, {0, 1, 2, 0, 0, 2, 0, 0, 1, 2}), ones)) ==
        Values{1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  const Tensor mask = e.make(DType::boolean, {4}, std::vector<uint8_t>{0, 1, 0, 1}), x = e.doubles({4}, {0, 0, 0, 0});
  CHECK(values(masked_scatter_(x, mask, e.doubles({2}, {7, 8}))) == Values{0, 7, 0, 8});
  CHECK(values(masked_select(e.doubles({2, 3}, {0, 1, 2, 3, 4, 5}), slice(mask, 0, 1, 4))) == Values{0, 2, 3, 5});
  CHECK(values(nonzero(m)) == Values{0, 0, 0, 1, 1, 0, 1, 1});
}

TEST_CASE("An index outside is refused in PyTorch's words before anything is written", "[engine][C37][C20][I39]") {
  Engine e;
  const Tensor x = e.doubles({2, 2}, {1, 2, 3, 4}), bad = whole(e, {2}, {0, 2}), less = whole(e, {2}, {0, -1});
  const Tensor wide = whole(e, {1, 2}, {0, 2});
  const std::string in_self = "index out of range in self";
  CHECK(message([&] { index_select(x, 0, bad); }) == in_self);
  CHECK(message([&] { index_select(x, 0, less); }) == in_self);
  CHECK(message([&] { index_add_(x, 0, bad, x * 1); }) == in_self);
  CHECK(message([&] { index_copy_(x, 0, bad, x * 1); }) ==
        "index_copy_(): index 2 is out of bounds for dimension 0 with size 2");
  CHECK(message([&] { index_fill_(x, 0, bad, 7); }) == "index 2 is out of bounds for dimension 0 with size 2");
  CHECK(message([&] { gather(x, 1, wide); }) == "index 2 is out of bounds for dimension 1 with size 2");
  CHECK(message([&] { scatter_(x, 1, wide, 7); }) == "index 2 is out of bounds for dimension 1 with size 2");
  CHECK(message([&] { scatter_add_(x, 1, unsqueeze(less, 0), x * 1); }) ==
        "index -1 is out of bounds for dimension 1 with size 2");
  CHECK(message([&] { take(x, whole(e, {1}, {4})); }) ==
        "out of range: tried to access index 4 on a tensor of 4 elements.");
  CHECK(message([&] { put_(x, whole(e, {1}, {-5}), e.doubles({1}, {9})); }) ==
        "out of range: tried to access index -5 on a tensor of 4 elements.");
  CHECK(message([&] {
          masked_scatter_(x, e.make(DType::boolean, {2}, std::vector<uint8_t>{1, 1}), e.doubles({3}, {7, 8, 9}));
        }) == "Number of elements of source < number of ones in mask");
  CHECK(values(x) == Values{1, 2, 3, 4});
  CHECK(x.version() == 0);
}

TEST_CASE("Shapes and dtypes of indexes and sources are checked", "[engine][C37][B27]") {
  Engine e;
  const Tensor x = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6}), src = e.doubles({1, 1}, {9});
  CHECK(message([&] { gather(x, 1, whole(e, {1}, {0})); }) ==
        "Index tensor must have the same number of dimensions as input tensor");
  CHECK(message([&] {
          gather(x, 1, whole(e, {3, 1}, {0, 1, 0}));
        }) ==
        "Size does not match at dimension 0 expected index [3, 1] to be smaller than self [2, 3] apart from dimension "
        "1");
  CHECK(message([&] {
          scatter(x, 1, whole(e, {1, 2}, {0, 1}), src);
        }) ==
        "Expected index [1, 2] to be smaller than self [2, 3] apart from dimension 1 and to be smaller size than src "
        "[1, 1]");
  CHECK(message([&] {
          scatter(x, 1, whole(e, {1, 1}, {0}), whole(e, {1, 1}, {9}));
        }) == "scatter(): Expected self.dtype to be equal to src.dtype");
  CHECK(message([&] { index_fill(x, 0, whole(e, {1}, {0}), e.doubles({1}, {9})); }) ==
        "index_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 dimension(s).");
  CHECK(message([&] { index_select(x, 0, x); }) == "index_select(): Index is supposed to be a vector");
  CHECK(message([&] { one_hot(whole(e, {1}, {2}), 2); }) == "Class values must be smaller than num_classes.");
}

TEST_CASE("A byte mask selects with a warning, and other masks are refused", "[engine][X10][B26]") {
  Engine e;
  const Tensor x = e.doubles({3}, {1, 2, 3});
  CHECK(values(masked_select(x, e.make(DType::uint8, {3}, std::vector<uint8_t>{1, 0, 1}))) == Values{1, 3});
  REQUIRE(e.cx.warnings.size() == 1);
  CHECK(e.cx.warnings[0].message.starts_with("masked_select received a mask with dtype torch.uint8"));
  CHECK(message([&] {
          masked_select(x, whole(e, {3}, {1, 0, 1}));
        }) == "masked_select: expected BoolTensor or ByteTensor for mask");
}

TEST_CASE("The gradient of a larger src is zero where nothing was scattered", "[engine][C34]") {
  Engine e;
  const Tensor x = e.leaf({3}, {1, 2, 3}), src = e.leaf({4}, {5, 6, 7, 8});
  const Tensor y = scatter(x, 0, whole(e, {2}, {2, 0}), src);
  const std::vector<Tensor> g = gradwire::grad<Tensor>({sum(y * y)}, {x, src});
  CHECK(values(g[0]) == Values{0, 4, 0});
  CHECK(values(g[1]) == Values{10, 12, 0, 0});
}
