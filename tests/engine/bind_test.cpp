#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>

#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

struct Caller : Engine {
  // What comes of name(text), or the error's text.
  std::string refusal(std::string_view op, std::string_view text) {
    try {
      const auto l = parse_literals(cx, text);
      BoundCall c;
      engine::bind(op, l->positional, l->named, c);
      check(c.id, {c.args, static_cast<size_t>(c.count)});
      return "";
    } catch (const Error& e) {
      CHECK(e.op() == op);
      CHECK((e.code() == Code::bad_argument || e.code() == Code::unknown_operator));
      return e.message();
    }
  }
  Tensor run(std::string_view op, std::string_view text) {
    const auto l = parse_literals(cx, text);
    BoundCall c;
    engine::bind(op, l->positional, l->named, c);
    return engine::call(cx, c.id, {c.args, static_cast<size_t>(c.count)}).at[0];
  }
};

}  // namespace

TEST_CASE("Arguments that do not fit are refused in PyTorch's words", "[bind]") {
  Caller c;
  CHECK(c.refusal("neg", "f(2); f(2)") == "neg() takes 1 positional argument but 2 were given");
  CHECK(c.refusal("matmul", "f(2); f(2); f(2)") == "matmul() takes 2 positional arguments but 3 were given");
  CHECK(c.refusal("neg", "") == "neg() missing 1 required positional arguments: \"self\"");
  CHECK(c.refusal("matmul", "f(2)") == "matmul() missing 1 required positional arguments: \"other\"");
  CHECK(c.refusal("neg", "3") == "neg(): argument 'self' (position 1) must be Tensor, not int");
  CHECK(c.refusal("matmul", "f(2); 3") == "matmul(): argument 'other' (position 2) must be Tensor, not int");
  CHECK(c.refusal("matmul", "f(2); other=3") == "matmul(): argument 'other' must be Tensor, not int");
  CHECK(c.refusal("neg", "f(2); foo=1") == "neg() got an unexpected keyword argument 'foo'");
  CHECK(c.refusal("matmul", "f(2); f(2); other=f(2)") == "matmul() got multiple values for argument 'other'");
  CHECK(c.refusal("zeros", "2; 2.5") ==
        "zeros(): argument 'size' must be tuple of ints, but found element of type float at pos 2");
  CHECK(c.refusal("transpose", "f(2); 0; 1.5") == "transpose(): argument 'dim1' (position 3) must be int, not float");
  CHECK(c.refusal("sum", "f(2); keepdim=1") == "sum(): argument 'keepdim' must be bool, not int");
  CHECK(c.refusal("zeros", "(2); dtype='float'") == "zeros(): argument 'dtype' must be torch.dtype, not str 'float'");
  CHECK(c.refusal("add", "f(2); f(2); 3") == "add() takes 2 positional arguments but 3 were given");
  CHECK(c.refusal("add_", "2; f(2)") == "add_(): argument 'self' (position 1) must be Tensor, not int");
  CHECK(c.refusal("add", "f(2); None") ==
        "add(): argument 'other' (position 2) must be Tensor or Number, not NoneType");
  CHECK(c.refusal("no_such", "f(2)") == "unknown operator 'no_such'");
}

TEST_CASE("Arguments bind by position, by name, and by default", "[bind]") {
  Caller c;
  CHECK(values(c.run("add", "[1., 2.]; [10., 20.]")) == Values{11, 22});
  CHECK(values(c.run("add", "other=[10., 20.]; self=[1., 2.]")) == Values{11, 22});
  CHECK(values(c.run("add", "[1., 2.]; alpha=2; other=[10., 20.]")) == Values{21, 42});
  CHECK(values(c.run("sum", "[[1., 2.]]; 1; True")) == Values{3});
  CHECK(c.run("sum", "[[1., 2.]]; 1; True").ndim() == 2);
  CHECK(c.run("sum", "[[1., 2.]]; keepdim=True; dim=(0)").size(1) == 2);
}

