// Ports, addresses, and people who knock on them.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <deque>
#include <thread>

#include "server/cluster/plane/fd.h"
#include "server/cluster/plane/mesh.h"
#include "tests/data_plane/ranks.h"

namespace gradwire::server::cluster::test {
namespace {

using plane::Fd;
using Bytes = std::vector<std::byte>;

int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

sockaddr_in loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

Fd knock(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in a = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a)) return Fd();
  return fd;
}

Fd listener(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in a = loopback(port);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
  REQUIRE(::listen(fd.get(), 1) == 0);
  return fd;
}

int port_of(const Fd& fd) {
  sockaddr_in a{};
  socklen_t n = sizeof a;
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&a), &n) == 0);
  return ntohs(a.sin_port);
}

/// All that has come, when the other end has closed (or nothing more comes).
std::string heard(const Fd& fd) {
  std::string all;
  std::array<char, 4096> some;
  for (pollfd p{fd.get(), POLLIN, 0}; ::poll(&p, 1, 5000) > 0;) {
    const ssize_t n = ::recv(fd.get(), some.data(), some.size(), 0);
    if (n <= 0) break;
    all.append(some.data(), static_cast<size_t>(n));
  }
  return all;
}

constexpr auto kProofTime = 2s;  // that a helper gives a stranger

