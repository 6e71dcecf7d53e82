#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "schema/error.h"
#include "server/clock.h"

namespace gradwire::server {

class Metrics;

/// What a step says: the task is answered; it wants another turn; it waits for wake() and holds no thread.
enum class Step { done, again, waiting };

/// A piece of work of one queue. Its steps run on lanes, never two at a time, in one piece or in many.
class Task {
 public:
  virtual ~Task() = default;
  /// Works until about `until`.
  virtual Step step(Clock::time_point until) = 0;
  /// Answers in place of further steps, when one threw or the executor ends.
  virtual void fail(const Error&) noexcept = 0;
};

struct QueueLimits {
  size_t tasks = 1024, bytes = size_t{32} << 20;           // of one queue
  size_t all_tasks = 200000, all_bytes = size_t{1} << 30;  // of all queues
};

/// The compute threads. Every session has a queue whose tasks run in order; the lane that is free takes the queue that
/// has had the least time so far, for a turn of about 2 ms. Thread-safe.
class Executor {
 public:
  class Queue;
  using QueuePtr = std::shared_ptr<Queue>;
  static constexpr Clock::time_point::duration kBudget = std::chrono::milliseconds(2);

  /// `lanes` threads, each with an OpenMP team of `threads`.
  Executor(const Clock&, Metrics&, int lanes, int threads, QueueLimits = {});
  /// Waits for the steps in hand; what is queued fails with `closed`, on this thread.
  ~Executor();
  int lanes() const;
  int threads() const;

  QueuePtr make_queue();
  /// Takes the task, or leaves it and says why not: `overloaded`, or `closed` after shut() or the end. `bytes` count
  /// until the task is answered. A forced task finds its place in a full queue: for the one that ends a session.
  std::optional<Code> push(const QueuePtr&, std::unique_ptr<Task>& task, size_t bytes, bool forced = false);
  /// No more tasks; those queued still run.
  void shut(const QueuePtr&);
  /// The task in front, which said `waiting`, goes on; no effect otherwise.
  void wake(const QueuePtr&);
  /// True while nothing is queued or running.
  bool idle() const;
  /// Nothing of the queue runs or could: it is empty, or the task in front waits.
  bool rests(const QueuePtr&) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::server
