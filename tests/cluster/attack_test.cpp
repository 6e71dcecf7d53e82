#include <arpa/inet.h>
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <thread>

#include "server/cluster/init_method.h"
#include "server/cluster/message_wire.h"
#include "tests/cluster/rig.h"

namespace gradwire::server::cluster {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

class Raw {
 public:
  explicit Raw(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Address a = parse_address(address);
    sockaddr_in in{};
    in.sin_family = AF_INET, in.sin_port = htons(static_cast<uint16_t>(a.port));
    inet_pton(AF_INET, a.host.c_str(), &in.sin_addr);
    connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&in), sizeof in) == 0;
  }
  ~Raw() { ::close(fd_); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;
  void say(const std::string& bytes) const { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void say(const Message& m) const {
    capnp::MallocMessageBuilder b;
    write(b.initRoot<wire::PeerMessage>(), m);
    const auto words = capnp::messageToFlatArray(b);
    const auto bytes = words.asBytes();
    say(std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size()));
  }
  /// All that comes until the other side closes, or nothing comes for so long.
  std::string hear(int milliseconds, bool* closed = nullptr, size_t enough = SIZE_MAX) const {
    std::string out;
    while (out.size() < enough) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, milliseconds) <= 0) return out;
      char block[4096];
      const ssize_t n = ::recv(fd_, block, sizeof block, 0);
      if (n <= 0) {
        if (closed) *closed = true;
        return out;
      }
      out.append(block, static_cast<size_t>(n));
    }
    return out;
  }
  bool connected = false;

 private:
  int fd_;
};

Message hello(const std::string& address = "127.0.0.1:1", uint32_t version = 1) {
  return {0, 0, Hello{version, version, address}};
}

/// Payloads of a port scanner and worse.
std::vector<std::string> payloads() {
  std::mt19937 random(7);
  std::vector<std::string> all = {"",
                                  "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                  std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
                                  std::string(4, '\xff'),
                                  std::string(8, '\0'),
                                  std::string("\0\0\0\0\xff\xff\xff\x1f", 8),
                                  std::string("\0\0\0\0\1\0\0\0", 8),
                                  std::string(64, '\0')};
  while (all.size() < 20) {
    std::string s(std::uniform_int_distribution<size_t>(1, 300)(random), '\0');
    for (char& c : s) c = static_cast<char>(random());
    all.push_back(std::move(s));
  }
  return all;
}

TEST_CASE("ten thousand strangers during set-up and collectives harm nobody and hear nothing", "[cluster][T39][long]") {
  Servers servers(3);
  std::atomic<bool> stop{false};
  std::atomic<size_t> heard{0}, calls{0};
  const auto all = payloads();
  std::vector<std::jthread> rogues;
  for (size_t t = 0; t < 2; ++t) {
    rogues.emplace_back([&, t] {
      for (size_t i = t; i < 10000; i += 2) {
        const Raw raw(servers[static_cast<int>(i % 3)].address());
        raw.say(all[i % all.size()]);
        if (i % 63 == 0) heard += raw.hear(20).size();  // each payload's turn comes
        ++calls;
      }
      stop = true;
    });
  }
  size_t groups = 0, sums = 0;
  while (!stop) {
    const auto g = servers.group();
    for (int i = 0; i < 20; ++i) {
      std::vector<Running> running;
      for (auto& one : g) running.push_back(start(one, terms(Collective::all_reduce)));
      for (auto& r : running) {
        REQUIRE(r.done.get());
        REQUIRE(r.first() == 3);
        ++sums;
      }
    }
    ++groups;
  }
  for (auto& r : rogues) r.join();
  CHECK(calls == 10000);
  CHECK(heard == 0);
  CHECK(groups > 0);
  INFO(groups << " groups and " << sums << " sums meanwhile");
  CHECK(sums >= 60);
}

TEST_CASE("strangers that stay and say nothing do not keep a group from forming", "[cluster][T39]") {
  Servers servers(2);
  std::vector<std::unique_ptr<Raw>> silent;
  for (int i = 0; i < 700; ++i) silent.push_back(std::make_unique<Raw>(servers[0].address()));
  const auto groups = servers.group();
  auto a = start(groups[0], terms(Collective::barrier)), b = start(groups[1], terms(Collective::barrier));
  CHECK(a.done.get());
  CHECK(b.done.get());
  // The first have had to go for the last.
  bool closed = false;
  CHECK(silent.front()->hear(2000, &closed).empty());
  CHECK(closed);
}

