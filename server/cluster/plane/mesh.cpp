#include "server/cluster/plane/mesh.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <memory>
#include <optional>

#include "schema/error.h"

namespace gradwire::server::cluster::plane {

namespace {

using Clock = std::chrono::steady_clock;
using Bytes32 = std::array<unsigned char, 32>;
constexpr size_t kMaxUnproven = 256;  // the oldest gives way
constexpr int kAccepts = 32;          // in a row
constexpr std::chrono::seconds kProofTime{2};
constexpr std::chrono::milliseconds kRetry{20};

struct Hello {
  std::array<char, 8> magic;
  int32_t from, to, lane, zero;
  Bytes32 nonce;
};
struct Reply {
  Bytes32 nonce, proof;
};
static_assert(sizeof(Hello) == 56 && sizeof(Reply) == 64);

std::string reason() { return std::generic_category().message(errno); }

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  void set_port(int port) {
    const auto p = htons(static_cast<uint16_t>(port));
    if (storage.ss_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&storage)->sin_port = p;
    } else {
      reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = p;
    }
  }
};

Address look_up(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int rc = ::getaddrinfo(host.c_str(), port.empty() ? nullptr : port.c_str(), &hints, &found)) {
    throw Error(Code::unavailable, "data plane: " + host + ": " + ::gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> own(found, ::freeaddrinfo);
  Address a;
  if ((found->ai_family != AF_INET && found->ai_family != AF_INET6) || found->ai_addrlen > sizeof a.storage) {
    throw Error(Code::unavailable, "data plane: " + host + " has no IP address");
  }
  std::memcpy(&a.storage, found->ai_addr, found->ai_addrlen);
  a.size = found->ai_addrlen;
  return a;
}

Address read_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw Error(Code::unavailable, "data plane: no address: " + text);
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return look_up(host, text.substr(colon + 1), AI_NUMERICHOST | AI_NUMERICSERV);
}

/// A random name is that of one process.
Address near_address(const std::string& name) {
  sockaddr_un u{};
  u.sun_family = AF_UNIX;
  const std::string path = std::string(1, '\0') + "gradwire-plane-" + name;
  if (name.empty() || path.size() > sizeof u.sun_path) return {};
  path.copy(u.sun_path, path.size());
  Address a;
  a.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  std::memcpy(&a.storage, &u, a.size);
  return a;
}

struct Peer {
  Address far, near;  // of no size: it cannot be reached so
};

Peer read_peer(const std::string& text) {
  const size_t at = text.find('@');
  return {read_address(text.substr(0, at)), near_address(at == std::string::npos ? "" : text.substr(at + 1))};
}

std::string write_address(const Address& a) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getnameinfo(a.get(), a.size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV)) {
    throw Error(Code::unavailable, "data plane: an address that cannot be written");
  }
  const bool six = a.storage.ss_family == AF_INET6;
  return (six ? "[" : "") + std::string(host) + (six ? "]:" : ":") + port;
}

/// What makes a connection fast: no waiting for more, and, to the own machine, no pacing.
void tune(int fd) {
  const int on = 1;
  Address own;
  own.size = sizeof own.storage;
  if (::getsockname(fd, own.get(), &own.size) || own.storage.ss_family == AF_UNIX) return;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Address peer;
  peer.size = sizeof peer.storage;
  if (::getpeername(fd, peer.get(), &peer.size)) return;
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&peer.storage);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&peer.storage);
  const bool loopback = peer.storage.ss_family == AF_INET ? (ntohl(v4->sin_addr.s_addr) >> 24) == 127
                                                          : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  if (loopback) ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);  // where there is no reno, slower
}

/// Others on this machine can see the name of a Unix socket, and knock.
bool same_user(int fd) {
  ucred other;
  socklen_t size = sizeof other;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == ::geteuid();
}

/// One connection on its way to a proof, on either side.
struct Knock {
  enum State { connecting, wants_hello, wants_reply, wants_proof, wants_end, proven } state;
  Fd fd;
  int rank = -1, lane = -1;  // the other's; of who connects: as he says
  bool near;
  Clock::time_point until;
  Bytes32 mine{}, theirs{};
  std::array<unsigned char, 64> in{};
  size_t have = 0, want = 0;
};

class Handshake {
 public:
  Handshake(int rank, int size, std::string_view key)
      : rank_(rank), size_(size), key_(key), done_(size_t(size * kLanes)) {}

  std::vector<Fd> run(int far, int near, const std::vector<std::string>& addresses, Clock::time_point deadline) {
    for (int r = 0; r < rank_; ++r) peers_.push_back(read_peer(addresses[size_t(r)]));
    std::vector<Clock::time_point> again(done_.size());  // when to connect next
    for (missing_ = (size_ - 1) * kLanes; missing_ > 0;) {
      const auto now = Clock::now();
      if (now >= deadline) throw Error(Code::deadline_exceeded, late());
      for (Knock& k : knocks_) {
        if (k.fd && k.until <= now) lost(k);
      }
      knocks_.remove_if([](const Knock& k) { return !k.fd; });
      auto next = deadline;
      for (int rank = 0; rank < rank_; ++rank) {
        for (int lane = 0; lane < kLanes; ++lane) {
          const size_t at = place(rank, lane);
          if (done_[at] || outgoing(rank, lane)) continue;
          if (again[at] <= now) start(rank, lane, now), again[at] = now + kRetry;
          if (!outgoing(rank, lane)) next = std::min(next, again[at]);
        }
      }
      for (const Knock& k : knocks_) next = std::min(next, k.until);
      wait(far, near, next);
    }
    return std::move(done_);
  }

