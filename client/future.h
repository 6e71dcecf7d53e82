#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "client/arrival.h"

namespace gradwire {

/// A value that is on its way. Copies share it.
template <class T> class Future {
 public:
  Future() = default;
  Future(std::shared_ptr<client::Arrival> arrival, T (*take)(client::Arrival&))
      : arrival_(std::move(arrival)), take_(take) {}

  /// Waits for the value; call it once. Throws the error of the calls before it, and Error{deadline_exceeded} when the
  /// timeout (zero: none) is over, after which the value is given up.
  T get(std::chrono::milliseconds timeout = {}) {
    arrival_->wait(timeout);
    return take_(*arrival_);
  }
  bool ready() const { return arrival_->ready(); }

 private:
  std::shared_ptr<client::Arrival> arrival_;
  T (*take_)(client::Arrival&) = nullptr;
};

}  // namespace gradwire
