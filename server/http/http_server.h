#pragma once

#include <memory>
#include <string>

namespace gradwire::server {

class Service;

/// The HTTP and WebSocket front end: one thread with an Asio loop, and the probe listener (livez, readyz, metrics) on a
/// thread of its own. The constructor listens (throws Error{bad_argument} where it cannot); the destructor closes all
/// connections and joins.
class HttpServer {
 public:
  explicit HttpServer(Service&);
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
