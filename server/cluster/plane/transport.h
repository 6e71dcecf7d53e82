#pragma once

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/cluster/plane/fd.h"
#include "server/cluster/plane/maps.h"

namespace gradwire::server::cluster::plane {

/// Gloo's collectives over connections that have proven themselves (mesh.h). Gloo's own TCP transport takes whoever
/// connects first as its peer, listens on a port of its own for each pair, and ends the process when a message does not
/// fit; this one reads and writes the sockets it is given, and throws.
///
/// A message is its slot, its size, and its bytes, which are read into place once a receive of that slot is posted, and
/// wait in the socket until then: ranks that run the same collectives post them in the order in which they come.
/// To a rank on this machine (a Unix socket, mesh.h) large messages out of an area are lent: it maps the area, whose
/// descriptor comes with the first of them, copies the bytes from there, and says so. Until then they are not sent: who
/// sends one to a rank, and waits for it, must not keep that rank waiting for a message before it.
/// One thread does everything: whoever waits for a buffer moves the bytes of all of them.
class Transport : public gloo::transport::Context {
 public:
  using Time = std::chrono::steady_clock::time_point;
  class Buffer;

  /// Slots of send and recv have this highest byte, Gloo's its collective's number from 1 to 8.
  static constexpr uint64_t kPairwise = 0xff;
  static uint64_t pairwise_slot(uint64_t tag) { return kPairwise << 56 | tag; }
  /// `control` is watched beside the connections: `on_control` is called when something has come there, and
  /// `on_progress` whenever bytes have moved.
  /// `areas` are what can be lent.
  Transport(int rank, int size, std::vector<Fd> connections, const Maps& areas, int control);
  /// That area is no longer mapped here.
  void dropped(uint64_t area);
  std::function<void()> on_control = [] {}, on_progress = [] {};
  /// Of all waiting from now on.
  Time deadline = Time::max();

  /// Sleeps until something can move, and moves it. Throws Error{deadline_exceeded} when the deadline passes before.
  void progress();
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr, size_t size) override;
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override;

 private:
  struct Header {
    uint64_t slot = 0, bytes = 0;
    uint64_t area = 0, offset = 0;  // of the sender, where the bytes are; no area: they follow
  };
  struct Outgoing {
    Buffer* buffer;  // none: nobody waits for it
    Header header;
    const char* data = nullptr;
    int descriptor = -1;
    size_t sent = 0;  // of header and data
    size_t size() const { return sizeof(Header) + (header.area ? 0 : header.bytes); }
  };
  struct Expected {
    Buffer* buffer;
    uint64_t slot;
    char* data;
    size_t bytes;
  };
  struct Link {
    int rank = 0;
    Fd fd;
    bool near = false;             // on this machine
    std::set<uint64_t> shown{};    // own areas that the other end has mapped
    Maps theirs{};                 // of the other end's areas
    Fd descriptor{};               // that came with a header
    std::deque<Buffer*> unread{};  // whose bytes are lent: the oldest first
    std::deque<Outgoing> out;
    std::deque<Expected> expected;
    Header header;
    size_t have = 0;    // bytes of the header, then of the data, that have come
    Expected into{};    // where the data goes; no buffer: nobody waits for them yet
    std::string error;  // why it is over; empty: it is not
  };

  void send(Buffer&, int to, uint64_t slot, const char* data, size_t bytes);
  void receive(Buffer&, int from, uint64_t slot, char* data, size_t bytes);
  /// Throws if what the buffer waits for cannot come.
  void check(const Buffer&) const;
  Link& link(int rank, uint64_t slot);
  void write(Link&);
  void read(Link&);
  ssize_t receive(Link&, void* to, size_t bytes);
  /// A header has come that no bytes follow.
  void heard(Link&);
  bool find_place(Link&);
  static void end(Link&, std::string why);
  void say(Link&, Outgoing);

  std::vector<Link> links_;  // lane * size + rank
  const Maps& areas_;
  int control_;
  std::vector<pollfd> polled_;
};

/// What collectives are given.
class TransportContext : public gloo::Context {
 public:
  explicit TransportContext(std::shared_ptr<Transport> t) : gloo::Context(t->rank, t->size) {
    transportContext_ = std::move(t);
  }
};

/// Does not outlive its transport, and is not destroyed while it is pending unless the transport is no longer used.
class Transport::Buffer : public gloo::transport::UnboundBuffer {
 public:
  Buffer(Transport& t, void* ptr, size_t size) : UnboundBuffer(ptr, size), transport_(t) {}
  // The transport's deadline bounds every waiting; the arguments are Gloo's guesses.
  bool waitRecv(int* rank, std::chrono::milliseconds) override;
  bool waitSend(int* rank, std::chrono::milliseconds) override;
  void abortWaitRecv() override {}
  void abortWaitSend() override {}
  void send(int to, uint64_t slot, size_t offset, size_t bytes) override;
  void recv(int from, uint64_t slot, size_t offset, size_t bytes) override;
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) override;

  /// Takes back one completion of each kind if there is one.
  bool sent() { return take(sent_); }
  bool received() { return take(received_); }
  /// Throws if what is pending cannot be completed.
  void check() const { transport_.check(*this); }

 private:
  friend class Transport;
  static bool take(std::deque<int>& ranks, int* rank = nullptr);
  size_t bytes_from(size_t offset, size_t bytes) const;

  Transport& transport_;
  std::deque<int> sent_, received_;  // the other ranks of what is complete
};

}  // namespace gradwire::server::cluster::plane
