#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include "tests/server/rpc_rig.h"

namespace gradwire::server {
namespace {

constexpr int64_t kMiB = 1 << 20;
#if defined(GRADWIRE_ASAN) || defined(GRADWIRE_TSAN)
constexpr int kVanish = 100;    // clients; sanitizers make each of them slow
constexpr int64_t kShadow = 8;  // and memory has shadows, and rests before it is used again
#else
constexpr int kVanish = 1000;
constexpr int64_t kShadow = 1;
#endif

/// True as soon as it holds, within 20 s.
template <class F> bool eventually(F f) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < until) {
    if (f()) return true;
    std::this_thread::yield();
  }
  return false;
}

int64_t rejected(Rig& rig, const std::string& reason) {
  const std::string text = rig.metrics.text(), key = "frames_rejected_total{reason=\"" + reason + "\"} ";
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::stoll(text.substr(at + key.size()));
}

/// A client with a session that computes right all the time.
struct Canary {
  Canary(kj::AsyncIoContext& loop, RpcRig& r) : rig(r), client(loop, r.address()), session(client.open()) {}
  void check() {
    const float x = static_cast<float>(++seq);
    const auto answer = client.wait(send(session, BatchMaker(seq, 1, seq - 1).upload(seq, {x, 2 * x}).fetch(seq).b));
    REQUIRE(!answer.getOutcome().getFailed());
    const auto data = answer.getOutcome().getFetched()[0].getData();
    float v[2];
    REQUIRE(data.size() == sizeof v);
    std::memcpy(v, data.begin(), sizeof v);
    CHECK(v[0] == x);
    CHECK(v[1] == 2 * x);
  }
  RpcRig& rig;
  RpcClient client;
  wire::Session::Client session;
  uint64_t seq = 0;
};

std::vector<kj::byte> bootstrap(uint32_t question) {
  capnp::MallocMessageBuilder m(16);
  m.initRoot<capnp::rpc::Message>().initBootstrap().setQuestionId(question);
  const auto flat = capnp::messageToFlatArray(m);
  return {flat.asBytes().begin(), flat.asBytes().end()};
}

TEST_CASE("FF FF FF FF as the first four bytes is refused, and others do not notice", "[server][rpc][T1]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  for (int i = 0; i < 20; ++i) {
    auto fd = raw_connect(rig.address());
    const unsigned char all[4] = {0xFF, 0xFF, 0xFF, 0xFF};
    REQUIRE(::send(fd, all, 4, MSG_NOSIGNAL) == 4);
    CHECK(is_closed_within(fd, 5000));
    canary.check();
  }
  CHECK(rejected(rig, "segments") == 20);
}

TEST_CASE("a million bootstraps without an end cost nothing", "[server][rpc][T3]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  const int64_t before = resident();
  auto fd = raw_connect(rig.address());
  std::vector<kj::byte> many;
  int64_t sent = 0;
  bool cut = false;
  for (uint32_t i = 0; i < 1'000'000 && !cut; i += 1000) {
    many.clear();
    for (uint32_t k = 0; k < 1000; ++k) {
      const auto one = bootstrap(i + k);
      many.insert(many.end(), one.begin(), one.end());
    }
    cut = ::send(fd, many.data(), many.size(), MSG_NOSIGNAL) < 0;
    sent += 1000;
  }
  CHECK(is_closed_within(fd, 5000));
  CHECK(rejected(rig, "questions") == 1);
  canary.check();

  // A client that is logged in has 1,024.
  RpcClient client(loop, rig.address());
  client.wait(client.gate().infoRequest().send());
  kj::Promise<void> writes = kj::READY_NOW;
  std::vector<std::unique_ptr<capnp::MallocMessageBuilder>> kept;
  for (uint32_t i = 0; i < 2000; ++i) {
    auto& m = *kept.emplace_back(std::make_unique<capnp::MallocMessageBuilder>(16));
    m.initRoot<capnp::rpc::Message>().initBootstrap().setQuestionId(100000 + i);
    writes = client.stream.writeMessage(m);
  }
  CHECK(eventually([&] {
    kj::evalLast([] {}).wait(loop.waitScope);
    loop.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(loop.waitScope);
    return rejected(rig, "questions") == 2;
  }));
  canary.check();
  CHECK(resident() - before < 16 * kShadow * kMiB);
}

