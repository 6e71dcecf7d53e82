#pragma once

#include <arpa/inet.h>
#include <capnp/rpc-twoparty.h>
#include <capnp/rpc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "schema/gradwire.capnp.h"
#include "schema/wire_columns.h"
#include "schema/wire_stream.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/setup.h"
#include "tests/server/rig.h"

namespace gradwire::server {

/// A plain blocking socket to "127.0.0.1:41233" or to a Unix path; what an attacker uses.
inline kj::AutoCloseFd raw_connect(const std::string& address) {
  const size_t colon = address.rfind(':');
  kj::AutoCloseFd fd(::socket(colon == std::string::npos ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in in{};
  sockaddr_un un{};
  int rc;
  if (colon == std::string::npos) {
    un.sun_family = AF_UNIX;
    std::strcpy(un.sun_path, address.c_str());
    rc = ::connect(fd, reinterpret_cast<sockaddr*>(&un), sizeof un);
  } else {
    in.sin_family = AF_INET;
    in.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &in.sin_addr);
    rc = ::connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof in);
  }
  if (rc < 0) throw Error(Code::unavailable, std::strerror(errno));
  return fd;
}

/// True when the other side has closed the connection within the time; what it sent before is dropped.
inline bool is_closed_within(int fd, int milliseconds) {
  char drop[65536];
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, milliseconds) <= 0) return false;
    if (::recv(fd, drop, sizeof drop, MSG_DONTWAIT) <= 0) return true;
  }
}

/// A client of the tests: its connection and its login, on a loop that the test makes (one a thread).
struct RpcClient {
  RpcClient(kj::AsyncIoContext& loop, const std::string& address)
      : io(loop),
        socket(wire::open_socket(raw_connect(address), io.unixEventPort)),
        stream(*socket, wire::StreamLimits{}, kj::refcounted<wire::BlockPool>()),
        network(stream, capnp::rpc::twoparty::Side::CLIENT, capnp::ReaderOptions{}),
        rpc(capnp::makeRpcClient(network)) {}

  wire::Login::Client login() {
    capnp::MallocMessageBuilder m;
    auto vat = m.initRoot<capnp::rpc::twoparty::VatId>();
    vat.setSide(capnp::rpc::twoparty::Side::SERVER);
    return rpc.bootstrap(vat).castAs<wire::Login>();
  }
  wire::Gate::Client gate() {
    auto request = login().loginRequest();
    request.setToken("");
    return request.send().wait(io.waitScope).getGate();
  }
  wire::Session::Client open() { return gate().openRequest().send().wait(io.waitScope).getSession(); }

  template <class Promise> auto wait(Promise p) { return p.wait(io.waitScope); }

  kj::AsyncIoContext& io;
  kj::Own<kj::AsyncIoStream> socket;
  wire::Stream stream;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc;
};

inline auto send(wire::Session::Client session, const Batch& batch) {
  auto request = session.runRequest();
  wire::put(request.initBatch(), batch);
  return request.send();
}

inline Options loopback() {
  Options o;
  o.rpc = "127.0.0.1:0", o.http = "", o.probe = "";
  return o;
}

/// A Service behind a listening RPC server.
struct RpcRig : Rig {
  explicit RpcRig(RpcSetup setup = {}, Options o = loopback()) : Rig(std::move(o)), server(service, std::move(setup)) {}
  RpcServer server;
  const std::string& address() const { return server.address(); }
};

}  // namespace gradwire::server
