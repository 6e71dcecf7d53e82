#pragma once

#include <sys/types.h>

#include <string>

namespace gradwire::server {

/// Asks the server that listens on the Unix socket to drain: no new sessions, /readyz fails, what is open goes on until
/// SIGTERM. The request is SIGUSR1 to the process that the socket names, so the kernel checks who may ask. Throws
/// Error{unavailable} where no server listens, Error{forbidden} where it is another user's.
void ask_to_drain(const std::string& unix_path);

/// The children of process 1 that nobody started: orphans of a container. One thread.
class Orphans {
 public:
  /// To be called about once a second. Takes the exit status of a child that has stood dead for kPatience calls: who
  /// starts a child waits for it sooner.
  void reap();

 private:
  static constexpr int kPatience = 5;
  pid_t seen_ = 0;
  int calls_ = 0;
};

}  // namespace gradwire::server
