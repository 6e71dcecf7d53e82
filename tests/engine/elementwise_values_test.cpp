#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>
#include <string>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

std::string refusal(auto f) {
  try {
    f();
  } catch (const Error& err) {
    return err.message();
  }
  return "";
}

bool same(const Tensor& t, const Values& want) {
  const Values got = values(t);
  if (got.size() != want.size()) return false;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != want[i] && !(std::isnan(got[i]) && std::isnan(want[i]))) return false;
  }
  return true;
}

Values gradient(const Tensor& y, const Tensor& x) { return values(gradwire::grad<Tensor>({sum(y)}, {x})[0]); }

}  // namespace

TEST_CASE("Powers of integers stay whole, and refuse a negative whole number as exponent", "[elementwise]") {
  Engine e;
  const Tensor n = e.make<int64_t>(DType::int64, {2}, {2, -1}), u = e.make<uint8_t>(DType::uint8, {2}, {2, 20});
  CHECK(pow(n, 3).dtype() == DType::int64);
  CHECK(same(pow(n, 3), {8, -1}));
  CHECK(same(pow(u, 2), {4, 144}));  // 400 wraps
  CHECK(pow(n, 0.5).dtype() == DType::float32);
  const std::string negative = "Integers to negative integer powers are not allowed.";
  CHECK(refusal([&] { pow(n, -1); }) == negative);
  CHECK(refusal([&] { pow(u, -2); }) == negative);
  CHECK(refusal([&] { pow_(n, -1); }) == negative);
  CHECK(n.version() == 0);
  CHECK(pow(n, -1.0).dtype() == DType::float32);
  CHECK(
      same(pow(e.make<int64_t>(DType::int64, {4}, {2, 1, -1, 0}), e.make<int64_t>(DType::int64, {4}, {-1, -2, -3, -1})),
           {0, 1, -1, 0}));
  CHECK(refusal([&] { pow(u, 300); }).find("without overflow") != std::string::npos);

  const Tensor b = e.make<uint8_t>(DType::boolean, {2}, {1, 0});
  CHECK(refusal([&] { pow(b, b); }) == "\"pow\" not implemented for 'Bool'");
  CHECK(pow(b, 2).dtype() == DType::int64);
  CHECK(square(b).dtype() == DType::int64);
}

TEST_CASE("Powers without a logarithm are what the logarithm gives", "[elementwise]") {
  Engine e;
  const Tensor x = e.doubles({5}, {0.25, 2, 3, 1.5, 0});
  for (const double p : {2.0, 3.0, 0.5, -0.5, -1.0}) {
    const Values fast = values(pow(x, p)), slow = values(pow(x, e.cx.full(x.shape(), p, x.dtype())));
    for (size_t i = 0; i < fast.size(); ++i)
      CHECK((fast[i] == slow[i] || std::abs(fast[i] - slow[i]) < 1e-14 * slow[i]));
  }
  CHECK(same(pow(e.doubles({2}, {kNan, 0}), 0), {1, 1}));
  CHECK(same(pow(e.doubles({1}, {1}), e.doubles({1}, {kNan})), {1}));
}

TEST_CASE("The gradient of pow at a base or an exponent of 0 is no NaN", "[elementwise][D47]") {
  Engine e;
  const Tensor base = e.leaf({3}, {0, 0, 2}), exponent = e.leaf({3}, {2, 0, 0});
  const Tensor y = pow(base, exponent);
  CHECK(same(y, {0, 1, 1}));
  CHECK(gradient(pow(base, exponent), base) == Values{0, 0, 0});
  const Values d = gradient(pow(base, exponent), exponent);
  CHECK(d[0] == 0);
  CHECK(d[1] == 0);
  CHECK(std::abs(d[2] - std::log(2)) < 1e-15);
  CHECK(gradient(pow(base, 0), base) == Values{0, 0, 0});
  CHECK(gradient(pow(base, 2), base) == Values{0, 0, 4});
}

