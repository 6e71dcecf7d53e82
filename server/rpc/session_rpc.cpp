#include "server/rpc/session_rpc.h"

#include <capnp/orphan.h>

#include <algorithm>
#include <cstring>

namespace gradwire::server {

namespace {

using Answer = std::shared_ptr<const Outcome>;

void put_error(wire::Outcome::Builder to, uint64_t seq, const Error& e) {
  to.setSeq(seq);
  to.setFailed(true);
  write(to.initError(), e);
}

}  // namespace

SessionRpc::SessionRpc(PeerPtr peer, SessionPtr session) : peer_(std::move(peer)), session_(std::move(session)) {
  session_->attach();
  peer_->sessions.push_back(session_.get());
}

SessionRpc::~SessionRpc() noexcept(false) {
  auto& all = peer_->sessions;
  const auto held = std::find(all.begin(), all.end(), session_.get());
  if (held == all.end()) return;  // the connection has let go of it
  all.erase(held);
  session_->detach();
}

kj::Promise<void> SessionRpc::run(RunContext context) {
  auto failed = [context](uint64_t seq) mutable {
    put_error(context.initResults().initOutcome(), seq, caught_error(Code::bad_program));
  };
  try {
    auto promise = run_checked(context);
    return promise.catch_([failed](kj::Exception&& e) mutable {
      try {
        throw kj::mv(e);
      } catch (...) {
        failed(0);
      }
    });
  } catch (...) {
    failed(0);
    return kj::READY_NOW;
  }
}

kj::Promise<void> SessionRpc::run_checked(RunContext context) {
  auto& shared = peer_->shared;
  shared.service.metrics().add(Metric::rpc_requests, "run");
  if (shared.before_call) shared.before_call("run");
  const auto from = context.getParams().getBatch();
  const uint64_t seq = from.getSeq();
  auto batch = read_batch(from);
  if (!batch) {
    put_error(context.getResults().initOutcome(), seq, batch.error());
    return kj::READY_NOW;
  }
  context.releaseParams();
  Done<Answer> done;
  auto promise = shared.queue->expect(done);
  session_->run(std::move(batch->batch), batch->digest, std::move(done));
  shared.queue->linger();
  return promise.then([this, context](std::unique_ptr<Answer> answer) mutable -> kj::Promise<void> {
    Answer outcome = std::move(*answer);
    auto put = [context](const Outcome& o) mutable {
      gradwire::server::write(context.getResults(size_of(o)).initOutcome(), o);
    };
    if (!peer_->stream ||
        peer_->stream->has_room(gradwire::server::size_of(*outcome).wordCount * sizeof(capnp::word))) {
      put(*outcome);
      return kj::READY_NOW;
    }
    return peer_->stream->room().then([put, outcome = kj::mv(outcome)]() mutable { put(*outcome); });
  });
}

kj::Promise<void> SessionRpc::reserve(ReserveContext context) {
  return answer(*peer_, context, "reserve", [this, context]() mutable -> kj::Promise<void> {
    const auto params = context.getParams();
    const auto dtype = read_dtype(params.getDtype());
    if (!dtype) return fail(context.getResults(), dtype.error()), kj::READY_NOW;
    auto shape = read_shape(params.getShape());
    if (!shape) return fail(context.getResults(), shape.error()), kj::READY_NOW;
    Done<Result<Room>> done;
    auto promise = peer_->shared.queue->expect(done);
    session_->reserve(*dtype, std::move(*shape), std::move(done));
    return promise.then([this, context](std::unique_ptr<Result<Room>> reserved) mutable {
      auto& room = *reserved;
      auto results = context.getResults();
      if (!room) return fail(results, room.error());
      results.setSize(room->size);
      results.setUpload(session_->hold(std::move(*room)));
    });
  });
}

kj::Promise<void> SessionRpc::write(WriteContext context) {
  return answer(*peer_, context, "write", [this, context]() mutable -> kj::Promise<void> {
    const auto params = context.getParams();
    const auto data = params.getData();
    const uint64_t offset = params.getOffset();
    if (data.size() > kPiece) throw Error(Code::too_large, "a piece of an upload has at most 1 MiB");
    auto room = session_->held(params.getUpload());
    if (!room) return fail(context.getResults(), room.error()), kj::READY_NOW;
    if (offset > room->size || data.size() > room->size - offset) {
      throw Error(Code::bad_argument, "bytes " + std::to_string(offset) + " to " +
                                          std::to_string(offset + data.size()) + " are not in an upload of " +
                                          std::to_string(room->size));
    }
    // Most pieces were read to where they belong; see Connection::place.
    auto* to = reinterpret_cast<kj::byte*>(room->data) + offset;
    if (data.size() && data.begin() != to) std::memmove(to, data.begin(), data.size());
    context.releaseParams();
    context.getResults(capnp::MessageSize{8, 0});
    return kj::READY_NOW;
  });
}

kj::Promise<void> SessionRpc::read(ReadContext context) {
  return answer(*peer_, context, "read", [this, context]() mutable -> kj::Promise<void> {
    if (!peer_->stream || peer_->stream->has_room(context.getParams().getSize()))
      return read_now(context), kj::READY_NOW;
    return peer_->stream->room().then([this, context]() mutable { read_now(context); });
  });
}

void SessionRpc::read_now(ReadContext context) {
  const auto params = context.getParams();
  const uint64_t offset = params.getOffset();
  auto value = session_->fetched(params.getSeq(), params.getIndex());
  if (!value) return fail(context.getResults(), value.error());
  if (params.getSize() > kPiece) throw Error(Code::too_large, "a piece of a value has at most 1 MiB");
  if (offset > value->size) {
    throw Error(Code::bad_argument,
                "byte " + std::to_string(offset) + " is not in a value of " + std::to_string(value->size));
  }
  const size_t n = std::min<uint64_t>(params.getSize(), value->size - offset);
  const auto* begin = reinterpret_cast<const kj::byte*>(value->data) + offset;
  // Whole words can be sent from where they lie. Who cancels calls after they are answered could leave references
  // behind: their sum is bounded, and beyond it the bytes are copied.
  const bool in_place = n > wire::kCopied && n % 8 == 0 && reinterpret_cast<uintptr_t>(begin) % 8 == 0 &&
                        peer_->stream && peer_->stream->held() + n <= 2 * peer_->shared.limits.open.queued_bytes;
  auto results = context.getResults(capnp::MessageSize{in_place ? 16 : n / 8 + 16, 0});
  if (n == 0) return;
  if (!in_place) {
    std::memcpy(results.initData(n).begin(), begin, n);
    return;
  }
  const auto bytes = kj::arrayPtr(begin, n);
  results.adoptData(capnp::Orphanage::getForMessageContaining(wire::Session::ReadResults::Builder(results))
                        .referenceExternalData(bytes));
  peer_->stream->hold(begin, n, value->hold);
}

kj::Promise<void> SessionRpc::cancel(CancelContext context) {
  return answer(*peer_, context, "cancel", [this, context]() mutable -> kj::Promise<void> {
    session_->cancel(context.getParams().getSeq());
    return kj::READY_NOW;
  });
}

kj::Promise<void> SessionRpc::close(CloseContext context) {
  return answer(*peer_, context, "close", [this, context]() mutable -> kj::Promise<void> {
    Done<Result<void>> done;
    auto promise = peer_->shared.queue->expect(done);
    session_->close(std::move(done));
    return promise.then([context](std::unique_ptr<Result<void>> closed) mutable {
      if (!*closed) fail(context.getResults(), closed->error());
    });
  });
}

}  // namespace gradwire::server
