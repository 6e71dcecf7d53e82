#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>

#include "server/rpc/guarded_stream.h"
#include "tests/server/rpc_rig.h"

namespace gradwire::server {
namespace {

using wire::FrameHead;
using wire::Reject;
using Bytes8 = std::vector<kj::byte>;

Bytes8 words32(std::initializer_list<uint32_t> values) {
  Bytes8 b;
  for (const uint32_t v : values) {
    for (int i = 0; i < 4; ++i) b.push_back(static_cast<kj::byte>(v >> (8 * i)));
  }
  return b;
}

/// A head of so many segments, each of so many words.
Bytes8 head_of(uint32_t segments, uint32_t each) {
  Bytes8 b = words32({segments - 1});
  for (uint32_t i = 0; i < segments; ++i) {
    const auto w = words32({each});
    b.insert(b.end(), w.begin(), w.end());
  }
  while (b.size() % 8) b.push_back(0);
  return b;
}

/// A frame of one segment of `words` words whose root is a Call to the answer that a bootstrap gave, or a bootstrap.
Bytes8 bootstrap_frame(uint32_t question) {
  capnp::MallocMessageBuilder m;
  m.initRoot<capnp::rpc::Message>().initBootstrap().setQuestionId(question);
  const auto flat = capnp::messageToFlatArray(m);
  const auto raw = flat.asBytes();
  return {raw.begin(), raw.end()};
}

/// A guarded stream whose other end is a plain socket, on a clock that stands.
struct StreamRig {
  explicit StreamRig(kj::AsyncIoContext& loop) : io(loop), timer(kj::origin<kj::TimePoint>()) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) throw std::bad_alloc();
    other = kj::AutoCloseFd(pair[1]);
    socket = wire::open_socket(kj::AutoCloseFd(pair[0]), io.unixEventPort);
    stream = kj::heap<GuardedStream>(*socket, limits, kj::refcounted<wire::BlockPool>(), timer, &metrics);
  }
  void send(const Bytes8& b) {
    REQUIRE(::send(other, b.data(), b.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(b.size()));
  }
  auto read() { return stream->wire::Stream::MessageStream::tryReadMessage(capnp::ReaderOptions{}); }
  /// Reads until there is no more, and says why the stream gave up.
  std::optional<Reject> read_all() {
    while (!stream->rejected()) {
      auto p = read();
      if (!p.poll(io.waitScope)) return std::nullopt;
      try {
        if (p.wait(io.waitScope) == nullptr) return std::nullopt;
        ++messages;
      } catch (const kj::Exception&) {}
    }
    return stream->rejected();
  }
  void advance(kj::Duration d) {
    timer.advanceTo(timer.now() + d);
    kj::evalLast([] {}).wait(io.waitScope);
  }

  kj::AsyncIoContext& io;
  kj::TimerImpl timer;
  RpcLimits limits;
  Metrics metrics;
  kj::AutoCloseFd other;
  kj::Own<kj::AsyncIoStream> socket;
  kj::Own<GuardedStream> stream;
  int messages = 0;
};

TEST_CASE("heads of frames are read without believing them", "[server][rpc][T1]") {
  const wire::StreamLimits limits;
  const auto read = [&](const Bytes8& b) { return wire::read_head(b.data(), b.size(), limits); };
  CHECK(read({}).state == FrameHead::State::more);
  CHECK(read({0, 0, 0}).state == FrameHead::State::more);
  CHECK(read(words32({0})).state == FrameHead::State::more);
  const auto one = read(head_of(1, 3));
  CHECK(one.state == FrameHead::State::whole);
  CHECK(one.table == 8);
  CHECK(one.total == 32);
  const auto two = read(head_of(2, 3));
  CHECK(two.table == 16);
  CHECK(two.total == 64);
  CHECK(read(head_of(64, 1)).state == FrameHead::State::whole);
  CHECK(read(head_of(65, 1)).why == Reject::segments);
  const uint32_t most = (8 << 20) / 8 - 1;  // words beside the head
  CHECK(read(head_of(1, most)).total == 8 << 20);
  CHECK(read(head_of(1, most)).state == FrameHead::State::whole);
  CHECK(read(head_of(1, most + 1)).state == FrameHead::State::bad);
  CHECK(read(head_of(1, 0)).total == 8);
}

TEST_CASE("malformed frames end the connection and are counted", "[server][rpc][T1]") {
  struct Case {
    const char* what;
    Bytes8 bytes;
    Reject why;
    bool ends = false;  // the other side closes after them
  };
  const uint32_t all = 0xFFFFFFFF;
  auto cut_body = bootstrap_frame(0);
  cut_body.resize(cut_body.size() - 8);
  auto far_root = head_of(1, 1);
  {
    const auto w = words32({0x7FFFFFFC, 0x00010001});
    far_root.insert(far_root.end(), w.begin(), w.end());
  }
  auto list_root = head_of(1, 2);
  {
    const auto w = words32({1, (1 << 3) | 2, 0, 0});
    list_root.insert(list_root.end(), w.begin(), w.end());
  }
  auto self_far = head_of(1, 1);
  {
    const auto w = words32({2, 0});  // a far pointer to itself
    self_far.insert(self_far.end(), w.begin(), w.end());
  }
  const std::vector<Case> cases = {
      {"2^32 segments", words32({all}), Reject::segments},
      {"2^32 segments and nothing more", words32({all, all}), Reject::segments},
      {"65 segments", head_of(65, 1), Reject::segments},
      {"513 segments", head_of(513, 1), Reject::segments},
      {"2^31 segments", words32({0x7FFFFFFF, 1}), Reject::segments},
      {"a segment of 2^32 - 1 words", head_of(1, all), Reject::frame_size},
      {"two segments that sum to 2^32 + 1 words", words32({1, all, 2, 0}), Reject::frame_size},
      {"64 segments of 2^32 - 1 words", head_of(64, all), Reject::frame_size},
      {"a word more than 8 MiB", head_of(1, 1 << 20), Reject::frame_size},
      {"half a table", words32({7, 1, 1}), Reject::truncated, true},
      {"half a body", cut_body, Reject::truncated, true},
      {"no words at all", head_of(1, 0), Reject::malformed},
      {"a root beyond the end", far_root, Reject::malformed},
      {"a list as the root", list_root, Reject::malformed},
      {"a root that is its own landing pad", self_far, Reject::malformed},
  };
  auto loop = kj::setupAsyncIo();
  for (const auto& c : cases) {
    CAPTURE(c.what);
    StreamRig rig(loop);
    rig.stream->logged_in();
    rig.send(c.bytes);
    if (c.ends) ::shutdown(rig.other, SHUT_WR);
    CHECK(rig.read_all() == c.why);
    CHECK(rig.messages == 0);
    CHECK(rig.metrics.text().find("gradwire_rpc_frames_rejected_total{reason=\"" + std::string(wire::name(c.why)) +
                                  "\"} 1") != std::string::npos);
  }
}

TEST_CASE("before the login frames are small", "[server][rpc][T1]") {
  auto loop = kj::setupAsyncIo();
  StreamRig segments(loop), size(loop);
  segments.send(head_of(9, 1));
  CHECK(segments.read_all() == Reject::segments);
  size.send(head_of(1, 8192));
  CHECK(size.read_all() == Reject::frame_size);
}

TEST_CASE("a connection that does not log in within 5 s is closed", "[server][rpc][T1]") {
  auto loop = kj::setupAsyncIo();
  StreamRig rig(loop);
  auto pending = rig.read();
  CHECK(!pending.poll(rig.io.waitScope));
  rig.advance(4900 * kj::MILLISECONDS);
  CHECK(!rig.stream->rejected());
  rig.advance(200 * kj::MILLISECONDS);
  CHECK(rig.stream->rejected());
  StreamRig known(loop);
  known.stream->logged_in();
  auto waits = known.read();
  CHECK(!waits.poll(known.io.waitScope));
  known.advance(6 * kj::SECONDS);
  CHECK(!known.stream->rejected());
}

TEST_CASE("a frame must be there 10 s after its first byte", "[server][rpc][T5]") {
  auto loop = kj::setupAsyncIo();
  StreamRig rig(loop);
  rig.stream->logged_in();
  auto pending = rig.read();
  const auto frame = bootstrap_frame(0);
  for (int i = 0; i < 9; ++i) {  // a byte a second is not enough
    rig.send({frame[i]});
    CHECK(!pending.poll(rig.io.waitScope));
    rig.advance(1 * kj::SECONDS);
    CHECK(!rig.stream->rejected());
  }
  rig.advance(2 * kj::SECONDS);
  CHECK(rig.stream->rejected() == Reject::frame_time);
}

TEST_CASE("a frame that is in time resets the deadline", "[server][rpc][T5]") {
  auto loop = kj::setupAsyncIo();
  StreamRig rig(loop);
  rig.stream->logged_in();
  const auto frame = bootstrap_frame(0);
  const Bytes8 first(frame.begin(), frame.begin() + 8), rest(frame.begin() + 8, frame.end());
  for (uint32_t i = 0; i < 5; ++i) {
    auto pending = rig.read();
    rig.send(first);
    CHECK(!pending.poll(rig.io.waitScope));
    rig.advance(8 * kj::SECONDS);
    rig.send(rest);
    CHECK(pending.poll(rig.io.waitScope));
    pending.wait(rig.io.waitScope);
  }
  CHECK(!rig.stream->rejected());
}

TEST_CASE("a large frame that stops is closed too, and its buffer follows what arrived", "[server][rpc][T5]") {
  auto loop = kj::setupAsyncIo();
  const int64_t before = resident();
  std::vector<std::unique_ptr<StreamRig>> rigs;
  std::vector<kj::Promise<kj::Maybe<kj::Own<capnp::MessageReader>>>> reads;
  for (int i = 0; i < 50; ++i) {
    auto& rig = *rigs.emplace_back(std::make_unique<StreamRig>(loop));
    rig.stream->logged_in();
    rig.send(head_of(1, (8 << 20) / 8 - 1));
    reads.push_back(rig.read());
    CHECK(!reads.back().poll(loop.waitScope));
  }
  CHECK(resident() - before < int64_t{16} << 20);  // announced: 400 MiB
  for (auto& rig : rigs) {
    rig->advance(11 * kj::SECONDS);
    CHECK(rig->stream->rejected() == Reject::frame_time);
  }
}

TEST_CASE("a connection without traffic is closed after 300 s", "[server][rpc][T1]") {
  auto loop = kj::setupAsyncIo();
  StreamRig rig(loop);
  rig.stream->logged_in();
  auto pending = rig.read();
  CHECK(!pending.poll(rig.io.waitScope));
  rig.advance(299 * kj::SECONDS);
  CHECK(!rig.stream->rejected());
  rig.send(bootstrap_frame(7));
  CHECK(pending.poll(rig.io.waitScope));
  pending.wait(rig.io.waitScope);
  // A question is open and not answered: that is work.
  auto next = rig.read();
  CHECK(!next.poll(rig.io.waitScope));
  rig.advance(299 * kj::SECONDS);
  rig.advance(299 * kj::SECONDS);
  CHECK(!rig.stream->rejected());
}

TEST_CASE("questions without an end are cut", "[server][rpc][T3]") {
  auto loop = kj::setupAsyncIo();
  StreamRig before(loop), after(loop);
  after.stream->logged_in();
  const auto ask = [](StreamRig& rig, uint32_t n) {
    for (uint32_t i = 0; i < n && !rig.stream->rejected(); ++i) {
      rig.send(bootstrap_frame(i));
      rig.read_all();
    }
  };
  ask(before, 100);
  CHECK(before.stream->rejected() == Reject::questions);
  CHECK(before.messages == 16);
  ask(after, 2000);
  CHECK(after.stream->rejected() == Reject::questions);
  CHECK(after.messages == 1024);
}

TEST_CASE("a write that makes no progress for 30 s ends the connection, and reading stops before",
          "[server][rpc][T4]") {
  auto loop = kj::setupAsyncIo();
  StreamRig rig(loop);
  rig.stream->logged_in();
  capnp::MallocMessageBuilder m;
  auto call = m.initRoot<capnp::rpc::Message>().initReturn();
  call.initResults().getContent().initAs<capnp::Data>(4 << 20);
  std::vector<kj::Promise<void>> writes;
  for (int i = 0; i < 4; ++i) writes.push_back(rig.stream->writeMessage(m));
  CHECK(!writes.back().poll(rig.io.waitScope));
  rig.stream->queued_above = [] { return size_t{9} << 20; };
  rig.send(bootstrap_frame(0));
  auto pending = rig.read();
  CHECK(!pending.poll(rig.io.waitScope));  // a whole frame is there, and nobody reads it
  rig.advance(29 * kj::SECONDS);
  CHECK(!rig.stream->rejected());
  rig.advance(2 * kj::SECONDS);
  CHECK(rig.stream->rejected() == Reject::stall_time);
}

TEST_CASE("frames of every size come through whole and in order", "[server][rpc]") {
  auto loop = kj::setupAsyncIo();
  StreamRig rig(loop);
  rig.stream->logged_in();
  ::fcntl(rig.other, F_SETFL, O_NONBLOCK);
  auto peer = wire::open_socket(kj::AutoCloseFd(::dup(rig.other)), rig.io.unixEventPort);
  wire::Stream sender(*peer, wire::StreamLimits{}, kj::refcounted<wire::BlockPool>());
  std::vector<size_t> sizes;
  for (size_t n : {1, 100, 4000, 4096, 16384, 20000, 65536, 70000, 131072, 300000, 1 << 20, 5000000, 8, 32768, 33000}) {
    sizes.push_back(n);
    sizes.push_back(n + 1);
  }
  std::vector<std::unique_ptr<capnp::MallocMessageBuilder>> kept;
  kj::Promise<void> sent = kj::READY_NOW;
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto& m = *kept.emplace_back(std::make_unique<capnp::MallocMessageBuilder>(64));
    auto data = m.initRoot<capnp::rpc::Message>().initAbort().initReason(static_cast<uint>(sizes[i]));
    std::memset(data.begin(), static_cast<int>('a' + i % 26), data.size());
    sent = sent.then([&sender, &m] { return sender.writeMessage(m); });
  }
  auto sending = sent.eagerlyEvaluate(nullptr);
  for (size_t i = 0; i < sizes.size(); ++i) {
    CAPTURE(i, sizes[i]);
    auto maybe = rig.read().wait(rig.io.waitScope);
    KJ_IF_MAYBE (message, maybe) {
      const auto reason = (*message)->getRoot<capnp::rpc::Message>().getAbort().getReason();
      REQUIRE(reason.size() == sizes[i]);
      const char c = static_cast<char>('a' + i % 26);
      CHECK(reason[0] == c);
      CHECK(reason[sizes[i] - 1] == c);
      CHECK(reason[sizes[i] / 2] == c);
    } else {
      FAIL("the stream ended");
    }
  }
}

}  // namespace
}  // namespace gradwire::server
