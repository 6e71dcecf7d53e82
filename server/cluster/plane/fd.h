#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace gradwire::server::cluster::plane {

/// Owns a file descriptor; -1: none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A descriptor that goes with a message over a Unix socket.
class Rights {
 public:
  /// To be sent with `m`.
  void put(msghdr& m, int descriptor) {
    room(m);
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &descriptor, sizeof(int));
  }
  /// recvmsg() without waiting: a descriptor that comes goes into `came`. `flags`: the message's.
  static ssize_t receive(int socket, void* to, size_t bytes, Fd& came, int& flags) {
    iovec data{to, bytes};
    msghdr m{};
    m.msg_iov = &data;
    m.msg_iovlen = 1;
    Rights rights;
    rights.room(m);
    const ssize_t n = ::recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    flags = m.msg_flags;
    if (n > 0) {
      if (Fd fd = take(m)) came = std::move(fd);
    }
    return n;
  }

 private:
  /// For one that may come with `m`.
  void room(msghdr& m) {
    m.msg_control = control_.bytes;
    m.msg_controllen = sizeof control_.bytes;
  }
  /// What has come; more than one are closed.
  static Fd take(msghdr& m) {
    Fd last;
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
        last = Fd(fd);
      }
    }
    return last;
  }

  union {  // aligned as the kernel wants it
    char bytes[CMSG_SPACE(sizeof(int))];
    cmsghdr align;
  } control_{};
};

}  // namespace gradwire::server::cluster::plane
