#include <catch2/catch_test_macros.hpp>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

template <class F> Error error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return Error(Code::internal, "nothing was thrown");
}

}  // namespace

TEST_CASE("cat promotes, leaves empty vectors out, and refuses what does not fit", "[engine][B27][A51]") {
  Engine e;
  const Tensor x = gradwire::ones(e.cx, {2, 3}), none = gradwire::zeros(e.cx, {0}, DType::float64);
  const Tensor whole = gradwire::ones(e.cx, {1, 3}, DType::int64);
  CHECK(cat({x, whole}).dtype() == DType::float32);
  CHECK(cat({whole, gradwire::ones(e.cx, {1, 3}, DType::boolean)}).dtype() == DType::int64);
  CHECK(Shape(cat({x, none}, 1).shape()) == Shape{2, 3});
  CHECK(cat({x, none}).dtype() == DType::float64);
  CHECK(Shape(cat({none, none}, 0).shape()) == Shape{0});
  CHECK(error_of([&] {
          cat({x, gradwire::ones(e.cx, {2, 2})});
        }).message() ==
        "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 2 for tensor number 1 in the "
        "list.");
  CHECK(error_of([&] {
          cat({x, sum(x)});
        }).message() == "zero-dimensional tensor (at position 1) cannot be concatenated");
  CHECK(error_of([&] {
          cat({x, gradwire::ones(e.cx, {3})});
        }).message() == "Tensors must have same number of dimensions: got 2 and 1");
  CHECK(error_of([&] {
          stack({x, whole});
        }).message() == "stack expects each tensor to be equal size, but got [2, 3] at entry 0 and [1, 3] at entry 1");
}

TEST_CASE("Parts of split, chunk and unbind share storage and refuse in-place writes under autograd",
          "[engine][D33][A17]") {
  Engine e;
  const Tensor a = e.leaf({4}, {1, 2, 3, 4}), b = a * 1;
  struct Case {
    std::vector<Tensor> parts;
    const char* name;
  };
  for (const Case& c : {Case{split(b, 2), "SplitBackward0"}, Case{split(b, {1, 3}), "SplitWithSizesBackward0"},
                        Case{chunk(b, 2), "SplitBackward0"}, Case{unbind(b), "UnbindBackward0"}}) {
    INFO(c.name);
    for (size_t i = 0; i < c.parts.size(); ++i) {
      CHECK(c.parts[i]->storage == b->storage);
      const Error err = error_of([&] { c.parts[i].mul_(2); });
      CHECK(err.message().starts_with("Output " + std::to_string(i) + " of " + c.name +
                                      " is a view and is being modified inplace."));
      CHECK(err.op() == "mul_");
    }
    CHECK(error_of([&] { view(c.parts[1], {-1}).mul_(2); })  // a view of one of them
              .message()
              .find("is a view and is being modified inplace.") != std::string::npos);
  }
  CHECK(values(b) == Values{1, 2, 3, 4});
  CHECK(b.version() == 0);
  const GradMode off(e.cx, false);
  split(b, 2)[1].mul_(2);  // values may change where nothing is recorded
  CHECK(values(b) == Values{1, 2, 6, 8});
}

TEST_CASE("Only the parts that were used take part in the gradient", "[engine][D33]") {
  Engine e;
  const Tensor a = e.leaf({5}, {1, 2, 3, 4, 5});
  const std::vector<Tensor> parts = split(a, 2);
  REQUIRE(parts.size() == 3);
  CHECK(values(gradwire::grad<Tensor>({sum(parts[1] * parts[1])}, {a})[0]) == Values{0, 0, 6, 8, 0});
}

TEST_CASE("Sizes of parts are checked before anything is made", "[engine][T18]") {
  Engine e;
  const Tensor x = gradwire::ones(e.cx, {5});
  CHECK(error_of([&] { split(x, 0); }).message() ==
        "split_size can only be 0 if dimension size is 0, but got dimension size of 5");
  CHECK(error_of([&] {
          split(x, {2, 2});
        }).message() ==
        "split_with_sizes expects split_sizes to sum exactly to 5 (input tensor's size at dimension 0), but got "
        "split_sizes=[2, 2]");
  CHECK(error_of([&] { chunk(x, 0); }).message() == "chunk expects `chunks` to be greater than 0, got: 0");
  CHECK(error_of([&] { unbind(expand(gradwire::ones(e.cx, {1}), {1 << 20})); }).code() == Code::bad_argument);
}
