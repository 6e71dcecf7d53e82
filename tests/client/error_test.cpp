#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "client/gradwire.h"
#include "tests/client/fake.h"

using namespace gradwire;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using namespace std::chrono_literals;

namespace {
const Error kWrong(Code::shape_mismatch, "The size of tensor a (3) must match the size of tensor b (2)", "exp");
}

TEST_CASE("An error is thrown as the class of its code, with operator and line", "[client][errors]") {
  Fake fake;
  fake.fail(op::exp, kWrong);
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  const uint32_t line = __LINE__ + 1;
  auto y = x.exp();
  try {
    client.session().sync();
    FAIL("nothing was thrown");
  } catch (const ShapeMismatch& e) {
    CHECK(e.code() == Code::shape_mismatch);
    CHECK(e.op() == "exp");
    CHECK(e.where().line == line);
    CHECK_THAT(e.where().file, EndsWith("error_test.cpp"));
    CHECK_THAT(e.what(), ContainsSubstring("must match"));
  }
}

TEST_CASE("After an error the session goes on as if the line had thrown", "[client][errors]") {
  Fake fake;
  fake.fail(op::exp, kWrong);
  auto client = connect(fake.address());
  fake.hold();  // an answer that came early would be thrown by x * 2
  auto x = tensor({1., 2.});
  auto before = x + 1;
  auto failed = x.exp();
  auto skipped = x * 2, depends = failed + 1;
  fake.let_go();
  CHECK_THROWS_AS(client.session().sync(), ShapeMismatch);
  SECTION("tensors made before it are there") {
    CHECK(x.to_vector<float>() == std::vector<float>{1, 2});
    CHECK_NOTHROW(before + 1);
    CHECK_NOTHROW(client.session().sync());
  }
  SECTION("tensors made by it and after it throw the same error when used") {
    CHECK_THROWS_AS(failed + 1, ShapeMismatch);
    CHECK_THROWS_AS(skipped.item<float>(), ShapeMismatch);
    CHECK_THROWS_AS(depends.shape(), ShapeMismatch);
    CHECK_NOTHROW(client.session().sync());
  }
  SECTION("the next batch opens the next epoch") {
    auto z = x + 1;
    client.session().sync();
    const auto all = fake.batches();
    CHECK(all.front().epoch == 0);
    CHECK(all.back().epoch == 1);
  }
  SECTION("handles of nothing are not released") {
    failed = skipped = depends = Tensor();
    x = x + 1;
    client.session().sync();
    int releases = 0;
    for (const auto& b : fake.batches()) {
      for (const auto& c : b.calls) releases += c.op == OpCall::kRelease;
    }
    CHECK(releases == 1);
  }
  SECTION("a second error is a new one") {
    fake.fail(op::log, Error(Code::dtype_mismatch, "no", "log"));
    auto y = x.log();
    CHECK_THROWS_AS(y.item<float>(), DTypeMismatch);
    CHECK_THROWS_AS(failed + 1, ShapeMismatch);
    CHECK_THROWS_AS(y + 1, DTypeMismatch);
  }
}

TEST_CASE("The error of a call is thrown by a later call too", "[client][errors]") {
  Fake fake;
  fake.fail(op::exp, kWrong);
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  auto y = x.exp();
  const auto many = [&] {
    for (int i = 0; i < 1'000'000; ++i) auto z = x + 1;
  };
  CHECK_THROWS_AS(many(), ShapeMismatch);
}

TEST_CASE("Destructors throw nothing; the error waits", "[client][errors]") {
  Fake fake;
  fake.fail(op::exp, kWrong);
  auto client = connect(fake.address());
  fake.hold();  // an answer that came early would be thrown by the next exp()
  {
    auto x = tensor({1., 2.});
    for (int i = 0; i < 10; ++i) x.exp();
  }
  fake.let_go();
  CHECK_THROWS_AS(client.session().close(), ShapeMismatch);
  CHECK(fake.closed() == 1);
}

