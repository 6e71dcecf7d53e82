#include "server/rpc/gate.h"

#include <openssl/crypto.h>

#include "server/rpc/session_rpc.h"

namespace gradwire::server {

namespace {

constexpr size_t kMaxProgram = 1 << 20;  // bytes of JSON, as over HTTP

void check_room(const Peer& peer) {
  if (peer.sessions.size() >= peer.shared.limits.sessions) {
    throw Error(Code::overloaded,
                "a connection holds at most " + std::to_string(peer.shared.limits.sessions) + " sessions");
  }
}

}  // namespace

kj::Promise<void> GateRpc::info(InfoContext context) {
  return answer(*peer_, context, "info", [this, context]() mutable -> kj::Promise<void> {
    write(context.getResults().initInfo(), peer_->shared.service.info(), context.getParams().getOperators());
    return kj::READY_NOW;
  });
}

kj::Promise<void> GateRpc::open(OpenContext context) {
  return answer(*peer_, context, "open", [this, context]() mutable -> kj::Promise<void> {
    check_room(*peer_);
    auto results = context.getResults();
    const auto options = read_options(context.getParams().getOptions());
    if (!options) return fail(results, options.error()), kj::READY_NOW;
    const auto session = peer_->shared.service.open(*options);
    if (!session) return fail(results, session.error()), kj::READY_NOW;
    const SessionPtr& s = *session;
    results.setSession(kj::heap<SessionRpc>(peer_, s));
    results.setId(kj::StringPtr(s->id().c_str(), s->id().size()));
    results.setSecret(kj::arrayPtr(reinterpret_cast<const kj::byte*>(s->secret().data()), s->secret().size()));
    return kj::READY_NOW;
  });
}

kj::Promise<void> GateRpc::resume(ResumeContext context) {
  return answer(*peer_, context, "resume", [this, context]() mutable -> kj::Promise<void> {
    check_room(*peer_);
    const auto id = context.getParams().getId();
    const auto secret = context.getParams().getSecret();
    const SessionPtr s = peer_->shared.service.find({id.begin(), id.size()});
    // One answer for both, in the same time: who guesses learns nothing.
    if (!s || s->secret().size() != secret.size() ||
        CRYPTO_memcmp(s->secret().data(), secret.begin(), secret.size()) != 0) {
      throw Error(Code::no_session, "there is no such session, or it has ended");
    }
    auto results = context.getResults();
    results.setSession(kj::heap<SessionRpc>(peer_, s));
    results.setLastSeq(s->last_seq());
    return kj::READY_NOW;
  });
}

kj::Promise<void> GateRpc::sessions(SessionsContext context) {
  return answer(*peer_, context, "sessions", [this, context]() mutable -> kj::Promise<void> {
    const auto all = peer_->shared.service.list();
    auto list = context.getResults().initSessions(all.size());
    for (uint i = 0; i < all.size(); ++i) write(list[i], all[i]);
    return kj::READY_NOW;
  });
}

kj::Promise<void> GateRpc::runJson(RunJsonContext context) {
  return answer(*peer_, context, "runJson", [this, context]() mutable -> kj::Promise<void> {
    auto& run = peer_->shared.service.run_json;
    if (!run) throw Error(Code::not_implemented, "this server runs no programs in JSON");
    const auto program = context.getParams().getProgram();
    if (program.size() > kMaxProgram) throw Error(Code::too_large, "a program has at most 1 MiB of JSON");
    std::string text(program.begin(), program.size());
    context.releaseParams();
    Done<Result<std::string>> done;
    auto promise = peer_->shared.queue->expect(done);
    run(std::move(text), std::move(done));
    return promise.then([context](std::unique_ptr<Result<std::string>> reply) mutable {
      auto& answer = *reply;
      if (!answer) return fail(context.getResults(), answer.error());
      if (answer->size() > kMaxProgram * 6) {
        return fail(context.getResults(), Error(Code::too_large, "the answer has more than 6 MiB: fetch less"));
      }
      context.getResults(capnp::MessageSize{answer->size() / 8 + 16, 0})
          .setAnswer(kj::StringPtr(answer->c_str(), answer->size()));
    });
  });
}

}  // namespace gradwire::server
