#pragma once

#include <memory>
#include <string>

namespace gradwire::server {

class Service;
struct RpcSetup;

/// The Cap'n Proto front end: one thread with a KJ loop. The constructor listens (throws Error{bad_argument} where it
/// cannot); the destructor closes all connections and joins.
class RpcServer {
 public:
  explicit RpcServer(Service&);
  RpcServer(Service&, RpcSetup);
  ~RpcServer();
  const std::string& address() const;  // as bound: "127.0.0.1:41233"; empty if only a Unix socket
  /// Stops accepting; connections end when their calls have.
  void drain();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::server
