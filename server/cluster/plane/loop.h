#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "server/cluster/plane/fd.h"
#include "server/result.h"

namespace gradwire::server::cluster::plane {

using Time = std::chrono::steady_clock::time_point;
using Task = Done<std::monostate>;

/// The one thread that listens to all helpers of the process: it starts them, reads their answers, watches their
/// deadlines, and buries them. (It is also their parent in the kernel's eyes: a helper is killed when the thread that
/// started it ends.) It begins with the first plane and lasts until the process ends.
class Loop {
 public:
  /// Called on the loop's thread.
  class Member {
   public:
    virtual ~Member() = default;
    virtual int fd() = 0;        // -1: none
    virtual short events() = 0;  // of poll()
    /// False: it is no member any longer. `events`: what poll() has seen, maybe nothing.
    virtual bool turn(int events, Time now) = 0;
    /// When turn() must be called though nothing has happened.
    virtual Time next() = 0;
  };
  static Loop& get();
  ~Loop();
  // Any thread:
  void add(std::shared_ptr<Member>);
  void post(Task);
  /// Asks all members again what they wait for.
  void wake();
  /// wake(), if the loop would sleep beyond that time.
  void wake_for(Time);

 private:
  Loop();
  void run();

  Fd event_;
  std::mutex mutex_;
  bool over_ = false;
  std::vector<std::shared_ptr<Member>> added_;
  std::vector<Task> tasks_;
  std::atomic<Time::rep> until_{0};
  std::thread thread_;
};

}  // namespace gradwire::server::cluster::plane
