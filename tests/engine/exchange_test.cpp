// Rows that work with other ranks, seen from the engine.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>

#include "engine/exchange.h"
#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {
std::string said(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.op() + ": " + e.message();
  }
  return "nothing";
}
}  // namespace

TEST_CASE("Without groups every collective says that there is no default group", "[H4]") {
  Engine e;
  e.cx.exchange = nullptr;
  const Tensor x = e.doubles({2}, {1, 2});
  const std::string why =
      ": Default process group has not been initialized, please make sure to call init_process_group.";
  CHECK(said([&] { all_reduce(x); }) == "all_reduce" + why);
  CHECK(said([&] { gradwire::barrier(e.cx); }) == "barrier" + why);
  CHECK(said([&] { gradwire::get_rank(e.cx); }) == "get_rank" + why);
  CHECK(said([&] { gradwire::isend(x, 1); }) == "isend" + why);
  CHECK(values(gradwire::is_initialized(e.cx)) == Values{0});
  CHECK(values(x) == Values{1, 2});
}

TEST_CASE("A collective writes leaves that require grad, without history, and a saved tensor notices",
          "[H20][H32][A35]") {
  Engine e;
  const Tensor w = e.leaf({2}, {1, 2});
  const Tensor y = w * w;
  CHECK(gradwire::all_reduce(w).get() == w.get());
  CHECK(w.version() == 1);
  CHECK(w.is_leaf());
  CHECK(said([&] { gradwire::sum(y).backward(); }).find("modified by an inplace operation") != std::string::npos);
}

TEST_CASE("A tensor that a snapshot holds is copied before a collective writes it", "[H20][T24]") {
  Engine e;
  const Tensor x = e.doubles({2}, {1, 2});
  const Snapshot before = snapshot(x);
  gradwire::recv(x, 1);  // zeros, of a rank that says nothing
  CHECK(values(x) == Values{0, 0});
  CHECK(static_cast<const double*>(before.data)[1] == 2);
}

TEST_CASE("Requests that nobody waits for are bounded", "[H17][T24]") {
  class Slow final : public Transfer {
   public:
    bool done() const override { return false; }
    int result() override { return -1; }
    std::byte room[8];
    Slow() { bytes = room; }
  };
  struct Far final : Exchange {
    bool has(std::string_view) override { return true; }
    Group group(std::string_view) override { return {0, 2, nullptr}; }
    TransferPtr prepare(std::string_view, size_t) override { return std::make_shared<Slow>(); }
    void start(const TransferPtr&, std::string_view, const Terms&) override {}
    TransferPtr join(std::string_view, const JoinCall&) override { return nullptr; }
    TransferPtr split(std::string_view, std::string_view, std::span<const int64_t>) override { return nullptr; }
    void leave(std::string_view, std::string_view) override {}
  };
  Engine e;
  Far far;
  e.cx.exchange = &far;
  const Tensor x = e.doubles({1}, {1});
  for (size_t i = 0; i < Exchange::kRequests; ++i) gradwire::isend(x, 1);
  CHECK(said([&] { gradwire::isend(x, 1); }) == "isend: 1024 requests have not been waited for, which is the most");
  const Tensor first = e.make<int64_t>(DType::int64, {}, {1});
  CHECK(values(gradwire::is_completed(first)) == Values{0});
  gradwire::wait(first);
  REQUIRE(e.cx.pending);  // whoever runs the calls goes on when it is done
  e.cx.pending.reset();
  CHECK_NOTHROW(gradwire::isend(x, 1));
}
