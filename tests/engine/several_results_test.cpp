#include <catch2/catch_test_macros.hpp>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

TEST_CASE("A call with two results gives both, and binds by structure", "[several][B32]") {
  Engine e;
  const Tensor x = e.doubles({2, 3}, {1, 5, 2, 6, 4, 3});
  const auto [best, at] = max(x, 1);
  CHECK(values(best) == Values{5, 6});
  CHECK(values(at) == Values{1, 0});
  CHECK(at.dtype() == DType::int64);
  const auto [sorted, places] = sort(x, {.dim = 1, .descending = true});
  CHECK(values(sorted) == Values{5, 2, 1, 6, 4, 3});
  CHECK(values(places) == Values{1, 2, 0, 0, 1, 2});
  CHECK(values(x.topk(2)[0]) == Values{5, 2, 6, 4});
  CHECK(values(x.max()) == Values{6});
  CHECK(values(x.max(x)) == values(x));
}

TEST_CASE("Of two results the one that floats carries the gradient", "[several][D43]") {
  Engine e;
  const Tensor x = e.leaf({2, 3}, {1, 5, 2, 6, 4, 3});
  auto [best, at] = max(x, 1, true);
  CHECK(best.requires_grad());
  CHECK_FALSE(at.requires_grad());
  best.backward(e.doubles({2, 1}, {10, 20}));
  CHECK(values(grad_of(x)) == Values{0, 10, 0, 20, 0, 0});
}

TEST_CASE("A result that is written to after it was saved is noticed, the other one is not needed", "[several][D20]") {
  Engine e;
  const Tensor x = e.leaf({3}, {1, 5, 2});
  auto [best, at] = max(x, 0);
  best.mul_(2);  // not saved
  CHECK_NOTHROW(grad({best}, {x}, {.retain_graph = true}));
  at.zero_();
  try {
    grad({best}, {x});
    FAIL("no error");
  } catch (const Error& err) {
    CHECK(err.code() == Code::inplace_modified);
    CHECK(err.message().find("which is output 1 of MaxBackward0") != std::string::npos);
  }
}

TEST_CASE("What two results hold is given back with the last of them", "[several][A25]") {
  Engine e;
  const int64_t before = e.cx.bytes_used(), nodes = e.cx.nodes();
  {
    const Tensor x = e.leaf({100}, Values(100, 1));
    Tensor kept;
    {
      auto [sorted, places] = sort(x);
      kept = sorted * 2;
    }
    CHECK(values(grad({sum(kept)}, {x}, {.create_graph = true})[0]) == Values(100, 2));
  }
  e.cx.pool.collect();
  CHECK(e.cx.nodes() == nodes);
  CHECK(e.cx.bytes_used() == before);
}
