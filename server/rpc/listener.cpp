#include "server/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "schema/error.h"

namespace gradwire::server {

namespace {

constexpr int kBacklog = 1024;
constexpr int kAtOnce = 64;  // connections taken before others on the loop have their turn

[[noreturn]] void refuse(const std::string& address, const std::string& why) {
  throw Error(Code::bad_argument, "cannot listen on '" + address + "': " + why);
}
[[noreturn]] void refuse(const std::string& address) { refuse(address, std::strerror(errno)); }

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse(text, "an address is HOST:PORT");
  std::string host = text.substr(0, colon);
  const std::string port_text = text.substr(colon + 1);
  if (port_text.empty() || port_text.size() > 5 || port_text.find_first_not_of("0123456789") != std::string::npos)
    refuse(text, "a port is a number up to 65535");
  const int port = std::stoi(port_text);
  if (port > 65535) refuse(text, "a port is a number up to 65535");
  if (host == "localhost") host = "127.0.0.1";
  Address a;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&a.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&a.storage);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6->sin6_addr) != 1)
      refuse(text, "not an IPv6 address");
    v6->sin6_family = AF_INET6, v6->sin6_port = htons(static_cast<uint16_t>(port)), a.size = sizeof *v6;
  } else {
    if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) != 1)
      refuse(text, "not an IPv4 address, nor an IPv6 one in brackets");
    v4->sin_family = AF_INET, v4->sin_port = htons(static_cast<uint16_t>(port)), a.size = sizeof *v4;
  }
  return a;
}

/// "1.2.3.4:5" and whether it is this machine's loopback.
std::pair<std::string, bool> shown(const sockaddr_storage& s, bool with_port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (s.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(s);
    inet_ntop(AF_INET, &a.sin_addr, text, sizeof text);
    return {text + (with_port ? ":" + std::to_string(ntohs(a.sin_port)) : ""), ntohl(a.sin_addr.s_addr) >> 24 == 127};
  }
  if (s.ss_family == AF_INET6) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(s);
    inet_ntop(AF_INET6, &a.sin6_addr, text, sizeof text);
    const auto* b = a.sin6_addr.s6_addr;
    const bool local = IN6_IS_ADDR_LOOPBACK(&a.sin6_addr) || (IN6_IS_ADDR_V4MAPPED(&a.sin6_addr) && b[12] == 127);
    return {"[" + std::string(text) + "]" + (with_port ? ":" + std::to_string(ntohs(a.sin6_port)) : ""), local};
  }
  return {"", true};
}

kj::AutoCloseFd spare() { return kj::AutoCloseFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Listener::Listener(kj::AutoCloseFd fd, std::string address, std::string path)
    : fd_(kj::mv(fd)), spare_(spare()), address_(std::move(address)), path_(std::move(path)) {}

Listener::~Listener() {
  if (fd_.get() >= 0 && !path_.empty()) ::unlink(path_.c_str());
}

Listener Listener::tcp(const std::string& address) {
  const Address a = parse(address);
  kj::AutoCloseFd fd(::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) refuse(address);
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(fd, a.get(), a.size) < 0 || ::listen(fd, kBacklog) < 0) refuse(address);
  Address bound;
  bound.size = sizeof bound.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) < 0) refuse(address);
  return Listener(kj::mv(fd), shown(bound.storage, true).first, "");
}

Listener Listener::unix_socket(const std::string& path) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  if (path.size() >= sizeof a.sun_path) refuse(path, "the path is too long");
  std::memcpy(a.sun_path, path.data(), path.size());
  const auto* at = reinterpret_cast<const sockaddr*>(&a);
  struct stat st {};
  if (::lstat(path.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode)) refuse(path, "there is a file that is no socket");
    kj::AutoCloseFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe, at, sizeof a) == 0) refuse(path, "another server listens there");
    ::unlink(path.c_str());
  }
  kj::AutoCloseFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) refuse(path);
  // Nobody can connect before listen(), so the mode is right from the first connection on.
  if (::bind(fd, at, sizeof a) < 0) refuse(path);
  if (::chmod(path.c_str(), 0600) < 0 || ::listen(fd, kBacklog) < 0) {
    const int error = errno;
    ::unlink(path.c_str());
    refuse(path, std::strerror(error));
  }
  return Listener(kj::mv(fd), path, path);
}

struct Listener::Loop {
  Loop(Listener& l, kj::UnixEventPort& port, kj::Timer& t, Take f)
      : listener(l), timer(t), take(std::move(f)), observer(port, l.fd_, kj::UnixEventPort::FdObserver::OBSERVE_READ) {}

  kj::Promise<void> run() {
    for (int i = 0; i < kAtOnce; ++i) {
      sockaddr_storage from{};
      socklen_t size = sizeof from;
      const int fd = ::accept4(listener.fd_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        kj::AutoCloseFd own(fd);
        auto [text, local] = shown(from, false);
        try {
          take(kj::mv(own), local ? std::string() : std::move(text));
        } catch (...) {
          // Not enough memory or descriptors for this one: it is closed, and the next may find some.
        }
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return observer.whenBecomesReadable().then([this] { return run(); });
      if (errno == EMFILE || errno == ENFILE) {
        // The client in front learns at once that there is no room, instead of waiting in the kernel's queue.
        listener.spare_ = kj::AutoCloseFd();
        const int one = ::accept4(listener.fd_, nullptr, nullptr, SOCK_CLOEXEC);
        if (one >= 0) ::close(one);
        listener.spare_ = spare();
        return pause();
      }
      if (errno == ENOBUFS || errno == ENOMEM) return pause();
      // EINTR, or an error of a connection that is gone already: the next one.
    }
    return kj::evalLast([this] { return run(); });
  }
  kj::Promise<void> pause() {
    return timer.afterDelay(20 * kj::MILLISECONDS).then([this] { return run(); });
  }

  Listener& listener;
  kj::Timer& timer;
  Take take;
  kj::UnixEventPort::FdObserver observer;
};

kj::Promise<void> Listener::serve(kj::UnixEventPort& port, kj::Timer& timer, Take take) {
  auto loop = kj::heap<Loop>(*this, port, timer, std::move(take));
  auto running = loop->run();
  return running.attach(kj::mv(loop));
}

}  // namespace gradwire::server
