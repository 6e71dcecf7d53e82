#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "schema/wire_stream.h"

namespace gradwire::wire {

namespace {

kj::Exception socket_error(int error, const char* what) {
  const bool gone = error == ECONNRESET || error == EPIPE || error == ETIMEDOUT || error == ENOTCONN ||
                    error == EHOSTUNREACH || error == ENETUNREACH || error == ECONNABORTED;
  return kj::Exception(gone ? kj::Exception::Type::DISCONNECTED : kj::Exception::Type::FAILED, __FILE__, __LINE__,
                       kj::str(what, ": error ", error));
}

constexpr size_t kWakeAt = 256 << 10;  // bytes of a large message that are worth waking up for
constexpr int kUnixRoom = 1 << 20;     // bytes on their way through a Unix socket

class Socket final : public kj::AsyncIoStream {
 public:
  Socket(kj::AutoCloseFd fd, kj::UnixEventPort& port, bool tcp)
      : fd_(kj::mv(fd)), port_(port), observer_(port, fd_, kj::UnixEventPort::FdObserver::OBSERVE_READ), tcp_(tcp) {}

  kj::Promise<size_t> tryRead(void* p, size_t min, size_t max) override {
    return read_on(static_cast<kj::byte*>(p), min, max, 0);
  }

  kj::Promise<void> write(const void* p, size_t n) override {
    std::vector<iovec> all{{const_cast<void*>(p), n}};
    return write_on(std::move(all), 0);
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    std::vector<iovec> all;
    all.reserve(pieces.size());
    for (auto& p : pieces) {
      if (p.size()) all.push_back({const_cast<kj::byte*>(p.begin()), p.size()});
    }
    return write_on(std::move(all), 0);
  }

  kj::Promise<void> whenWriteDisconnected() override { return observer_.whenWriteDisconnected(); }
  void shutdownWrite() override { ::shutdown(fd_, SHUT_WR); }
  void abortRead() override { ::shutdown(fd_, SHUT_RD); }
  void getsockopt(int level, int option, void* value, uint* length) override {
    socklen_t n = *length;
    if (::getsockopt(fd_, level, option, value, &n) < 0) kj::throwFatalException(socket_error(errno, "getsockopt"));
    *length = n;
  }
  void setsockopt(int level, int option, const void* value, uint length) override {
    if (::setsockopt(fd_, level, option, value, length) < 0) kj::throwFatalException(socket_error(errno, "setsockopt"));
  }
  kj::Maybe<int> getFd() const override { return fd_.get(); }

 private:
  kj::Promise<size_t> read_on(kj::byte* p, size_t min, size_t max, size_t got) {
    for (;;) {
      KJ_IF_MAYBE (waiting, readable_) {
        wake_at(min);
        auto ready = kj::mv(*waiting);
        readable_ = nullptr;
        return ready.then([this, p, min, max, got] { return read_on(p, min, max, got); });
      }
      const ssize_t n = ::recv(fd_, p, max, MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return socket_error(errno, "recv");
        readable_ = observer_.whenBecomesReadable();
        continue;
      }
      if (n == 0) return got;
      got += n, p += n;
      // A short read has drained the socket: the next bytes are a new edge, which must not be missed, so wait for it
      // from now on. Unless the end has been seen already: it makes no second edge.
      if (static_cast<size_t>(n) < max) {
        KJ_IF_MAYBE (end, observer_.atEndHint()) {
          if (!*end) readable_ = observer_.whenBecomesReadable();
        }
      }
      if (static_cast<size_t>(n) >= min) return got;
      min -= n, max -= n;
    }
  }

  /// Of a large message some arrives with every packet: to wake for each costs both sides more than to copy it.
  void wake_at(size_t wanted) {
    const int bytes = wanted < kWakeAt ? 1 : static_cast<int>(kWakeAt);
    if (bytes == wakes_at_ || !tcp_) return;
    if (::setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) wakes_at_ = bytes;
  }

  kj::Promise<void> write_on(std::vector<iovec> all, size_t at) {
    while (at < all.size()) {
      msghdr m{};
      m.msg_iov = all.data() + at, m.msg_iovlen = std::min<size_t>(all.size() - at, 64);
      ssize_t n = ::sendmsg(fd_, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return socket_error(errno, "send");
        return when_writable().then(
            [this, all = std::move(all), at]() mutable { return write_on(std::move(all), at); });
      }
      while (n > 0) {
        auto& v = all[at];
        const size_t step = std::min<size_t>(v.iov_len, n);
        v.iov_base = static_cast<kj::byte*>(v.iov_base) + step, v.iov_len -= step, n -= step;
        if (v.iov_len == 0) ++at;
      }
    }
    return kj::READY_NOW;
  }

  /// Only a blocked writer watches for room, on a descriptor of its own: watched all the time, a Unix socket would wake
  /// the loop each time the other side reads.
  kj::Promise<void> when_writable() {
    const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return socket_error(errno, "dup");
    auto own = kj::heap<kj::AutoCloseFd>(copy);
    auto watch = kj::heap<kj::UnixEventPort::FdObserver>(port_, copy, kj::UnixEventPort::FdObserver::OBSERVE_WRITE);
    auto ready = watch->whenBecomesWritable();
    return ready.attach(kj::mv(watch)).attach(kj::mv(own));
  }

  kj::AutoCloseFd fd_;
  kj::UnixEventPort& port_;
  kj::UnixEventPort::FdObserver observer_;
  kj::Maybe<kj::Promise<void>> readable_;
  const bool tcp_;
  int wakes_at_ = 1;
};

}  // namespace

kj::Own<kj::AsyncIoStream> open_socket(kj::AutoCloseFd socket, kj::UnixEventPort& port) {
  const int flags = ::fcntl(socket, F_GETFL);
  ::fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  const int one = 1;
  const bool tcp = ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0;  // Unix sockets need it not
  // A Unix socket's room does not grow by itself. The system may give less than is asked.
  if (!tcp) ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kUnixRoom, sizeof kUnixRoom);
  return kj::heap<Socket>(kj::mv(socket), port, tcp);
}

}  // namespace gradwire::wire