TEST_CASE("a thousand answers of a MiB that nobody reads are not made", "[server][rpc][T4]") {
  RpcSetup setup;
  setup.limits.open.stall_time = 500 * kj::MILLISECONDS;
  RpcRig rig(setup);
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  RpcClient client(loop, rig.address());
  auto session = client.open();
  auto big = BatchMaker(1);
  auto reserve = session.reserveRequest();
  reserve.setDtype(static_cast<uint8_t>(DType::float32));
  reserve.initShape(1).set(0, kMiB / 4);
  Arg dtype, shape, upload, flag;
  dtype.kind = ArgKind::dtype, dtype.i = static_cast<int>(DType::float32);
  shape.kind = ArgKind::ints, shape.count = 1;
  upload.kind = ArgKind::integer, upload.i = static_cast<int64_t>(client.wait(reserve.send()).getUpload());
  flag.kind = ArgKind::boolean;
  big.b.ints.push_back(kMiB / 4);
  big.call(OpCall::kUpload, {dtype, shape, upload, flag}, 1).fetch(1);
  REQUIRE(!client.wait(send(session, big.b)).getOutcome().getFailed());

  const int64_t before = resident();
  client.stream.queued_above = [] { return size_t{1} << 40; };  // this client reads no more
  std::vector<kj::Promise<void>> reads;
  for (int i = 0; i < 1000; ++i) {
    auto r = session.readRequest();
    r.setSeq(1), r.setIndex(0), r.setOffset(0);
    r.setSize(kMiB - 4 * (i % 2));  // in place, and copied
    reads.push_back(r.send().ignoreResult().catch_([](kj::Exception&&) {}).eagerlyEvaluate(nullptr));
  }
  int64_t most = 0;
  CHECK(eventually([&] {
    canary.check();
    most = std::max(most, resident() - before);
    return rejected(rig, "stall_time") == 1;
  }));
  CHECK(most < 64 * kShadow * kMiB);
  canary.check();
}

TEST_CASE("outcomes that nobody reads wait unmade as well", "[server][rpc][T4]") {
  RpcSetup setup;
  setup.limits.open.stall_time = 500 * kj::MILLISECONDS;
  RpcRig rig(setup);
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  RpcClient client(loop, rig.address());
  auto session = client.open();
  auto first = BatchMaker(1).upload(1, std::vector<float>(16000, 1.5f));
  REQUIRE(!client.wait(send(session, first.b)).getOutcome().getFailed());
  const int64_t before = resident();
  client.stream.queued_above = [] { return size_t{1} << 40; };
  std::vector<kj::Promise<void>> runs;
  for (uint64_t seq = 2; seq < 900; ++seq) {
    BatchMaker m(seq, 1, seq - 1);
    for (int i = 0; i < 16; ++i) m.fetch(1);
    runs.push_back(send(session, m.b).ignoreResult().catch_([](kj::Exception&&) {}).eagerlyEvaluate(nullptr));
  }
  int64_t most = 0;
  CHECK(eventually([&] {
    canary.check();
    most = std::max(most, resident() - before);
    return rejected(rig, "stall_time") == 1;
  }));
  CHECK(most < 64 * kShadow * kMiB);
}

TEST_CASE("what a newer client may say is answered, and the connection stays", "[server][rpc][T6]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto gate = client.gate();
  // A method, and an interface, that this server does not know.
  for (const auto& [interface, method] :
       {std::pair<uint64_t, uint16_t>{capnp::typeId<wire::Gate>(), 999}, {0x1234567890ABCDEF, 0}}) {
#if CAPNP_VERSION >= 1000000
    auto call = capnp::Capability::Client(gate).typelessRequest(interface, method, nullptr, {});
#else
    auto call = capnp::Capability::Client(gate).typelessRequest(interface, method, nullptr);
#endif
    call.initAs<wire::SessionOptions>();
    try {
      call.send().wait(loop.waitScope);
      FAIL("was answered");
    } catch (const kj::Exception& e) {
      CHECK(e.getType() == kj::Exception::Type::UNIMPLEMENTED);
    }
  }
  CHECK(!client.wait(gate.infoRequest().send()).getFailed());

  // A kind of message that it does not know comes back as unimplemented.
  auto fd = raw_connect(rig.address());
  const uint64_t unknown[3] = {uint64_t{2} << 32, uint64_t{1} << 32, 200};
  REQUIRE(::send(fd, unknown, sizeof unknown, MSG_NOSIGNAL) == sizeof unknown);
  uint64_t back[4] = {};
  REQUIRE(::recv(fd, back, sizeof back, MSG_WAITALL) == sizeof back);
  CHECK((back[2] & 0xFFFF) == 0);  // Message.unimplemented
  CHECK(!is_closed_within(fd, 0));
}

