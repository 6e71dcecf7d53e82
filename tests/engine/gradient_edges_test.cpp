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

}  // namespace gradwire::engine
