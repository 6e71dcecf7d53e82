#pragma once

#include <chrono>

namespace gradwire::server {

/// Time as the server sees it; tests bring their own. Deadlines are durations on the steady clock.
class Clock {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual time_point now() const { return std::chrono::steady_clock::now(); }
};

}  // namespace gradwire::server