TEST_CASE("two hundred connections that announce much and fall silent hold nothing", "[server][rpc][T5]") {
  RpcSetup setup;
  setup.limits.open.frame_time = 300 * kj::MILLISECONDS;
  RpcRig rig(setup);
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  const int64_t before = resident();
  std::vector<kj::AutoCloseFd> strangers;
  const uint32_t head[2] = {0, 8 << 20};  // one segment of 64 MiB
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(raw_connect(rig.address()));
    ::send(strangers.back(), head, sizeof head, MSG_NOSIGNAL);
  }
  for (auto& fd : strangers) CHECK(is_closed_within(fd, 5000));
  CHECK(rejected(rig, "frame_size") == 200);
  canary.check();

  // Those who are logged in may announce 8 MiB, and have a deadline.
  std::vector<std::unique_ptr<RpcClient>> known;
  const uint32_t allowed[2] = {0, (1 << 20) - 1};
  for (int i = 0; i < 50; ++i) {
    auto& c = *known.emplace_back(std::make_unique<RpcClient>(loop, rig.address()));
    c.wait(c.gate().infoRequest().send());
    loop.provider->getTimer()
        .afterDelay(0 * kj::NANOSECONDS)
        .wait(loop.waitScope);  // what the client has to say is said
    KJ_IF_MAYBE (fd, c.socket->getFd()) REQUIRE(::send(*fd, allowed, sizeof allowed, MSG_NOSIGNAL) == sizeof allowed);
  }
  int64_t most = 0;
  CHECK(eventually([&] {
    canary.check();
    most = std::max(most, resident() - before);
    return rejected(rig, "frame_time") == 50;
  }));
  CHECK(most < 32 * kShadow * kMiB);
}

TEST_CASE("strangers are few, and go when they do not log in", "[server][rpc]") {
  RpcSetup setup;
  setup.limits.connections_before_login = 10;
  setup.limits.login_time = 300 * kj::MILLISECONDS;
  RpcRig rig(setup);
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  std::vector<kj::AutoCloseFd> fds;
  for (int i = 0; i < 30; ++i) fds.push_back(raw_connect(rig.address()));
  CHECK(eventually([&] { return rejected(rig, "connections_before_login") == 20; }));
  canary.check();
  for (auto& fd : fds) CHECK(is_closed_within(fd, 5000));
  CHECK(rejected(rig, "login_time") == 10);
  RpcClient late(loop, rig.address());
  CHECK(late.wait(late.gate().infoRequest().send()).getInfo().getLanes() == 2);
}

TEST_CASE("more connections than allowed are closed", "[server][rpc]") {
  Options o = loopback();
  o.max_connections = 5;
  RpcRig rig({}, o);
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  std::vector<kj::AutoCloseFd> fds;
  for (int i = 0; i < 10; ++i) fds.push_back(raw_connect(rig.address()));
  CHECK(eventually([&] { return rejected(rig, "connections") == 6; }));
  canary.check();
}

TEST_CASE("without file descriptors the server refuses, rests, and goes on later", "[server][rpc][T50]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  Canary canary(loop, rig);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(rig.address().substr(rig.address().rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  std::vector<kj::AutoCloseFd> fds;
  for (int i = 0; i < 20; ++i) fds.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  const int next = ::dup(0);
  ::close(next);
  rlimit low = old;
  low.rlim_cur = static_cast<rlim_t>(next) + 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  for (auto& fd : fds) CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  const auto cpu = std::clock();
  const auto start = std::chrono::steady_clock::now();
  int closed = 0;
  for (int i = 19; i >= 3; --i) closed += is_closed_within(fds[static_cast<size_t>(i)], 5000);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double busy = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  CHECK(closed == 17);
  CHECK(busy < 0.5 * wall + 0.05);
  canary.check();
  fds.clear();
  RpcClient late(loop, rig.address());
  CHECK(late.wait(late.gate().infoRequest().send()).getInfo().getLanes() == 2);
}

TEST_CASE("a thousand clients that vanish in mid-request leave nothing behind", "[server][rpc][T45]") {
  Options o = loopback();
  o.ttl_seconds = 1;
  TestClock clock;
  Metrics metrics;
  Executor executor(clock, metrics, 2, 1);
  Service service(o, executor, clock, metrics);
  RpcServer server(service);
  auto loop = kj::setupAsyncIo();
  const auto vanish = [&](int n) {
    for (int i = 0; i < n; ++i) {
      RpcClient client(loop, server.address());
      auto session = client.open();
      BatchMaker m(1);
      for (uint64_t k = 1; k < 20; ++k) m.upload(k, std::vector<float>(1000, float(k)));
      auto pending = send(session, m.fetch(1).b);
      kj::evalLast([] {}).wait(loop.waitScope);  // gone as soon as the call is on its way
    }
    REQUIRE(eventually([&] {
      clock.advance(std::chrono::seconds(2));
      service.sweep();
      return service.list().empty() && executor.idle();
    }));
  };
  for (int i = 0; i < 2; ++i) vanish(kVanish / 4);  // the allocator's own
  const int64_t before = resident();
  for (int i = 0; i < 4; ++i) vanish(kVanish / 4);
  CHECK(resident() - before < 16 * kShadow * kMiB);  // they sent 80 MiB; the allocator keeps some holes
}

}  // namespace
}  // namespace gradwire::server
