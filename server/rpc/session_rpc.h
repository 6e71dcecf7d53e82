#pragma once

#include "server/rpc/peer.h"

namespace gradwire::server {

/// A session as one connection holds it: attached for as long as the capability lives.
class SessionRpc final : public wire::Session::Server {
 public:
  SessionRpc(PeerPtr, SessionPtr);
  ~SessionRpc() noexcept(false);

 protected:
  kj::Promise<void> run(RunContext) override;
  kj::Promise<void> reserve(ReserveContext) override;
  kj::Promise<void> write(WriteContext) override;
  kj::Promise<void> read(ReadContext) override;
  kj::Promise<void> cancel(CancelContext) override;
  kj::Promise<void> close(CloseContext) override;

 private:
  kj::Promise<void> run_checked(RunContext);
  void read_now(ReadContext);

  PeerPtr peer_;
  SessionPtr session_;
};

}  // namespace gradwire::server