 private:
  size_t place(int rank, int lane) const { return size_t(lane * size_ + rank); }

  bool outgoing(int rank, int lane) const {
    return std::any_of(knocks_.begin(), knocks_.end(), [&](const Knock& k) {
      return k.fd && k.rank == rank && k.lane == lane &&
             (k.state == Knock::connecting || k.state == Knock::wants_reply || k.state == Knock::wants_end);
    });
  }

  std::string late() const {
    std::string ranks;
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ && !(done_[place(r, 0)] && done_[place(r, 1)]))
        ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    }
    return "data plane: no connection with rank " + ranks + " in time" +
           (refused_ ? " (" + std::to_string(refused_) + " connections did not know the key)" : "");
  }

  void start(int rank, int lane, Clock::time_point now) {
    Peer& peer = peers_[size_t(rank)];
    const bool near = peer.near.size > 0;
    const Address& to = near ? peer.near : peer.far;
    Knock k{Knock::connecting,
            Fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
            rank,
            lane,
            near,
            now + kProofTime};
    if (!k.fd) throw Error(Code::unavailable, "data plane: socket: " + reason());
    const bool begun = ::connect(k.fd.get(), to.get(), to.size) == 0 || errno == EINPROGRESS;
    if (begun) {
      knocks_.push_back(std::move(k));
    } else if (near) {
      lost(k);
      start(rank, lane, now);
    }  // else it is tried again
  }

  /// Over TCP next time: who cannot be reached by the Unix socket is elsewhere, or is kept from it.
  void lost(Knock& k) {
    const bool own = k.rank >= 0 && k.rank < rank_;
    if (k.near && own) peers_[size_t(k.rank)].near.size = 0;
    k.fd = Fd();
  }

  void wait(int far, int near, Clock::time_point until) {
    polled_.clear();
    for (const Knock& k : knocks_) {
      polled_.push_back({k.fd.get(), static_cast<short>(k.state == Knock::connecting ? POLLOUT : POLLIN), 0});
    }
    for (const int listener : {far, near}) polled_.push_back({listener, POLLIN, 0});
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (::poll(polled_.data(), polled_.size(), static_cast<int>(std::clamp<int64_t>(ms, 0, 1000))) <= 0) return;
    size_t i = 0;
    for (Knock& k : knocks_) {
      if (polled_[i++].revents && !go_on(k)) lost(k);
    }
    for (; i < polled_.size(); ++i) {
      if (polled_[i].revents) accept(polled_[i].fd, polled_[i].fd == near);
    }
  }

  void accept(int listener, bool near) {
    for (int i = 0; i < kAccepts; ++i) {
      Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) return;
      if (near && !same_user(fd.get())) continue;
      size_t unproven = 0;
      auto oldest = knocks_.end();
      for (auto k = knocks_.begin(); k != knocks_.end(); ++k) {
        if (k->state != Knock::wants_hello && k->state != Knock::wants_proof) continue;
        if (!unproven++) oldest = k;
      }
      if (unproven >= kMaxUnproven) knocks_.erase(oldest), ++refused_;
      Knock k{Knock::wants_hello, std::move(fd), -1, -1, near, Clock::now() + kProofTime};
      k.want = sizeof(Hello);
      knocks_.push_back(std::move(k));
    }
  }

  /// False: the connection is over, as a failure.
  bool go_on(Knock& k) {
    if (k.state == Knock::connecting) {
      int error = 0;
      socklen_t n = sizeof error;
      if (::getsockopt(k.fd.get(), SOL_SOCKET, SO_ERROR, &error, &n) || error) return false;
      Hello h{kMagic, rank_, k.rank, k.lane, 0, nonce()};
      k.mine = h.nonce;
      k.state = Knock::wants_reply, k.want = sizeof(Reply);
      return say(k, &h, sizeof h);
    }
    while (k.have < k.want) {
      const ssize_t n = ::recv(k.fd.get(), k.in.data() + k.have, k.want - k.have, 0);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (n <= 0) return refuse(k);
      k.have += size_t(n);
    }
    k.have = 0;
    if (k.state == Knock::wants_hello) return welcome(k);
    if (k.state == Knock::wants_reply) return prove(k);
    if (k.state == Knock::wants_proof) {
      const Bytes32 right = proof("connect", k, k.rank, rank_, k.theirs, k.mine);
      if (CRYPTO_memcmp(right.data(), k.in.data(), right.size())) return refuse(k);
      const char end = 1;
      if (!say(k, &end, 1)) return false;
    }
    finish(k);
    return true;
  }

  bool refuse(const Knock& k) {
    refused_ += k.state == Knock::wants_hello || k.state == Knock::wants_proof;
    return false;
  }

  bool welcome(Knock& k) {
    Hello h;
    std::memcpy(&h, k.in.data(), sizeof h);
    if (h.magic != kMagic || h.to != rank_ || h.from <= rank_ || h.from >= size_ || h.lane < 0 || h.lane >= kLanes) {
      return refuse(k);
    }
    k.rank = h.from, k.lane = h.lane, k.theirs = h.nonce, k.mine = nonce();
    const Reply r{k.mine, proof("accept", k, k.rank, rank_, k.theirs, k.mine)};
    k.state = Knock::wants_proof, k.want = sizeof(Bytes32);
    return say(k, &r, sizeof r);
  }

  bool prove(Knock& k) {
    Reply r;
    std::memcpy(&r, k.in.data(), sizeof r);
    const Bytes32 right = proof("accept", k, rank_, k.rank, k.mine, r.nonce);
    if (CRYPTO_memcmp(right.data(), r.proof.data(), right.size())) {
      if (k.near) return false;
      throw Error(Code::unavailable, "data plane: rank " + std::to_string(k.rank) + " does not know this group's key");
    }
    const Bytes32 own = proof("connect", k, rank_, k.rank, k.mine, r.nonce);
    k.state = Knock::wants_end, k.want = 1;
    return say(k, own.data(), own.size());
  }

  void finish(Knock& k) {
    tune(k.fd.get());
    Fd& own = done_[place(k.rank, k.lane)];
    missing_ -= !own;
    own = std::move(k.fd);  // of two that are proven the later: the other end has given up the first
    k.fd = Fd();
    k.state = Knock::proven;
  }

  /// A few bytes into an empty socket: all of them or none.
  static bool say(Knock& k, const void* data, size_t n) {
    return ::send(k.fd.get(), data, n, MSG_NOSIGNAL) == static_cast<ssize_t>(n);
  }

  static Bytes32 nonce() {
    Bytes32 n;
    if (RAND_bytes(n.data(), int(n.size())) != 1) throw Error(Code::internal, "data plane: no random numbers");
    return n;
  }

  /// `from`: who connects.
  Bytes32 proof(std::string_view role, const Knock& k, int from, int to, const Bytes32& from_nonce,
                const Bytes32& to_nonce) const {
    std::string said(role);
    said.push_back('\0');
    for (const int x : {from, to, k.lane, static_cast<int>(k.near)})
      said.append(reinterpret_cast<const char*>(&x), sizeof x);
    said.append(reinterpret_cast<const char*>(from_nonce.data()), from_nonce.size());
    said.append(reinterpret_cast<const char*>(to_nonce.data()), to_nonce.size());
    Bytes32 out;
    unsigned n = 0;
    if (!HMAC(EVP_sha256(), key_.data(), int(key_.size()), reinterpret_cast<const unsigned char*>(said.data()),
              said.size(), out.data(), &n) ||
        n != out.size()) {
      throw Error(Code::internal, "data plane: no HMAC");
    }
    return out;
  }

  int rank_, size_, missing_ = 0;
  std::vector<Peer> peers_;  // that this rank connects to
  std::string_view key_;
  std::vector<Fd> done_;
  std::list<Knock> knocks_;
  std::vector<pollfd> polled_;
  uint64_t refused_ = 0;
};

}  // namespace

