#pragma once

#include <kj/async-unix.h>
#include <kj/timer.h>

#include <deque>
#include <memory>
#include <string>

#include "schema/wire_stream.h"
#include "server/cluster/message.h"
#include "server/cluster/tls.h"

namespace gradwire::server::cluster {

struct LinkLimits {
  wire::StreamLimits stranger{.frame_bytes = 16 << 10,
                              .segments = 4,
                              .queued_bytes = 64 << 10,
                              .frame_time = 5 * kj::SECONDS,
                              .stall_time = 5 * kj::SECONDS,
                              .idle_time = 5 * kj::SECONDS};
  wire::StreamLimits known{.frame_bytes = 8 << 20,
                           .segments = 64,
                           .queued_bytes = 8 << 20,
                           .frame_time = 10 * kj::SECONDS,
                           .stall_time = 10 * kj::SECONDS,
                           .idle_time = 15 * kj::SECONDS};
  kj::Duration open_time = 5 * kj::SECONDS;   // TLS, and the first message of who has dialled
  kj::Duration dial_time = 2 * kj::SECONDS;   // one attempt
  kj::Duration ping_every = 5 * kj::SECONDS;  // a third of the idle time: one may be late
  size_t strangers = 512, links = 4096;
};

/// A channel to another server, over a guarded stream. What comes before it is open waits; what it says that is not
/// read in time, or not well-formed, ends it.
class Link final : public Channel, private kj::TaskSet::ErrorHandler {
 public:
  Link(kj::Promise<Opened>, const LinkLimits&, kj::Timer&, kj::Own<wire::BlockPool>);
  ~Link() noexcept override;

  void send(Message) override;
  bool is_open() const override { return stream_.get() != nullptr && !ended_; }
  /// From now on the limits of a peer that is known.
  void known();
  bool is_known() const { return known_; }
  /// Whether the other end's certificate has this name; any name where there is no TLS.
  bool is(const std::string& host) const { return is_ && is_(host); }
  /// Writes what is queued, then says that nothing more comes.
  kj::Promise<void> finish();

 private:
  class Guarded;
  void open(Opened);
  kj::Promise<void> read();
  kj::Promise<void> ping();
  void ended(Error);
  void taskFailed(kj::Exception&&) override {}  // a write: the stream knows it too

  const LinkLimits& limits_;
  kj::Timer& timer_;
  kj::Own<wire::BlockPool> pool_;
  std::function<bool(const std::string&)> is_;
  bool known_ = false, ended_ = false;
  std::deque<Message> early_;
  size_t in_place_ = 0;  // bytes of messages that are being written
  kj::Own<kj::AsyncIoStream> io_;
  kj::Own<Guarded> stream_;
  kj::Promise<void> running_ = nullptr, pinging_ = nullptr, failing_ = nullptr;
  kj::TaskSet writes_{*this};
};

/// Two ends of a channel within this server; `later` runs what it is given on the loop, in order.
std::pair<ChannelPtr, ChannelPtr> make_pipe(std::function<void(std::function<void()>)> later);

/// What went wrong on a connection, in our words: "connection refused".
std::string words(const kj::Exception&);

}  // namespace gradwire::server::cluster
