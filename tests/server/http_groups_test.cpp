// Process groups over HTTP: two sessions of one server, on two connections.
#include <thread>

#include "tests/server/http_support.h"
#include "tests/support/fake_cluster.h"

using namespace gradwire::server;
using namespace gradwire::server::http_test;

namespace {

/// What both of two peers get, asked at once.
std::pair<Reply, Reply> both(Peer& a, const std::string& method_a, const std::string& at_a, const std::string& body_a,
                             Peer& b, const std::string& at_b, const std::string& body_b) {
  Reply first;
  std::thread other([&] { first = a.ask(method_a, at_a, body_a); });
  Reply second = b.ask(method_a, at_b, body_b);
  other.join();
  return {first, second};
}

std::string joining(int rank) {
  return R"({"backend":"gloo","init_method":"env://","world_size":2,"rank":)" + std::to_string(rank) +
         R"(,"timeout_seconds":60,"environment":{"MASTER_PORT":"29500"}})";
}

}  // namespace

TEST_CASE("Sessions join a group over HTTP, reduce in it, and leave it", "[H2][H3][H20][H31]") {
  cluster::FakeCluster cluster;
  Site site;
  site.rig.service.use(&cluster);
  Peer a(site), b(site);
  const std::string s = open_session(a), t = open_session(b);
  CHECK(a.ask("GET", s + "/groups/g").status == 404);
  auto [x, y] = both(a, "PUT", s + "/groups/g", joining(0), b, t + "/groups/g", joining(1));
  CHECK(x.status == 201);
  CHECK(x.body == R"({"name":"g","rank":0,"world_size":2,"epoch":1})");
  CHECK(y.body == R"({"name":"g","rank":1,"world_size":2,"epoch":1})");
  CHECK(cluster->environments()[0][0] == std::pair<std::string, std::string>("MASTER_PORT", "29500"));
  CHECK(b.ask("GET", t + "/groups/g").body == y.body);
  const auto program = [](int v) {
    return R"({"inputs":{"x":{"data":[)" + std::to_string(v) +
           R"(]}},"ops":[{"op":"all_reduce","in":["x"],"attrs":{"group":"g","op":"sum"}}],"fetch":["x"]})";
  };
  std::tie(x, y) = both(a, "POST", s + "/run", program(1), b, t + "/run", program(2));
  CHECK(x.status == 200);
  CHECK(x.body.find(R"("data":[3)") != std::string::npos);
  CHECK(y.body == x.body);
  CHECK(code_of(a.ask("PUT", s + "/groups/g", joining(0)).body) == "bad_argument");
  CHECK(a.ask("DELETE", s + "/groups/g").status == 204);
  CHECK(code_of(a.ask("DELETE", s + "/groups/g").body) == "no_object");
  CHECK(code_of(b.ask("POST", t + "/run", program(2)).body) == "unavailable");
  CHECK(a.ask("DELETE", s).status == 204);
  CHECK(b.ask("DELETE", t).status == 204);
}

TEST_CASE("A session that is deleted while it joins a group answers both", "[H2][H36]") {
  cluster::FakeCluster cluster;
  Site site;
  site.rig.service.use(&cluster);
  Peer a(site), b(site);
  const std::string s = open_session(a);
  Reply joined;
  std::thread other([&] { joined = a.ask("PUT", s + "/groups/world", joining(0)); });
  cluster->wait_for_joining(1);
  CHECK(b.ask("DELETE", s).status == 204);
  other.join();
  CHECK(code_of(joined.body) == "closed");
  cluster->wait_for_abandoned();
}

TEST_CASE("What makes no sense of a group is refused, and without a cluster all is", "[H2][T18]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  const auto code = [&](const std::string& body) { return code_of(peer.ask("PUT", s + "/groups/g", body).body); };
  CHECK(code("{}") == "unavailable");
  CHECK(code("[]") == "bad_argument");
  CHECK(code(R"({"rank":-1})") == "bad_argument");
  CHECK(code(R"({"rank":1.5})") == "bad_argument");
  CHECK(code(R"({"timeout_seconds":0})") == "bad_argument");
  CHECK(code(R"({"environment":{"RANK":1}})") == "bad_argument");
  CHECK(code(R"({"color":1})") == "bad_argument");
  CHECK(code_of(peer.ask("PUT", s + "/groups/x.grad", "{}").body) == "bad_request");
  CHECK(peer.ask("POST", s + "/groups/g", "{}").status == 405);
  CHECK(code_of(peer.ask("POST", s + "/run", R"({"ops":[{"op":"barrier"}]})").body) == "no_object");
}