TEST_CASE("Remainders have the sign of the dividend or of the divisor, and integers refuse to divide by 0",
          "[elementwise]") {
  Engine e;
  const Tensor x = e.doubles({4}, {5, -5, 5, -5}), y = e.doubles({4}, {3, 3, -3, -3});
  CHECK(same(fmod(x, y), {2, -2, 2, -2}));
  CHECK(same(remainder(x, y), {2, 1, -1, -2}));
  CHECK(same(x % y, {2, 1, -1, -2}));
  CHECK(same(7 % y, {1, 1, -2, -2}));
  CHECK(same(floor_divide(x, y), {1, -2, -2, 1}));
  CHECK(same(floor_divide(e.doubles({2}, {1e-20, -1e-20}), -3), {-1, 0}));  // the quotient rounds to nothing
  const Tensor zero = e.doubles({1}, {0});
  CHECK(same(fmod(x, zero), Values(4, kNan)));
  CHECK(same(floor_divide(x, zero), {kInf, -kInf, kInf, -kInf}));
  const Tensor n = e.make<int32_t>(DType::int32, {2}, {7, -7}), m = e.make<int32_t>(DType::int32, {2}, {1, 0});
  for (const auto& f : {fmod<Tensor>, remainder<Tensor>}) {
    CHECK(refusal([&] { f(n, m, {}); }) == "ZeroDivisionError");
    CHECK(refusal([&] { f(n, 0, {}); }) == "ZeroDivisionError");
  }
  CHECK(refusal([&] { floor_divide_(n, m); }) == "ZeroDivisionError");
  CHECK(n.version() == 0);
  CHECK(same(n % 4, {3, 1}));
}

TEST_CASE("clamp takes numbers or tensors, promotes, and lets NaN win", "[elementwise]") {
  Engine e;
  const Tensor x = e.doubles({5}, {-2, 0.5, 3, kNan, kInf});
  CHECK(same(clamp(x, 0, 1), {0, 0.5, 1, kNan, 1}));
  CHECK(same(clamp(x, -1), {-1, 0.5, 3, kNan, kInf}));
  CHECK(same(clamp(x, {}, 1), {-2, 0.5, 1, kNan, 1}));
  CHECK(same(clamp(x, 2, 1), Values{1, 1, 1, kNan, 1}));  // max over min
  CHECK(same(clamp(x, kNan, 1), Values(5, kNan)));
  CHECK(same(clamp(x, e.doubles({5}, {0, kNan, 0, 0, 0}), 2), {0, kNan, 2, kNan, 2}));
  CHECK(Shape(clamp(x, e.doubles({2, 1}, {0, 1})).shape()) == Shape{2, 5});
  CHECK(refusal([&] { clamp(x); }) == "torch.clamp: At least one of 'min' or 'max' must not be None");

  const Tensor n = e.make<int64_t>(DType::int64, {3}, {1, 2, 3});
  CHECK(clamp(n, 2).dtype() == DType::int64);
  CHECK(clamp(n, 1.5).dtype() == DType::float32);
  CHECK(refusal([&] { clamp_(n, 1.5); }) == "result type Float can't be cast to the desired output type Long");
  const Tensor u = e.make<uint8_t>(DType::uint8, {3}, {1, 2, 3});
  CHECK(refusal([&] { clamp(u, {}, 300); }).find("without overflow") != std::string::npos);
  clamp_(u, 2);
  CHECK(same(u, {2, 2, 3}));
  CHECK(same(clamp_min(n, 2), {2, 2, 3}));
  CHECK(same(clamp_max(n, e.make<int64_t>(DType::int64, {1}, {2})), {1, 2, 2}));
}

TEST_CASE("The gradient of clamp at a bound is 1, and bounds get what they held", "[elementwise][X23][D47]") {
  Engine e;
  const Tensor x = e.leaf({5}, {-2, -1, 0, 1, 2});
  CHECK(gradient(clamp(x, -1, 1), x) == Values{0, 1, 1, 1, 0});
  CHECK(gradient(clamp(x, -1), x) == Values{0, 1, 1, 1, 1});
  CHECK(gradient(clamp_max(x, 1), x) == Values{1, 1, 1, 1, 0});
  const Tensor low = e.leaf({1}, {-1}), high = e.leaf({1}, {1});
  CHECK(gradient(clamp(x, low, high), low) == Values{1});
  CHECK(gradient(clamp(x, low, high), high) == Values{1});
  CHECK(gradient(abs(x), x) == Values{-1, -1, 0, 1, 1});
}

