#pragma once

#include "server/rpc/peer.h"

namespace gradwire::server {

/// What a logged-in client may do.
class GateRpc final : public wire::Gate::Server {
 public:
  explicit GateRpc(PeerPtr peer) : peer_(std::move(peer)) {}

 protected:
  kj::Promise<void> info(InfoContext) override;
  kj::Promise<void> open(OpenContext) override;
  kj::Promise<void> resume(ResumeContext) override;
  kj::Promise<void> sessions(SessionsContext) override;
  kj::Promise<void> runJson(RunJsonContext) override;

 private:
  PeerPtr peer_;
};

}  // namespace gradwire::server
