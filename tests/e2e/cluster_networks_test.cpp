// Servers with addresses of their own: four network namespaces on one bridge.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/e2e/cluster_rig.h"

namespace gradwire::e2e {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

constexpr int kServers = 4;

/// What a command prints; its status.
std::pair<std::string, int> output_of(const std::string& command) {
  std::FILE* out = ::popen((command + " 2>&1").c_str(), "r");
  if (!out) return {"popen", -1};
  std::string text;
  for (int c; (c = std::fgetc(out)) != EOF;) text += static_cast<char>(c);
  return {text, ::pclose(out)};
}

/// Names of network namespaces, one for each server and one for their bridge; the namespaces are gone at the end, with
/// all that is in them.
struct Names {
  ~Names() {
    for (int i = 0; i <= kServers; ++i) output_of("ip netns del " + at(i));
  }
  std::string at(int i) const { return prefix + (i == kServers ? "b" : "n" + std::to_string(i)); }
  const std::string prefix = "gw" + std::to_string(::getpid());
};

class Network {
 public:
  Network() {
    if (::geteuid() != 0) SKIP("network namespaces are made by root");
    if (output_of("ip -V").second != 0) SKIP("there is no ip command");
    if (const auto [text, rc] = output_of("ip netns add " + names_.at(kServers)); rc != 0)
      SKIP("no network namespaces here: " + text);
    must("ip -n " + names_.at(kServers) + " link add name bridge0 type bridge mcast_snooping 0 && ip -n " +
         names_.at(kServers) + " link set bridge0 up");
    for (int i = 0; i < kServers; ++i) {
      const std::string n = std::to_string(i + 1), in = "ip -n " + names_.at(i) + " ",
                        out = "ip -n " + names_.at(kServers) + " ";
      must("ip netns add " + names_.at(i));
      must(in + "link add eth0 type veth peer name p" + n + " netns " + names_.at(kServers));
      must(out + "link set p" + n + " master bridge0 && " + out + "link set p" + n + " up");
      must(in + "addr add 10.213.77." + n + "/24 dev eth0 && " + in + "addr add fd00:77::" + n + "/64 dev eth0 nodad");
      must(in + "link set lo up && " + in + "link set eth0 up");
    }
    // Links of a bridge come up one after the other.
    for (int i = 1; i < kServers; ++i)
      must("ip netns exec " + names_.at(0) + " bash -c 'for t in {1..100}; do for a in 10.213.77." +
           std::to_string(i + 1) + " fd00:77::" + std::to_string(i + 1) +
           "; do (exec 3<>/dev/tcp/$a/1) 2>&1 | grep -q refused || { sleep 0.05; continue 2; }; done; exit 0; done; "
           "exit 1'");
  }

  /// Takes a server's cable out of the bridge, or puts it back.
  void plug(int i, bool in) const {
    output_of("ip -n " + names_.at(kServers) + " link set p" + std::to_string(i + 1) + (in ? " up" : " down"));
  }
  static std::string host(int i, bool six) { return (six ? "fd00:77::" : "10.213.77.") + std::to_string(i + 1); }
  std::vector<std::unique_ptr<Server>> servers(bool six, const std::vector<std::string>& more) const {
    return servers(six, [&](int) { return more; });
  }
  std::vector<std::unique_ptr<Server>> servers(bool six,
                                               const std::function<std::vector<std::string>(int)>& more) const {
    std::vector<std::unique_ptr<Server>> all;
    for (int i = 0; i < kServers; ++i) {
      const std::string address = six ? "[" + host(i, true) + "]:7422" : host(i, false) + ":7422";
      all.push_back(std::make_unique<Server>(Server::Options{{"ip", "netns", "exec", names_.at(i)}, address, more(i)}));
    }
    return all;
  }

