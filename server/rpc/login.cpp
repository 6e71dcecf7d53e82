#include "server/rpc/login.h"

#include "server/rpc/gate.h"

namespace gradwire::server {

kj::Promise<void> LoginRpc::hello(HelloContext context) {
  return answer(*peer_, context, "hello", [this, context]() mutable -> kj::Promise<void> {
    const auto theirs = context.getParams();
    auto results = context.getResults();
    results.setMinVersion(kMinVersion), results.setMaxVersion(kMaxVersion);
    if (theirs.getMaxVersion() < kMinVersion || theirs.getMinVersion() > kMaxVersion) {
      fail(results, Error(Code::bad_request, "this server speaks versions " + std::to_string(kMinVersion) + " to " +
                                                 std::to_string(kMaxVersion) + " of the protocol, the client " +
                                                 std::to_string(theirs.getMinVersion()) + " to " +
                                                 std::to_string(theirs.getMaxVersion())));
    }
    return kj::READY_NOW;
  });
}

kj::Promise<void> LoginRpc::login(LoginContext context) {
  return answer(*peer_, context, "login", [this, context]() mutable -> kj::Promise<void> {
    auto results =
        context.getResults();  // on loopback and Unix sockets any token is good; options.cpp allows no others
    KJ_IF_MAYBE (gate, gate_) {
      results.setGate(*gate);
    } else {
      wire::Gate::Client fresh = kj::heap<GateRpc>(peer_);
      results.setGate(fresh);
      gate_ = kj::mv(fresh);
    }
    if (peer_->stream) peer_->stream->logged_in();
    return kj::READY_NOW;
  });
}

}  // namespace gradwire::server
