#include "server/cluster/link.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <kj/async-io.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "server/cluster/message_wire.h"
#include "server/rpc/quiet.h"

namespace gradwire::server::cluster {
namespace {

using Catch::Matchers::ContainsSubstring;

/// A link whose other end is a plain socket of the test.
struct Rig {
  explicit Rig(LinkLimits l) : limits(l) {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    other = kj::AutoCloseFd(pair[1]);
    auto stream = wire::open_socket(kj::AutoCloseFd(pair[0]), io.unixEventPort);
    auto opened = kj::evalLater([stream = kj::mv(stream)]() mutable {
      return Opened{kj::mv(stream), [](const std::string&) { return true; }};
    });
    link = std::make_unique<Link>(kj::mv(opened), limits, io.provider->getTimer(), kj::refcounted<wire::BlockPool>());
    link->on_message = [this](Message m) { heard.push_back(std::move(m)); };
    link->on_end = [this](const Error& e) {
      why = e.message();
      ended.fulfiller->fulfill();
    };
  }
  void say(const std::string& bytes) { REQUIRE(::send(other, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0); }
  static std::string bytes_of(const Message& m) {
    capnp::MallocMessageBuilder b;
    write(b.initRoot<wire::PeerMessage>(), m);
    const auto words = capnp::messageToFlatArray(b);
    const auto bytes = words.asBytes();
    return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }
  /// How it ends; "lives" if it does not within the time.
  std::string end_within(kj::Duration time) {
    io.provider->getTimer().afterDelay(time).exclusiveJoin(kj::mv(ended.promise)).wait(io.waitScope);
    return why.value_or("lives");
  }
  LinkLimits limits;
  Quiet quiet;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  kj::PromiseFulfillerPair<void> ended = kj::newPromiseAndFulfiller<void>();
  kj::AutoCloseFd other;
  std::unique_ptr<Link> link;
  std::vector<Message> heard;
  std::optional<std::string> why;
};

LinkLimits quick() {
  LinkLimits l;
  l.stranger.idle_time = l.known.idle_time = 100 * kj::MILLISECONDS;
  l.stranger.frame_time = l.known.frame_time = 30 * kj::MILLISECONDS;
  return l;
}

TEST_CASE("a link whose peer says nothing is given up", "[cluster][T39]") {
  CHECK(Rig(quick()).end_within(10 * kj::SECONDS) == "it was given up (idle_time)");
}

TEST_CASE("a link whose peer only says that it is there lives, and says so itself", "[cluster][T39]") {
  LinkLimits l = quick();
  l.ping_every = 20 * kj::MILLISECONDS;
  l.known.idle_time = 500 * kj::MILLISECONDS;
  Rig rig(l);
  rig.link->known();
  for (int i = 0; i < 8; ++i) {
    rig.say(Rig::bytes_of({0, 0, Ping{}}));
    rig.io.provider->getTimer().afterDelay(100 * kj::MILLISECONDS).wait(rig.io.waitScope);
  }
  CHECK(!rig.why);
  CHECK(rig.heard.empty());
  char bytes[4096];
  CHECK(::recv(rig.other, bytes, sizeof bytes, MSG_DONTWAIT) > 0);
}

TEST_CASE("a stranger hears nothing", "[cluster][T39]") {
  LinkLimits l = quick();
  l.ping_every = 5 * kj::MILLISECONDS;
  Rig rig(l);
  CHECK(rig.end_within(10 * kj::SECONDS) == "it was given up (idle_time)");
  char bytes[4096];
  CHECK(::recv(rig.other, bytes, sizeof bytes, MSG_DONTWAIT) <= 0);
}

TEST_CASE("a frame that does not go on, is too large or no message ends the link", "[cluster][T39]") {
  const auto ends = [](const std::string& bytes, bool known = false) {
    Rig rig(quick());
    if (known) rig.link->known();
    rig.say(bytes);
    return rig.end_within(10 * kj::SECONDS);
  };
  CHECK(ends(std::string("\0\0\0\0\1", 5)) == "it was given up (frame_time)");
  CHECK(ends(std::string("\xff\xff\xff\xff", 4)) == "it was given up (segments)");
  // 32 KiB: a stranger has no use for so much.
  CHECK(ends(std::string("\0\0\0\0\0\x10\0\0", 8)) == "it was given up (frame_size)");
  CHECK(ends(std::string("\0\0\0\0\0\x10\0\0", 8), true) == "it was given up (frame_time)");
  CHECK(ends(std::string("\0\0\0\0\0\0\0\x10", 8), true) == "it was given up (frame_size)");
  CHECK_THAT(ends(std::string("\0\0\0\0\1\0\0\0", 8) + std::string(8, '\xff')), ContainsSubstring("broken"));
  Message far{1, 1, Call{}};
  std::get<Call>(far.body).terms.dtype = static_cast<DType>(77);
  CHECK(ends(Rig::bytes_of(far)) == "a message of a peer is malformed: an unknown kind");
  Message many{1, 1, Blob{std::string(kMaxBlob + 1, 'x')}};
  CHECK(ends(Rig::bytes_of(many), true) == "a message of a peer is malformed: a text is too long");
}

TEST_CASE("a peer that does not read is given up, and costs no more than its queue", "[cluster][T39]") {
  LinkLimits l;
  l.known.queued_bytes = 1 << 20;
  Rig rig(l);
  rig.link->known();
  rig.io.provider->getTimer().afterDelay(kj::MILLISECONDS).wait(rig.io.waitScope);
  for (int i = 0; i < 1000 && !rig.why; ++i) rig.link->send({1, 1, Blob{std::string(kMaxBlob, 'x')}});
  CHECK(rig.end_within(10 * kj::SECONDS) == "it does not read what it is sent");
}

TEST_CASE("messages are read as they were written", "[cluster]") {
  Rig rig{LinkLimits{}};
  rig.link->known();
  Call call;
  call.sequence = 7, call.terms = {Collective::scatter, ReduceOp::bxor, DType::int16, 9, 3};
  call.patience = Milliseconds(1234), call.split = true, call.ranks = {2, 0};
  Verdict verdict;
  verdict.sequence = 8, verdict.pairwise = true, verdict.error = Error(Code::group_mismatch, "why", "op");
  verdict.tag = 5, verdict.source = 2, verdict.child = 11, verdict.rank = 1, verdict.size = 2;
  const std::vector<Message> all = {{1, 2, Hello{1, 2, "a:1"}},
                                    {1, 2, Join{"m", 4, 3}},
                                    {1, 2, Seated{1, {"a:1", "b:2"}}},
                                    {1, 2, Connect{{"x", std::string(1, '\0')}, std::string(kKeyBytes, 'k')}},
                                    {1, 2, call},
                                    {1, 2, verdict},
                                    {1, 2, Broken{Error(Code::unavailable, "gone"), true}},
                                    {1, 2, Leave{}}};
  for (auto& m : all) rig.say(Rig::bytes_of(m));
  ::shutdown(rig.other, SHUT_WR);
  CHECK(rig.end_within(10 * kj::SECONDS) == "the connection is closed");
  REQUIRE(rig.heard.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) CHECK(Rig::bytes_of(rig.heard[i]) == Rig::bytes_of(all[i]));
  CHECK(std::get<Call>(rig.heard[4].body).ranks == std::vector<int>{2, 0});
  CHECK(std::get<Verdict>(rig.heard[5].body).error->message() == "why");
}

}  // namespace
}  // namespace gradwire::server::cluster
