#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "server/result.h"

namespace gradwire::server::http {

/// A thread that reads and writes long JSON texts, so that neither a loop nor a lane does. Works off its queue in
/// order; the destructor finishes what is queued. Any thread may post.
class Scribe {
 public:
  static constexpr size_t kMaxQueue = 1024;  // tasks

  Scribe() : thread_([this] { run(); }) {}
  Scribe(const Scribe&) = delete;
  ~Scribe() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  /// A task does not throw. False: the queue is full, and the task is left as it was.
  template <class F> bool post(F& task) {
    {
      const std::lock_guard lock(mutex_);
      if (queue_.size() >= kMaxQueue) return false;
      queue_.emplace_back([t = std::move(task)](int) mutable { t(); });
    }
    wake_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Done<int> task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task(0);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Done<int>> queue_;
  bool stop_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace gradwire::server::http