TEST_CASE("Strangers who come first get no place, no tensor byte, and stop nobody", "[T39]") {
  const std::string secret = "tensor bytes, not for strangers.";
  const Way way = GENERATE(Way::near, Way::far);
  for (const int size : {2, 3}) {
    Ranks g(size, {}, false, 20000ms, way);
    std::vector<Fd> strangers;
    // A rank's place and lane with a proof that is none, others' places, preambles of Gloo's own, and what scanners
    // say.
    const std::vector<std::string> payloads = {hello(1, 0, 0) + std::string(32, 'p'),
                                               hello(1, 0, 1) + std::string(32, 'p'),
                                               hello(1, 0, 0),
                                               hello(0, 0, 0),
                                               hello(-1, 0, 0),
                                               hello(1 << 30, 0, 0),
                                               hello(1, 0, -1),
                                               hello(1, 0, 7),
                                               hello(1, 5, 0),
                                               "",
                                               hello(1, 0, 0).substr(0, 8),
                                               std::string(112, '\0'),
                                               std::string(112, '\xff'),
                                               std::string(1 << 16, 'x'),
                                               "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                               std::string("\x16\x03\x01\x02\x00\x01", 6)};
    for (int round = 0; round < 20; ++round) {
      for (const std::string& payload : payloads) {
        Fd fd = knock(port_of(g.ranks[0].address));
        REQUIRE(fd);
        ::send(fd.get(), payload.data(), payload.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        strangers.push_back(std::move(fd));
      }
    }
    const auto begin = Clock::now();
    auto connected = g.connect();
    for (auto& answer : connected) {
      auto result = answer.get();
      INFO((result ? "" : result.error().message()));
      REQUIRE(result);
    }
    CHECK(Clock::now() - begin < 2s);
    Bytes in(1 << 16);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(secret[i % secret.size()]);
    const auto out =
        g.run({Collective::broadcast, {}, DType::uint8, 1 << 16, 0}, std::vector<Bytes>(static_cast<size_t>(size), in));
    CHECK(out.back() == in);
    // Nobody listens any longer.
    CHECK_FALSE(knock(port_of(g.ranks[0].address)));
    g.run({Collective::barrier, {}, DType::uint8, 0, -1}, std::vector<Bytes>(static_cast<size_t>(size)));
    size_t replies = 0;
    for (const Fd& fd : strangers) {
      const std::string said = heard(fd);
      CHECK((said.empty() || said.size() == 64));  // the answer to a greeting: a nonce and a proof
      CHECK(said.find("tensor") == std::string::npos);
      replies += !said.empty();
    }
    CHECK(replies > 0);
    CHECK(replies <= 60);
  }
}

TEST_CASE("A storm of strangers keeps no group from meeting", "[T39]") {
  const Way way = GENERATE(Way::near, Way::far);
  std::atomic<int> port = 0;
  std::atomic<size_t> knocks = 0;
  std::jthread storm([&](std::stop_token stop) {
    std::deque<Fd> held;
    const std::string payload = hello(1, 0, 0);
    while (!stop.stop_requested()) {
      if (!port) {
        std::this_thread::yield();
        continue;
      }
      Fd fd = knock(port);
      if (!fd) continue;
      if (++knocks % 2) ::send(fd.get(), payload.data(), payload.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      held.push_back(std::move(fd));
      if (held.size() > 400) held.pop_front();
    }
  });
  auto fastest = Clock::duration::max();
  for (int round = 0; round < 5; ++round) {
    Ranks g(3, {}, false, 20000ms, way);
    // More who come first and stay than there are places.
    std::vector<Fd> silent;
    for (int i = 0; i < 300; ++i) silent.push_back(knock(port_of(g.ranks[0].address)));
    port = port_of(g.ranks[0].address);
    for (const size_t enough = knocks + 500; knocks < enough;) std::this_thread::yield();
    const auto begin = Clock::now();
    for (auto& answer : g.connect()) {
      auto result = answer.get();
      INFO((result ? "" : result.error().message()));
      REQUIRE(result);
    }
    fastest = std::min(fastest, Clock::now() - begin);
    port = 0;
    const Bytes one(1, std::byte{1}), three(1, std::byte{3});
    CHECK(g.run({Collective::all_reduce, ReduceOp::sum, DType::uint8, 1, -1}, {one, one, one}) ==
          std::vector<Bytes>(3, three));
  }
  // The oldest gave way: had places come free because a stranger's time was over, no round were as fast.
  CHECK(fastest < kProofTime);
}

TEST_CASE("Strangers who say nothing, or half of it, are sent away while ranks are awaited", "[T39]") {
  Ranks g(2, {}, false, 30000ms);
  Answer<void> first, second;
  g.ranks[0].plane->connect(g.addresses(), kKey, first.done());
  const Fd silent = knock(port_of(g.ranks[0].address)), half = knock(port_of(g.ranks[0].address)),
           greets = knock(port_of(g.ranks[0].address));
  const std::string greeting = hello(1, 0, 0);
  REQUIRE(::send(half.get(), greeting.data(), 40, MSG_NOSIGNAL) == 40);
  REQUIRE(::send(greets.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) == 56);
  std::array<char, 64> reply;
  REQUIRE(::recv(greets.get(), reply.data(), reply.size(), MSG_WAITALL) == 64);
  for (const Fd* fd : {&silent, &half, &greets}) CHECK(hears_end(fd->get(), 5 * kProofTime));
  CHECK(first.future.wait_for(0s) == std::future_status::timeout);
  g.ranks[1].plane->connect(g.addresses(), kKey, second.done());
  CHECK(first.get());
  CHECK(second.get());
}

TEST_CASE("Nobody can pass a rank's proof on to another lane, or from a Unix socket to TCP", "[T39]") {
  const bool from_unix = GENERATE(false, true);
  Ranks g(2, {}, false, 10000ms, Way::far);
  auto addresses = g.addresses();
  Fd relay;
  if (from_unix) {
    relay = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::string name = "relay-" + std::to_string(port_of(addresses[0]));
    socklen_t size;
    const sockaddr_un u = abstract(name, size);
    REQUIRE(::bind(relay.get(), reinterpret_cast<const sockaddr*>(&u), size) == 0);
    REQUIRE(::listen(relay.get(), 4) == 0);
    addresses[0] += "@" + name;
  } else {
    relay = listener(0);
    addresses[0] = "127.0.0.1:" + std::to_string(port_of(relay));
  }
  Answer<void> first, second;
  g.ranks[0].plane->connect(g.addresses(), kKey, first.done());
  const Fd on = knock(port_of(g.ranks[0].address));
  g.ranks[1].plane->connect(addresses, kKey, second.done());
  const Fd caller(::accept4(relay.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::array<char, 64> said;
  REQUIRE(::recv(caller.get(), said.data(), 56, MSG_WAITALL) == 56);
  if (!from_unix) said[16] ^= 1;  // the lane
  REQUIRE(::send(on.get(), said.data(), 56, MSG_NOSIGNAL) == 56);
  REQUIRE(::recv(on.get(), said.data(), said.size(), MSG_WAITALL) == 64);
  REQUIRE(::send(caller.get(), said.data(), said.size(), MSG_NOSIGNAL) == 64);
  CHECK(hears_end(caller.get(), 5000ms));  // no proof of its own
}

TEST_CASE("A stranger in the place of a rank is found out", "[T39]") {
  Ranks g(2, {}, false, 1000ms);
  const Fd rogue = listener(0);
  auto addresses = g.addresses();
  addresses[0] = "127.0.0.1:" + std::to_string(port_of(rogue));
  Answer<void> answer;
  g.ranks[1].plane->connect(addresses, kKey, answer.done());
  const Fd caller(::accept4(rogue.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(caller);
  const std::string reply(64, 'r');
  REQUIRE(::send(caller.get(), reply.data(), reply.size(), MSG_NOSIGNAL) == 64);
  auto result = answer.get();
  REQUIRE_FALSE(result);
  CHECK(result.error().message() == "data plane: rank 0 does not know this group's key");
  CHECK(heard(caller).size() <= 56);
}

TEST_CASE("Helpers listen on ports of the range, and say so when none is free", "[data_plane]") {
  // Some free ports in a row, outside of those that are given out by themselves.
  int first = 0;
  for (int port = 20011; !first && port < 30000; port += 10) {
    bool free = true;
    for (int p = port; p < port + 4; ++p) {
      const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in a = loopback(p);
      free = free && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
    }
    if (free) first = port;
  }
  REQUIRE(first);
  DataPlaneOptions o;
  o.first_port = first, o.last_port = first + 3;
  const Fd taken = listener(first + 1);
  {
    Ranks g(3, o);
    std::vector<int> ports;
    for (const Rank& r : g.ranks) ports.push_back(port_of(r.address));
    CHECK(ports == std::vector{first, first + 2, first + 3});
    // Connected, they no longer need the ports, and the next group can have them.
    Ranks next(3, o);
    g.run({Collective::barrier, {}, DType::uint8, 0, -1}, std::vector<Bytes>(3));
  }
  o.first_port = o.last_port = first + 1;
  const auto plane = make_gloo_plane(o);
  Answer<std::string> address;
  plane->prepare(0, 2, 5000ms, address.done());
  auto result = address.get();
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == Code::unavailable);
  const std::string p = std::to_string(first + 1);
  CHECK(result.error().message() == "data plane: no port from " + p + " to " + p + " is free on 127.0.0.1");
}

TEST_CASE("Helpers meet over IPv6 too", "[data_plane]") {
  const Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 a{};
  a.sin6_family = AF_INET6;
  a.sin6_addr = in6addr_loopback;
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a)) SKIP("this machine has no ::1");
  DataPlaneOptions o;
  o.host = "::1";
  Ranks g(2, o);
  CHECK(g.ranks[0].address.rfind("[::1]:", 0) == 0);
  const Bytes one(1, std::byte{1}), two(1, std::byte{2});
  CHECK(g.run({Collective::all_reduce, ReduceOp::sum, DType::uint8, 1, -1}, {one, one}) == std::vector<Bytes>(2, two));
}

TEST_CASE("A host that is none, or not this machine's, is an error", "[data_plane]") {
  for (const char* host : {"no.such.host.invalid", "192.0.2.1"}) {
    DataPlaneOptions o;
    o.host = host;
    const auto plane = make_gloo_plane(o);
    Answer<std::string> address;
    plane->prepare(0, 2, 20000ms, address.done());
    auto result = address.get();
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == Code::unavailable);
    CHECK(result.error().message().find(host) != std::string::npos);
  }
}

}  // namespace
}  // namespace gradwire::server::cluster::test
