#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "server/http/async.h"
#include "server/http/connection.h"

namespace gradwire::server::http {

/// Counts the frames that a client sends, as bytes go by: Beast joins fragments, also empty ones, without end.
class FrameCounter {
 public:
  explicit FrameCounter(int max_fragments) : max_(max_fragments) {}
  /// False: a message has more fragments, or more control frames came between two messages, than is allowed.
  bool feed(const uint8_t* bytes, size_t n);

 private:
  int max_, frames_ = 0, controls_ = 0;
  uint8_t head_[10];
  size_t have_ = 0;
  uint64_t skip_ = 0;  // bytes of mask and payload to come
};

/// Throws Error{bad_request} where the head of a request for this path is not an upgrade to gradwire.v1.
void check_upgrade(const Head&);

/// What a connection became, for those who look after connections. On the loop's thread.
class Upgraded {
 public:
  virtual ~Upgraded() = default;
  virtual void check(std::chrono::steady_clock::time_point now) = 0;
  virtual void drain() = 0;
};

/// Upgrades the connection on `fd`, whose request's head was `head`, and speaks gradwire.v1 until it ends; `upgraded`
/// is set for that time. Never throws.
Async<void> serve_websocket(Shared&, int fd, std::string head, std::string session, Upgraded*& upgraded);

}  // namespace gradwire::server::http
