#include "schema/signature.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "schema/error.h"

using namespace gradwire;

TEST_CASE("A signature gives names, types, defaults and keyword-only marks", "[signature]") {
  const Signature s =
      parse_signature("sum.dim(Tensor self, int[2]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor");
  CHECK(s.full_name() == "sum.dim");
  REQUIRE(s.params.size() == 4);
  CHECK(s.params[0].type == Type::tensor);
  CHECK_FALSE(s.params[0].fallback);
  CHECK((s.params[1].list && s.params[1].optional && s.params[1].list_size == 2));
  CHECK(s.params[1].fallback->kind == ArgKind::none);
  CHECK((s.params[2].fallback->kind == ArgKind::boolean && s.params[2].fallback->i == 0 && !s.params[2].keyword_only));
  CHECK((s.params[3].keyword_only && s.params[3].type == Type::dtype));
  REQUIRE(s.results.size() == 1);
  CHECK(s.results[0].name.empty());
}

TEST_CASE("What belongs to optim has a name of two words", "[signature]") {
  const Signature s = parse_signature("optim.step(Optimizer self) -> ()");
  CHECK(s.name == "optim.step");
  CHECK(s.overload.empty());
  CHECK(s.full_name() == "optim.step");
  CHECK(s.params.at(0).type == Type::optimizer);
}

TEST_CASE("Every kind of default is read", "[signature]") {
  const Signature s = parse_signature(
      "f(int a=-3, float b=1e-5, Scalar c=2.5, str d='mean', dtype e=float32, int[] f=[1, -2], float g=2, device "
      "h='cpu', "
      "Tensor?[]? i=None, float j=inf) -> ()");
  const auto fallback = [&](int i) { return *s.params.at(static_cast<size_t>(i)).fallback; };
  CHECK(fallback(0).i == -3);
  CHECK(fallback(1).f == 1e-5);
  CHECK((fallback(2).kind == ArgKind::real && fallback(2).f == 2.5));
  CHECK((fallback(3).kind == ArgKind::text && fallback(3).text == "mean"));
  CHECK(fallback(4).text == "float32");
  CHECK(fallback(5).ints == std::vector<int64_t>{1, -2});
  CHECK(fallback(6).kind == ArgKind::integer);
  CHECK(fallback(7).text == "cpu");
  CHECK((s.params[8].element_optional && s.params[8].list && s.params[8].optional));
  CHECK(fallback(9).f > 1e308);
  CHECK(s.results.empty());
}

TEST_CASE("Results may be one, several with names, a list or optional", "[signature]") {
  const Signature s = parse_signature("max(Tensor self, int dim) -> (Tensor values, Tensor? indices)");
  REQUIRE(s.results.size() == 2);
  CHECK((s.results[0].name == "values" && s.results[1].name == "indices" && s.results[1].optional));
  CHECK(parse_signature("split(Tensor self, int n) -> Tensor[]").results[0].list);
  CHECK(parse_signature("g() -> Tensor?").results[0].optional);
}

TEST_CASE("A bad signature is refused with the text from where it stops making sense", "[signature]") {
  const auto says = [](const char* text, const char* rest) {
    INFO(text);
    CHECK_THROWS_MATCHES(parse_signature(text), Error,
                         Catch::Matchers::MessageMatches(Catch::Matchers::EndsWith(std::string(" at '") + rest + "'")));
  };
  says("", "");
  says("f", "");
  says("f(Tensr x) -> Tensor", "Tensr x) -> Tensor");
  says("f(Tensor) -> Tensor", ") -> Tensor");
  says("f(Tensor x, Tensor x) -> Tensor", ") -> Tensor");
  says("f(Tensor x) - Tensor", "- Tensor");
  says("f(Tensor x) -> Tensor junk", "junk");
  says("f(int x=None) -> Tensor", ") -> Tensor");
  says("f(int x='a) -> Tensor", "a) -> Tensor");
  says("f(int x=1.5) -> Tensor", ") -> Tensor");
  says("f(dtype x=float33) -> Tensor", ") -> Tensor");
  says("f(int[0] x) -> Tensor", "] x) -> Tensor");
  says("f(Tensor x) -> (Tensor a, Tensor b", "");
  says("f(Tensor x) -> Scalar", "");
}
