// Operators with several results through the SDK, on a server of its own.
#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>

#include "client/gradwire.h"

using namespace gradwire;
using Floats32 = std::vector<float>;
using Whole = std::vector<int64_t>;

namespace {
Client& server() {
  ::setenv("GRADWIRED", GRADWIRE_BIN "/gradwired", 1);
  static Client client = connect("local", {.connect_timeout = std::chrono::seconds(60)});
  return client;
}
}  // namespace

TEST_CASE("An operator's two results arrive as handles of their own", "[client][local][several]") {
  Session session = server().open();
  set_default_session(session);
  auto x = tensor({{1., 5., 2.}, {6., 4., 3.}}, {.requires_grad = true});
  const auto [best, at] = max(x, 1);
  CHECK(best.to_vector<float>() == Floats32{5, 6});
  CHECK(at.to_vector<int64_t>() == Whole{1, 0});
  auto [sorted, places] = x.sort({.dim = 0, .descending = true});
  sum(sorted * tensor({{1., 2., 3.}, {4., 5., 6.}})).backward();
  CHECK(x.grad().to_vector<float>() == Floats32{4, 2, 6, 1, 5, 3});
  CHECK(places.to_vector<int64_t>() == Whole{1, 0, 1, 0, 1, 0});
  CHECK(max(x).item<float>() == 6);
  CHECK(max(x, x * 2).to_vector<float>() == Floats32{2, 10, 4, 12, 8, 6});
}

TEST_CASE("Using one result after the call failed throws that error again", "[client][local][several]") {
  Session session = server().open();
  set_default_session(session);
  auto x = tensor({1., 2.});
  auto [values, indices] = topk(x, 3);
  CHECK_THROWS_AS(values.to_vector<float>(), Error);
  CHECK_THROWS_AS(indices.to_vector<int64_t>(), Error);
  CHECK(x.to_vector<float>() == Floats32{1, 2});
}
