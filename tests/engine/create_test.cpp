#include <catch2/catch_test_macros.hpp>

#include <cmath>

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

}  // namespace

TEST_CASE("arange gives whole numbers for whole bounds, or the default dtype where the session asks",
          "[engine][A45][X1]") {
  Engine e;
  CHECK(arange(e.cx, 2, 6).dtype() == DType::int64);
  CHECK(values(arange(e.cx, 2, 6)) == Values{2, 3, 4, 5});
  CHECK(values(arange(e.cx, 1, 2.5, 0.5)) == Values{1, 1.5, 2});
  e.cx.compat.arange_float = true;
  CHECK(arange(e.cx, 2, 6).dtype() == DType::float32);
  CHECK(values(arange(e.cx, 2, 6)) == Values{2, 3, 4, 5});
  CHECK(arange(e.cx, 3, DType::int32).dtype() == DType::int32);
  const int64_t large = (int64_t{1} << 53) + 1;
  const Tensor far = arange(e.cx, 0, large + 1, large, DType::int64);
  CHECK(item(select(far, 0, 1)).integer() == large);
}

TEST_CASE("Bounds and steps of sequences that make no sense are refused", "[engine][A45]") {
  Engine e;
  CHECK(message([&] { arange(e.cx, 6, 2); }) == "upper bound and larger bound inconsistent with step sign");
  CHECK(message([&] { arange(e.cx, 2, 6, 0); }) == "step must be nonzero");
  CHECK(message([&] { arange(e.cx, 0, 1, 0.1, DType::int32); }) == "step must be nonzero");
  CHECK(message([&] { arange(e.cx, 0, NAN); }) == "unsupported range: 0 -> nan");
  CHECK(message([&] { linspace(e.cx, 0, 1, -1); }) == "number of steps must be non-negative");
  CHECK(message([&] { gradwire::zeros(e.cx, {-1}); }) == "Trying to create tensor with negative dimension -1: [-1]");
  CHECK(message([&] { gradwire::full(e.cx, {2}, 1e40); }) ==
        "value cannot be converted to type float without overflow");
  CHECK(std::isinf(values(gradwire::full(e.cx, {1}, INFINITY))[0]));
  CHECK(message([&] { eye(e.cx, -1); }) == "n must be greater or equal to 0, got -1");
  CHECK(message([&] { arange(e.cx, 3, DType::int64, {}, true); }) ==
        "Only Tensors of floating point and complex dtype can require gradients");
}

TEST_CASE("Sequences and matrices have PyTorch's values", "[engine][A45][A46][A47]") {
  Engine e;
  CHECK(values(gradwire::range(e.cx, 1, 4)) == Values{1, 2, 3, 4});
  CHECK(e.cx.warnings.size() == 1);
  CHECK(values(linspace(e.cx, 3, 10, 5)) == Values{3, 4.75, 6.5, 8.25, 10});
  CHECK(values(linspace(e.cx, 3, 10, 1)) == Values{3});
  CHECK(values(linspace(e.cx, 10, 0, 4, DType::int32)) == Values{10, 6, 3, 0});
  const Values powers = values(logspace(e.cx, -10, 10, 5, 10, DType::float64)), want{1e-10, 1e-5, 1, 1e5, 1e10};
  for (size_t i = 0; i < 5; ++i) CHECK(std::abs(powers[i] / want[i] - 1) < 1e-12);
  CHECK(values(eye(e.cx, 2, 3)) == Values{1, 0, 0, 0, 1, 0});
  CHECK(values(tril_indices(e.cx, 3, 3)) == Values{0, 1, 1, 2, 2, 2, 0, 0, 1, 0, 1, 2});
}

TEST_CASE("Like-forms take their model's dtype unless told, and new-forms too",
          "[engine][A38][A39][A43][A48][A49][A50]") {
  Engine e;
  const Tensor x = e.doubles({2}, {1, 2}), i = gradwire::full(e.cx, {2}, 5, DType::int32);
  CHECK(full_like(i, 7).dtype() == DType::int32);
  CHECK(values(full_like(i, 7.5)) == Values{7, 7});
  CHECK(zeros_like(x).dtype() == DType::float64);
  CHECK(new_zeros(x, {3}).dtype() == DType::float64);
  CHECK(new_ones(x, {4}, DType::int64).dtype() == DType::int64);
  CHECK(Shape(new_full(x, {2, 2}, 3).shape()) == Shape{2, 2});
  CHECK(values(new_tensor(x, i)) == Values{5, 5});
  CHECK(new_tensor(x, i).dtype() == DType::float64);
  CHECK(new_zeros(x, {3}, {}, {}, true).requires_grad());
}

TEST_CASE("Memory that is not initialised shows zeros, also where it was used before", "[engine][A37][L17]") {
  Engine e;
  for (int round = 0; round < 3; ++round) {
    gradwire::full(e.cx, {1000}, 77.0);  // dies here, and its memory is taken again
    const Tensor x = gradwire::empty(e.cx, {1000}), y = empty_like(x), z = new_empty(x, {1000});
    for (const Tensor& t : {x, y, z}) CHECK(values(t) == Values(1000, 0));
  }
}

TEST_CASE("Conversions have PyTorch's names and give self where nothing changes", "[engine][A5][A14][A55]") {
  Engine e;
  const Tensor x = e.doubles({3}, {1.9, -1.9, 300});
  CHECK(double_(x).get() == x.get());
  CHECK(float_(x).dtype() == DType::float32);
  CHECK(values(x.long_()) == Values{1, -1, 300});
  CHECK(values(x.byte()) == Values{1, 255, 44});
  CHECK(x.half().dtype() == DType::float16);
  CHECK(bool_(x).dtype() == DType::boolean);
  const Tensor i = gradwire::ones(e.cx, {1}, DType::int64);
  CHECK(to(x, i).dtype() == DType::int64);
  CHECK(to(x, x).get() == x.get());
  CHECK(to(x, x, true).get() != x.get());
  CHECK(to(x, "cpu").get() == x.get());
  CHECK(message([&] { to(x, "cuda:0"); }) == "the session computes on cpu, not on cuda:0");
  CHECK(type(x, DType::int16).dtype() == DType::int16);
  CHECK(type_as(x, i).dtype() == DType::int64);
  CHECK(type(x, "torch.HalfTensor").dtype() == DType::float16);
  CHECK(message([&] { type(x, "torch.NoTensor"); }) == "invalid type: 'torch.NoTensor'");
}

TEST_CASE("Creators take a dtype, a device and requires_grad", "[create][A36][A28]") {
  Engine e;
  for (const Tensor& t : {zeros(e.cx, {2, 3}, {.dtype = DType::float64, .device = "cpu", .requires_grad = true}),
                          ones(e.cx, {2, 3}, {.dtype = DType::float64, .requires_grad = true}),
                          full(e.cx, {2, 3}, 7, {.dtype = DType::float64, .requires_grad = true}),
                          rand(e.cx, {2, 3}, {.dtype = DType::float64, .requires_grad = true}),
                          empty(e.cx, {2, 3}, {.dtype = DType::float64, .requires_grad = true})}) {
    CHECK(t.dtype() == DType::float64);
    CHECK(Shape(t.shape()) == Shape{2, 3});
    CHECK(t.requires_grad());
    CHECK(t.is_leaf());
  }
  CHECK_FALSE(zeros(e.cx, {2}).requires_grad());
  CHECK_THROWS_AS(zeros(e.cx, {2}, {.dtype = DType::int64, .requires_grad = true}), Error);
}