/// What comes behind the address; nothing where there are no such sockets.
static std::string listen_near(Fd& listener) {
  uint64_t random[2];
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random), sizeof random) != 1) return {};
  const std::string name = std::to_string(random[0]) + "-" + std::to_string(random[1]);
  const Address a = near_address(name);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd || ::bind(fd.get(), a.get(), a.size) || ::listen(fd.get(), SOMAXCONN)) return {};
  listener = std::move(fd);
  return "@" + name;
}

std::string Mesh::listen(const std::string& host, int first_port, int last_port) {
  Address a = look_up(host, "", AI_PASSIVE);
  for (int port = first_port;; ++port) {
    Fd fd(::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) throw Error(Code::unavailable, "data plane: socket: " + reason());
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // ports of connections that ended lately
    a.set_port(port);
    if (::bind(fd.get(), a.get(), a.size) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) {
      Address bound;
      bound.size = sizeof bound.storage;
      if (::getsockname(fd.get(), bound.get(), &bound.size)) throw Error(Code::unavailable, "data plane: " + reason());
      listener_ = std::move(fd);
      return write_address(bound) + listen_near(near_);
    }
    if (errno != EADDRINUSE)
      throw Error(Code::unavailable, "data plane: cannot listen on " + write_address(a) + ": " + reason());
    if (port >= last_port) {
      throw Error(Code::unavailable, "data plane: no port from " + std::to_string(first_port) + " to " +
                                         std::to_string(last_port) + " is free on " + host);
    }
  }
}

std::vector<Fd> Mesh::connect(const std::vector<std::string>& addresses, std::string_view key, Time deadline) {
  const Fd far = std::move(listener_), near = std::move(near_);
  return Handshake(rank_, size_, key).run(far.get(), near.get(), addresses, deadline);
}

}  // namespace gradwire::server::cluster::plane
