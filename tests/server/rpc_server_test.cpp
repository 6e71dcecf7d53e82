#include "server/rpc/rpc_server.h"

#include <capnp/dynamic.h>
#include <capnp/orphan.h>
#include <capnp/schema.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <new>
#include <thread>

#include "schema/ops.h"
#include "tests/server/rpc_rig.h"
#include "tests/support/fake_cluster.h"

namespace gradwire::server {
namespace {

Arg T(uint64_t id) { return BatchMaker::tensor(id); }
Code code(wire::Error::Reader e) { return static_cast<Code>(e.getCode()); }

std::vector<float> values(wire::Fetched::Reader f) {
  std::vector<float> v(f.getData().size() / 4);
  if (!v.empty()) std::memcpy(v.data(), f.getData().begin(), f.getData().size());
  return v;
}

TEST_CASE("a batch goes over the wire and its values come back", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  auto batch = BatchMaker(1)
                   .upload(1, {1, 2, 3})
                   .upload(2, {10, 20, 30})
                   .call(op(rig, "add"), {T(1), T(2)}, 3)
                   .fetch(3)
                   .fetch(1)
                   .b;
  const auto answer = client.wait(send(session, batch));
  const auto outcome = answer.getOutcome();
  CHECK(outcome.getSeq() == 1);
  CHECK(!outcome.getFailed());
  REQUIRE(outcome.getFetched().size() == 2);
  CHECK(values(outcome.getFetched()[0]) == std::vector<float>{11, 22, 33});
  CHECK(values(outcome.getFetched()[1]) == std::vector<float>{1, 2, 3});
  CHECK(outcome.getFetched()[0].getSize() == 12);
  const auto info = outcome.getFetched()[0].getInfo();
  CHECK(info.getDtype() == static_cast<uint8_t>(DType::float32));
  REQUIRE(info.getShape().size() == 1);
  CHECK(info.getShape()[0] == 3);
}

TEST_CASE("hello says which versions are spoken", "[server][rpc][T48]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto ask = [&](uint32_t low, uint32_t high) {
    auto r = client.login().helloRequest();
    r.setMinVersion(low), r.setMaxVersion(high);
    return client.wait(r.send());
  };
  CHECK(!ask(1, 1).getFailed());
  CHECK(!ask(0, 9).getFailed());
  const auto late = ask(2, 9);
  CHECK(late.getFailed());
  CHECK(late.getMaxVersion() == 1);
}

TEST_CASE("the gate tells about the server and its sessions", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto gate = client.gate();
  const auto ask = [&](bool operators) {
    auto r = gate.infoRequest();
    r.setOperators(operators);
    return client.wait(r.send());
  };
  const auto brief = ask(false);
  CHECK(brief.getInfo().getOperators().size() == 0);
  CHECK(brief.getInfo().getLanes() == 2);
  CHECK(ask(true).getInfo().getOperators().size() == rig.service.info().operators.size());
  const auto open = [&](const char* name, const char* device) {
    auto r = gate.openRequest();
    auto options = r.initOptions();
    options.setName(name), options.setDevice(device);
    return client.wait(r.send());
  };
  const auto opened = open("mine", "");
  CHECK(!opened.getFailed());
  const auto listed = client.wait(gate.sessionsRequest().send());
  REQUIRE(listed.getSessions().size() == 1);
  CHECK(listed.getSessions()[0].getName() == "mine");
  CHECK(listed.getSessions()[0].getId() == opened.getId());
  const auto refused = open("", "abacus");
  CHECK(refused.getFailed());
  CHECK(code(refused.getError()) == Code::bad_argument);
}

TEST_CASE("the whole way from login to a value takes one round trip of the client's time", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto gate = client.login().loginRequest().send().getGate();
  auto session = gate.openRequest().send().getSession();  // pipelined: nothing has been answered yet
  const auto answer = client.wait(send(session, BatchMaker(1).upload(1, {5}).fetch(1).b));
  CHECK(values(answer.getOutcome().getFetched()[0]) == std::vector<float>{5});
}

TEST_CASE("errors of a batch are data", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  auto b = BatchMaker(1).upload(1, {1, 2}).call(op(rig, "add"), {T(1), T(9)}, 3).at("train.cpp", 42).b;
  const auto answer = client.wait(send(session, b));
  const auto error = answer.getOutcome().getError();
  CHECK(answer.getOutcome().getFailed());
  CHECK(code(error) == Code::no_tensor);
  CHECK(error.getSeq() == 1);
  CHECK(error.getStep() == 1);
  CHECK(error.getFile() == "train.cpp");
  CHECK(error.getLine() == 42);
}

TEST_CASE("a malformed batch is bad_program and changes nothing", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  Batch b = BatchMaker(1).upload(1, {1}).b;
  b.args.pop_back();
  const auto refused = client.wait(send(session, b));
  CHECK(refused.getOutcome().getFailed());
  CHECK(code(refused.getOutcome().getError()) == Code::bad_program);
  CHECK(refused.getOutcome().getSeq() == 1);
  const auto good = client.wait(send(session, BatchMaker(1).upload(1, {1}).fetch(1).b));
  CHECK(!good.getOutcome().getFailed());
}

TEST_CASE("a repeated batch is answered again, with other contents refused", "[server][rpc][T46]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  const Batch b = BatchMaker(1).upload(1, {1, 2}).fetch(1).b;
  const auto first = client.wait(send(session, b));
  const auto again = client.wait(send(session, b));
  CHECK(!again.getOutcome().getFailed());
  CHECK(values(again.getOutcome().getFetched()[0]) == values(first.getOutcome().getFetched()[0]));
  const auto other = client.wait(send(session, BatchMaker(1).upload(1, {1, 3}).fetch(1).b));
  CHECK(code(other.getOutcome().getError()) == Code::bad_program);
  const auto gap = client.wait(send(session, BatchMaker(3).b));
  CHECK(code(gap.getOutcome().getError()) == Code::bad_program);
}

TEST_CASE("large values go up and down in pieces", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  const size_t count = (5 << 20) / 4 + 123;
  std::vector<float> sent(count);
  for (size_t i = 0; i < count; ++i) sent[i] = static_cast<float>(i);
  const auto* raw = reinterpret_cast<const kj::byte*>(sent.data());
  const size_t size = count * 4;

  auto reserve = session.reserveRequest();
  reserve.setDtype(static_cast<uint8_t>(DType::float32));
  reserve.initShape(1).set(0, static_cast<int64_t>(count));
  const auto reserved = client.wait(reserve.send());
  REQUIRE(!reserved.getFailed());
  CHECK(reserved.getSize() == size);
  std::vector<kj::Promise<void>> writes;
  for (size_t at = 0; at < size; at += 1 << 20) {
    auto w = session.writeRequest();
    w.setUpload(reserved.getUpload()), w.setOffset(at);
    w.setData(kj::arrayPtr(raw + at, std::min<size_t>(1 << 20, size - at)));
    writes.push_back(w.send().then([](auto r) { CHECK(!r.getFailed()); }));
  }
  for (auto& w : writes) w.wait(loop.waitScope);

  Arg dtype, shape, upload, flag;
  dtype.kind = ArgKind::dtype, dtype.i = static_cast<int>(DType::float32);
  shape.kind = ArgKind::ints, shape.count = 1;
  upload.kind = ArgKind::integer, upload.i = static_cast<int64_t>(reserved.getUpload());
  flag.kind = ArgKind::boolean;
  BatchMaker m(1);
  m.b.ints.push_back(static_cast<int64_t>(count));
  m.call(OpCall::kUpload, {dtype, shape, upload, flag}, 1).fetch(1);
  const auto answer = client.wait(send(session, m.b));
  const auto outcome = answer.getOutcome();
  REQUIRE(!outcome.getFailed());
  CHECK(outcome.getFetched()[0].getSize() == size);
  CHECK(outcome.getFetched()[0].getData().size() == 0);

  std::vector<float> back(count);
  auto* to = reinterpret_cast<kj::byte*>(back.data());
  std::vector<kj::Promise<void>> reads;
  for (size_t at = 0; at < size; at += 1 << 20) {
    auto r = session.readRequest();
    r.setSeq(1), r.setIndex(0), r.setOffset(at), r.setSize(1 << 20);
    reads.push_back(r.send().then([to, at, size](auto piece) {
      REQUIRE(!piece.getFailed());
      REQUIRE(piece.getData().size() == std::min<size_t>(1 << 20, size - at));
      std::memcpy(to + at, piece.getData().begin(), piece.getData().size());
    }));
  }
  for (auto& r : reads) r.wait(loop.waitScope);
  CHECK(back == sent);
}

TEST_CASE("pieces of any size and place arrive where they belong", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  // Two sessions with an upload of the same number: the connection cannot tell where a piece belongs before its call.
  for (const int sessions : {1, 2}) {
    std::vector<wire::Session::Client> all;
    for (int i = 0; i < sessions; ++i) all.push_back(client.open());
    auto& session = all.back();
    const size_t size = 3 << 20;
    std::vector<uint64_t> uploads;
    for (auto& s : all) {
      auto reserve = s.reserveRequest();
      reserve.setDtype(static_cast<uint8_t>(DType::uint8));
      reserve.initShape(1).set(0, static_cast<int64_t>(size));
      uploads.push_back(client.wait(reserve.send()).getUpload());
    }
    alignas(8) static kj::byte want[3 << 20], have[3 << 20];
    for (size_t i = 0; i < size; ++i) want[i] = static_cast<kj::byte>(i * 7 + i / 251 + static_cast<size_t>(sessions));
    // In place, with a last word that is not full, at an odd place, small, and copied into the message.
    const std::vector<std::pair<size_t, size_t>> pieces = {{1 << 20, 1 << 20}, {0, 100003},     {100003, 99997},
                                                           {200000, 40},       {200040, 65536}, {265576, 783000},
                                                           {2 << 20, 1 << 20}};
    for (const auto& [at, n] : pieces) {
      auto w = session.writeRequest();
      w.setUpload(uploads.back()), w.setOffset(at);
      if (at % 8 == 0 && n != 783000) {
        w.adoptData(capnp::Orphanage::getForMessageContaining(wire::Session::WriteParams::Builder(w))
                        .referenceExternalData(kj::arrayPtr(want + at, n)));
      } else {
        w.setData(kj::arrayPtr(want + at, n));
      }
      CHECK(!client.wait(w.send()).getFailed());
    }
    Arg dtype, shape, upload, flag;
    dtype.kind = ArgKind::dtype, dtype.i = static_cast<int>(DType::uint8);
    shape.kind = ArgKind::ints, shape.count = 1;
    upload.kind = ArgKind::integer, upload.i = static_cast<int64_t>(uploads.back());
    flag.kind = ArgKind::boolean;
    BatchMaker m(1);
    m.b.ints.push_back(static_cast<int64_t>(size));
    m.call(OpCall::kUpload, {dtype, shape, upload, flag}, 1).fetch(1);
    REQUIRE(!client.wait(send(session, m.b)).getOutcome().getFailed());
    for (size_t at = 0; at < size; at += 1 << 20) {
      auto r = session.readRequest();
      r.setSeq(1), r.setIndex(0), r.setOffset(at), r.setSize(1 << 20);
      const auto piece = client.wait(r.send());
      std::memcpy(have + at, piece.getData().begin(), piece.getData().size());
    }
    CHECK(std::memcmp(want, have, size) == 0);
  }
}

TEST_CASE("an upload that is still being written cannot be used", "[server][rpc]") {
  RpcRig rig;
  auto session = rig.open();
  auto room = wait<Result<Room>>([&](auto done) { session->reserve(DType::uint8, {8}, std::move(done)); });
  REQUIRE(room);
  const uint64_t number = session->hold(*room);  // and *room goes on holding it
  Arg dtype, shape, upload, flag;
  dtype.kind = ArgKind::dtype, dtype.i = static_cast<int>(DType::uint8);
  shape.kind = ArgKind::ints, shape.count = 1;
  upload.kind = ArgKind::integer, upload.i = static_cast<int64_t>(number);
  flag.kind = ArgKind::boolean;
  BatchMaker m(1);
  m.b.ints.push_back(8);
  const auto answer = run(*session, m.call(OpCall::kUpload, {dtype, shape, upload, flag}, 1));
  REQUIRE(answer->error);
  CHECK(answer->error->code() == Code::bad_program);
  CHECK(answer->error->message().find("still being written") != std::string::npos);
}

TEST_CASE("pieces outside of a value are refused", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  auto reserve = session.reserveRequest();
  reserve.setDtype(static_cast<uint8_t>(DType::float32));
  reserve.initShape(1).set(0, 4);
  const uint64_t upload = client.wait(reserve.send()).getUpload();
  const auto write = [&](uint64_t number, uint64_t offset, size_t size) -> std::optional<Code> {
    auto w = session.writeRequest();
    w.setUpload(number), w.setOffset(offset);
    w.initData(static_cast<uint>(size));
    const auto r = client.wait(w.send());
    if (!r.getFailed()) return std::nullopt;
    return code(r.getError());
  };
  CHECK(write(upload, 0, 16) == std::nullopt);
  CHECK(write(upload, 16, 0) == std::nullopt);
  CHECK(write(upload, 0, 17) == Code::bad_argument);
  CHECK(write(upload, 17, 0) == Code::bad_argument);
  CHECK(write(upload, ~uint64_t{0}, 16) == Code::bad_argument);
  CHECK(write(upload, ~uint64_t{0} - 8, 16) == Code::bad_argument);
  CHECK(write(upload + 1, 0, 4) == Code::bad_program);
  CHECK(write(upload, 0, (1 << 20) + 1) == Code::too_large);
  const auto room = [&](std::vector<int64_t> shape, uint8_t dtype) {
    auto r = session.reserveRequest();
    r.setDtype(dtype);
    auto s = r.initShape(static_cast<uint>(shape.size()));
    for (uint i = 0; i < shape.size(); ++i) s.set(i, shape[i]);
    return client.wait(r.send()).getFailed();
  };
  CHECK(!room({}, 8));
  CHECK(!room({0, int64_t{1} << 40}, 8));
  CHECK(room({4}, kDTypes));
  CHECK(room({-1}, 8));
  CHECK(room({(int64_t{1} << 40) + 1}, 8));
  CHECK(room({int64_t{1} << 40, int64_t{1} << 40}, 8));
  CHECK(room(std::vector<int64_t>(33, 1), 8));

  client.wait(send(session, BatchMaker(1).upload(1, {1, 2}).fetch(1).b));
  const auto read = [&](uint64_t seq, uint32_t index, uint64_t offset, uint32_t size) {
    auto r = session.readRequest();
    r.setSeq(seq), r.setIndex(index), r.setOffset(offset), r.setSize(size);
    const auto got = client.wait(r.send());
    return got.getFailed() ? -1 : static_cast<int>(got.getData().size());
  };
  CHECK(read(1, 0, 4, 100) == 4);
  CHECK(read(1, 0, 8, 100) == 0);
  CHECK(read(1, 0, 9, 1) == -1);
  CHECK(read(1, 1, 0, 1) == -1);
  CHECK(read(2, 0, 0, 1) == -1);
  CHECK(read(1, 0, 0, (1 << 20) + 1) == -1);
}

TEST_CASE("a session is resumed over another connection with its secret only", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  std::string id, secret;
  {
    RpcClient client(loop, rig.address());
    const auto opened = client.wait(client.gate().openRequest().send());
    id = std::string(opened.getId().cStr());
    secret.assign(reinterpret_cast<const char*>(opened.getSecret().begin()), opened.getSecret().size());
    client.wait(send(opened.getSession(), BatchMaker(1).upload(1, {3}).b));
  }
  RpcClient client(loop, rig.address());
  const auto resume = [&](const std::string& s) {
    auto r = client.gate().resumeRequest();
    r.setId(id);
    r.setSecret(kj::arrayPtr(reinterpret_cast<const kj::byte*>(s.data()), s.size()));
    return client.wait(r.send());
  };
  std::string wrong = secret;
  wrong.back() ^= 1;
  CHECK(code(resume(wrong).getError()) == Code::no_session);
  CHECK(code(resume("").getError()) == Code::no_session);
  const auto back = resume(secret);
  REQUIRE(!back.getFailed());
  CHECK(back.getLastSeq() == 1);
  const auto answer = client.wait(send(back.getSession(), BatchMaker(2).fetch(1).b));
  CHECK(values(answer.getOutcome().getFetched()[0]) == std::vector<float>{3});
}

TEST_CASE("a closed session answers closed", "[server][rpc]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  CHECK(!client.wait(session.closeRequest().send()).getFailed());
  CHECK(client.wait(session.closeRequest().send()).getFailed());
  const auto late = client.wait(send(session, BatchMaker(1).b));
  CHECK(code(late.getOutcome().getError()) == Code::closed);
}

TEST_CASE("a connection that is gone leaves its sessions to their lease", "[server][rpc][T45]") {
  Options o = loopback();
  o.ttl_seconds = 10;
  TestClock clock;
  Metrics metrics;
  Executor executor(clock, metrics, 1, 1);
  Service service(o, executor, clock, metrics);
  RpcServer server(service);
  auto loop = kj::setupAsyncIo();
  {
    RpcClient client(loop, server.address());
    auto session = client.open();
    client.wait(send(session, BatchMaker(1).upload(1, {1}).b));
    clock.advance(std::chrono::seconds(11));
    service.sweep();
    CHECK(service.list().size() == 1);  // attached: it lives
  }
  // When the server has seen the end, the lease begins.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!service.list().empty() && std::chrono::steady_clock::now() < until) {
    clock.advance(std::chrono::seconds(11));
    service.sweep();
  }
  CHECK(service.list().empty());
}