TEST_CASE("A value that does not come in time is an error, and may come later for others", "[client][timeout]") {
  Fake fake;
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  client.session().sync();
  fake.hold();
  CHECK_THROWS_AS(x.to_vector<float>(20ms), DeadlineExceeded);
  CHECK_THROWS_AS(client.session().sync(20ms), DeadlineExceeded);
  auto later = x.async_to_vector<float>();
  CHECK_FALSE(later.ready());
  fake.let_go();
  CHECK(later.get() == std::vector<float>{1, 2});
}

TEST_CASE("Every call after a lost connection says so", "[client][errors]") {
  Fake fake;
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  client.session().sync();
  fake.hold();
  auto value = x.async_to_vector<float>();
  fake.batches(2);
  fake.hang_up();
  CHECK_THROWS_AS(value.get(), Unavailable);
  CHECK_THROWS_AS(client.session().sync(), Unavailable);
  CHECK_THROWS_AS(x + 1, Unavailable);
  CHECK_THROWS_AS(client.info(), Unavailable);
  CHECK_NOTHROW(client.session().close());
}

TEST_CASE("An upload that the server does not take ends in time, and with it the connection",
          "[client][timeout][bulk]") {
  Fake fake;
  auto client = connect(fake.address(), {.timeout = 1000ms});
  fake.hold();
  {
    const std::vector<double> bytes(4'000'000);
    CHECK_THROWS_AS(from_span(bytes), DeadlineExceeded);
  }  // nothing refers to them any more
  CHECK(fake.writes().size() < 4'000'000 * sizeof(double) / (512 << 10));  // some were never sent
  CHECK_THROWS_AS(client.info(), Unavailable);
}

TEST_CASE("An upload ends with a lost connection", "[client][errors][bulk]") {
  Fake fake;
  auto client = connect(fake.address());
  fake.hold();
  std::thread cut([&] {
    fake.writes(8);
    fake.hang_up();
  });
  CHECK_THROWS_AS(from_span(std::vector<double>(4'000'000)), Unavailable);
  cut.join();
}

TEST_CASE("A closed session refuses calls, and closing twice is harmless", "[client][K12]") {
  Fake fake;
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  client.session().close();
  client.session().close();
  CHECK(fake.closed() == 1);
  CHECK_THROWS_MATCHES(x + 1, Closed, Catch::Matchers::Message("Attempted to use a closed Session."));
  CHECK_THROWS_AS(x.item<float>(), Closed);
}

TEST_CASE("A session ends with its last handle and tensor", "[client][sessions]") {
  Fake fake;
  {
    auto client = connect(fake.address());
    Tensor kept;
    {
      auto session = client.open();
      kept = tensor(session, {1., 2.});
    }
    CHECK(kept.to_vector<float>() == std::vector<float>{1, 2});  // the tensor keeps it
    kept = Tensor();
    CHECK(fake.closed(1) == 1);
  }
  CHECK(fake.closed() == 2);
}

TEST_CASE("Tensors of two sessions do not mix", "[client][errors]") {
  Fake fake;
  auto client = connect(fake.address());
  auto other = client.open();
  auto x = tensor({1., 2.}), y = tensor(other, {1., 2.});
  CHECK_THROWS_MATCHES(x + y, BadArgument, Catch::Matchers::MessageMatches(ContainsSubstring("same session")));
}

TEST_CASE("Connecting fails with a reason", "[client][connect]") {
  Fake fake({.token = "secret"});
  CHECK_THROWS_AS(connect(fake.address()), Unauthenticated);
  CHECK_NOTHROW(connect(fake.address(), {.token = "secret"}));
  CHECK_THROWS_AS(connect("nonsense"), BadArgument);
  CHECK_THROWS_AS(connect("unix:/nowhere/at/all"), Unavailable);
  CHECK_THROWS_AS(connect("127.0.0.1:1"), Unavailable);
  CHECK_THROWS_AS(connect(fake.address(), {.token = "secret"}, kCatalogueHash + 1), Internal);  // other headers
}

TEST_CASE("Without a client there is no session to make tensors in", "[client][sessions]") {
  CHECK_THROWS_AS(tensor({1, 2}), Closed);
  CHECK_THROWS_AS(zeros({2}), Closed);
  Tensor none;
  CHECK_FALSE(none.defined());
  CHECK_THROWS_AS(none + 1, BadArgument);
  CHECK_THROWS_AS(none.shape(), BadArgument);
}
