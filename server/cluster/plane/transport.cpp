#include "server/cluster/plane/transport.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "schema/error.h"
#include "server/cluster/plane/mesh.h"

namespace gradwire::server::cluster::plane {

namespace {

constexpr size_t kLent = size_t{16} << 10;  // bytes: what is smaller is sooner copied twice than answered
/// Slots of what is said about lending.
constexpr uint64_t kRead = uint64_t{0xfe} << 56;  // the bytes of the oldest message that was lent and not yet answered
constexpr uint64_t kGone = uint64_t{0xfd} << 56;  // an area

bool is_near(int fd) {
  int family = 0;
  socklen_t size = sizeof family;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX;
}

/// Gloo asks whether there is a pair, and uses none of its methods in the collectives of buffers.
class Present final : public gloo::transport::Pair {
 public:
  const gloo::transport::Address& address() const override { none(); }
  void connect(const std::vector<char>&) override { none(); }
  void close() override {}
  void setSync(bool, bool) override { none(); }
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void*, size_t) override { none(); }
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void*, size_t) override { none(); }
  void send(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { none(); }
  void recv(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { none(); }

 private:
  [[noreturn]] static void none() { throw Error(Code::internal, "data plane: this transport moves buffers only"); }
};

}  // namespace

Transport::Transport(int own, int count, std::vector<Fd> connections, const Maps& areas, int control)
    : Context(own, count), links_(static_cast<size_t>(count * kLanes)), areas_(areas), control_(control) {
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i].rank = static_cast<int>(i) % size;
    links_[i].fd = std::move(connections.at(i));
    links_[i].near = is_near(links_[i].fd.get());
  }
  for (int r = 0; r < size; ++r) createPair(r);
}

std::unique_ptr<gloo::transport::Pair>& Transport::createPair(int r) {
  return pairs_.at(static_cast<size_t>(r)) = std::make_unique<Present>();
}

std::unique_ptr<gloo::transport::UnboundBuffer> Transport::createUnboundBuffer(void* ptr, size_t bytes) {
  return std::make_unique<Buffer>(*this, ptr, bytes);
}

void Transport::progress() {
  polled_.clear();
  polled_.push_back({control_, POLLIN, 0});
  for (const Link& l : links_) {
    // A message that nobody waits for yet stays in the socket, and may not wake us up again and again.
    const bool stalled = l.have >= sizeof(Header) && !l.into.buffer;
    const int events = (stalled ? 0 : POLLIN) | (l.out.empty() ? 0 : POLLOUT);
    polled_.push_back({l.error.empty() && events ? l.fd.get() : -1, static_cast<short>(events), 0});
  }
  int ms = -1;
  if (deadline != Time::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) throw Error(Code::deadline_exceeded, "data plane: the deadline has passed");
    ms = static_cast<int>(std::min<int64_t>(left, 1'000'000));
  }
  if (::poll(polled_.data(), polled_.size(), ms) < 0) {
    if (errno == EINTR) return;
    throw Error(Code::internal, "data plane: poll: " + std::generic_category().message(errno));
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    const int events = polled_[i + 1].revents;
    if (events & POLLOUT) write(links_[i]);
    if (events & ~POLLOUT) read(links_[i]);
  }
  if (polled_[0].revents) on_control();
  on_progress();
}

Transport::Link& Transport::link(int r, uint64_t slot) {
  if (r < 0 || r >= size || r == rank)
    throw Error(Code::internal, "data plane: no connection with rank " + std::to_string(r));
  const int lane = slot >> 56 == kPairwise ? 1 : 0;
  return links_[static_cast<size_t>(lane * size + r)];
}

void Transport::end(Link& l, std::string why) {
  l.error = "data plane: the connection with rank " + std::to_string(l.rank) + " is lost: " + why;
  l.fd = Fd();
  l.descriptor = Fd();
  l.theirs.clear(), l.shown.clear();
}

