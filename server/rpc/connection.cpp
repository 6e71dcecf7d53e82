#include "server/rpc/connection.h"

namespace gradwire::server {

namespace {

/// Room for several looks at each word of the largest frame; also the largest message that may be sent.
capnp::ReaderOptions reader_options(const RpcLimits& limits) {
  capnp::ReaderOptions o;
  o.traversalLimitInWords = 4 * limits.open.frame_bytes / sizeof(capnp::word);
  o.nestingLimit = 64;
  return o;
}

}  // namespace

Connection::Connection(RpcShared& shared, kj::Own<kj::AsyncIoStream> io, std::string address,
                       kj::Own<wire::BlockPool> pool, kj::Timer& timer)
    : io_(kj::mv(io)),
      address_(std::move(address)),
      timer_(timer),
      parting_time_(shared.limits.parting_time),
      stream_(*io_, shared.limits, kj::mv(pool), timer, &shared.service.metrics()),
      peer_(std::make_shared<Peer>(Peer{shared, &stream_, {}})) {
  auto& network = network_.emplace(stream_, capnp::rpc::twoparty::Side::SERVER, reader_options(shared.limits));
  stream_.queued_above = [&network] { return network.getCurrentQueueSize(); };
  stream_.place = [this](uint64_t upload, uint64_t offset, size_t size) { return place(upload, offset, size); };
  auto& rpc = rpc_.emplace(capnp::makeRpcServer(network, wire::Login::Client(kj::heap<LoginRpc>(peer_))));
  rpc.setFlowLimit(shared.limits.in_flight / sizeof(capnp::word));
}

Connection::~Connection() noexcept(false) {
  peer_->stream = nullptr;
  rpc_ = nullptr;
  // What calls under way still hold: nobody waits for them.
  for (Session* s : std::exchange(peer_->sessions, {})) s->detach();
  stream_.queued_above = nullptr;
  network_ = nullptr;
}

GuardedStream::Landing Connection::place(uint64_t upload, uint64_t offset, size_t size) const {
  constexpr size_t kFew = 8;
  if (peer_->sessions.size() > kFew || offset % sizeof(capnp::word) != 0) return {};
  Session* owner = nullptr;
  GuardedStream::Landing landing;
  for (Session* s : peer_->sessions) {
    auto room = s->held(upload);
    if (!room || s == owner) continue;  // a session may be held twice
    if (owner) return {};
    owner = s;
    if (offset <= room->size && size <= room->size - offset) {
      landing = {reinterpret_cast<kj::byte*>(room->data) + offset, room->hold};
    }
  }
  return landing;
}

kj::Promise<void> Connection::ended() {
  auto gone = KJ_ASSERT_NONNULL(network_).onDisconnect();
  auto given_up = stream_.failure().then([this] { return timer_.afterDelay(parting_time_); });
  return gone.exclusiveJoin(kj::mv(given_up));
}

}  // namespace gradwire::server
