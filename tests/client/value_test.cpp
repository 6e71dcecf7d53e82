#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "client/gradwire.h"
#include "tests/client/fake.h"

using namespace gradwire;
using Catch::Matchers::Message;

TEST_CASE("Literals give shape and dtype", "[client][A7]") {
  Fake fake;
  auto client = connect(fake.address());
  CHECK(tensor(3.1416).dtype() == float32);
  CHECK(tensor(3.1416).shape().empty());
  CHECK(tensor(3).dtype() == int64);
  CHECK(tensor({1, 2.3}).dtype() == float32);
  CHECK(tensor({1, 2}).dtype() == int64);
  CHECK(tensor({true, false}).dtype() == boolean);
  CHECK(tensor({{1}, {2}, {3}}).shape() == Shape{3, 1});
  CHECK(tensor({{1, 2}, {3, 4}}).to_vector<int>() == std::vector<int>{1, 2, 3, 4});
  CHECK(tensor({}).shape() == Shape{0});
  CHECK(tensor({}).dtype() == float32);
  CHECK(tensor({1, 2}, {.dtype = float64, .requires_grad = true}).requires_grad());
  CHECK(tensor({1, 300}, {.dtype = int16}).to_vector<int64_t>() == std::vector<int64_t>{1, 300});
}

TEST_CASE("Vectors become tensors as the lists of PyTorch's tensor() do", "[client][A7]") {
  Fake fake;
  auto client = connect(fake.address());
  CHECK(tensor(std::vector<double>{1.5, -2}).dtype() == float32);
  CHECK(tensor(std::vector<double>{1.5, -2}).to_vector<float>() == std::vector<float>{1.5, -2});
  CHECK(tensor(std::vector<int>{1, 2}).dtype() == int64);
  CHECK(tensor(std::array{true, false}).dtype() == boolean);
  CHECK(tensor(std::vector<float>{}).shape() == Shape{0});
  CHECK(tensor(std::array{1, 2}, {.dtype = float64, .requires_grad = true}).requires_grad());
  auto wide = client.open({.dtype = float64});
  CHECK(tensor(wide, std::vector<float>{0.5}).dtype() == float64);
}

TEST_CASE("Bad literals are refused in PyTorch's words", "[client][A8]") {
  Fake fake;
  auto client = connect(fake.address());
  CHECK_THROWS_MATCHES(tensor({{1, 2}, {3}}), Error, Message("expected sequence of length 2 at dim 1 (got 1)"));
  CHECK_THROWS_MATCHES(tensor({300}, {.dtype = uint8}), Error,
                       Message("value cannot be converted to type uint8 without overflow"));
  CHECK_THROWS_AS(tensor({{1, 2}, 3}), BadTensor);
  CHECK_THROWS_MATCHES(tensor({1}, {.requires_grad = true}), Error,
                       Message("Only Tensors of floating point and complex dtype can require gradients"));
}

TEST_CASE("Spans go in and out", "[client][data]") {
  Fake fake;
  auto client = connect(fake.address());
  const std::vector<double> v{1.5, -2, 3};
  auto x = from_span(v);
  CHECK(x.dtype() == float64);
  CHECK(x.shape() == Shape{3});
  CHECK(x.to_vector<double>() == v);
  CHECK(x.to_vector<int>() == std::vector<int>{1, -2, 3});
  CHECK(x.to_vector<bool>() == std::vector<bool>{true, true, true});
  std::vector<double> out(3);
  x.copy_to(std::span(out));
  CHECK(out == v);
  std::vector<float> narrow(3);
  CHECK_THROWS_AS(x.copy_to(std::span(narrow)), DTypeMismatch);
  std::vector<double> short_one(2);
  CHECK_THROWS_AS(x.copy_to(std::span(short_one)), ShapeMismatch);
  CHECK_THROWS_AS(from_span(v, {2, 2}), BadTensor);
  CHECK_THROWS_AS(from_span(v, {-3}), BadArgument);
  CHECK(from_span(std::vector<float>{1, 2, 3, 4}, {2, 2}, {.dtype = float16}).to_vector<float>() ==
        std::vector<float>{1, 2, 3, 4});
  CHECK(from_span(std::vector<int8_t>{}).to_vector<int8_t>().empty());
}

TEST_CASE("One element becomes a number; more do not", "[client][A24]") {
  Fake fake;
  auto client = connect(fake.address());
  CHECK(tensor({{1}}).item<int>() == 1);
  CHECK(tensor(2.5).item<double>() == 2.5);
  CHECK(tensor({true}).item<bool>());
  auto a = tensor(1.5).async_item<float>();
  auto b = tensor(2).async_item<int>();
  CHECK(a.get() + static_cast<float>(b.get()) == 3.5f);
  CHECK_THROWS_MATCHES(tensor({1, 2}).item<int>(), Error,
                       Message("only one element tensors can be converted to Python scalars"));
  CHECK_THROWS_MATCHES(tensor({}).item<int>(), Error,
                       Message("only one element tensors can be converted to Python scalars"));
}