void Transport::check(const Buffer& b) const {
  for (const Link& l : links_) {
    if (l.error.empty()) continue;
    const auto is = [&](const auto& x) { return x.buffer == &b; };
    if (l.into.buffer == &b || std::any_of(l.out.begin(), l.out.end(), is) ||
        std::any_of(l.expected.begin(), l.expected.end(), is) ||
        std::find(l.unread.begin(), l.unread.end(), &b) != l.unread.end()) {
      throw Error(Code::unavailable, l.error);
    }
  }
}

void Transport::send(Buffer& b, int to, uint64_t slot, const char* data, size_t bytes) {
  Link& l = link(to, slot);
  Outgoing o{&b, {slot, bytes}, data};
  if (l.near && bytes >= kLent) {
    if (const auto place = areas_.find(data, bytes)) {
      o.header.area = place->id, o.header.offset = place->offset;
      if (l.shown.insert(place->id).second) o.descriptor = place->memory;
    }
  }
  say(l, std::move(o));
}

void Transport::say(Link& l, Outgoing o) {
  const bool first = l.out.empty();
  l.out.push_back(std::move(o));
  if (first && l.error.empty()) write(l);
}

void Transport::dropped(uint64_t area) {
  for (Link& l : links_) {
    if (l.shown.erase(area) && l.error.empty()) say(l, {nullptr, {kGone, 0, area, 0}});
  }
}

void Transport::receive(Buffer& b, int from, uint64_t slot, char* data, size_t bytes) {
  Link& l = link(from, slot);
  l.expected.push_back({&b, slot, data, bytes});
  if (l.have >= sizeof(Header) && !l.into.buffer && l.error.empty()) read(l);
}

void Transport::write(Link& l) {
  while (!l.out.empty()) {
    Outgoing& o = l.out.front();
    const size_t head = o.sent < sizeof(Header) ? sizeof(Header) - o.sent : 0;
    const size_t done = o.sent - (sizeof(Header) - head);
    iovec parts[2] = {{reinterpret_cast<char*>(&o.header) + o.sent, head},
                      {const_cast<char*>(o.data) + done, o.header.bytes - done}};
    msghdr m{};
    m.msg_iov = head ? parts : parts + 1;
    m.msg_iovlen = (head != 0) + (o.size() > sizeof(Header) + done);
    Rights rights;
    if (o.descriptor >= 0) rights.put(m, o.descriptor);
    const ssize_t n = ::sendmsg(l.fd.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0 && errno == ETOOMANYREFS && o.descriptor >= 0) {  // of this user's, on their way: bytes go without
      const uint64_t area = o.header.area;
      l.shown.erase(area);
      for (Outgoing& next : l.out) {
        if (next.buffer && next.header.area == area) next.header.area = next.header.offset = 0, next.descriptor = -1;
      }
      continue;
    }
    if (n < 0) return end(l, errno == EPIPE ? "it was closed" : std::generic_category().message(errno));
    o.sent += static_cast<size_t>(n);
    o.descriptor = -1;
    if (o.sent < o.size()) continue;
    if (o.buffer) {
      if (o.header.area)
        l.unread.push_back(o.buffer);
      else
        o.buffer->sent_.push_back(l.rank);
    }
    l.out.pop_front();
  }
}

bool Transport::find_place(Link& l) {
  const auto e =
      std::find_if(l.expected.begin(), l.expected.end(), [&](const Expected& x) { return x.slot == l.header.slot; });
  if (e == l.expected.end()) {
    // Collectives run in order: what comes is what is awaited, or the rank runs another.
    if (!l.expected.empty() && l.header.slot >> 56 != kPairwise) end(l, "it runs another collective");
    return false;
  }
  if (e->bytes != l.header.bytes) {
    end(l, "it sent " + std::to_string(l.header.bytes) + " bytes where " + std::to_string(e->bytes) + " belong");
    return false;
  }
  l.into = *e;
  l.expected.erase(e);
  return true;
}

