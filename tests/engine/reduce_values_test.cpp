#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cmath>
#include <limits>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;
using Catch::Matchers::Message;

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

bool is_nan(const Tensor& t) {
  for (const double v : values(t)) {
    if (!std::isnan(v)) return false;
  }
  return t.numel() > 0;
}
Shape shape_of(const Tensor& t) { return Shape(t.shape()); }
}  // namespace

TEST_CASE("Reductions drop their dims unless asked to keep them", "[reduce][A22][B21][I1]") {
  Engine e;
  const Tensor x = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(shape_of(sum(x)).empty());
  CHECK(shape_of(sum(x, 1)) == Shape{2});
  CHECK(shape_of(mean(x, 1)) == Shape{2});
  CHECK(shape_of(prod(x, 1)) == Shape{2});
  CHECK(shape_of(var(x, 1)) == Shape{2});
  CHECK(shape_of(gradwire::std(x, 1)) == Shape{2});
  CHECK(shape_of(norm(x, 2, 1)) == Shape{2});
  CHECK(shape_of(max(x, 1)[0]) == Shape{2});
  CHECK(shape_of(min(x, 1)[1]) == Shape{2});
  CHECK(shape_of(median(x, 1)[0]) == Shape{2});
  CHECK(shape_of(mode(x, 1)[0]) == Shape{2});
  CHECK(shape_of(kthvalue(x, 1, 1)[0]) == Shape{2});
  CHECK(shape_of(amax(x, {0, 1}, true)) == Shape{1, 1});
  CHECK(shape_of(argmax(x, std::nullopt, true)) == Shape{1, 1});
  CHECK(values(add(ones(e.cx, 4), sum(ones(e.cx, {4, 4}), 1, true))) == Values(16, 5));
  CHECK(values(add(ones(e.cx, 4), sum(ones(e.cx, {4, 4}), 1))) == Values(4, 5));
}

TEST_CASE("Sums and products of integers are int64, and wrap only where asked for less", "[reduce][A23]") {
  Engine e;
  const Tensor x = e.make<uint8_t>(DType::uint8, {2}, {200, 100});
  CHECK(sum(x).dtype() == DType::int64);
  CHECK(values(sum(x)) == Values{300});
  CHECK(values(prod(x)) == Values{20000});
  CHECK(values(cumsum(x, 0)) == Values{200, 300});
  CHECK(values(cumprod(x, 0)) == Values{200, 20000});
  CHECK(cumprod(x, 0).dtype() == DType::int64);
  const Tensor narrow = sum(x, {.dtype = DType::uint8});
  CHECK(narrow.dtype() == DType::uint8);
  CHECK(values(narrow) == Values{44});
  CHECK(sum(e.cx.full(Shape{3}, true, DType::boolean)).dtype() == DType::int64);
}

