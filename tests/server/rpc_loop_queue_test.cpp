#include "server/rpc/loop_queue.h"

#include <kj/async-io.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace gradwire::server {
namespace {

/// A loop that serves a queue for as long as this lives.
struct QueueRig {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  std::shared_ptr<LoopQueue> queue = std::make_shared<LoopQueue>();
  kj::Promise<void> serving = queue->serve(io.unixEventPort).eagerlyEvaluate(nullptr);
};

TEST_CASE("what other threads post runs on the loop, each thread's in order", "[server][rpc]") {
  QueueRig rig;
  constexpr int kThreads = 4, kEach = 5000;
  std::vector<int> last(kThreads, -1);
  int ran = 0;
  bool ordered = true;
  auto paf = kj::newPromiseAndFulfiller<void>();
  const auto home = std::this_thread::get_id();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        rig.queue->post([&, t, i] {
          ordered &= last[t] == i - 1 && std::this_thread::get_id() == home;
          last[t] = i;
          if (++ran == kThreads * kEach) paf.fulfiller->fulfill();
        });
      }
    });
  }
  paf.promise.wait(rig.io.waitScope);
  for (auto& t : threads) t.join();
  CHECK(ordered);
  CHECK(ran == kThreads * kEach);
}

TEST_CASE("an answer from another thread fulfils its promise, a dropped one rejects it", "[server][rpc]") {
  QueueRig rig;
  Done<int> kept, dropped;
  auto first = rig.queue->expect(kept);
  auto second = rig.queue->expect(dropped);
  std::thread other([kept = std::move(kept), dropped = std::move(dropped)]() mutable {
    dropped = Done<int>();
    kept(42);
  });
  CHECK(*first.wait(rig.io.waitScope) == 42);
  CHECK_THROWS_AS(second.wait(rig.io.waitScope), kj::Exception);
  other.join();
}

TEST_CASE("an answer may come on the loop itself, and nobody need wait for it", "[server][rpc]") {
  QueueRig rig;
  Done<int> here, unheard;
  auto promise = rig.queue->expect(here);
  { auto gone = rig.queue->expect(unheard); }
  unheard(1);
  here(7);
  CHECK(*promise.wait(rig.io.waitScope) == 7);
}

TEST_CASE("what is thrown on the loop stops nothing", "[server][rpc]") {
  QueueRig rig;
  auto paf = kj::newPromiseAndFulfiller<void>();
  rig.queue->post([] { throw 1; });
  rig.queue->post([&] { paf.fulfiller->fulfill(); });
  paf.promise.wait(rig.io.waitScope);
  SUCCEED();
}

TEST_CASE("no answer is missed, whether the loop looks for it or sleeps", "[server][rpc]") {
  QueueRig rig;
  std::atomic<Done<int>*> asked{nullptr};
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load()) {
      if (Done<int>* d = asked.exchange(nullptr)) {
        (*d)(5);
        delete d;
      }
    }
  });
  int right = 0;
  for (int i = 0; i < 20000; ++i) {
    auto done = std::make_unique<Done<int>>();
    auto promise = rig.queue->expect(*done);
    asked = done.release();
    if (i % 3) rig.queue->linger();
    right += *promise.wait(rig.io.waitScope) == 5;
  }
  stop = true;
  other.join();
  CHECK(right == 20000);
}

TEST_CASE("after the end of the loop answers are dropped where they are made", "[server][rpc]") {
  std::shared_ptr<LoopQueue> queue;
  Done<int> late;
  {
    QueueRig rig;
    queue = rig.queue;
    {
      auto promise = queue->expect(late);
      queue->post([] { FAIL("ran after the end"); });
      rig.serving = kj::READY_NOW;
    }
    queue->close();
  }
  std::thread([&] {
    late(1);
    queue->post([] { FAIL("ran after the end"); });
  }).join();
  SUCCEED();
}

}  // namespace
}  // namespace gradwire::server
