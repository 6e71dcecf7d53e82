#include <capnp/message.h>
#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <catch2/catch_test_macros.hpp>
#include <kj/async-io.h>

#include <cstring>

#include "schema/wire_stream.h"

namespace gradwire::wire {
namespace {

/// A stream, and how many whole messages have come out at its other end.
struct Rig {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  kj::TwoWayPipe pipe = kj::newTwoWayPipe();
  Stream stream{*pipe.ends[0], {}, kj::refcounted<BlockPool>()};
  kj::byte buffer[64 << 10];
  kj::Promise<size_t> read = pipe.ends[1]->tryRead(buffer, 1, sizeof buffer);

  void send(bool finish) {
    capnp::MallocMessageBuilder m;
    auto message = m.initRoot<capnp::rpc::Message>();
    if (finish)
      message.initFinish().setQuestionId(7);
    else
      message.initCall().setQuestionId(8);
    stream.writeMessage(m.getSegmentsForOutput()).wait(io.waitScope);
  }
  int arrived() {
    if (!read.poll(io.waitScope)) return 0;
    const size_t size = read.wait(io.waitScope);
    auto words = kj::heapArray<capnp::word>(size / sizeof(capnp::word));
    std::memcpy(words.begin(), buffer, size);
    int count = 0;
    for (kj::ArrayPtr<const capnp::word> rest = words; rest.size() > 0; ++count) {
      capnp::FlatArrayMessageReader reader(rest);
      rest = kj::arrayPtr(reader.getEnd(), rest.end());
    }
    read = pipe.ends[1]->tryRead(buffer, 1, sizeof buffer);
    return count;
  }
};

TEST_CASE("A Finish goes out with the next message, in order and in one write") {
  Rig r;
  r.send(true);
  CHECK(r.arrived() == 0);
  r.send(false);
  CHECK(r.arrived() == 2);
  r.send(false);
  CHECK(r.arrived() == 1);
  r.send(true);
  CHECK(r.arrived() == 0);
}

TEST_CASE("Finish messages alone wait only until there are too many, or the stream ends") {
  Rig r;
  for (int i = 0; i < kPostponed; ++i) r.send(true);
  CHECK(r.arrived() == 0);
  r.send(true);
  CHECK(r.arrived() == kPostponed + 1);
  r.send(true);
  CHECK(r.arrived() == 0);
  auto end = r.stream.end();
  CHECK(r.arrived() == 1);
}

}  // namespace
}  // namespace gradwire::wire
