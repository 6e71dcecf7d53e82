#include "server/executor.h"

#include <catch2/catch_test_macros.hpp>
#include <condition_variable>
#include <functional>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/server/rig.h"

namespace gradwire::server {
namespace {

struct FnTask final : Task {
  std::function<Step(Clock::time_point)> run;
  std::function<void(const Error&)> failed;
  Step step(Clock::time_point until) override { return run(until); }
  void fail(const Error& e) noexcept override {
    if (failed) failed(e);
  }
};
std::unique_ptr<Task> task(std::function<Step(Clock::time_point)> f, std::function<void(const Error&)> failed = {}) {
  auto t = std::make_unique<FnTask>();
  t->run = std::move(f), t->failed = std::move(failed);
  return t;
}
std::unique_ptr<Task> once(std::function<void()> f) {
  return task([f = std::move(f)](auto) { return f(), Step::done; });
}
/// Holds a lane until it is opened.
struct Gate {
  std::latch entered{1}, open{1};
  std::unique_ptr<Task> task() {
    return once([this] { entered.count_down(), open.wait(); });
  }
};

TEST_CASE("a queue runs its tasks in order, one at a time", "[server][executor]") {
  Clock clock;
  Metrics metrics;
  Executor x(clock, metrics, 4, 1);
  auto q = x.make_queue();
  std::vector<int> seen;  // no lock: two tasks at a time would be a race, which the thread sanitizer sees
  std::atomic<int> inside{0}, most{0};
  std::latch done(200);
  for (int i = 0; i < 200; ++i) {
    auto t = once([&, i] {
      most = std::max(most.load(), ++inside);
      seen.push_back(i);
      --inside;
      done.count_down();
    });
    REQUIRE(!x.push(q, t, 0));
  }
  done.wait();
  CHECK(most == 1);
  REQUIRE(seen.size() == 200);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
}

TEST_CASE("a task that wants another turn lets other queues in between", "[server][executor][T23]") {
  TestClock clock;
  Metrics metrics;
  Executor x(clock, metrics, 1, 1);
  auto hog = x.make_queue(), small = x.make_queue();
  std::atomic<bool> served{false};
  std::atomic<int> turns{0};
  std::promise<void> ended;
  auto endless = task([&](Clock::time_point) {
    ++turns;
    clock.advance(std::chrono::milliseconds(3));
    if (!served) return Step::again;
    ended.set_value();
    return Step::done;
  });
  auto quick = once([&] { served = true; });
  REQUIRE(!x.push(hog, endless, 0));
  REQUIRE(!x.push(small, quick, 0));
  ended.get_future().wait();  // would never come if the hog kept its lane
  CHECK(turns >= 1);
}

TEST_CASE("queues share a lane by time, not by turns", "[server][executor][T23]") {
  TestClock clock;
  Metrics metrics;
  Executor x(clock, metrics, 1, 1);
  auto a = x.make_queue(), b = x.make_queue(), first = x.make_queue();
  Gate gate;
  auto g = gate.task();
  REQUIRE(!x.push(first, g, 0));
  gate.entered.wait();
  // Both are ready before either runs. a's steps take 20 ms, b's 2 ms.
  int a_turns = 0, b_turns = 0;
  std::promise<int> ended;
  auto slow = task([&](auto) {
    clock.advance(std::chrono::milliseconds(20));
    if (++a_turns < 10) return Step::again;
    ended.set_value(b_turns);
    return Step::done;
  });
  auto fast = task([&](auto) {
    clock.advance(std::chrono::milliseconds(2));
    return ++b_turns < 1000 ? Step::again : Step::done;
  });
  REQUIRE(!x.push(a, slow, 0));
  REQUIRE(!x.push(b, fast, 0));
  gate.open.count_down();
  const int by_then = ended.get_future().get();
  CHECK(by_then >= 80);  // ten turns of 20 ms against turns of 2 ms
  CHECK(by_then <= 120);
}

TEST_CASE("a full queue refuses and leaves the task with its owner", "[server][executor]") {
  Clock clock;
  Metrics metrics;
  Executor x(clock, metrics, 1, 1, {.tasks = 3, .bytes = 100, .all_tasks = 5, .all_bytes = 150});
  auto q = x.make_queue(), other = x.make_queue();
  Gate gate;
  auto g = gate.task();
  REQUIRE(!x.push(q, g, 60));
  gate.entered.wait();
  auto t = once([] {});
  CHECK(x.push(q, t, 41) == Code::overloaded);
  CHECK(t != nullptr);
  CHECK(x.push(q, t, SIZE_MAX) == Code::overloaded);
  CHECK(!x.push(q, t, 40));
  t = once([] {});
  CHECK(!x.push(q, t, 0));
  t = once([] {});
  CHECK(x.push(q, t, 0) == Code::overloaded);       // three tasks
  CHECK(x.push(other, t, 51) == Code::overloaded);  // 150 bytes in all queues
  CHECK(!x.push(other, t, 50));
  t = once([] {});
  CHECK(x.push(other, t, 1) == Code::overloaded);
  CHECK(!x.push(q, t, 1, true));  // a forced one finds its place
  gate.open.count_down();
}

TEST_CASE("a task that throws is failed, and the lane goes on", "[server][executor]") {
  Clock clock;
  Metrics metrics;
  Executor x(clock, metrics, 1, 1);
  auto q = x.make_queue();
  std::vector<Code> codes;
  auto note = [&](const Error& e) { codes.push_back(e.code()); };
  std::unique_ptr<Task> bad[] = {
      task([](auto) -> Step { throw Error(Code::shape_mismatch, "x"); }, note),
      task([](auto) -> Step { throw std::bad_alloc(); }, note),
      task([](auto) -> Step { throw std::runtime_error("secret"); }, note),
      task([](auto) -> Step { throw 1; }, note),
  };
  for (auto& t : bad) REQUIRE(!x.push(q, t, 0));
  std::promise<void> after;
  auto last = once([&] { after.set_value(); });
  REQUIRE(!x.push(q, last, 0));
  after.get_future().wait();
  CHECK(codes == std::vector<Code>{Code::shape_mismatch, Code::memory_limit, Code::internal, Code::internal});
}

TEST_CASE("a waiting task holds no lane and goes on when it is woken", "[server][executor]") {
  Clock clock;
  Metrics metrics;
  Executor x(clock, metrics, 1, 1);
  auto q = x.make_queue(), other = x.make_queue();
  std::promise<void> parked, lane_free, ended;
  int steps = 0;
  auto waits = task([&](auto) {
    if (++steps == 1) return parked.set_value(), Step::waiting;
    ended.set_value();
    return Step::done;
  });
  REQUIRE(!x.push(q, waits, 0));
  parked.get_future().wait();
  auto quick = once([&] { lane_free.set_value(); });
  REQUIRE(!x.push(other, quick, 0));
  lane_free.get_future().wait();
  CHECK(!x.idle());
  x.wake(q);
  ended.get_future().wait();
  CHECK(steps == 2);
}

TEST_CASE("a wake that comes while the task is still running is not lost", "[server][executor]") {
  Clock clock;
  Metrics metrics;
  Executor x(clock, metrics, 1, 1);
  auto q = x.make_queue();
  std::promise<void> ended;
  int steps = 0;
  auto waits = task([&](auto) {
    if (++steps == 1) return x.wake(q), Step::waiting;
    ended.set_value();
    return Step::done;
  });
  REQUIRE(!x.push(q, waits, 0));
  ended.get_future().wait();
  CHECK(steps == 2);
}

TEST_CASE("what is queued when the executor ends is failed with `closed`", "[server][executor]") {
  Clock clock;
  Metrics metrics;
  std::vector<Code> codes;
  auto x = std::make_unique<Executor>(clock, metrics, 1, 1);
  auto q = x->make_queue();
  std::promise<void> parked;
  auto note = [&](const Error& e) { codes.push_back(e.code()); };
  auto waits = task([&](auto) { return parked.set_value(), Step::waiting; }, note);
  auto behind = task([](auto) { return Step::done; }, note);
  REQUIRE(!x->push(q, waits, 0));
  REQUIRE(!x->push(q, behind, 0));
  parked.get_future().wait();
  x.reset();
  CHECK(codes == std::vector<Code>{Code::closed, Code::closed});
}

TEST_CASE("a shut queue takes nothing more and runs what it has", "[server][executor]") {
  Clock clock;
  Metrics metrics;
  Executor x(clock, metrics, 1, 1);
  auto q = x.make_queue();
  Gate gate;
  std::promise<void> ran;
  auto g = gate.task(), queued = once([&] { ran.set_value(); }), late = once([] {});
  REQUIRE(!x.push(q, g, 0));
  REQUIRE(!x.push(q, queued, 0));
  x.shut(q);
  CHECK(x.push(q, late, 0, true) == Code::closed);
  gate.open.count_down();
  ran.get_future().wait();
}

}  // namespace
}  // namespace gradwire::server
