#include "client/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "schema/error.h"

namespace gradwire::client {
namespace {

using Clock = std::chrono::steady_clock;

Error cannot(const std::string& address, const std::string& why) {
  return Error(Code::unavailable, "cannot connect to " + address + ": " + why);
}

/// Connects within the time; closes the socket on failure. 0 or errno.
int finish(int fd, const sockaddr* a, socklen_t size, Clock::time_point until) {
  if (::connect(fd, a, size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EAGAIN) return errno;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return ETIMEDOUT;
    pollfd p{fd, POLLOUT, 0};
    const int n = ::poll(&p, 1, static_cast<int>(left));
    if (n < 0 && errno != EINTR) return errno;
    if (n <= 0) continue;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }
}

int connect_unix(const std::string& path, const std::string& address, Clock::time_point until) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof a.sun_path)
    throw Error(Code::bad_argument, "'" + address + "' has no usable path");
  std::memcpy(a.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) throw cannot(address, std::strerror(errno));
  if (const int e = finish(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a, until)) {
    ::close(fd);
    throw cannot(address, std::strerror(e));
  }
  return fd;
}

}  // namespace

int connect_socket(const std::string& address, std::chrono::milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  if (address.starts_with("unix:")) return connect_unix(address.substr(5), address, until);
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
    throw Error(Code::bad_argument,
                "'" + address + "' is no address: expected \"host:port\", \"unix:PATH\" or \"local\"");
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int e = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found))
    throw cannot(address, ::gai_strerror(e));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> hold(found, ::freeaddrinfo);
  int last = ECONNREFUSED;
  for (const addrinfo* a = found; a; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      last = errno;
      continue;
    }
    last = finish(fd, a->ai_addr, a->ai_addrlen, until);
    if (last == 0) return fd;
    ::close(fd);
  }
  throw cannot(address, std::strerror(last));
}

}  // namespace gradwire::client
