#include "server/rpc/guarded_stream.h"

#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>

#include "schema/gradwire.capnp.h"
#include "server/metrics.h"

namespace gradwire::server {

using wire::Reject;

namespace {

constexpr uint16_t kWrite = 2;  // Session.write in gradwire.capnp

}  // namespace

GuardedStream::GuardedStream(kj::AsyncIoStream& io, const RpcLimits& limits, kj::Own<wire::BlockPool> pool,
                             kj::Timer& timer, Metrics* metrics)
    : Stream(io, limits.closed, kj::mv(pool), timer), rpc_(limits), metrics_(metrics) {
  login_watch_ =
      timer.afterDelay(limits.login_time).then([this] { fail(Reject::login_time); }).eagerlyEvaluate(nullptr);
}

void GuardedStream::logged_in() {
  if (logged_in_) return;
  logged_in_ = true;
  set_limits(rpc_.open);
  login_watch_ = kj::READY_NOW;
}

void GuardedStream::on_reject(Reject why) {
  if (metrics_) metrics_->add(Metric::rpc_frames_rejected, wire::name(why));
}

std::optional<Reject> GuardedStream::incoming(capnp::MessageReader& reader) {
  const auto message = reader.getRoot<capnp::rpc::Message>();
  switch (message.which()) {
    case capnp::rpc::Message::BOOTSTRAP:
      return asked(message.getBootstrap().getQuestionId());
    case capnp::rpc::Message::CALL: {
      const auto call = message.getCall();
      // Answers that stay on this side would lie here unsent, with all that they hold.
      if (!call.getSendResultsTo().isCaller()) return Reject::unsupported;
      if (call.getParams().getCapTable().size() > rpc_.capabilities) return Reject::capabilities;
      return asked(call.getQuestionId());
    }
    case capnp::rpc::Message::FINISH:
      mark(message.getFinish().getQuestionId(), kFinished);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

void GuardedStream::outgoing(Segments segments) {
  capnp::SegmentArrayMessageReader reader(segments);
  const auto message = reader.getRoot<capnp::rpc::Message>();
  if (message.isReturn()) mark(message.getReturn().getAnswerId(), kAnswered);
}

GuardedStream::Landing GuardedStream::land(capnp::MessageReader& begun, const kj::byte* zeros, size_t size) {
  if (!place || !logged_in_) return {};
  const auto message = begun.getRoot<capnp::rpc::Message>();
  if (!message.isCall()) return {};
  const auto call = message.getCall();
  if (call.getInterfaceId() != capnp::typeId<wire::Session>() || call.getMethodId() != kWrite) return {};
  const auto params = call.getParams().getContent().getAs<wire::Session::WriteParams>();
  const auto data = params.getData();
  // The segment must be the bytes and nothing more: not even the zeros that fill a last word.
  if (data.begin() != zeros || data.size() != size) return {};
  return place(params.getUpload(), params.getOffset(), size);
}

std::optional<Reject> GuardedStream::asked(uint32_t id) {
  if (questions_.size() >= (logged_in_ ? rpc_.questions : rpc_.questions_before_login)) return Reject::questions;
  if (questions_.try_emplace(id, 0).second) ++in_work_;  // one in use: the RPC system ends the connection
  return std::nullopt;
}

void GuardedStream::mark(uint32_t id, uint8_t what) {
  const auto found = questions_.find(id);
  if (found == questions_.end()) return;
  if (what == kAnswered && !(found->second & kAnswered)) --in_work_;
  found->second |= what;
  if (found->second == (kAnswered | kFinished)) questions_.erase(found);
}

}  // namespace gradwire::server
