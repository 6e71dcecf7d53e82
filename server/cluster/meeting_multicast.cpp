#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "server/cluster/meeting.h"

namespace gradwire::server::cluster {

namespace {

constexpr Milliseconds kEvery{100}, kSilent{2000};
constexpr size_t kMaxGuests = 4 * kMaxRanks, kMaxDatagram = 4096;

[[noreturn]] void fail(const Address& group, const char* what) {
  throw Error(Code::unavailable, "multicast rendezvous at " + group.text() + ": " + what + ": " + std::strerror(errno));
}

/// The interface that has this address; 0, the system's choice, if none has.
unsigned interface_of(const std::string& local) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) < 0) return 0;
  unsigned index = 0;
  for (const ifaddrs* i = all; i && index == 0; i = i->ifa_next) {
    if (!i->ifa_addr) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (i->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, text, sizeof text);
    }
    if (local == text) index = ::if_nametoindex(i->ifa_name);
  }
  ::freeifaddrs(all);
  return index;
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

class MulticastMeeting final : public Meeting {
 public:
  MulticastMeeting(const Address& group, const std::string& local, std::string group_name, Guest self, Moment deadline,
                   Done<Result<Met>> done)
      : group_name_(std::move(group_name)),
        self_(std::move(self)),
        deadline_(deadline),
        done_(std::move(done)),
        socket_(::socket(group.host.find(':') == std::string::npos ? AF_INET : AF_INET6,
                         SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
        stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (socket_ < 0 || stop_ < 0) fail(group, "socket");
    const int one = 1;
    if (::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0) fail(group, "SO_REUSEADDR");
    const unsigned at = interface_of(local);
    if (group.host.find(':') == std::string::npos) {
      enter4(group, at);
    } else {
      enter6(group, at);
    }
    line_ = write_line(group_name_, self_);
    if (::sendto(socket_, line_.data(), line_.size(), 0, reinterpret_cast<sockaddr*>(&to_), to_size_) < 0)
      fail(group, "cannot send");
  }
  void stop() noexcept override {
    const uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(stop_, &one, sizeof one);
  }
  void hold() noexcept override {
    try {
      Moment say_at{};
      for (;;) {
        const Moment now = std::chrono::steady_clock::now();
        if (now >= say_at) {
          ::sendto(socket_, line_.data(), line_.size(), 0, reinterpret_cast<sockaddr*>(&to_), to_size_);
          say_at = now + kEvery;
        }
        pollfd fds[2] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
        const auto wait = std::chrono::ceil<Milliseconds>(say_at - now).count();
        ::poll(fds, 2, static_cast<int>(wait));
        if (fds[1].revents) return;
        // Some at once, so that a flood of datagrams cannot keep this from its own.
        for (int i = 0; i < 256 && hear(); ++i) {}
        if (done_) judge(std::chrono::steady_clock::now());
      }
    } catch (...) {
      if (done_) done_(Result<Met>(Error(Code::internal, "the meeting by multicast has failed")));
    }
  }

 private:
  void enter4(const Address& group, unsigned at) {
    auto* to = reinterpret_cast<sockaddr_in*>(&to_);
    to->sin_family = AF_INET, to->sin_port = htons(static_cast<uint16_t>(group.port)), to_size_ = sizeof *to;
    inet_pton(AF_INET, group.host.c_str(), &to->sin_addr);
    ip_mreqn m{};
    m.imr_multiaddr = to->sin_addr, m.imr_ifindex = static_cast<int>(at);
    const int one = 1;
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&to_), to_size_) < 0) fail(group, "bind");
    if (::setsockopt(socket_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) < 0) fail(group, "cannot join");
    if (at) ::setsockopt(socket_, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m);
    ::setsockopt(socket_, IPPROTO_IP, IP_MULTICAST_LOOP, &one, sizeof one);
  }
  void enter6(const Address& group, unsigned at) {
    auto* to = reinterpret_cast<sockaddr_in6*>(&to_);
    to->sin6_family = AF_INET6, to->sin6_port = htons(static_cast<uint16_t>(group.port)), to_size_ = sizeof *to;
    to->sin6_scope_id = at;
    inet_pton(AF_INET6, group.host.c_str(), &to->sin6_addr);
    ipv6_mreq m{};
    m.ipv6mr_multiaddr = to->sin6_addr, m.ipv6mr_interface = at;
    const int one = 1, index = static_cast<int>(at);
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&to_), to_size_) < 0) fail(group, "bind");
    if (::setsockopt(socket_, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m, sizeof m) < 0) fail(group, "cannot join");
    if (at) ::setsockopt(socket_, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index);
    ::setsockopt(socket_, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &one, sizeof one);
  }

  bool hear() {
    char text[kMaxDatagram];
    const ssize_t n = ::recv(socket_, text, sizeof text, 0);
    if (n < 0) return errno == EINTR;
    const auto entry = read_line(std::string(text, static_cast<size_t>(n)));
    if (!entry || entry->group_name != group_name_) return true;
    const auto found = guests_.find(entry->guest.id);
    if (found == guests_.end() && guests_.size() >= kMaxGuests) return true;
    guests_[entry->guest.id] = {entry->guest, std::chrono::steady_clock::now()};
    return true;
  }

  void judge(Moment now) {
    std::erase_if(guests_, [&](auto& g) { return g.second.second + kSilent < now; });
    guests_[self_.id] = {self_, now};
    if (static_cast<int>(guests_.size()) == self_.world_size) {
      std::vector<Guest> all;  // by id: the order that all have alike
      for (auto& [_, g] : guests_) all.push_back(g.first);
      auto done = std::move(done_);
      try {
        done(Result<Met>(seat_guests(all, self_.id)));
      } catch (const Error& e) {
        done(Result<Met>(e));
      }
    } else if (now >= deadline_) {
      auto done = std::move(done_);
      done(Result<Met>(Error(Code::deadline_exceeded,
                             "waiting for processes to connect has timed out: " + std::to_string(guests_.size()) +
                                 " processes of " + std::to_string(self_.world_size) + " say that they are there")));
    }
  }

  const std::string group_name_;
  const Guest self_;
  const Moment deadline_;
  Done<Result<Met>> done_;
  const Fd socket_, stop_;
  sockaddr_storage to_{};
  socklen_t to_size_ = 0;
  std::string line_;
  std::map<std::string, std::pair<Guest, Moment>> guests_;  // by id
};

}  // namespace

MeetingPtr meet_by_multicast(Address group, std::string local, std::string group_name, Guest self, Moment deadline,
                             Done<Result<Met>> done, Joins::Ticket ticket) {
  return begin(std::make_shared<MulticastMeeting>(group, local, std::move(group_name), std::move(self), deadline,
                                                  std::move(done)),
               std::move(ticket));
}

}  // namespace gradwire::server::cluster
