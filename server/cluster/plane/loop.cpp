#include "server/cluster/plane/loop.h"
#include "server/thread_name.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <system_error>

namespace gradwire::server::cluster::plane {

// A deadline that is further off wakes the loop only when it is set: the loop comes by so often.
constexpr std::chrono::seconds kGlance{1};

Loop& Loop::get() {
  static Loop loop;
  return loop;
}

Loop::Loop() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_) throw Error(Code::unavailable, "data plane: eventfd: " + std::generic_category().message(errno));
  thread_ = std::thread([this] { run(); });
}

Loop::~Loop() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake();
  thread_.join();
}

void Loop::add(std::shared_ptr<Member> m) {
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(m));
  }
  wake();
}

void Loop::post(Task t) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(t));
  }
  wake();
}

void Loop::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);  // a full counter wakes as well
}

void Loop::wake_for(Time t) {
  if (t.time_since_epoch().count() < until_) wake();
}

void Loop::run() {
  name_thread("gradwired:plane");
  using namespace std::chrono;
  std::vector<std::shared_ptr<Member>> members;
  std::vector<Task> tasks;
  std::vector<pollfd> polled;
  for (;;) {
    // Set before the members are asked: what comes between is not lost, it wakes.
    until_ = Time::max().time_since_epoch().count();
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      std::move(added_.begin(), added_.end(), std::back_inserter(members));
      added_.clear();
      std::swap(tasks, tasks_);
    }
    for (Task& t : tasks) t({});
    tasks.clear();
    Time until = members.empty() ? Time::max() : steady_clock::now() + kGlance;
    polled.assign(1, {event_.get(), POLLIN, 0});
    for (const auto& m : members) {
      polled.push_back({m->fd(), m->events(), 0});
      until = std::min(until, m->next());
    }
    until_ = until.time_since_epoch().count();
    int ms = -1;
    if (until != Time::max()) {
      const Time now = steady_clock::now();
      ms = static_cast<int>(std::min<int64_t>(ceil<milliseconds>(std::max(until, now) - now).count(), 60'000));
    }
    if (::poll(polled.data(), polled.size(), ms) < 0) {
      for (pollfd& p : polled) p.revents = 0;
    }
    if (polled[0].revents) {
      uint64_t count;
      [[maybe_unused]] const ssize_t n = ::read(event_.get(), &count, sizeof count);
    }
    const Time now = steady_clock::now();
    size_t i = 0;
    std::erase_if(members, [&](const auto& m) { return !m->turn(polled[++i].revents, now); });
  }
}

}  // namespace gradwire::server::cluster::plane
