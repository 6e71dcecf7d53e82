#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <thread>

#include "server/cluster/init_method.h"
#include "server/cluster/meeting.h"
#include "server/rpc/listener.h"
#include "tests/cluster/rig.h"

namespace gradwire::server::cluster {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

std::string refusal(JoinOptions o) {
  try {
    read_init_method(o);
    return "";
  } catch (const Error& e) {
    CHECK(e.code() == Code::bad_argument);
    return e.message();
  }
}
JoinOptions with(std::string url, int rank = 0, int world_size = 2) {
  JoinOptions o;
  o.init_method = std::move(url), o.rank = rank, o.world_size = world_size;
  return o;
}
std::string outcome(Joined j) {
  auto r = j.get();
  return r ? "joined" : r.error().message();
}

/// A port that was free a moment ago.
int free_port() {
  const Listener l = Listener::tcp("127.0.0.1:0");
  return parse_address(l.address()).port;
}

TEST_CASE("addresses of the TCP method have PyTorch's form and texts", "[cluster][H5][H10][H11]") {
  CHECK(refusal(with("tcp://10.1.1.20:23456")).empty());
  CHECK(refusal(with("tcp://[fe80::1]:23456")).empty());
  CHECK(refusal(with("tcp://node-0.gradwire:23456")).empty());
  CHECK(refusal(with("tcp://fe80::1:23456")) == "IPv6 address in an incorrect format (maybe you forgot to add [ ])");
  for (const std::string bad : {"tcp://10.1.1.20", "tcp://", "tcp://:23456", "tcp://[::1]", "tcp://[::1:5"})
    CHECK(refusal(with(bad)) == "expected an address in format IP:PORT or HOSTNAME:PORT");
  for (const std::string bad :
       {"tcp://host:port", "tcp://host:65536", "tcp://ho st:1", "tcp://host:-1", "tcp://host:1x"})
    CHECK_THAT(refusal(with(bad)), StartsWith("expected an address in format IP:PORT or HOSTNAME:PORT"));
  CHECK(refusal(with("tcp://10.1.1.20:23456", -1)) ==
        "Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing");
  CHECK(refusal(with("tcp://10.1.1.20:23456", 0, -1)) ==
        "Error initializing torch.distributed using tcp:// rendezvous: world size parameter missing");
  CHECK(refusal(with("file:///tmp/x", -1, -1)) ==
        "world_size is not set - it is required for `tcp://` and `file://` init methods");
  CHECK(refusal(with("tcp://224.1.1.1:5", -1, -1)) ==
        "world_size is not set - it is required for `tcp://` and `file://` init methods");
  CHECK(refusal(with("foo://10.1.1.20:23456")) == "No rendezvous handler for foo://");
  CHECK(refusal(with("10.1.1.20:23456")) == "No rendezvous handler for ://");
  CHECK(refusal(with("file://")) == "Error initializing torch.distributed using file:// rendezvous: path missing");
  CHECK(refusal(with("tcp://10.1.1.20:23456", 0, 0)) == "world_size is 0; it can be 1 to 256");
  CHECK(refusal(with("tcp://10.1.1.20:23456", -2, 2)) == "rank is -2; ranks begin with 0");
}

TEST_CASE("rank and size may stand in the address", "[cluster][H5]") {
  const Plan p = read_init_method(with("tcp://host:5?rank=1&world_size=3", -1, -1));
  CHECK(p.rank == 1);
  CHECK(p.world_size == 3);
  CHECK(refusal(with("tcp://host:5?rank=1", 0)) == "rank specified both in the init method and to the initializer");
  CHECK_THAT(refusal(with("tcp://host:5?color=1")), ContainsSubstring("'color=1' is not rank=N or world_size=N"));
}

TEST_CASE("multicast addresses are those of RFC 5771 and RFC 4291", "[cluster][H6]") {
  for (const std::string url :
       {"tcp://224.0.0.1:5", "tcp://239.255.255.255:5", "tcp://[ff15:1e18:5d4c:4cf0:d02d:b659:53ba:b0a7]:23456"}) {
    CHECK(read_init_method(with(url, -1)).kind == Plan::Kind::multicast);
  }
  for (const std::string url : {"tcp://223.255.255.255:5", "tcp://240.0.0.1:5", "tcp://[fe80::1]:5"})
    CHECK(read_init_method(with(url, 0)).kind == Plan::Kind::tcp);
}

TEST_CASE("the environment gives what the call does not, with PyTorch's texts", "[cluster][H8]") {
  JoinOptions o;
  CHECK(refusal(o) == "rank is not set but it is required for env:// init method");
  o.environment = {{"RANK", "1"}};
  CHECK(refusal(o) == "world_size is not set but it is required for env:// init method");
  o.environment.emplace_back("WORLD_SIZE", "2");
  CHECK(refusal(o) == "failed to read the MASTER_PORT environmental variable; maybe you forgot to set it?");
  o.environment.emplace_back("MASTER_PORT", "23456");
  CHECK(refusal(o) == "failed to read the MASTER_ADDR environmental variable; maybe you forgot to set it?");
  o.environment.emplace_back("MASTER_ADDR", "::1");
  const Plan p = read_init_method(o);
  CHECK(p.address.text() == "[::1]:23456");
  CHECK(p.rank == 1);
  CHECK(p.world_size == 2);
  o.rank = 0;
  CHECK(refusal(o) == "rank specified both as an environmental variable and to the initializer");
  o.rank = 1, o.world_size = 3;
  CHECK(refusal(o) == "world_size specified both as an environmental variable and to the initializer");
  o.world_size = -1, o.group_name = "g";
  CHECK(refusal(o) == "group_name is not supported in env:// init method");
  o.group_name.clear(), o.environment[0].second = "one";
  CHECK(refusal(o) == "the RANK environmental variable is 'one', which is no number");
}

TEST_CASE("given ranks are kept and the others fill the free places in order", "[cluster][H6][H7]") {
  const std::string ids[] = {"a", "b", "c", "d"};
  const std::vector<Guest> guests = {{"a", -1, 4, "A:1"}, {"b", 2, 4, "B:1"}, {"c", -1, 4, "C:1"}, {"d", 0, 4, "D:1"}};
  std::vector<int> ranks;
  for (auto& id : ids) {
    const Met met = seat_guests(guests, id);
    ranks.push_back(met.rank);
    CHECK(met.host_address == "D:1");
  }
  CHECK(ranks == std::vector<int>{1, 2, 3, 0});
  CHECK_THROWS_WITH(seat_guests({{"a", 1, 2, "A:1"}, {"b", 1, 2, "B:1"}}, "a"),
                    StartsWith("more than one node have assigned same rank"));
  CHECK_THROWS_WITH(seat_guests({{"a", 2, 2, "A:1"}, {"b", 1, 2, "B:1"}}, "a"),
                    "worker's rank(2) is out of range: [0, 1]");
}

TEST_CASE("lines of guests are read as they were written, and nothing else is", "[cluster][H9]") {
  const Guest g{"0123456789abcdef0123456789abcdef", 3, 4, "[::1]:7"};
  const auto e = read_line(write_line("a job\n", g));
  REQUIRE(e);
  CHECK(e->group_name == "a job\n");
  CHECK(e->guest.rank == 3);
  CHECK(e->guest.address == "[::1]:7");
  for (const std::string bad : {"", "gradwire1", "gradwire2 x 0123456789abcdef0123456789abcdef 0 1 a:1",
                                "gradwire1 x0 0123456789abcdef0123456789abcdef 0 1 a:1", "gradwire1 x short 0 1 a:1",
                                "gradwire1 x 0123456789abcdef0123456789abcdef 0 999 a:1",
                                "gradwire1 x 0123456789abcdef0123456789abcdef 0 1 a:1 more"})
    CHECK(!read_line(bad));
}

TEST_CASE("ranks may come in any order, before their master too", "[cluster][H2][H5][H12]") {
  Servers servers(3);
  std::vector<Joined> joined;
  for (const int r : {2, 1, 0}) joined.push_back(join(servers[r], servers.options(r, 3)));
  for (int i = 0; i < 3; ++i) {
    auto g = joined[static_cast<size_t>(i)].get();
    REQUIRE(g);
    CHECK((*g)->rank() == 2 - i);
  }
}

TEST_CASE("rank 0 listens where the address says, if that is not its peer address", "[cluster][H5][H8]") {
  Servers servers(2);
  const std::string port = std::to_string(free_port());
  std::vector<Joined> joined;
  for (int r : {0, 1}) {
    JoinOptions o;
    o.environment = {{"RANK", std::to_string(r)}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", port}};
    if (r == 1) o.environment.emplace_back("MASTER_ADDR", "127.0.0.1");
    joined.push_back(join(servers[r], o));
  }
  std::vector<GroupPtr> groups;
  for (auto& j : joined) groups.push_back(*j.get());
  // Again at the same place, since the group before has long met; by name where the machine knows it.
  const std::string host = ::gethostbyname("localhost") ? "localhost" : "127.0.0.1";
  std::vector<Joined> again;
  for (int r : {0, 1}) again.push_back(join(servers[r], with("tcp://" + host + ":" + port, r)));
  for (auto& j : again) CHECK(outcome(std::move(j)) == "joined");
}

TEST_CASE("who cannot reach its master says why", "[cluster][H12]") {
  Servers servers(1);
  auto o = with("tcp://127.0.0.1:" + std::to_string(free_port()), 1);
  o.timeout = milliseconds(300);
  auto r = join(servers[0], o).get();
  REQUIRE(!r);
  CHECK(r.error().code() == Code::deadline_exceeded);
  CHECK_THAT(r.error().message(), StartsWith("could not establish connection with other processes within 300 ms: ") &&
                                      ContainsSubstring("connection refused"));
}

TEST_CASE("the master names the ranks that have not come, to all that have", "[cluster][H12]") {
  Servers servers(2);
  std::vector<Joined> joined;
  for (int r : {0, 1}) {
    auto o = servers.options(r, 4);
    o.timeout = milliseconds(r == 0 ? 2000 : 30000);
    joined.push_back(join(servers[r], o));
  }
  for (auto& j : joined) {
    auto r = j.get();
    REQUIRE(!r);
    CHECK(r.error().code() == Code::deadline_exceeded);
    CHECK_THAT(r.error().message(),
               StartsWith("waiting for processes to connect has timed out: ranks 2, 3 of 4 did not come within "));
  }
}

TEST_CASE("the master refuses ranks out of range, ranks twice and other sizes, for all", "[cluster][H13]") {
  Servers servers(3);
  const auto both = [&](int rank, int size) {
    std::vector<Joined> joined;
    joined.push_back(join(servers[0], servers.options(0, 4)));
    joined.push_back(join(servers[1], servers.options(1, 4)));
    // The third comes when the second sits, or the second finds nobody any more.
    auto third = join(servers[2], servers.options(rank, size));
    const std::string text = outcome(std::move(joined[0]));
    servers.all[1] = nullptr, servers.all[2] = nullptr;  // whoever is still on the way
    return text;
  };
  const auto [rank, size, text] =
      GENERATE(std::tuple<int, int, std::string>{5, 4, "worker's rank(5) is out of range: [0, 3]"},
               std::tuple<int, int, std::string>{2, 5, "world sizes are not equal: rank 0 has 4, rank 2 has 5"});
  CHECK(both(rank, size) == text);
}

TEST_CASE("a rank whose server ends while others are still coming may come again", "[cluster][H12]") {
  Servers servers(3);
  const JoinOptions one = servers.options(1, 3);
  std::vector<Joined> joined;
  joined.push_back(join(servers[0], servers.options(0, 3)));
  joined.push_back(join(servers[1], one));
  servers.all[1] = nullptr;
  CHECK(outcome(std::move(joined[1])) == "the cluster of this server has ended");
  Servers other(1);
  joined[1] = join(other[0], one);
  joined.push_back(join(servers[2], servers.options(2, 3)));
  for (auto& j : joined) CHECK(outcome(std::move(j)) == "joined");
}

TEST_CASE("two processes with one rank are both named", "[cluster][H13]") {
  Servers servers(3);
  std::vector<Joined> joined;
  joined.push_back(join(servers[0], servers.options(0, 3)));
  joined.push_back(join(servers[1], servers.options(1, 3)));
  joined.push_back(join(servers[2], servers.options(1, 3)));
  const std::string text = outcome(std::move(joined[0]));
  CHECK_THAT(text, StartsWith("two processes (127.0.0.1:") && ContainsSubstring(") reported a rank of 1"));
  servers.all.clear();
  Servers one(1);
  auto first = join(one[0], one.options(0, 2)), second = join(one[0], one.options(0, 2));
  CHECK_THAT(outcome(std::move(second)), ContainsSubstring(") reported a rank of 0"));
}

TEST_CASE("a rank whose data plane fails is named to all", "[cluster][H12]") {
  Servers servers(3);
  const bool at_prepare = GENERATE(true, false);
  (at_prepare ? servers.faults->prepare : servers.faults->connect).emplace(1, "no port is free");
  std::vector<Joined> joined;
  for (int r = 0; r < 3; ++r) joined.push_back(join(servers[r], servers.options(r, 3)));
  CHECK(outcome(std::move(joined[0])) == "rank 1: no port is free");
  CHECK(outcome(std::move(joined[1])) == "no port is free");
  CHECK(outcome(std::move(joined[2])) == "rank 1: no port is free");
}

TEST_CASE("a data plane that never gets ready ends with the timeout", "[cluster][H12]") {
  Servers servers(2);
  servers.faults->prepare.emplace(1, "hang");
  std::vector<Joined> joined;
  for (int r = 0; r < 2; ++r) {
    auto o = servers.options(r, 2);
    o.timeout = milliseconds(300);
    joined.push_back(join(servers[r], o));
  }
  for (auto& j : joined)
    CHECK_THAT(outcome(std::move(j)), StartsWith("could not establish connection with other processes"));
}

TEST_CASE("backends are known by name", "[cluster][H14]") {
  Servers servers(1);
  const auto with_backend = [&](const std::string& name) {
    auto o = servers.options(0, 1);
    o.backend = name;
    return outcome(join(servers[0], o));
  };
  CHECK(with_backend("gloo") == "joined");
  CHECK(with_backend("Gloo") == "joined");
  CHECK(with_backend("tcp") == "joined");
  CHECK(with_backend("x") == "Invalid distributed backend name: x");
  CHECK(with_backend("nccl") == "Distributed package doesn't have NCCL built in");
  CHECK(with_backend("mpi") == "Distributed package doesn't have MPI built in");
}

TEST_CASE("a server without a peer address makes no groups", "[cluster][H2]") {
  Servers servers(1, [](Cluster::Options& o, int) { o.peer.clear(); });
  CHECK(servers[0].address().empty());
  CHECK(outcome(join(servers[0], with("tcp://127.0.0.1:5"))) ==
        "this server is in no cluster: it was started without --peer");
}

TEST_CASE("servers meet in a file, and the last one removes it", "[cluster][H7]") {
  Folder folder;
  const std::string path = folder.path / "meeting";
  Servers servers(4);
  std::vector<Joined> joined;
  for (int i = 0; i < 4; ++i) joined.push_back(join(servers[i], with("file://" + path, i == 2 ? 0 : -1, 4)));
  std::set<int> ranks;
  std::vector<GroupPtr> groups;
  for (int i = 0; i < 4; ++i) {
    auto g = joined[static_cast<size_t>(i)].get();
    REQUIRE(g);
    if (i == 2) CHECK((*g)->rank() == 0);
    ranks.insert((*g)->rank());
    groups.push_back(*g);
  }
  CHECK(ranks == std::set<int>{0, 1, 2, 3});
  CHECK(!std::filesystem::exists(path));
  std::vector<Running> all;
  for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce)));
  for (auto& a : all) REQUIRE(a.done.get());
}

