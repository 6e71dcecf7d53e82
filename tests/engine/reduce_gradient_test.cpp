#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The gradient of y's sum, and with weights 1, 2, 3 ... of that gradient.
struct Twice {
  Values first, second;
  Twice(const Tensor& x, const Tensor& y) {
    const Tensor g = grad({sum(y)}, {x}, {.create_graph = true})[0];
    first = values(g);
    if (!g.requires_grad()) return;
    Values w(static_cast<size_t>(g.numel()));
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<double>(i + 1);
    const Tensor weights = from_bytes(g.maker(), g.dtype(), g.shape(), std::as_bytes(std::span(w)));
    second = values(grad({sum(g * weights)}, {x})[0]);
  }
};
}  // namespace

TEST_CASE("Products have the right gradients where elements are zero, to second order", "[reduce][D47]") {
  Engine e;
  const Tensor one = e.leaf({3}, {0, 2, 3}), two = e.leaf({4}, {4, 5, 0, 0}), three = e.leaf({3}, {0, 0, 0});
  const Twice a(one, prod(one));
  CHECK(a.first == Values{6, 0, 0});
  CHECK(a.second == Values{12, 3, 2});  // PyTorch's
  CHECK(Twice(one, prod(one, 0)).second == a.second);
  const Twice b(two, prod(two));
  CHECK(b.first == Values{0, 0, 0, 0});
  CHECK(b.second == Values{0, 0, 80, 60});
  CHECK(Twice(three, prod(three)).second == Values{0, 0, 0});
}

TEST_CASE("Running products have the right gradients where elements are zero, to second order", "[scan][D47]") {
  Engine e;
  const Tensor one = e.leaf({3}, {1, 0, 3}), two = e.leaf({3}, {0, 0, 3}), three = e.leaf({4}, {3, 0, 0, 2});
  CHECK(Twice(one, cumprod(one, 0)).first == Values{1, 4, 0});
  CHECK(Twice(one, cumprod(one, 0)).second == Values{8, 7, 2});
  CHECK(Twice(two, cumprod(two, 0)).first == Values{1, 0, 0});
  CHECK(Twice(two, cumprod(two, 0)).second == Values{8, 4, 0});
  CHECK(Twice(three, cumprod(three, 0)).first == Values{1, 3, 0, 0});
}

TEST_CASE("Equal extremes share the gradient, and a dim gives it to one", "[reduce][X19][D47]") {
  Engine e;
  const Tensor x = e.leaf({3}, {0, 1, 1});
  CHECK(Twice(x, max(x)).first == Values{0, 0.5, 0.5});
  CHECK(Twice(x, amax(x)).first == Values{0, 0.5, 0.5});
  CHECK(Twice(x, max(x, 0)[0]).first == Values{0, 1, 0});
  CHECK(Twice(x, min(x)).first == Values{1, 0, 0});
  CHECK(Twice(x, median(x)).first == Values{0, 0.5, 0.5});
  CHECK(Twice(x, median(x, 0)[0]).first == Values{0, 1, 0});
  CHECK(Twice(x, max(x, ones_like(x))).first == Values{0, 0.5, 0.5});
  const Tensor y = e.leaf({3}, {0, kNaN, kNaN});
  CHECK(Twice(y, max(y)).first == Values{0, 0.5, 0.5});
}

TEST_CASE("The gradient of a norm at zero is zero", "[reduce][D47]") {
  Engine e;
  const Tensor zero = e.leaf({2}, {0, 0}), x = e.leaf({2}, {0, 2});
  for (const double p : {0.5, 1., 1.5, 2., 3., std::numeric_limits<double>::infinity()}) {
    INFO(p);
    CHECK(Twice(zero, norm(zero, p)).first == Values{0, 0});
    CHECK(Twice(x, norm(x, p)).first == Values{0, 1});
  }
  CHECK(Twice(x, norm(x, 2)).second == Values{0.5, 0});
  CHECK(Twice(x, norm(x, 1)).second == Values{0, 0});
  const Tensor g = grad({norm(x, 0)}, {x}, {.allow_unused = true})[0];
  CHECK_FALSE(static_cast<bool>(g));  // as PyTorch: a count has none
}

TEST_CASE("The gradient of a deviation of zero is zero", "[reduce]") {
  Engine e;
  const Tensor x = e.leaf({2}, {1, 1});
  CHECK(Twice(x, gradwire::std(x)).first == Values{0, 0});
  CHECK(Twice(x, gradwire::std(x)).second == Values{0, 0});
}

TEST_CASE("NaN that a sum leaves out gets no gradient", "[reduce]") {
  Engine e;
  const Tensor x = e.leaf({3}, {1, kNaN, 2});
  CHECK(Twice(x, nansum(x)).first == Values{1, 0, 1});
}

TEST_CASE("A gradient goes through a reduction's dtype and back", "[reduce]") {
  Engine e;
  const Tensor x = e.leaf({2}, {2, 3});
  const Tensor y = prod(x, {.dtype = DType::float32});
  CHECK(y.dtype() == DType::float32);
  const Tensor g = grad({y}, {x})[0];
  CHECK(g.dtype() == DType::float64);
  CHECK(values(g) == Values{3, 2});
  CHECK(values(grad({sum(cumprod(x, 0, DType::float32))}, {x})[0]) == Values{4, 2});
}
