#include "server/executor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <queue>
#include <thread>
#include <unordered_set>
#include <vector>

#include "server/metrics.h"
#include "server/thread_name.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace gradwire::server {

using Duration = Clock::time_point::duration;

class Executor::Queue {
 public:
  enum class State { idle, ready, running, waiting };
  struct Item {
    std::unique_ptr<Task> task;
    size_t bytes;
  };
  // All under Executor::Impl::mutex.
  std::deque<Item> items;
  State state = State::idle;
  bool shut = false;
  bool woken = false;  // wake() came while the task that is about to wait was still running
  size_t bytes = 0;
  Duration used{};  // time on lanes; a queue that was idle starts from what the others have had
};

namespace {

struct Ready {
  Duration used;
  uint64_t order;  // among equals the first come is served first
  Executor::QueuePtr queue;
  bool operator<(const Ready& o) const { return used != o.used ? used > o.used : order > o.order; }
};

/// No exception leaves a lane.
Step guarded_step(Task& task, Clock::time_point until) noexcept {
  std::optional<Error> error;
  try {
    return task.step(until);
  } catch (const Error& e) {
    error = e;
  } catch (const std::bad_alloc&) {
    error = Error(Code::memory_limit, "out of memory");
  } catch (const std::exception& e) {
    spdlog::error("a task threw: {}", e.what());
    error = Error(Code::internal, "internal error");
  } catch (...) {
    spdlog::error("a task threw");
    error = Error(Code::internal, "internal error");
  }
  task.fail(*error);
  return Step::done;
}

}  // namespace

struct Executor::Impl {
  const Clock& clock;
  Metrics& metrics;
  const int lane_count, threads;
  const QueueLimits limits;
  mutable std::mutex mutex;
  struct Lane {
    std::condition_variable work;
    bool called = false;
  };
  std::deque<Lane> all;     // as many as there are lanes
  std::vector<Lane*> idle;  // the one that worked last is the last: its team and its caches are warm
  std::priority_queue<Ready> ready;
  std::unordered_set<QueuePtr> waiting;
  Duration least{};  // what the queue served last had had
  uint64_t order = 0;
  size_t tasks = 0, bytes = 0;
  bool stop = false;
  std::vector<std::thread> lanes;

  Impl(const Clock& c, Metrics& m, int n, int t, QueueLimits l)
      : clock(c),
        metrics(m),
        lane_count(std::max(1, n)),
        threads(std::max(1, t)),
        limits(l),
        all(static_cast<size_t>(lane_count)) {}

  /// A lane that has nothing to do, called to work once it is notified; null: all are busy, and look by themselves.
  Lane* call_lane() {
    if (idle.empty()) return nullptr;
    Lane* lane = idle.back();
    idle.pop_back();
    lane->called = true;
    return lane;
  }

  /// Without waking a lane: whoever lets go of the lock does, so that no lane wakes up to a lock that is held.
  void make_ready(const QueuePtr& q, bool fresh) {
    if (fresh) q->used = std::max(q->used, least);
    q->state = Queue::State::ready;
    ready.push({q->used, order++, q});
  }

  void lane(Lane& self) {
    name_thread("gradwired:lane");
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
    std::unique_lock lock(mutex);
    for (;;) {
      while (!stop && ready.empty()) {
        self.called = false;
        idle.push_back(&self);
        self.work.wait(lock, [&] { return stop || self.called; });
      }
      if (stop) return;
      const QueuePtr q = ready.top().queue;
      ready.pop();
      least = std::max(least, q->used);
      turn(*q, lock);
      if (q->items.empty()) {
        q->state = Queue::State::idle;
      } else if (q->state == Queue::State::waiting) {
        waiting.insert(q);
      } else {
        make_ready(q, false);  // this lane takes the next, and needs no other
      }
    }
  }