TEST_CASE("and so does one whose call waits for other ranks", "[server][rpc][H36][T45]") {
  cluster::FakeCluster cluster;
  Options o = loopback();
  o.ttl_seconds = 10;
  TestClock clock;
  Metrics metrics;
  Executor executor(clock, metrics, 1, 1);
  Service service(o, executor, clock, metrics);
  service.use(&cluster);
  RpcServer server(service);
  auto loop = kj::setupAsyncIo();
  {
    RpcClient client(loop, server.address());
    auto session = client.open();
    cluster::JoinOptions alone;
    alone.world_size = 1, alone.rank = 0;
    REQUIRE(wait<Result<GroupInfo>>(
        [&](auto done) { service.find(service.list().at(0).id)->join_group("world", alone, std::move(done)); }));
    cluster->hold();
    auto running = send(session, BatchMaker(1).call(op::barrier, {}, 0).b);
    loop.provider->getTimer().afterDelay(kj::MILLISECONDS).wait(loop.waitScope);  // it leaves
    cluster->wait_for_started(1);
    clock.advance(std::chrono::seconds(11));
    service.sweep();
    CHECK(service.list().size() == 1);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!service.list().empty() && std::chrono::steady_clock::now() < until) {
    clock.advance(std::chrono::seconds(11));
    service.sweep();
  }
  CHECK(service.list().empty());
  cluster->wait_for_left(1);
}