TEST_CASE("Reductions of nothing", "[reduce][A58]") {
  Engine e;
  const Tensor x = e.cx.empty(Shape{0}, DType::float32), wide = e.cx.empty(Shape{2, 0, 3}, DType::float64);
  CHECK(values(sum(x)) == Values{0});
  CHECK(values(prod(x)) == Values{1});
  CHECK(is_nan(mean(x)));
  CHECK(is_nan(var(x)));
  CHECK(is_nan(median(x)));
  CHECK(values(norm(x)) == Values{0});
  CHECK(values(all(x)) == Values{1});
  CHECK(values(any(x)) == Values{0});
  CHECK(values(logsumexp(wide, 1)) == Values(6, -kInf));
  CHECK(shape_of(max(wide, 0)[0]) == Shape{0, 3});
  CHECK(shape_of(argmax(wide, 0)) == Shape{0, 3});
  CHECK_THROWS_MATCHES(max(x), Error,
                       Message("max(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                               "reduction dim with the 'dim' argument."));
  CHECK_THROWS_MATCHES(amin(x), Error,
                       Message("amin(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                               "reduction dim with the 'dim' argument."));
  CHECK_THROWS_MATCHES(argmax(x), Error,
                       Message("argmax(): Expected reduction dim to be specified for input.numel() == 0."));
  CHECK_THROWS_MATCHES(min(wide, 1), Error, Message("min(): Expected reduction dim 1 to have non-zero size."));
  CHECK_THROWS_MATCHES(kthvalue(wide, 1, 1), Error,
                       Message("kthvalue(): Expected reduction dim 1 to have non-zero size."));
}

TEST_CASE("What a reduction cannot do is said in PyTorch's words", "[reduce]") {
  Engine e;
  const Tensor x = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6}), i = e.make<int64_t>(DType::int64, {2}, {1, 2});
  CHECK_THROWS_MATCHES(sum(x, 2), Error,
                       Message("Dimension out of range (expected to be in range of [-2, 1], but got 2)"));
  CHECK_THROWS_MATCHES(sum(x, {0, -2}), Error, Message("dim 0 appears multiple times in the list of dims"));
  CHECK_THROWS_MATCHES(mean(i), Error,
                       Message("mean(): could not infer output dtype. Input dtype must be either a floating point or "
                               "complex dtype. Got: Long"));
  CHECK_THROWS_MATCHES(mean(x, {.dtype = DType::int64}), Error,
                       Message("mean(): could not infer output dtype. Optional dtype must be either a floating point "
                               "or complex dtype. Got: Long"));
  CHECK_THROWS_MATCHES(var(i), Error, Message("std and var only support floating point and complex dtypes"));
  CHECK_THROWS_MATCHES(norm(i), Error,
                       Message("norm(): input dtype should be either floating point or complex. Got Long instead."));
  CHECK_THROWS_MATCHES(norm(x, "xx"), Error, Message("only valid string values are 'fro' and 'nuc', found xx"));
  CHECK_THROWS_MATCHES(topk(x, 4), Error, Message("selected index k out of range"));
  CHECK_THROWS_MATCHES(kthvalue(x, 4), Error, Message("kthvalue(): selected number k out of range for dimension 1"));
  CHECK_THROWS_MATCHES(softmax(i, 0), Error, Message("\"softmax_lastdim_kernel_impl\" not implemented for 'Long'"));
  CHECK_THROWS_MATCHES(argmax(eq(i, 1)), Error, Message("\"argmax_cpu\" not implemented for 'Bool'"));
}

TEST_CASE("NaN wins an extreme, and of equal ones the first stands for all", "[reduce]") {
  Engine e;
  const Tensor x = e.doubles({2, 3}, {1, kNaN, 3, 2, 5, 5});
  CHECK(is_nan(max(x)));
  CHECK(is_nan(amin(x)));
  CHECK(values(argmax(x)) == Values{1});
  const auto [best, at] = max(x, 1);
  CHECK(std::isnan(values(best)[0]));
  CHECK(values(best)[1] == 5);
  CHECK(values(at) == Values{1, 1});
  CHECK(values(argmin(x, 0)) == Values{0, 0, 0});
  CHECK(values(argmax(e.make<int32_t>(DType::int32, {4}, {7, -9, 7, 3}))) == Values{0});
}

TEST_CASE("A norm of any power", "[reduce]") {
  Engine e;
  const Tensor x = e.doubles({2, 2}, {3, -4, 0, 2});
  CHECK(values(norm(x, 0)) == Values{3});
  CHECK(values(norm(x, 1, 1)) == Values{7, 2});
  CHECK(values(norm(x, 2, 1)) == Values{5, 2});
  CHECK(values(norm(x, kInf)) == Values{4});
  CHECK(values(norm(x, -kInf, 0)) == Values{0, 2});
  CHECK(values(norm(x, -1, 1)) == Values{1 / (1. / 3 + 1. / 4), 0});
  CHECK(values(norm(x, "fro", {0, 1})) == Values{std::sqrt(29)});
  CHECK(std::abs(values(norm(x, 3))[0] - std::cbrt(27 + 64 + 8)) < 1e-14);
}

TEST_CASE("Variances with n, with n - 1, and with any other correction", "[reduce]") {
  Engine e;
  const Tensor x = e.doubles({4}, {1, 2, 3, 6});
  CHECK(values(var(x, false)) == Values{3.5});
  CHECK(values(var(x, 0, false)) == Values{3.5});
  CHECK(values(var(x)) == Values{14. / 3});
  CHECK(values(var(x, {.correction = 2})) == Values{7});
  CHECK(std::abs(values(gradwire::std(x, {.correction = 3}))[0] - std::sqrt(14)) < 1e-14);
  CHECK(is_nan(var(e.doubles({1}, {7}))));
  CHECK(values(var(e.doubles({1}, {7}), false)) == Values{0});
  CHECK(values(gradwire::std(e.doubles({2}, {1e200, 3e200}), false)) == Values{kInf});  // as PyTorch: squares overflow
}

TEST_CASE("Logs of sums of exponentials keep infinities and do not overflow", "[reduce]") {
  Engine e;
  CHECK(values(logsumexp(e.doubles({2}, {-kInf, -kInf}), 0)) == Values{-kInf});
  CHECK(values(logsumexp(e.doubles({2}, {kInf, -kInf}), 0)) == Values{kInf});
  CHECK(values(logsumexp(e.doubles({2}, {1000, 1000}), 0)) == Values{1000 + std::log(2)});
  CHECK(values(logcumsumexp(e.doubles({3}, {-kInf, 1, kInf}), 0)) == Values{-kInf, 1, kInf});
  CHECK(values(softmax(e.doubles({2}, {1000, 1000}), 0)) == Values{0.5, 0.5});
  CHECK(is_nan(softmax(e.doubles({2}, {kInf, 1}), 0)));
  CHECK(is_nan(softmax(e.doubles({2}, {-kInf, -kInf}), 0)));
}

TEST_CASE("Whether all or any are true keeps uint8, and is bool for the rest", "[reduce][J21]") {
  Engine e;
  const Tensor x = e.make<uint8_t>(DType::uint8, {2, 2}, {1, 2, 0, 0});
  CHECK(all(x).dtype() == DType::uint8);
  CHECK(values(all(x, 1)) == Values{1, 0});
  CHECK(values(any(x, 1)) == Values{1, 0});
  CHECK(all(e.doubles({2}, {kNaN, 1})).dtype() == DType::boolean);
  CHECK(values(all(e.doubles({2}, {kNaN, 1}))) == Values{1});
  CHECK(values(count_nonzero(x)) == Values{2});
  CHECK(values(count_nonzero(x, 0)) == Values{1, 1});
}

TEST_CASE("A softmax without a dim chooses one, and says so", "[reduce]") {
  Engine e;
  const Tensor x = e.doubles({2, 2}, {0, 0, 1, 1});
  CHECK(values(softmax(x)) == Values(4, 0.5));
  REQUIRE(e.cx.warnings.size() == 1);
  CHECK(e.cx.warnings[0].message ==
        "Implicit dimension choice for softmax has been deprecated. Change the call to include dim=X as an argument.");
}

TEST_CASE("With keepdim_warning a reduction over a dim that leaves keepdim out is told so", "[reduce][B19][B20]") {
  Engine e;
  const Tensor x = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto warnings_of = [&](std::string_view op, std::vector<std::pair<std::string_view, Bound>> named) {
    e.cx.warnings.clear();
    const Bound positional[] = {Bound(x)};
    BoundCall c;
    engine::bind(op, positional, named, c);
    call(e.cx, c.id, std::span(c.args, static_cast<size_t>(c.count)));
    return e.cx.warnings.size();
  };
  const Bound dim(Scalar(int64_t{1})), no(Scalar(false)), yes(Scalar(true)), k(Scalar(int64_t{1}));
  CHECK(warnings_of("sum", {{"dim", dim}}) == 0);
  e.cx.compat.keepdim_warning = true;
  REQUIRE(warnings_of("sum", {{"dim", dim}}) == 1);
  CHECK(e.cx.warnings[0].message ==
        "backwards compatibility: call to \"sum\" uses default value for keepdim which has changed default to False.  "
        "Consider passing as kwarg.");
  CHECK(warnings_of("sum", {{"dim", dim}, {"keepdim", no}}) == 0);
  CHECK(warnings_of("sum", {{"dim", dim}, {"keepdim", yes}}) == 0);
  CHECK(warnings_of("sum", {}) == 0);
  for (const char* op : {"prod", "mean", "std", "var", "norm", "max", "min", "median", "mode"}) {
    INFO(op);
    CHECK(warnings_of(op, {{"dim", dim}}) == 1);
    CHECK(warnings_of(op, {{"dim", dim}, {"keepdim", no}}) == 0);
  }
  CHECK(warnings_of("kthvalue", {{"k", k}, {"dim", dim}}) == 1);
  CHECK(warnings_of("amax", {{"dim", dim}}) == 0);
  CHECK(warnings_of("logsumexp", {{"dim", dim}}) == 0);

  // By number, with what follows the dim left out, as batches do it.
  e.cx.warnings.clear();
  const Bound args[] = {Bound(x), dim};
  call(e.cx, find_op("max.dim")->id, args);
  CHECK(e.cx.warnings.size() == 1);
}