TEST_CASE("Large values travel in pieces of at most a MiB", "[client][bulk]") {
  Fake fake;
  auto client = connect(fake.address());
  std::vector<int32_t> v(5'000'000);
  std::iota(v.begin(), v.end(), -7);
  auto x = from_span(v, {5, 1'000'000});
  CHECK(x.to_vector<int32_t>() == v);
  size_t sum = 0;
  for (const size_t n : fake.writes()) {
    CHECK(n <= 1 << 20);
    sum += n;
  }
  CHECK(sum == v.size() * 4);
  sum = 0;
  for (const size_t n : fake.reads()) {
    CHECK(n <= 1 << 20);
    sum += n;
  }
  CHECK(sum == v.size() * 4);
  for (const auto& b : fake.batches()) CHECK(b.texts.size() < 2);  // only the name of this file
  std::vector<int32_t> out(v.size());
  x.copy_to(std::span(out));
  CHECK(out == v);
}

TEST_CASE("Half types convert to the nearest and back", "[client][data]") {
  const auto through = [](DType t, float f) {
    std::byte half[2];
    float back;
    client::convert(float32, reinterpret_cast<std::byte*>(&f), t, half, 1);
    client::convert(t, half, float32, reinterpret_cast<std::byte*>(&back), 1);
    return back;
  };
  for (const float f : {0.f, -0.f, 1.f, -2.5f, 65504.f, 6.1035156e-05f, 5.9604645e-08f, INFINITY, -INFINITY}) {
    CHECK(through(float16, f) == f);
    CHECK(std::signbit(through(float16, f)) == std::signbit(f));
  }
  CHECK(through(float16, 65520.f) == INFINITY);
  CHECK(through(float16, 65519.f) == 65504.f);
  CHECK(through(float16, 1.00048828125f) == 1.f);           // a tie goes to the even one
  CHECK(through(float16, 1.00146484375f) == 1.001953125f);  // so does this one
  CHECK(std::isnan(through(float16, NAN)));
  CHECK(through(bfloat16, 1.f) == 1.f);
  CHECK(through(bfloat16, 1.00390625f) == 1.f);
  CHECK(std::isnan(through(bfloat16, NAN)));
}

TEST_CASE("Tensors print as PyTorch prints them", "[client][X2]") {
  Fake fake;
  auto client = connect(fake.address());
  const float inf = INFINITY;
  CHECK(to_string(tensor(5.)) == "tensor(5.)");
  CHECK(to_string(tensor({1.})) == "tensor([1.])");
  CHECK(to_string(tensor({{1., 2.}, {3., 4.}})) == "tensor([[1., 2.],\n        [3., 4.]])");
  CHECK(to_string(tensor({1, 20, -300})) == "tensor([   1,   20, -300])");
  CHECK(to_string(tensor({true, false})) == "tensor([ True, False])");
  CHECK(to_string(tensor({0.5, 1.25})) == "tensor([0.5000, 1.2500])");
  CHECK(to_string(tensor({1e-5, 1.})) == "tensor([1.0000e-05, 1.0000e+00])");
  CHECK(to_string(tensor({1., 100000.})) == "tensor([1.0000e+00, 1.0000e+05])");
  CHECK(to_string(tensor({1., std::nan(""), inf, -inf})) == "tensor([1., nan, inf, -inf])");
  CHECK(to_string(tensor({1.5}, {.dtype = float64})) == "tensor([1.5000], dtype=torch.float64)");
  CHECK(to_string(tensor({1}, {.dtype = int8})) == "tensor([1], dtype=torch.int8)");
  CHECK(to_string(tensor({1.5}, {.requires_grad = true})) == "tensor([1.5000], requires_grad=True)");
  CHECK(to_string(tensor({})) == "tensor([])");
  CHECK(to_string(from_span(std::vector<float>{}, {2, 0})) == "tensor([], size=(2, 0))");
  CHECK(to_string(tensor({{{1, 2}}, {{3, 4}}})) == "tensor([[[1, 2]],\n\n        [[3, 4]]])");
  std::vector<int64_t> many(2000);
  std::iota(many.begin(), many.end(), 0);
  CHECK(to_string(from_span(many)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
  CHECK(to_string(from_span(many, {1000, 2})) ==
        "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        ...,\n        [1994, 1995],\n    "
        "    [1996, "
        "1997],\n        [1998, 1999]])");
  std::vector<int64_t> line(30);
  std::iota(line.begin(), line.end(), 0);
  CHECK(to_string(from_span(line)) ==
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n        18, 19, 20, 21, 22, "
        "23, 24, 25, "
        "26, 27, 28, 29])");
  CHECK(to_string(Tensor()) == "[ Tensor (undefined) ]");
  std::ostringstream out;
  out << tensor({1.});
  CHECK(out.str() == "tensor([1.])");
}