TEST_CASE("who says hello and knows no meeting, or speaks out of turn, gets nothing of a group", "[cluster][T39]") {
  Servers servers(2);
  const auto groups = servers.group();
  const std::string address = servers[0].address();
  const auto reply = [&](const std::vector<Message>& said) {
    const Raw raw(address);
    for (auto& m : said) raw.say(m);
    bool closed = false;
    std::string bytes = raw.hear(3000, &closed);
    CHECK(closed);
    return bytes;
  };
  const std::string key(kKeyBytes, 'k');
  CHECK(reply({hello(), {0, 0, Join{"met:nothing", 2, 1}}}).size() < 64);  // Retry
  CHECK_THAT(reply({{0, 0, Join{"x", 2, 1}}}), ContainsSubstring("a link begins with hello and join"));
  CHECK_THAT(reply({hello(), hello()}), ContainsSubstring("a link begins with hello and join"));
  CHECK_THAT(reply({hello(), {1, 1, Leave{}}}), ContainsSubstring("a link begins with hello and join"));
  CHECK_THAT(reply({hello("127.0.0.1:1", 9)}),
             ContainsSubstring("this server speaks versions 1 to 1 among servers, the other 9 to 9"));
  CHECK_THAT(reply({hello("nonsense")}), ContainsSubstring("expected an address"));
  CHECK(reply({{0, 0, Connect{{"a"}, key}}}).size() < 200);
  auto a = start(groups[0], terms(Collective::barrier)), b = start(groups[1], terms(Collective::barrier));
  CHECK(a.done.get());
  CHECK(b.done.get());
}

TEST_CASE("a member that speaks of other groups, or of what is not its turn, is not heard", "[cluster][T39]") {
  Servers servers(2);
  // A rogue that knows the meeting takes a rank; only rank 0 and it are in that group.
  auto joined = join(servers[0], servers.options(0, 2));
  const std::string meeting = "tcp:" + std::to_string(parse_address(servers[0].address()).port) + ":";
  std::unique_ptr<Raw> rogue;
  for (std::string answer; answer.size() < 64;) {  // "come again" is shorter than a place
    rogue = std::make_unique<Raw>(servers[0].address());
    rogue->say(hello());
    rogue->say({0, 0, Join{meeting, 2, 1}});
    REQUIRE(joined.wait_for(milliseconds(0)) == std::future_status::timeout);
    answer = rogue->hear(10000, nullptr, 64);
  }
  rogue->say({12345, 1, Call{}});
  rogue->say({0, 0, Formed{}});
  rogue->say({0, 0, Broken{Error(Code::internal, "x"), false}});
  CHECK(joined.wait_for(milliseconds(50)) == std::future_status::timeout);
  rogue->say(std::string(64, '\xff'));  // and garbage: now it is gone
  auto r = joined.get();
  REQUIRE(!r);
  CHECK(r.error().code() == Code::unavailable);
  CHECK_THAT(r.error().message(), StartsWith("rank 1 is gone: "));
}

// ---- TLS

struct Certificates {
  Certificates() {
    run("openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem");
    run("openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=other -keyout other-ca.key -out other-ca.pem");
    make("server", "ca", "127.0.0.1", "DNS:127.0.0.1,IP:127.0.0.1,DNS:localhost");
    make("stranger", "other-ca", "127.0.0.1", "DNS:127.0.0.1,IP:127.0.0.1");
    make("misnamed", "ca", "somebody", "DNS:somebody");
  }
  void make(const std::string& name, const std::string& ca, const std::string& cn, const std::string& san) {
    run("openssl req -newkey ed25519 -nodes -subj /CN=" + cn + " -keyout " + name + ".key -out " + name + ".csr");
    run("printf 'subjectAltName=" + san + "' > ext && openssl x509 -req -days 2 -in " + name + ".csr -CA " + ca +
        ".pem -CAkey " + ca + ".key -CAcreateserial -extfile ext -out " + name + ".pem");
  }
  void run(const std::string& command) {
    const std::string all = "cd '" + folder.path.string() + "' && { " + command + "; } >log 2>&1";
    if (std::system(all.c_str()) != 0) throw std::runtime_error("failed: " + command);
  }
  void use(Cluster::Options& o, const std::string& name, const std::string& ca = "ca") const {
    o.tls_cert = folder.path / (name + ".pem"), o.tls_key = folder.path / (name + ".key");
    o.tls_ca = folder.path / (ca + ".pem");
  }
  Folder folder;
};
const Certificates& certificates() {
  static const Certificates all;
  return all;
}

