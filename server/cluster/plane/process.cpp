#include "server/cluster/plane/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <system_error>

extern char** environ;

namespace gradwire::server::cluster::plane {

namespace {

void check(int error, const char* what) {
  if (!error) return;
  throw Error(Code::unavailable, std::string("data plane: ") + what + ": " + std::generic_category().message(error));
}

struct Actions {
  Actions() { check(posix_spawn_file_actions_init(&actions), "posix_spawn"); }
  ~Actions() { posix_spawn_file_actions_destroy(&actions); }
  posix_spawn_file_actions_t actions;
};
struct Attributes {
  Attributes() { check(posix_spawnattr_init(&attributes), "posix_spawn"); }
  ~Attributes() { posix_spawnattr_destroy(&attributes); }
  posix_spawnattr_t attributes;
};

}  // namespace

Child start_helper(const std::string& program) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) check(errno, "socketpair");
  Child child;
  child.socket = Fd(ends[0]);
  const Fd theirs(ends[1]);
  ::fcntl(child.socket.get(), F_SETFL, O_NONBLOCK);

  Actions a;
  check(posix_spawn_file_actions_adddup2(&a.actions, theirs.get(), 3), "posix_spawn");
  check(posix_spawn_file_actions_addclosefrom_np(&a.actions, 4), "posix_spawn");
  Attributes t;
  sigset_t none, usual;
  sigemptyset(&none);
  sigfillset(&usual);
  check(posix_spawnattr_setsigmask(&t.attributes, &none), "posix_spawn");
  check(posix_spawnattr_setsigdefault(&t.attributes, &usual), "posix_spawn");
  check(posix_spawnattr_setpgroup(&t.attributes, 0), "posix_spawn");
  check(posix_spawnattr_setflags(&t.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP),
        "posix_spawn");
  std::string name = program, order = "data-plane-helper";
  char* const arguments[] = {name.data(), order.data(), nullptr};
  const int error = ::posix_spawn(&child.pid, program.c_str(), &a.actions, &t.attributes, arguments, environ);
  check(error, ("the helper " + program + " cannot be started").c_str());
  child.exit = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.exit) {
    const int why = errno;
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    check(why, "pidfd_open");
  }
  return child;
}

short Burial::events() { return POLLIN; }

bool Burial::turn(int, Time) { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

Time Burial::next() { return Time::max(); }

}  // namespace gradwire::server::cluster::plane
