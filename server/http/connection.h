#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "server/http/async.h"
#include "server/http/head.h"
#include "server/http/http_server.h"
#include "server/http/scribe.h"

namespace boost::asio {
class io_context;
}
namespace gradwire::server {
class Metrics;
}

namespace gradwire::server::http {

/// What the connections of one listener share. The listener's thread owns it; `draining` and `turned` are for all.
struct Shared {
  boost::asio::io_context& loop;
  Service& service;
  Metrics& metrics;
  Scribe& scribe;
  HttpLimits limits;
  HostRules hosts;
  std::shared_ptr<Gate> gate;
  bool probe = false;
  std::function<bool()> alive;  // of the probe: whether the main loop turns
  std::atomic<bool> draining = false;
  size_t json_bytes = 0;  // of the bodies and answers in hand
};

/// One peer: reads requests one after the other, answers each, and closes. On the loop's thread.
class Connection {
 public:
  virtual ~Connection() = default;
  /// `ended` is called once, from the loop, when the connection is over and may be destroyed.
  virtual void start(std::function<void()> ended) = 0;
  /// Ends what has taken too long.
  virtual void check(std::chrono::steady_clock::time_point now) = 0;
  /// Closes as soon as no request is in hand.
  virtual void drain() = 0;
};
/// Takes the non-blocking socket `fd`.
std::unique_ptr<Connection> make_connection(Shared&, int fd);

}  // namespace gradwire::server::http