TEST_CASE("Sizes come as a list or as loose integers", "[bind][A36]") {
  Caller c;
  CHECK(std::ranges::equal(c.run("zeros", "2; 3").shape(), Shape{2, 3}));
  CHECK(std::ranges::equal(c.run("zeros", "(2, 3)").shape(), Shape{2, 3}));
  CHECK(std::ranges::equal(c.run("ones", "4").shape(), Shape{4}));
  CHECK(std::ranges::equal(c.run("zeros", "()").shape(), Shape{}));
  CHECK(std::ranges::equal(c.run("zeros", "2; 3; dtype='int8'").shape(), Shape{2, 3}));
  CHECK(std::ranges::equal(c.run("reshape", "f(2, 3); 3; -1").shape(), Shape{3, 2}));
  CHECK(std::ranges::equal(c.run("permute", "f(2, 3, 4); 2; 0; 1").shape(), Shape{4, 2, 3}));
  CHECK(std::ranges::equal(c.run("expand", "f(3); 2; -1").shape(), Shape{2, 3}));
  // Where more parameters follow, a second integer is one of them.
  CHECK(c.refusal("sum", "f(2, 3); 0; 1") == "sum(): argument 'keepdim' (position 3) must be bool, not int");
}

TEST_CASE("Texts stand for dtypes and for numbers that JSON lacks, where the parameter wants one", "[bind]") {
  Caller c;
  CHECK(c.run("to", "[1.9]; 'int64'").dtype() == DType::int64);
  CHECK(std::isnan(values(c.run("full", "(1); 'NaN'"))[0]));
  CHECK(values(c.run("full", "(1); '-Infinity'"))[0] == -std::numeric_limits<double>::infinity());
  CHECK(values(c.run("mul", "[1., 2.]; 'Infinity'"))[1] == std::numeric_limits<double>::infinity());
  CHECK(c.refusal("add", "f(2); 'two'") ==
        "add(): argument 'other' (position 2) must be Tensor or Number, not str 'two'");
}

TEST_CASE("Several leading tensors are the list of a row that begins with one", "[bind]") {
  Caller c;
  const auto l = parse_literals(c.cx, "f(2); f(3); set_to_none=True");
  BoundCall b;
  engine::bind("zero_grad", l->positional, l->named, b);
  REQUIRE(b.args[0].kind == ArgKind::tensors);
  CHECK(b.args[0].count == 2);
  CHECK(b.args[1].b);
}

TEST_CASE("A call by number is checked like one by name", "[bind]") {
  Caller c;
  Bound none[kMaxParams];
  try {
    check(static_cast<OpId>(catalogue().size()), {});
    FAIL();
  } catch (const Error& e) {
    CHECK(e.code() == Code::unknown_operator);
  }
  for (const OpRow& row : catalogue()) {
    INFO(row.name());
    // Too many, and too few.
    if (row.params < kMaxParams) CHECK_THROWS_AS(check(row.id, {none, static_cast<size_t>(row.params) + 1}), Error);
    const bool needs = std::ranges::any_of(row.sig.params, [](const Param& p) { return !p.fallback; });
    if (needs) CHECK_THROWS_AS(check(row.id, {}), Error);
  }
}

TEST_CASE("Devices are named as PyTorch names them, and another one is refused", "[bind][A10][A11]") {
  Caller c;
  auto message = [&](const char* text) {
    try {
      c.run("zeros", text);
      return std::string();
    } catch (const Error& e) {
      return e.message();
    }
  };
  CHECK(message("(2); device='cpu'") == "");
  CHECK(message("(2); device='cuda:x'") == "Invalid device string: 'cuda:x'");
  CHECK(message("(2); device='cuda:-1'") == "Invalid device string: 'cuda:-1'");
  CHECK(message("(2); device='foo'") == "Expected one of cpu, cuda device type at start of device string: foo");
  CHECK(message("(2); device='cuda:0'") == "the session computes on cpu, not on cuda:0");
}
