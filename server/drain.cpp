#include "server/drain.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "schema/error.h"

namespace gradwire::server {
namespace {

/// Closed with the scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

/// Whether a process blocks or handles a signal, which then does not end it. All threads count: the one that waits for
/// a signal does not show that it blocks it otherwise.
bool awaits(pid_t pid, int signal) {
  std::error_code hidden;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", hidden);
  if (hidden) return true;  // who is hidden from us is nobody else's
  uint64_t mask = 0;
  for (const auto& thread : threads) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:") || line.starts_with("SigCgt:"))
        mask |= std::strtoull(line.c_str() + std::strlen("SigBlk:"), nullptr, 16);
    }
  }
  return (mask >> (signal - 1) & 1) != 0;
}

}  // namespace

void ask_to_drain(const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof to.sun_path)
    throw Error(Code::bad_argument, "drain needs the server's Unix socket: --unix PATH");
  std::memcpy(to.sun_path, path.data(), path.size());
  const Descriptor link{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval patience{5, 0};  // with a listener that is stopped, whose queue is full
  ::setsockopt(link.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (link.fd < 0 || ::connect(link.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    const int error = errno;
    throw Error(error == EACCES ? Code::forbidden : Code::unavailable,
                "no server can be reached on " + path + ": " + std::strerror(error));
  }
  // Who listens: the kernel noted it when listen() was called.
  ucred server{};
  socklen_t size = sizeof server;
  if (::getsockopt(link.fd, SOL_SOCKET, SO_PEERCRED, &server, &size) != 0 || server.pid <= 0)
    throw Error(Code::unavailable, "the process that listens on " + path + " cannot be seen from here");
  // The descriptor stands for this process even where the number is given to another one; while the connection is not
  // closed, its listener lives.
  const Descriptor process{static_cast<int>(::syscall(SYS_pidfd_open, server.pid, 0))};
  char nothing;
  const bool alive = ::recv(link.fd, &nothing, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
  // Whom SIGUSR1 would end is not ours.
  if (process.fd >= 0 && alive && !awaits(server.pid, SIGUSR1))
    throw Error(Code::bad_argument, "the process that listens on " + path + " is no server of Gradwire's");
  if (process.fd < 0 || !alive) throw Error(Code::unavailable, "the server on " + path + " is ending");
  if (::syscall(SYS_pidfd_send_signal, process.fd, SIGUSR1, nullptr, 0) != 0)
    throw Error(errno == EPERM ? Code::forbidden : Code::unavailable,
                "process " + std::to_string(server.pid) + " cannot be asked: " + std::strerror(errno));
}

void Orphans::reap() {
  siginfo_t dead{};
  if (::waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) != 0) dead.si_pid = 0;
  calls_ = dead.si_pid != 0 && dead.si_pid == seen_ ? calls_ + 1 : 0;
  seen_ = dead.si_pid;
  if (calls_ < kPatience) return;
  ::waitpid(seen_, nullptr, WNOHANG);
  seen_ = 0, calls_ = 0;
}

}  // namespace gradwire::server
