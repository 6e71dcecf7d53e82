#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "client/errors.h"

namespace gradwire::client {

/// What one thread asks of another: a value or an error, once.
template <class R> class Answer {
 public:
  void set(R value) {
    std::lock_guard lock(mutex_);
    if (value_ || error_) return;
    value_ = std::move(value);
    changed_.notify_all();
  }
  void fail(Error e) {
    std::lock_guard lock(mutex_);
    if (value_ || error_) return;
    error_ = std::move(e);
    changed_.notify_all();
  }
  /// Zero: waits for as long as it takes.
  R wait(std::chrono::milliseconds timeout, const char* what) {
    std::unique_lock lock(mutex_);
    const auto done = [this] { return value_ || error_; };
    bool in_time = true;
    if (timeout.count())
      in_time = changed_.wait_for(lock, timeout, done);
    else
      changed_.wait(lock, done);
    if (!in_time) raise(Error(Code::deadline_exceeded, std::string(what) + " took too long"));
    if (error_) raise(*error_);
    return std::move(*value_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<R> value_;
  std::optional<Error> error_;
};

}  // namespace gradwire::client