TEST_CASE("whatever a method throws fails this call alone", "[server][rpc][T7]") {
  // The list is the schema's, so that no method can be forgotten.
  std::vector<std::string> methods;
  for (const auto& schema :
       {capnp::Schema::from<wire::Login>(), capnp::Schema::from<wire::Gate>(), capnp::Schema::from<wire::Session>()}) {
    for (const auto m : schema.asInterface().getMethods()) methods.emplace_back(m.getProto().getName().cStr());
  }
  REQUIRE(methods.size() == 13);
  std::string victim;
  int kind = 0;
  RpcSetup setup;
  setup.before_call = [&](std::string_view method) {
    if (method != victim) return;
    switch (kind) {
      case 0:
        throw std::bad_alloc();
      case 1:
        throw std::runtime_error("secret text");
      case 2:
        KJ_FAIL_REQUIRE("secret text");
      default:
        throw 42;
    }
  };
  RpcRig rig(setup);
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto gate = client.gate();
  auto session = client.open();
  std::vector<capnp::DynamicCapability::Client> targets;
  targets.emplace_back(client.login());
  targets.emplace_back(wire::Gate::Client(gate));
  targets.emplace_back(wire::Session::Client(session));
  for (const auto& name : methods) {
    for (kind = 0; kind < 4; ++kind) {
      CAPTURE(name, kind);
      victim = name;
      for (auto& target : targets) {
        KJ_IF_MAYBE (method, target.getSchema().findMethodByName(name.c_str())) {
          auto answer = target.newRequest(*method).send().wait(loop.waitScope);
          const bool is_run = name == "run";
          const auto results =
              is_run ? answer.get("outcome").as<capnp::DynamicStruct>() : capnp::DynamicStruct::Reader(answer);
          CHECK(results.get("failed").as<bool>());
          const auto error = results.get("error").as<wire::Error>();
          CHECK(code(error) == (kind == 0   ? Code::memory_limit
                                : kind == 2 ? (is_run ? Code::bad_program : Code::bad_request)
                                            : Code::internal));
          CHECK(std::string(error.getMessage().cStr()).find("secret") == std::string::npos);
        }
      }
    }
  }
  victim.clear();
  CHECK(!client.wait(send(session, BatchMaker(1).b)).getOutcome().getFailed());
}

