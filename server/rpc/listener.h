#pragma once

#include <kj/async-unix.h>
#include <kj/io.h>
#include <kj/timer.h>

#include <functional>
#include <string>

namespace gradwire::server {

/// A listening socket, made on any thread, served on a loop.
class Listener {
 public:
  /// "127.0.0.1:7420", "[::1]:0"; throws Error{bad_argument} where it cannot listen.
  static Listener tcp(const std::string& address);
  /// A Unix socket of mode 0600; takes the place of one that nobody listens on. Removed at the end.
  static Listener unix_socket(const std::string& path);
  Listener(Listener&&) = default;
  ~Listener();

  /// As bound: "127.0.0.1:41233"; the path of a Unix socket.
  const std::string& address() const { return address_; }

  /// Calls `take(socket, address)` for each connection; the address is empty for loopback and Unix ones. Where file
  /// descriptors run out it closes what it cannot take and pauses. Lives as long as the promise.
  using Take = std::function<void(kj::AutoCloseFd, std::string)>;
  kj::Promise<void> serve(kj::UnixEventPort&, kj::Timer&, Take);

 private:
  Listener(kj::AutoCloseFd fd, std::string address, std::string path);
  struct Loop;
  kj::AutoCloseFd fd_, spare_;
  std::string address_, path_;
};

}  // namespace gradwire::server
