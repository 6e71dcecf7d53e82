#pragma once

#include <kj/async-unix.h>
#include <kj/async.h>

#include <atomic>
#include <memory>
#include <utility>

#include "server/result.h"

namespace gradwire::server {

/// The way back to a KJ loop from other threads: one queue, and one wake-up for all that came since the loop last
/// looked. Only values cross: what a promise needs is touched on the loop alone.
class LoopQueue : public std::enable_shared_from_this<LoopQueue> {
 public:
  class Node {
   public:
    virtual ~Node() noexcept = default;
    virtual void run() = 0;  // on the loop, in the order of posting

   private:
    friend class LoopQueue;
    Node* next_ = nullptr;
  };

  LoopQueue();
  ~LoopQueue();

  /// Any thread. After close() the node is only deleted.
  void post(std::unique_ptr<Node>) noexcept;
  template <class F>
  requires std::is_invocable_v<F&>
  void post(F f) {
    struct Call final : Node {
      explicit Call(F g) : f(std::move(g)) {}
      void run() override { f(); }
      F f;
    };
    post(std::unique_ptr<Node>(new Call(std::move(f))));
  }

  /// Loop thread: runs what comes for as long as the promise lives.
  kj::Promise<void> serve(kj::UnixEventPort&);
  /// Loop thread, when every promise of expect() is gone: nothing runs any more.
  void close();
  /// Loop thread: runs what is there now; false if there was nothing.
  bool run_all();

  /// Loop thread: an answer is expected within microseconds. Once all else is done, the loop looks for it for a moment
  /// before it sleeps: waking it costs more than most batches take. Gives up for a while where that does not help.
  void linger();

  /// Loop thread: `done` may then be called on any thread; one that is dropped without a call rejects the promise.
  template <class T> kj::Promise<std::unique_ptr<T>> expect(Done<T>& done) {
    auto paf = kj::newPromiseAndFulfiller<std::unique_ptr<T>>();
    done = Done<T>(Ticket<T>{shared_from_this(), std::make_unique<Answer<T>>(kj::mv(paf.fulfiller))});
    return kj::mv(paf.promise);
  }

 private:
  template <class T> struct Answer final : Node {
    explicit Answer(kj::Own<kj::PromiseFulfiller<std::unique_ptr<T>>> f) : to(kj::mv(f)) {}
    ~Answer() noexcept override = default;
    void run() override {
      if (value) {
        to->fulfill(std::move(value));
      } else {
        to->reject(kj::Exception(kj::Exception::Type::DISCONNECTED, __FILE__, __LINE__, kj::str("dropped unanswered")));
      }
    }
    kj::Own<kj::PromiseFulfiller<std::unique_ptr<T>>> to;
    std::unique_ptr<T> value;
  };
  template <class T> struct Ticket {
    std::shared_ptr<LoopQueue> queue;
    std::unique_ptr<Answer<T>> answer;
    Ticket(std::shared_ptr<LoopQueue> q, std::unique_ptr<Answer<T>> a) : queue(std::move(q)), answer(std::move(a)) {}
    Ticket(Ticket&&) noexcept = default;
    ~Ticket() {
      if (answer) queue->post(std::unique_ptr<Node>(std::move(answer)));
    }
    void operator()(T value) {
      answer->value = std::make_unique<T>(std::move(value));
      queue->post(std::unique_ptr<Node>(std::move(answer)));
    }
  };

  kj::Promise<void> watch(kj::UnixEventPort::FdObserver&);
  static Node* closed();

  void look();

  int event_;
  std::atomic<bool> looking_{false};  // the loop is awake, and sees what is posted without being rung
  bool lingering_ = false;            // the loop's, as those below
  int patience_ = kPatience, rest_ = 0;
  kj::Promise<void> lingered_ = nullptr;
  static constexpr int kPatience = 8;  // times in a row that looking may fail
  static constexpr int kRest = 256;    // times that it is then left out
  std::atomic<Node*> head_{nullptr};   // newest first
};

}  // namespace gradwire::server