 private:
  static void must(const std::string& command) {
    const auto [text, rc] = output_of(command);
    INFO(command << "\n" << text);
    REQUIRE(rc == 0);
  }
  const Names names_;
};

const std::vector<std::string> kOpen = {"--insecure-no-tls", "--insecure-no-auth"};

/// More than a connection's buffers hold.
void large(World& w) {
  CHECK(w.run([](Session& s, int rank) {
    const Tensor x = full(s, {1 << 20}, rank + 1, {.dtype = DType::int64});
    dist::all_reduce(x, dist::PRODUCT);
    must(eq(x, 24).all().item<bool>(), "a product of 8 MiB");
  }) == fine(kServers));
}

/// The example, each of whose programs is beside its server.
void hello(const World& w, const std::string& master) {
  std::string list;
  for (const auto& s : w.servers) list += (list.empty() ? "" : ",") + s->unix_address();
  const std::string bin = GRADWIRE_BIN;
  const auto [said, rc] = output_of(bin + "/gradwire launch --servers " + list + " --master-addr " + master +
                                    " --master-port 7422 " + bin + "/hello_ranks");
  INFO(said);
  CHECK(rc == 0);
  for (int r = 0; r < kServers; ++r) {
    const std::string n = std::to_string(r);
    CHECK_THAT(said, ContainsSubstring("[" + n + "] Hello from process " + n + " (out of 4)"));
    CHECK_THAT(said, ContainsSubstring("[" + n + "] the ranks' sum is 6"));
  }
}

/// Some ranks are given, the others fill the places: all are there in the end.
void meet_by_multicast(World& w, const std::string& group) {
  std::vector<std::atomic<int>> seats(kServers);
  REQUIRE(w.run([&](Session& s, int i) {
    dist::init_process_group(s, {.init_method = "tcp://" + group + ":23456",
                                 .world_size = kServers,
                                 .rank = i == 2 ? 1 : -1,
                                 .timeout = std::chrono::seconds(60)});
    const int64_t rank = dist::get_rank(s);
    must(rank >= 0 && rank < kServers && (i != 2 || rank == 1), "the rank");
    ++seats[static_cast<size_t>(rank)];
    const Tensor x = full(s, {3}, rank);
    dist::all_reduce(x);
    must(x.to_vector<float>() == std::vector<float>(3, 6), "the ranks' sum");
  }) == fine(kServers));
  for (const auto& n : seats) CHECK(n == 1);
}

}  // namespace

TEST_CASE("Four servers in namespaces of their own compute together over IPv4", "[H3][H5][H8][H20]") {
  const Network network;
  World w(network.servers(false, kOpen));
  w.meet();
  all_operations(w);
  large(w);
  hello(w, Network::host(0, false));
}

TEST_CASE("Four servers in namespaces of their own compute together over IPv6", "[H3][H5][H8][H11][H20]") {
  const Network network;
  World w(network.servers(true, kOpen));
  w.meet();
  all_operations(w);
  large(w);
  hello(w, Network::host(0, true));
}

TEST_CASE("Four servers in namespaces of their own meet by IPv6 and by IPv4 multicast", "[H6]") {
  const Network network;
  auto more = kOpen;
  more.push_back("--multicast");
  {
    World w(network.servers(true, more));
    meet_by_multicast(w, "[ff15:1e18:5d4c:4cf0:d02d:b659:53ba:b0a7]");
  }
  World w(network.servers(false, more));
  meet_by_multicast(w, "239.77.1.2");
}

TEST_CASE("A server that is cut off is an error at the deadline, to itself too, and comes back", "[H36][T42]") {
  using Clock = std::chrono::steady_clock;
  const Network network;
  World w(network.servers(false, kOpen));
  w.meet({}, std::chrono::seconds(2));
  std::atomic<int> begun{0}, over{0};
  std::thread cutter([&] {
    while (begun < 3 * kServers && over == 0) std::this_thread::yield();
    network.plug(3, false);
  });
  CHECK(w.run([&](Session& s, int rank) {
    std::string error;
    Clock::time_point call;
    for (int i = 0; i < 100000 && error.empty(); ++i) {
      const Tensor x = full(s, {1 << 18}, rank + 1);
      s.sync();
      ++begun;
      call = Clock::now();
      error = error_of(s, [&] { dist::all_reduce(x); });
      e2e::must(eq(x, error.empty() ? 10 : rank + 1).all().item<bool>(), "the tensor after '" + error + "'");
    }
    ++over;
    const std::chrono::duration<double> took = Clock::now() - call;
    e2e::must(error.starts_with("deadline_exceeded: "), "the error is '" + error + "'");
    e2e::must(took.count() >= 1.9 && took.count() <= 3.5, "it took " + std::to_string(took.count()) + " s");
  }) == fine(kServers));
  cutter.join();
  w.meet({0, 1, 2});
  network.plug(3, true);
  w.meet();
  large(w);
}