  /// Steps of q's tasks until the budget is used, the queue is empty or its first task waits. Entered and left locked.
  void turn(Queue& q, std::unique_lock<std::mutex>& lock) {
    q.state = Queue::State::running;
    const auto begin = clock.now(), until = begin + kBudget;
    for (auto now = begin; !q.items.empty() && !stop;) {
      Task& task = *q.items.front().task;
      q.woken = false;
      lock.unlock();
      const Step step = guarded_step(task, until);
      const auto end = clock.now();
      metrics.observe(Metric::op_seconds, std::chrono::duration<double>(end - now).count());
      lock.lock();
      // At least a microsecond, so that a clock that stands still cannot make one queue the first for ever.
      q.used += std::max<Duration>(end - now, std::chrono::microseconds(1));
      now = end;
      if (step == Step::done) {
        Queue::Item item = std::move(q.items.front());
        q.items.pop_front();
        q.bytes -= item.bytes, bytes -= item.bytes, --tasks;
        lock.unlock();
        metrics.add(Metric::queued_tasks, -1);
        item.task.reset();
        lock.lock();
      } else if (step == Step::waiting && !q.woken) {
        q.state = Queue::State::waiting;
        return;
      }
      if (now >= until) return;
    }
  }
};

Executor::Executor(const Clock& clock, Metrics& metrics, int lanes, int threads, QueueLimits limits)
    : impl_(std::make_unique<Impl>(clock, metrics, lanes, threads, limits)) {
  for (auto& lane : impl_->all) impl_->lanes.emplace_back([this, &lane] { impl_->lane(lane); });
}

Executor::~Executor() {
  std::vector<QueuePtr> left;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    for (auto& lane : impl_->all) lane.work.notify_one();
  }
  for (auto& t : impl_->lanes) t.join();
  for (; !impl_->ready.empty(); impl_->ready.pop()) left.push_back(impl_->ready.top().queue);
  left.insert(left.end(), impl_->waiting.begin(), impl_->waiting.end());
  const Error closed(Code::closed, "the server is shutting down");
  for (const auto& q : left) {
    for (auto items = std::exchange(q->items, {}); auto& item : items) {
      item.task->fail(closed);
      item.task.reset();  // before the next: what it holds may belong to what the next one ends
      impl_->metrics.add(Metric::queued_tasks, -1);
    }
  }
}

int Executor::lanes() const { return impl_->lane_count; }
int Executor::threads() const { return impl_->threads; }
Executor::QueuePtr Executor::make_queue() { return std::make_shared<Queue>(); }

std::optional<Code> Executor::push(const QueuePtr& q, std::unique_ptr<Task>& task, size_t bytes, bool forced) {
  Impl& x = *impl_;
  Impl::Lane* lane = nullptr;
  {
    const std::lock_guard lock(x.mutex);
    if (q->shut || x.stop) {
      x.metrics.add(Metric::tasks_refused, "closed");
      return Code::closed;
    }
    // Subtractions: a count from outside cannot overflow the sums.
    const bool full = q->items.size() >= x.limits.tasks ||
                      (q->bytes && bytes > x.limits.bytes - std::min(q->bytes, x.limits.bytes)) ||
                      x.tasks >= x.limits.all_tasks ||
                      (x.bytes && bytes > x.limits.all_bytes - std::min(x.bytes, x.limits.all_bytes));
    if (full && !forced) {
      x.metrics.add(Metric::tasks_refused, "full");
      return Code::overloaded;
    }
    q->items.push_back({std::move(task), bytes});
    q->bytes += bytes, x.bytes += bytes, ++x.tasks;
    if (q->state == Queue::State::idle) {
      x.make_ready(q, true);
      lane = x.call_lane();
    }
  }
  if (lane) lane->work.notify_one();
  x.metrics.add(Metric::queued_tasks, 1);
  return std::nullopt;
}

void Executor::shut(const QueuePtr& q) {
  const std::lock_guard lock(impl_->mutex);
  q->shut = true;
}

void Executor::wake(const QueuePtr& q) {
  const std::lock_guard lock(impl_->mutex);
  q->woken = true;
  if (q->state != Queue::State::waiting) return;
  impl_->waiting.erase(q);
  impl_->make_ready(q, true);
  // With the lock held: what the task does next may end with the executor, which takes the lock first.
  if (Impl::Lane* lane = impl_->call_lane()) lane->work.notify_one();
}

bool Executor::idle() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->tasks == 0;
}

bool Executor::rests(const QueuePtr& q) const {
  const std::lock_guard lock(impl_->mutex);
  return q->state == Queue::State::waiting || (q->state == Queue::State::idle && q->items.empty());
}

}  // namespace gradwire::server
