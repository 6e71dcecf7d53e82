#include <catch2/catch_test_macros.hpp>

#include "schema/ops.h"
#include "tests/engine/context.h"

namespace gradwire::engine {

TEST_CASE("A number is compared with an expanded tensor in the dtype of both", "[B1]") {
  Engine e;
  for (const DType t : {DType::float16, DType::float32, DType::float64}) {
    const Tensor x = expand(e.cx.full(Shape{5, 3, 4}, 0.5, t), {3, -1, -1, -1});
    CHECK(values(ge(x, 1.0)) == Values(180, 0));
    CHECK(values(lt(x, 1.0)) == Values(180, 1));
  }
}

TEST_CASE("alpha is refused by its kind, also where it is one") {
  Engine e;
  const Tensor i = e.make<int64_t>(DType::int64, {2}, {1, 2}), f = e.doubles({2}, {1, 2});
  for (const Tensor& t : {i, f}) {
    CHECK_THROWS_AS(add(t, t, true), Error);
    CHECK_THROWS_AS(sub(t, t, true), Error);
  }
  CHECK_THROWS_AS(add(i, i, 1.0), Error);
  CHECK_THROWS_AS(sub(i, i, 1.0), Error);
  CHECK(values(add(f, f, 1.0)) == Values{2, 4});
}

TEST_CASE("Division rounded down is -1 also where the quotient is nearly zero") {
  Engine e;
  const Tensor a = e.make<float>(DType::float32, {2}, {1.265625F, -1.265625F}),
               b = e.make<float>(DType::float32, {2}, {-270263782.F, 270263782.F});
  CHECK(values(div(a, b, "floor")) == Values{-1, -1});
}

}  // namespace gradwire::engine
