// Cap'n Proto as it comes, without our stream: capnp_side tcp|unix SERVER_CPU CLIENT_CPU

#include <capnp/message.h>
#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>

#include <cmath>

#include "echo.capnp.h"
#include "tests/bench/side.h"
#include "tests/bench/sockets.h"

namespace {

using bench::Arguments;
using bench::Work;

class EchoServer final : public Echo::Server {
  kj::Promise<void> ping(PingContext) override { return kj::READY_NOW; }
};

kj::Own<kj::AsyncIoStream> wrap(kj::AsyncIoContext& io, int fd) {
  return io.lowLevelProvider->wrapSocketFd(fd, kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP);
}

void server(int fd) try {
  auto io = kj::setupAsyncIo();
  auto stream = wrap(io, fd);
  capnp::TwoPartyVatNetwork network(*stream, capnp::rpc::twoparty::Side::SERVER);
  auto rpc = capnp::makeRpcServer(network, kj::heap<EchoServer>());
  network.onDisconnect().wait(io.waitScope);
} catch (const kj::Exception&) {
  // The client has ended.
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: capnp_side tcp|unix SERVER_CPU CLIENT_CPU\n"), 2;
  const int fd = bench::with_server(argv[1], argv[2], argv[3], server);
  auto io = kj::setupAsyncIo();
  auto stream = wrap(io, fd);
  capnp::TwoPartyVatNetwork network(*stream, capnp::rpc::twoparty::Side::CLIENT);
  auto rpc = capnp::makeRpcClient(network);
  capnp::MallocMessageBuilder vat;
  auto id = vat.initRoot<capnp::rpc::twoparty::VatId>();
  id.setSide(capnp::rpc::twoparty::Side::SERVER);
  auto echo = rpc.bootstrap(id).castAs<Echo>();
  echo.pingRequest().send().wait(io.waitScope);
  return bench::serve({
      {"call",
       [&](const Arguments&) {
         return Work{.round = [&] { echo.pingRequest().send().wait(io.waitScope); }, .median = true};
       }},
  });
} catch (const std::exception& e) {
  std::printf("error %s\n", e.what());
  return 1;
}
