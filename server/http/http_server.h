#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gradwire::server {

class Service;

/// How long and how much a peer may take; the defaults are reliability.md's.
struct HttpLimits {
  using Time = std::chrono::steady_clock::duration;
  Time head = std::chrono::seconds(10);        // from a head's first byte, or from connecting, to its end
  Time keep_alive = std::chrono::seconds(60);  // without a request
  Time body_grace = std::chrono::seconds(5);   // before a body's rate counts
  uint64_t body_rate = 64 << 10;               // bytes a second, at least
  Time write_grace = std::chrono::seconds(30);
  uint64_t write_rate = 4 << 10;          // bytes a second that a peer takes of an answer, at least
  Time linger = std::chrono::seconds(2);  // reads on after an answer that closes, so that it arrives
  int max_requests = 10000;               // of one connection
  int per_address = 256;                  // connections of one address that is not loopback
  Time stall = std::chrono::seconds(30);  // the loop may stand still before /livez of the probe fails
  Time websocket_idle = std::chrono::seconds(60);
  size_t websocket_message = size_t{16} << 20;  // bytes
  int websocket_fragments = 1024;               // of one message
};

/// The HTTP and WebSocket front end: one thread with an Asio loop, and the probe listener (livez, readyz, metrics) on a
/// thread of its own. The constructor listens (throws Error{bad_argument} where it cannot); the destructor closes all
/// connections and joins.
class HttpServer {
 public:
  explicit HttpServer(Service&, const HttpLimits& = {});
  ~HttpServer();
  const std::string& address() const;        // as bound; empty if off
  const std::string& probe_address() const;  // as bound; empty if off
  /// Stops accepting; answers in hand are finished.
  void drain();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::server