TEST_CASE("several jobs share a file by their names", "[cluster][H7][H9]") {
  Folder folder;
  Servers servers(2);
  std::vector<Joined> joined;
  for (const std::string name : {"a", "b"}) {
    for (int i = 0; i < 2; ++i) {
      auto o = with("file://" + (folder.path / "meeting").string(), -1, 2);
      o.group_name = name;
      joined.push_back(join(servers[i], o));
    }
  }
  for (auto& j : joined) CHECK(outcome(std::move(j)) == "joined");
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("what is wrong with a file is told", "[cluster][H7]") {
  Folder folder;
  Servers servers(2);
  CHECK_THAT(outcome(join(servers[0], with("file://" + (folder.path / "no" / "file").string()))),
             ContainsSubstring("cannot be used: No such file or directory"));
  CHECK_THAT(outcome(join(servers[0], with("file://" + folder.path.string()))), ContainsSubstring("cannot be used"));
  const std::string other = folder.path / "other";
  std::ofstream(other) << "a letter\n";
  CHECK_THAT(outcome(join(servers[0], with("file://" + other))), ContainsSubstring("is no meeting of servers"));
  CHECK(std::filesystem::file_size(other) == 9);
  std::filesystem::create_symlink(other, folder.path / "link");
  CHECK_THAT(outcome(join(servers[0], with("file://" + (folder.path / "link").string()))),
             ContainsSubstring("cannot be used"));
  // The same rank twice.
  const std::string path = folder.path / "meeting";
  auto a = join(servers[0], with("file://" + path, 1)), b = join(servers[1], with("file://" + path, 1));
  CHECK_THAT(outcome(std::move(a)), StartsWith("more than one node have assigned same rank"));
  CHECK_THAT(outcome(std::move(b)), StartsWith("more than one node have assigned same rank"));
}

TEST_CASE("what is there already stays as it is, also if nothing is in it", "[cluster][H7]") {
  Folder folder;
  Servers servers(1);
  const std::string empty = folder.path / "empty", pipe = folder.path / "pipe";
  std::ofstream(empty).close();
  CHECK_THAT(outcome(join(servers[0], with("file://" + empty, 0, 1))), ContainsSubstring("is there already"));
  REQUIRE(std::filesystem::exists(empty));
  CHECK(std::filesystem::file_size(empty) == 0);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& other : {pipe, std::string("/dev/null"), std::string("/proc/self/fd/0"), std::string("/")})
    CHECK_THAT(outcome(join(servers[0], with("file://" + other, 0, 1))), ContainsSubstring("cannot be used"));
  CHECK(std::filesystem::is_fifo(pipe));
}

