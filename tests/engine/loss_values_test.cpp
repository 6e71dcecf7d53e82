#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>
#include <cmath>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;
using Catch::Matchers::Approx;
using Catch::Matchers::Message;
using Catch::Matchers::WithinAbs;

namespace {
double number(const Tensor& t) { return values(t).at(0); }
}  // namespace

TEST_CASE("Negative log likelihood picks, weighs and averages", "[loss][E16]") {
  Engine e;
  const Tensor x = e.doubles({2, 2}, {-1, -2, -3, -4}), w = e.doubles({2}, {1, 3});
  const Tensor target = e.make<int64_t>(DType::int64, {2}, {0, 1});
  CHECK(number(nll_loss(x, target)) == 2.5);
  CHECK(number(nll_loss(x, target, {.weight = w})) == 3.25);
  CHECK(number(nll_loss(x, target, {.reduction = "sum"})) == 5);
  CHECK(values(nll_loss(x, target, {.reduction = "none"})) == Values{1, 4});
  CHECK_THROWS_MATCHES(nll_loss(x, e.make<int64_t>(DType::int64, {2}, {0, 2})), Error,
                       Message("Target 2 is out of bounds."));
  // (N, C, H, W) with a target a pixel.
  const Tensor image = e.doubles({1, 2, 1, 2}, {-1, -2, -3, -4});
  CHECK(number(nll_loss(image, e.make<int64_t>(DType::int64, {1, 1, 2}, {0, 1}))) == 2.5);
}

TEST_CASE("Ignored targets count neither in the sum nor in the mean", "[loss][E15]") {
  Engine e;
  const Tensor x = e.doubles({3, 2}, {-1, -2, -3, -4, -5, -6});
  const auto targets = [&](std::vector<int64_t> t) { return e.make<int64_t>(DType::int64, {3}, t); };
  CHECK(number(nll_loss(x, targets({0, -100, 1}))) == 3.5);
  CHECK(number(nll_loss(x, targets({0, 1, 1}), {.ignore_index = 1})) == 1);
  CHECK(std::isnan(number(nll_loss(x, targets({-100, -100, -100})))));
  CHECK(std::isnan(number(cross_entropy(x, targets({-100, -100, -100})))));
  CHECK_THAT(number(cross_entropy(x, targets({0, -100, 1}))),
             WithinAbs((std::log1p(std::exp(-1)) + std::log1p(std::exp(1))) / 2, 1e-12));
}

TEST_CASE("Cross entropy is the negative log likelihood of log_softmax", "[loss][E17]") {
  Engine e;
  const Tensor x = e.doubles({1, 3}, {1, 2, 3}), target = e.make<int64_t>(DType::int64, {1}, {2});
  CHECK_THAT(number(cross_entropy(x, target)), WithinAbs(0.4076, 5e-5));
  CHECK_THAT(number(cross_entropy(x, target)), WithinAbs(number(nll_loss(log_softmax(x, 1), target)), 1e-15));
}

TEST_CASE("Binary cross entropy of logits stays finite far from zero", "[loss][E21]") {
  Engine e;
  const Tensor x = e.doubles({4}, {0, 2, -1000, 1000}), y = e.doubles({4}, {0, 1, 0, 1});
  CHECK_THAT(values(binary_cross_entropy_with_logits(x, y, {.reduction = "none"})),
             Approx(Values{std::log(2), std::log1p(std::exp(-2)), 0, 0}).margin(1e-12));
  CHECK_THAT(number(binary_cross_entropy_with_logits(e.doubles({2}, {0, 2}), e.doubles({2}, {0, 1}),
                                                     {.pos_weight = e.doubles({2}, {3, 3})})),
             WithinAbs(0.5370, 5e-5));
  CHECK_THROWS_MATCHES(binary_cross_entropy_with_logits(e.doubles({3}, {1, 2, 3}), e.doubles({2}, {0, 1})), Error,
                       Message("Target size (torch.Size([2])) must be the same as input size (torch.Size([3]))"));
}
