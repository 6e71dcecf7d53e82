#pragma once

#include <memory>
#include <string>

#include "server/cluster/data_plane.h"
#include "server/cluster/message.h"
#include "server/rpc/loop_queue.h"

namespace gradwire::server::cluster {

class Member;
class Coordinator;

/// The loop that the parts of a cluster live on: everything here is called on its thread, once for each pass.
class Home {
 public:
  virtual ~Home() = default;
  virtual const std::shared_ptr<LoopQueue>& queue() = 0;
  virtual std::unique_ptr<DataPlane> make_plane(const std::string& backend) = 0;
  /// Keeps them, and lets them look at the time about twenty times a second, until they are dropped.
  virtual void keep(std::shared_ptr<Member>) = 0;
  virtual void keep(std::shared_ptr<Coordinator>) = 0;
  virtual void drop(Member&) = 0;
  virtual void drop(Coordinator&) = 0;
};

/// Somebody's Done that is called in any case: with `unavailable` where its owner goes without an answer.
template <class T> class Answer {
 public:
  Answer() = default;
  explicit Answer(Done<Result<T>> done) : done_(std::move(done)) {}
  Answer(Answer&&) noexcept = default;
  Answer& operator=(Answer&& other) noexcept {
    if (this != &other) close(), done_ = std::move(other.done_);
    return *this;
  }
  ~Answer() { close(); }
  explicit operator bool() const { return static_cast<bool>(done_); }
  void operator()(Result<T> r) noexcept {
    if (!done_) return;
    try {
      done_(std::move(r));
    } catch (...) {
      // Whoever asked is beyond help; the loop goes on.
    }
  }

 private:
  void close() noexcept {
    if (done_) (*this)(Result<T>(Error(Code::unavailable, "the cluster of this server has ended")));
  }
  Done<Result<T>> done_;
};

}  // namespace gradwire::server::cluster
