#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {

/// The calling process on one CPU from here on; "-" for any.
inline void pin(const std::string& cpu) {
  if (cpu == "-") return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(std::stoi(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);
}

inline int checked(int result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + " failed");
  return result;
}

/// Two ends of one stream: TCP over loopback without Nagle's delay, or a Unix socket.
inline std::pair<int, int> stream_pair(const std::string& kind) {
  int ends[2];
  if (kind == "unix") {
    checked(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    return {ends[0], ends[1]};
  }
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  const int listener = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
  checked(bind(listener, reinterpret_cast<sockaddr*>(&a), sizeof a), "bind");
  checked(listen(listener, 1), "listen");
  checked(getsockname(listener, reinterpret_cast<sockaddr*>(&a), &size), "getsockname");
  ends[0] = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
  checked(connect(ends[0], reinterpret_cast<sockaddr*>(&a), sizeof a), "connect");
  ends[1] = checked(accept(listener, nullptr, nullptr), "accept");
  close(listener);
  const int one = 1;
  for (const int end : ends) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return {ends[0], ends[1]};
}

/// Forks a server of one connection on `server_cpu`, moves on to `client_cpu` and returns the client's end.
template <class F>
int with_server(const std::string& kind, const std::string& server_cpu, const std::string& client_cpu, F server) {
  const auto [mine, its] = stream_pair(kind);
  if (checked(fork(), "fork") == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(mine), close(STDIN_FILENO);
    pin(server_cpu);
    server(its);
    _exit(0);
  }
  close(its);
  pin(client_cpu);
  return mine;
}

}  // namespace bench
