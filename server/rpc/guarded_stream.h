#pragma once

#include <functional>
#include <unordered_map>

#include "schema/wire_stream.h"
#include "server/rpc/limits.h"

namespace gradwire::server {

class Metrics;

/// The server's end of a connection: the shared stream with strict limits before login, and a count of the calls that
/// the other side has not ended. Cap'n Proto keeps a table entry for each and has no limit of its own.
class GuardedStream final : public wire::Stream {
 public:
  GuardedStream(kj::AsyncIoStream&, const RpcLimits&, kj::Own<wire::BlockPool>, kj::Timer&, Metrics*);

  /// From now on the limits of a client that is known.
  void logged_in();
  bool is_logged_in() const { return logged_in_; }
  /// The memory that a piece of an upload is meant for; asked when the piece begins to arrive.
  std::function<Landing(uint64_t upload, uint64_t offset, size_t size)> place;

  /// Calls that are not both answered and finished.
  size_t unfinished() const { return questions_.size(); }
  /// Calls that are not answered yet.
  size_t in_work() const { return in_work_; }

  using Stream::Landing;

 private:
  std::optional<wire::Reject> incoming(capnp::MessageReader&) override;
  void outgoing(Segments) override;
  Landing land(capnp::MessageReader&, const kj::byte* zeros, size_t size) override;
  bool busy() const override { return in_work_ > 0; }
  void on_reject(wire::Reject) override;
  std::optional<wire::Reject> asked(uint32_t id);

  enum : uint8_t { kAnswered = 1, kFinished = 2 };
  void mark(uint32_t id, uint8_t what);

  const RpcLimits& rpc_;
  Metrics* metrics_;
  bool logged_in_ = false;
  std::unordered_map<uint32_t, uint8_t> questions_;
  size_t in_work_ = 0;
  kj::Promise<void> login_watch_ = nullptr;
};

}  // namespace gradwire::server
