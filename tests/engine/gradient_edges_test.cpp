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

}  // namespace gradwire::engine
