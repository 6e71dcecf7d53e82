#pragma once

#include <capnp/rpc-twoparty.h>
#include <capnp/rpc.h>

#include <string>

#include "server/rpc/login.h"
#include "server/rpc/peer.h"

namespace gradwire::server {

/// One client: its stream, its RPC system and its login. Loop thread.
class Connection {
 public:
  /// `address` is what connections are counted by; empty for local ones.
  Connection(RpcShared&, kj::Own<kj::AsyncIoStream>, std::string address, kj::Own<wire::BlockPool>, kj::Timer&);
  ~Connection() noexcept(false);

  /// Resolves when the other side is gone, or has been given up.
  kj::Promise<void> ended();
  /// No call is in work, and nothing waits to be written.
  bool quiet() const { return stream_.in_work() == 0 && stream_.queued() == 0; }
  bool is_logged_in() const { return stream_.is_logged_in(); }
  const std::string& address() const { return address_; }

 private:
  /// Where a piece of an upload can be read to, without a copy. The call may be for any of the client's sessions: if
  /// several have an upload of that number, nowhere.
  GuardedStream::Landing place(uint64_t upload, uint64_t offset, size_t size) const;

  kj::Own<kj::AsyncIoStream> io_;
  const std::string address_;
  kj::Timer& timer_;
  const kj::Duration parting_time_;
  GuardedStream stream_;
  PeerPtr peer_;
  kj::Maybe<capnp::TwoPartyVatNetwork> network_;
  kj::Maybe<capnp::RpcSystem<capnp::rpc::twoparty::VatId>> rpc_;
};

}  // namespace gradwire::server