TEST_CASE("masked_fill broadcasts its mask, keeps the dtype, and takes one value", "[elementwise][B26]") {
  Engine e;
  const Tensor x = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6}), mask = e.make<uint8_t>(DType::boolean, {3}, {1, 0, 1});
  CHECK(same(masked_fill(x, mask, 0), {0, 2, 0, 0, 5, 0}));
  CHECK(same(masked_fill(x, mask, e.doubles({}, {9})), {9, 2, 9, 9, 5, 9}));
  const Tensor row = e.doubles({3}, {1, 2, 3});
  CHECK(Shape(masked_fill(row, reshape(mask, Ints{3, 1}), 0).shape()) == Shape{3, 3});
  CHECK(refusal([&] {
          masked_fill_(row, reshape(mask, Ints{3, 1}), 0);
        }) == "output with shape [3] doesn't match the broadcast shape [3, 3]");
  CHECK(refusal([&] { masked_fill(row, row, 0); }) ==
        "masked_fill_ only supports boolean masks, but got mask with dtype Double");
  CHECK(refusal([&] { masked_fill(row, mask, e.doubles({1}, {9})); }) ==
        "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 dimension(s).");
  const Tensor u = e.make<uint8_t>(DType::uint8, {3}, {1, 2, 3});
  CHECK(masked_fill(u, mask, 3.7).dtype() == DType::uint8);
  CHECK(refusal([&] { masked_fill(u, mask, 300); }).find("without overflow") != std::string::npos);
  CHECK(refusal([&] { masked_fill(u, mask, e.doubles({}, {300})); }).find("without overflow") != std::string::npos);
  CHECK(e.cx.warnings.empty());
  CHECK(same(masked_fill(row, e.make<uint8_t>(DType::uint8, {3}, {1, 0, 1}), 0), {0, 2, 0}));
  CHECK(e.cx.warnings.size() == 1);

  const Tensor leaf = e.leaf({2, 3}, {1, 2, 3, 4, 5, 6}), value = e.leaf({}, {9});
  CHECK(gradient(masked_fill(leaf, mask, value), leaf) == Values{0, 1, 0, 0, 1, 0});
  CHECK(gradient(masked_fill(leaf, mask, value), value) == Values{4});
}

TEST_CASE("lerp, addcmul and addcdiv expand together, and refuse what PyTorch refuses", "[elementwise][B29]") {
  Engine e;
  const Tensor a = e.doubles({2, 1}, {1, 2}), b = e.doubles({3}, {1, 2, 4}), c = e.doubles({1, 1}, {2});
  CHECK(same(addcmul(a, b, c, 3), values(a + 3 * b * c)));
  CHECK(Shape(addcmul(a, b, c).shape()) == Shape{2, 3});
  CHECK(same(addcdiv(a, b, c, 3), values(a + 3 * b / c)));
  CHECK(same(lerp(a, b, 0.5), values(a + 0.5 * (b - a))));
  CHECK(same(lerp(a, b, 1), values(expand(b, Ints{2, 3}))));
  const Tensor n = e.make<int64_t>(DType::int64, {3}, {1, 2, 4});
  CHECK(same(addcmul(n, n, n, 2), {3, 10, 36}));
  CHECK(refusal([&] { addcdiv(a, n, n); }).starts_with("Integer division with addcdiv is no longer supported"));
  CHECK(refusal([&] { lerp(n, n, 0.5); }) == "\"lerp\" not implemented for 'Long'");
  CHECK(refusal([&] { lerp(a, cast(b, DType::float32), 0.5); }) ==
        "expected dtype float64 for `end` but got dtype float32");
}

TEST_CASE("Bits are for integers and bool, by name and by symbol", "[elementwise][I4][I38]") {
  Engine e;
  const Tensor five = e.make<int64_t>(DType::int64, {1}, {5}), yes = e.make<uint8_t>(DType::boolean, {1}, {1});
  CHECK(same(five & 3, {1}));
  CHECK(same(five | 3, {7}));
  CHECK(same(five ^ 3, {6}));
  CHECK(same(3 ^ five, {6}));
  CHECK(same(~five, {-6}));
  CHECK(same(~yes, {0}));
  CHECK((yes & yes).dtype() == DType::boolean);
  CHECK(same(~e.make<uint8_t>(DType::uint8, {1}, {0}), {255}));
  CHECK(same(e.make<int64_t>(DType::int64, {1}, {1}) << 3, {8}));
  CHECK(same(e.make<int64_t>(DType::int64, {1}, {16}) >> 2, {4}));
  CHECK(same(five >> 64, {0}));
  CHECK(same(-five >> 100, {-1}));
  CHECK(same(five << -1, {0}));
  five &= 4;
  CHECK(same(five, {4}));
  five |= 1, five ^= 7, five <<= 2;
  CHECK(same(five, {8}));
  five >>= 1, five %= 3;
  CHECK(same(five, {1}));
  const Tensor real = e.doubles({1}, {1});
  CHECK(refusal([&] { real& real; }) == "\"bitwise_and\" not implemented for 'Double'");
  CHECK(refusal([&] { real << 1; }) != "");
  CHECK(refusal([&] { ~real; }) != "");
  CHECK(refusal([&] { yes &= 3; }) == "result type Long can't be cast to the desired output type Bool");
}

