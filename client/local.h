#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace gradwire::client {

/// A gradwired of this process's own, on a Unix socket in a directory of its own. It ends with this object, and with
/// the thread that made it.
class Local {
 public:
  /// Throws Error{unavailable} with what the server said, if it is not ready in time.
  Local(const std::vector<std::string>& args, std::chrono::milliseconds timeout);
  ~Local();
  Local(const Local&) = delete;
  const std::string& socket() const { return socket_; }

 private:
  void end() noexcept;
  std::string dir_, socket_;
  pid_t pid_ = -1;
};

}  // namespace gradwire::client
