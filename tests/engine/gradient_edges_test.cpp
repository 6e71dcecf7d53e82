#include <catch2/catch_test_macros.hpp>

#include "schema/ops.h"
#include "tests/engine/context.h"

namespace gradwire::engine {

TEST_CASE("A product of nothing has gradients") {
  Engine e;
  const Tensor a = e.leaf({2, 3, 0}, {}), b = e.leaf({0, 2}, {});
  backward(sum(matmul(a, b)));
  CHECK(values(grad_of(b)).empty());
  CHECK(grad_of(a).shape()[1] == 3);
}

TEST_CASE("Writing what requires grad into integers or bool records nothing", "[D1]") {
  Engine e;
  const Tensor x = e.leaf({2}, {1.5, 2.5});
  for (const DType t : {DType::boolean, DType::int64}) {
    const Tensor whole = e.cx.full(Shape{2}, 0, t);
    copy_(whole, x);
    CHECK_FALSE(whole.requires_grad());
    CHECK_FALSE(cast(whole, DType::float64).requires_grad());
  }
}

TEST_CASE("What was written through a view has its gradient also where the gradient that comes is a view", "[D34]") {
  Engine e;
  const Tensor src = e.leaf({2}, {1, 2}), base = mul(e.doubles({4}, {0, 0, 0, 0}), 1);
  copy_(index(base, {Slice{1, 3}}), src);
  const Tensor w = e.doubles({2, 4}, {9, 9, 9, 9, 1, 2, 3, 4});
  CHECK(values(grad({base}, {src}, {{index(w, {1})}})[0]) == Values{2, 3});
}

}  // namespace gradwire::engine