TEST_CASE("Truth is what is not 0, and NaN is true", "[elementwise]") {
  Engine e;
  const Tensor x = e.doubles({4}, {0, -0.0, 2, kNan}), n = e.make<int64_t>(DType::int64, {4}, {1, 0, 3, 0});
  CHECK(logical_and(x, n).dtype() == DType::boolean);
  CHECK(same(logical_and(x, n), {0, 0, 1, 0}));
  CHECK(same(logical_or(x, n), {1, 0, 1, 1}));
  CHECK(same(logical_xor(x, n), {1, 0, 0, 1}));
  CHECK(same(logical_not(x), {1, 1, 0, 0}));
  CHECK(same(isnan(x), {0, 0, 0, 1}));
  CHECK(same(isinf(e.doubles({3}, {kInf, -kInf, kNan})), {1, 1, 0}));
  CHECK(same(isfinite(e.doubles({3}, {kInf, 1, kNan})), {0, 1, 0}));
  CHECK(same(isfinite(n), {1, 1, 1, 1}));
  logical_not_(x);
  CHECK(x.dtype() == DType::float64);
  CHECK(same(x, {1, 1, 0, 0}));
  CHECK(same(isclose(e.doubles({4}, {1, kInf, kNan, 1}), e.doubles({4}, {1 + 1e-7, kInf, kNan, 1.1})), {1, 1, 0, 0}));
  CHECK(same(isclose(e.doubles({1}, {kNan}), e.doubles({1}, {kNan}), 0, 0, true), {1}));
}

TEST_CASE("atan2 has the gradient of the angle", "[elementwise][I5]") {
  Engine e;
  const Tensor y = e.leaf({1}, {1}), x = e.leaf({1}, {2});
  const Tensor angle = atan2(y, x);
  CHECK(std::abs(gradient(angle, y)[0] - 0.4) < 1e-15);
  CHECK(std::abs(gradient(atan2(y, x), x)[0] + 0.2) < 1e-15);
}

TEST_CASE("Rounding goes to even halves, to decimals, and leaves integers alone", "[elementwise]") {
  Engine e;
  CHECK(same(round(e.doubles({5}, {0.5, 1.5, 2.5, -0.5, -1.5})), {0, 2, 2, 0, -2}));
  CHECK(same(round(e.doubles({2}, {1.25, 1234.5}), 1), {1.2, 1234.5}));
  CHECK(same(round(e.doubles({2}, {1250, 1350}), -2), {1200, 1400}));
  const Tensor n = e.make<int64_t>(DType::int64, {1}, {7});
  CHECK(round(n).dtype() == DType::int64);
  CHECK(refusal([&] { round(n, 1); }) != "");
  CHECK(same(sign(e.doubles({3}, {kNan, -kInf, -0.0})), {0, -1, 0}));
  CHECK(same(frac(e.doubles({2}, {1.5, -1.25})), {0.5, -0.25}));
}

TEST_CASE("A bool refuses arithmetic in PyTorch's words", "[elementwise]") {
  Engine e;
  const Tensor b = e.make<uint8_t>(DType::boolean, {1}, {1});
  CHECK(refusal([&] { -b; }).starts_with("Negation, the `-` operator, on a bool tensor is not supported."));
  CHECK(refusal([&] { positive(b); }) == "The `+` operator, on a bool tensor is not supported.");
  CHECK(refusal([&] { relu(b); }) == "Boolean inputs not supported for relu");
  CHECK(refusal([&] { abs(b); }) == "\"abs\" not implemented for 'Bool'");
  CHECK(refusal([&] { rsub(b, 1); }).starts_with("Subtraction, the `-` operator, with a bool tensor"));
  CHECK(refusal([&] { div(b, b, "floor"); }) != "");
}