TEST_CASE("a Unix socket has mode 0600, replaces a stale one and goes away", "[server][rpc]") {
  const auto path = std::filesystem::temp_directory_path() / ("gradwire-rpc-" + std::to_string(::getpid()) + ".sock");
  Options o = loopback();
  o.rpc = "", o.unix_path = path;
  {
    RpcRig rig({}, o);
    CHECK(rig.address().empty());
    struct stat st {};
    REQUIRE(::stat(path.c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0600);
    auto loop = kj::setupAsyncIo();
    RpcClient client(loop, path);
    auto session = client.open();
    CHECK(!client.wait(send(session, BatchMaker(1).b)).getOutcome().getFailed());
    CHECK_THROWS_AS(RpcServer(rig.service), Error);  // one that is in use stays
  }
  CHECK(!std::filesystem::exists(path));
  {
    kj::AutoCloseFd stale(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    std::strcpy(a.sun_path, path.c_str());
    REQUIRE(::bind(stale, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  }
  CHECK_NOTHROW(RpcRig({}, o));
}

TEST_CASE("addresses that cannot be listened on are refused", "[server][rpc]") {
  for (const char* address :
       {"127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "nowhere:1", "1.2.3.4:1", "[::1:1"}) {
    CAPTURE(address);
    Options o = loopback();
    o.rpc = address;
    try {
      RpcRig rig({}, o);
      FAIL("listened");
    } catch (const Error& e) {
      CHECK(e.code() == Code::bad_argument);
    }
  }
}

TEST_CASE("a draining server takes no connections and ends the quiet ones", "[server][rpc][T44]") {
  RpcRig rig;
  auto loop = kj::setupAsyncIo();
  RpcClient client(loop, rig.address());
  auto session = client.open();
  client.wait(send(session, BatchMaker(1).b));
  rig.server.drain();
  client.network.onDisconnect().wait(loop.waitScope);
  CHECK_THROWS_AS(raw_connect(rig.address()), Error);
}

TEST_CASE("many clients on threads of their own get their own answers", "[server][rpc]") {
  RpcRig rig;
  constexpr int kClients = 8, kBatches = 200;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      auto loop = kj::setupAsyncIo();
      RpcClient client(loop, rig.address());
      auto session = client.open();
      for (uint64_t i = 1; i <= kBatches; ++i) {
        const auto answer =
            client.wait(send(session, BatchMaker(i, 1, i - 1).upload(i, {float(c), float(i)}).fetch(i).b));
        if (values(answer.getOutcome().getFetched()[0]) == std::vector<float>{float(c), float(i)}) ++right;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(right == kClients * kBatches);
}

}  // namespace
}  // namespace gradwire::server