/// What else a neighbour may say than bytes; with it comes the descriptor of an area that he has not shown yet.
void Transport::heard(Link& l) {
  const Header& h = l.header;
  if (!l.near) return end(l, "it speaks as if it were on this machine");
  try {
    if (l.descriptor) l.theirs.add(h.area, std::exchange(l.descriptor, Fd()), Maps::Use::read);
  } catch (const Error& e) {
    return end(l, e.message());
  }
  if (h.slot == kRead) {
    if (l.unread.empty()) return end(l, "it has read what was not lent");
    l.unread.front()->sent_.push_back(l.rank);
    l.unread.pop_front();
  } else if (h.slot == kGone) {
    l.theirs.drop(h.area);
  } else {
    const char* from = l.theirs.at(h.area, h.offset, h.bytes);
    if (!from) return end(l, "it lends what it has not shown");
    if (!find_place(l)) return;
    std::memcpy(l.into.data, from, h.bytes);
    l.into.buffer->received_.push_back(l.rank);
    l.into = {};
    say(l, {nullptr, {kRead}});
  }
  l.have = 0;
}

ssize_t Transport::receive(Link& l, void* to, size_t bytes) {
  if (!l.near) return ::recv(l.fd.get(), to, bytes, MSG_DONTWAIT);
  int flags = 0;
  const ssize_t n = Rights::receive(l.fd.get(), to, bytes, l.descriptor, flags);
  if (n <= 0 || !(flags & MSG_CTRUNC)) return n;
  errno = EMFILE;
  return -1;
}

void Transport::read(Link& l) {
  while (l.error.empty()) {
    const bool head = l.have < sizeof(Header);
    if (!head && (l.header.area || l.header.slot == kRead)) return heard(l);
    if (!head && !l.into.buffer && !find_place(l)) return;
    const size_t done = head ? l.have : l.have - sizeof(Header);
    const size_t left = (head ? sizeof(Header) : l.header.bytes) - done;
    if (left) {
      char* to = (head ? reinterpret_cast<char*>(&l.header) : l.into.data) + done;
      const ssize_t n = receive(l, to, left);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) return end(l, n < 0 ? std::generic_category().message(errno) : "it was closed");
      l.have += static_cast<size_t>(n);
    }
    if (head || l.have < sizeof(Header) + l.header.bytes) continue;
    l.into.buffer->received_.push_back(l.rank);
    l.into = {};
    l.have = 0;
    return;  // whoever waits for it can go on
  }
}

bool Transport::Buffer::take(std::deque<int>& ranks, int* rank) {
  if (ranks.empty()) return false;
  if (rank) *rank = ranks.front();
  ranks.pop_front();
  return true;
}

bool Transport::Buffer::waitRecv(int* rank, std::chrono::milliseconds) {
  while (!take(received_, rank)) check(), transport_.progress();
  return true;
}

bool Transport::Buffer::waitSend(int* rank, std::chrono::milliseconds) {
  while (!take(sent_, rank)) check(), transport_.progress();
  return true;
}

size_t Transport::Buffer::bytes_from(size_t offset, size_t bytes) const {
  if (offset > size || (bytes != kUnspecifiedByteCount && bytes > size - offset)) {
    throw Error(Code::internal, "data plane: a part that is not in its buffer");
  }
  return bytes == kUnspecifiedByteCount ? size - offset : bytes;
}

void Transport::Buffer::send(int to, uint64_t slot, size_t offset, size_t bytes) {
  bytes = bytes_from(offset, bytes);
  transport_.send(*this, to, slot, static_cast<const char*>(ptr) + offset, bytes);
}

void Transport::Buffer::recv(int from, uint64_t slot, size_t offset, size_t bytes) {
  bytes = bytes_from(offset, bytes);
  transport_.receive(*this, from, slot, static_cast<char*>(ptr) + offset, bytes);
}

void Transport::Buffer::recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) {
  if (from.size() != 1) throw Error(Code::internal, "data plane: a receive is from one rank");
  recv(from[0], slot, offset, bytes);
}

}  // namespace gradwire::server::cluster::plane