TEST_CASE("a server is in so many groups and no more, until one is left", "[cluster][H2]") {
  Servers servers(1);
  std::vector<GroupPtr> groups;
  const auto another = [&] {
    auto o = servers.options(0, 1);
    o.group_name = std::to_string(groups.size());
    auto g = join(servers[0], o).get();
    if (g) groups.push_back(*g);
    return g ? "joined" : g.error().message();
  };
  std::string said = "joined";
  while (said == "joined" && groups.size() < 2000) said = another();
  CHECK(said == "this server's sessions are in too many groups");
  CHECK(groups.size() > 1000);
  groups.pop_back();
  CHECK(another() == "joined");
}

TEST_CASE("joining ends when nobody waits for it any more, wherever it is", "[cluster][H12]") {
  Folder folder;
  Servers servers(2);
  auto asker = std::make_shared<int>();
  const auto asked = [&](std::string url, int rank) {
    auto o = with(std::move(url), rank);
    o.timeout = std::chrono::hours(1), o.asker = asker;
    return o;
  };
  auto host = join(servers[0], asked(servers.url(), 0));
  auto guest = join(servers[0], asked("tcp://127.0.0.1:" + std::to_string(free_port()), 1));
  auto writer = join(servers[0], asked("file://" + (folder.path / "meeting").string(), 0));
  asker.reset();
  for (Joined* j : {&host, &guest, &writer}) {
    REQUIRE(j->wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(outcome(std::move(*j)) == "nobody waits for the group any more");
  }
  // Its thread takes the line away.
  for (const auto t = std::chrono::steady_clock::now();
       !std::filesystem::is_empty(folder.path) && seconds_since(t) < 20;)
    std::this_thread::yield();
  CHECK(std::filesystem::is_empty(folder.path));
  // Its place is free again.
  auto a = join(servers[0], servers.options(0, 2)), b = join(servers[1], servers.options(1, 2));
  CHECK(outcome(std::move(a)) == "joined");
  CHECK(outcome(std::move(b)) == "joined");
}

TEST_CASE("who gives up takes its line out of the file", "[cluster][H7][H12]") {
  Folder folder;
  const std::string path = folder.path / "meeting";
  Servers servers(1);
  auto o = with("file://" + path);
  o.timeout = milliseconds(100);
  auto r = join(servers[0], o).get();
  REQUIRE(!r);
  CHECK(r.error().code() == Code::deadline_exceeded);
  CHECK(r.error().message() == "waiting for processes to connect has timed out: 1 of 2 have written to " + path);
  CHECK(!std::filesystem::exists(path));
}

/// An IPv6 address of this machine whose interface may do multicast; loopback's has no route for it.
std::string own_ipv6() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) < 0) return "::1";
  std::string found = "::1";
  for (const ifaddrs* i = all; i; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET6 || !(i->ifa_flags & IFF_MULTICAST)) continue;
    const auto& six = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
    char text[INET6_ADDRSTRLEN] = "";
    if (!IN6_IS_ADDR_LINKLOCAL(&six) && inet_ntop(AF_INET6, &six, text, sizeof text)) found = text;
  }
  ::freeifaddrs(all);
  return found;
}