/// Rank 1 has this certificate; how its join ends.
std::string join_with(const std::function<void(Cluster::Options&)>& second) {
  Servers servers(2, [&](Cluster::Options& o, int i) {
    certificates().use(o, "server");
    if (i == 1) second(o);
  });
  std::vector<Joined> joined;
  for (int r = 0; r < 2; ++r) {
    auto o = servers.options(r, 2);
    o.timeout = milliseconds(1500);
    joined.push_back(join(servers[r], o));
  }
  auto one = joined[1].get();
  if (one) {
    auto zero = joined[0].get();
    REQUIRE(zero);
    auto a = start(*zero, terms(Collective::all_reduce)), b = start(*one, terms(Collective::all_reduce));
    REQUIRE(a.done.get());
    REQUIRE(b.done.get());
    return "joined";
  }
  return one.error().message();
}

TEST_CASE("servers of one authority link up by mutual TLS; others are refused", "[cluster][T39][H2]") {
  CHECK(join_with([](Cluster::Options&) {}) == "joined");
  // Another authority than the master's: it knows the other's certificate as little as the other knows its own.
  CHECK_THAT(join_with([](Cluster::Options& o) { certificates().use(o, "stranger", "other-ca"); }),
             StartsWith("could not establish connection with other processes"));
  // A certificate of a foreign authority, though it trusts ours.
  CHECK_THAT(join_with([](Cluster::Options& o) { certificates().use(o, "stranger"); }),
             StartsWith("could not establish connection with other processes"));
  // No TLS at all.
  CHECK_THAT(join_with([](Cluster::Options& o) { o.tls_cert.clear(), o.tls_key.clear(), o.tls_ca.clear(); }),
             StartsWith("could not establish connection with other processes"));
  // Ours, but with another's name.
  CHECK_THAT(join_with([](Cluster::Options& o) { certificates().use(o, "misnamed"); }),
             ContainsSubstring("has not the name 127.0.0.1"));
}

TEST_CASE("a master whose certificate has another name is not believed", "[cluster][T39]") {
  Servers servers(2, [&](Cluster::Options& o, int i) { certificates().use(o, i == 0 ? "misnamed" : "server"); });
  auto zero = join(servers[0], servers.options(0, 2));
  auto r = join(servers[1], servers.options(1, 2)).get();
  REQUIRE(!r);
  CHECK(r.error().code() == Code::unauthenticated);
  CHECK_THAT(r.error().message(), ContainsSubstring("TLS: "));
}

TEST_CASE("garbage, silence and plain text at a TLS port harm nobody", "[cluster][T39]") {
  Servers servers(2, [&](Cluster::Options& o, int) { certificates().use(o, "server"); });
  std::vector<std::unique_ptr<Raw>> silent;
  for (const auto& p : payloads()) {
    silent.push_back(std::make_unique<Raw>(servers[0].address()));
    silent.back()->say(p);
  }
  Raw plain(servers[0].address());
  plain.say(hello());
  bool closed = false;
  CHECK_THAT(plain.hear(3000, &closed), !ContainsSubstring("hello"));
  CHECK(closed);
  const auto groups = servers.group();
  auto a = start(groups[0], terms(Collective::barrier)), b = start(groups[1], terms(Collective::barrier));
  CHECK(a.done.get());
  CHECK(b.done.get());
}

TEST_CASE("a server that is reachable from elsewhere does not start without TLS", "[cluster][T34]") {
  Cluster::Options o;
  const auto refused = [&] {
    try {
      make_cluster(o);
      return std::string();
    } catch (const Error& e) {
      return e.message();
    }
  };
  o.peer = "0.0.0.0:0";
  CHECK_THAT(refused(), ContainsSubstring("needs --tls-cert, --tls-key and --tls-ca"));
  o.insecure_no_tls = true;
  CHECK(refused().empty());
  o.insecure_no_tls = false;
  certificates().use(o, "server");
  CHECK(refused().empty());
  o.tls_ca.clear();
  CHECK_THAT(refused(), ContainsSubstring("together"));
  o.tls_ca = certificates().folder.path / "missing.pem";
  CHECK_THAT(refused(), ContainsSubstring("missing.pem"));
  o.tls_ca = certificates().folder.path / "ca.key";
  CHECK_THAT(refused(), ContainsSubstring("is not a certificate in PEM"));
  certificates().use(o, "server");
  o.tls_key = certificates().folder.path / "stranger.key";
  CHECK_THAT(refused(), ContainsSubstring("is not the private key of"));
  o = {};
  o.peer = "no address";
  CHECK_THAT(refused(), ContainsSubstring("expected an address"));
}

}  // namespace
}  // namespace gradwire::server::cluster