TEST_CASE("Four servers in namespaces of their own form the group of their options at start", "[H3][H28]") {
  const Network network;
  World w(network.servers(false, [](int i) {
    auto more = kOpen;
    const std::string meeting = "tcp://" + Network::host(0, false) + ":7422";
    for (const std::string& word : {std::string("--group-init"), meeting, std::string("--group-world-size"),
                                    std::string("4"), std::string("--group-rank"), std::to_string(i)})
      more.push_back(word);
    return more;
  }));
  CHECK(w.run([](Session& s, int rank) {
    for (int i = 0; i < 3000 && !dist::is_initialized(s); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    must(dist::get_rank(s) == rank && dist::get_world_size(s) == kServers, "the rank");
    const Tensor x = full(s, {3}, rank);
    dist::all_reduce(x);
    must(x.to_vector<float>() == std::vector<float>(3, 6), "the ranks' sum");
  }) == fine(kServers));
}

TEST_CASE("Four servers in namespaces of their own show each other certificates, and one of another authority is out",
          "[H3][H20][T39]") {
  if (output_of("openssl version").second != 0) SKIP("there is no openssl command");
  const Network network;
  std::string folder = (fs::temp_directory_path() / "gradwire-e2e-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()));
  const auto run = [&](const std::string& command) {
    const auto [text, rc] = output_of("cd '" + folder + "' && " + command);
    INFO(command << "\n" << text);
    REQUIRE(rc == 0);
  };
  for (const std::string ca : {"ca", "other"})
    run("openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=" + ca + " -keyout " + ca + ".key -out " + ca +
        ".pem");
  const auto certify = [&](int i, const std::string& ca) {
    const std::string host = Network::host(i, false), name = ca + std::to_string(i);
    run("openssl req -newkey ed25519 -nodes -subj /CN=" + host + " -keyout " + name + ".key -out " + name + ".csr");
    run("printf 'subjectAltName=DNS:" + host + ",IP:" + host + "' > ext && openssl x509 -req -days 2 -in " + name +
        ".csr -CA " + ca + ".pem -CAkey " + ca + ".key -CAcreateserial -extfile ext -out " + name + ".pem");
  };
  for (int i = 0; i < kServers; ++i) certify(i, "ca");
  certify(3, "other");
  const auto with = [&](const std::string& name) {
    const std::string own = folder + "/" + name;
    return std::vector<std::string>{"--tls-cert", own + ".pem", "--tls-key",
                                    own + ".key", "--tls-ca",   folder + "/ca.pem"};
  };
  {
    World w(network.servers(false, [&](int i) { return with("ca" + std::to_string(i)); }));
    w.meet();
    large(w);
    hello(w, Network::host(0, false));
  }
  // The last server shows a certificate of another authority: nobody lets it in, and the others say whom they miss.
  World w(network.servers(false, [&](int i) { return with((i == 3 ? "other" : "ca") + std::to_string(i)); }));
  const Said said = w.run([&](Session& s, int rank) {
    dist::init_process_group(s, {.init_method = "tcp://" + w.servers[0]->peer(),
                                 .world_size = kServers,
                                 .rank = rank,
                                 .timeout = std::chrono::seconds(3)});
  });
  for (int r = 0; r < 3; ++r) CHECK_THAT(said[static_cast<size_t>(r)], ContainsSubstring("rank 3"));
  CHECK_FALSE(said[3].empty());
  for (const auto& s : w.servers) CHECK(s->runs());
  fs::remove_all(folder);
}

}  // namespace gradwire::e2e
