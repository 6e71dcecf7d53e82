#pragma once

#include <sys/types.h>

#include <string>

#include "server/cluster/plane/fd.h"
#include "server/cluster/plane/loop.h"

namespace gradwire::server::cluster::plane {

/// A child process and our end of the SOCK_SEQPACKET pair that is its descriptor 3.
struct Child {
  pid_t pid = -1;
  Fd socket;  // non-blocking
  Fd exit;    // a pidfd: readable when it has ended
};

/// Starts `program data-plane-helper` in a process group of its own, with descriptors 0 to 3 and no others, and no
/// signal blocked. Called on the loop's thread. Throws Error{unavailable}.
Child start_helper(const std::string& program);

/// Waits for a child that has been killed, without blocking anybody.
class Burial final : public Loop::Member {
 public:
  Burial(pid_t pid, Fd exit) : pid_(pid), exit_(std::move(exit)) {}
  int fd() override { return exit_.get(); }
  short events() override;
  bool turn(int events, Time now) override;
  Time next() override;

 private:
  pid_t pid_;
  Fd exit_;
};

}  // namespace gradwire::server::cluster::plane