void meet_by_multicast(const std::string& host, const std::string& own) {
  Servers servers(4,
                  [&](Cluster::Options& o, int) { o.multicast = true, o.peer = own + ":0", o.insecure_no_tls = true; });
  const std::string url = "tcp://" + host + ":" + std::to_string(free_port());
  std::vector<Joined> joined;
  for (int i = 0; i < 4; ++i) {
    auto o = with(url, i == 1 ? 3 : -1, 4);
    o.group_name = "job", o.timeout = std::chrono::seconds(20);
    joined.push_back(join(servers[i], o));
  }
  std::set<int> ranks;
  for (int i = 0; i < 4; ++i) {
    auto g = joined[static_cast<size_t>(i)].get();
    if (!g && g.error().message().starts_with("multicast rendezvous at "))
      SKIP("this machine has no such multicast: " << g.error().message());
    if (!g) FAIL(g.error().message());
    if (i == 1) CHECK((*g)->rank() == 3);
    ranks.insert((*g)->rank());
  }
  CHECK(ranks == std::set<int>{0, 1, 2, 3});
}

TEST_CASE("servers meet by IPv4 multicast", "[cluster][H6][H9]") { meet_by_multicast("239.77.1.2", "127.0.0.1"); }
TEST_CASE("servers meet by IPv6 multicast", "[cluster][H6][H9]") {
  meet_by_multicast("[ff12::7422]", "[" + own_ipv6() + "]");
}

TEST_CASE("multicast is off unless it is enabled", "[cluster][H6]") {
  Servers servers(1);
  auto r = join(servers[0], with("tcp://239.77.1.3:7422", -1)).get();
  REQUIRE(!r);
  CHECK(r.error().code() == Code::forbidden);
}

TEST_CASE("servers that end while others join leave nobody waiting", "[cluster][H12]") {
  Folder folder;
  for (int round = 0; round < 10; ++round) {
    std::vector<Joined> joined;
    {
      Servers servers(3);
      for (int r = 0; r < 2; ++r) joined.push_back(join(servers[r], servers.options(r, 3)));
      joined.push_back(join(servers[2], with("file://" + (folder.path / "meeting").string())));
    }
    for (auto& j : joined) CHECK(outcome(std::move(j)) != "joined");
    CHECK(std::filesystem::is_empty(folder.path));
  }
}

}  // namespace
}  // namespace gradwire::server::cluster
