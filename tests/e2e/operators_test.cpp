// Operators as a program on the client writes them.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "client/gradwire.h"

namespace {

using Floats = std::vector<float>;

TEST_CASE("A client makes a generator and draws with it", "[e2e][A40][I11]") {
  auto client = gradwire::connect("local");
  auto g = gradwire::generator(5), h = gradwire::generator(5);
  const auto a = gradwire::rand({4}, {.generator = g}), b = gradwire::rand({4}, {.generator = h});
  CHECK(a.to_vector<float>() == b.to_vector<float>());
  auto x = gradwire::zeros({4});
  x.normal_(0, 1, g);
  CHECK(x.to_vector<float>() != Floats(4, 0));
  CHECK(gradwire::randperm(5, {.generator = h}).to_vector<int64_t>().size() == 5);
}

TEST_CASE("A client takes tensors apart, puts them together, and converts them", "[e2e][A17][A5]") {
  auto client = gradwire::connect("local");
  auto x = gradwire::arange(6).view({2, 3}).float_();
  const auto parts = x.split(2, 1);
  REQUIRE(parts.size() == 2);
  CHECK(parts[1].to_vector<float>() == Floats{2, 5});
  CHECK(x.split({1, 2}, 1)[0].to_vector<float>() == Floats{0, 3});
  CHECK(gradwire::cat({x, x}, 1).shape() == gradwire::Shape{2, 6});
  CHECK(gradwire::stack({x.select(0, 0), x.select(0, 1)}).to_vector<float>() == x.to_vector<float>());
  CHECK(x.gather(1, gradwire::zeros({2, 1}, {.dtype = gradwire::int64})).to_vector<float>() == Floats{0, 3});
  CHECK(x.long_().dtype() == gradwire::int64);
  CHECK(x.bfloat16_().dtype() == gradwire::bfloat16);
  CHECK(x.squeeze().flatten().numel() == 6);
  CHECK(gradwire::linspace(0, 1, 3).to_vector<float>() == Floats{0, 0.5f, 1});
}

}  // namespace
