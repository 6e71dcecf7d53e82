#pragma once

#include "server/rpc/peer.h"

namespace gradwire::server {

/// The bootstrap object of a connection: nothing else can be reached before login().
class LoginRpc final : public wire::Login::Server {
 public:
  static constexpr uint32_t kMinVersion = 1, kMaxVersion = 1;
  explicit LoginRpc(PeerPtr peer) : peer_(std::move(peer)) {}

 protected:
  kj::Promise<void> hello(HelloContext) override;
  kj::Promise<void> login(LoginContext) override;

 private:
  PeerPtr peer_;
  kj::Maybe<wire::Gate::Client> gate_;  // one a connection
};

}  // namespace gradwire::server
