#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include "tests/server/http_support.h"

using namespace gradwire;
using namespace gradwire::server;
using namespace gradwire::server::http_test;
using namespace std::chrono_literals;

namespace {

const std::string kCanary = "GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string request(const std::string& line, const std::string& fields, const std::string& body = {}) {
  return line + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n" + body;
}

}  // namespace

TEST_CASE("A chunked body with a 70 KB trailer is refused and the server lives", "[0.1][T10]") {
  Site site;
  Peer peer(site);
  peer.send(request("POST /v1/sessions", "Transfer-Encoding: chunked\r\n",
                    "0\r\nX: " + std::string(70000, 'a') + "\r\n\r\n") +
            kCanary);
  const Reply r = peer.reply();
  CHECK(r.status == 501);
  CHECK(code_of(r.body) == "not_implemented");
  CHECK(r.fields.at("connection") == "close");
  CHECK(peer.closed());
  Peer other(site);
  CHECK(other.ask("GET", "/livez").status == 200);
}

TEST_CASE("Three megabytes of tiny chunks are refused before a byte of them is read", "[T10]") {
  Site site;
  Peer peer(site);
  std::string chunks;
  for (int i = 0; i < 500000; ++i) chunks += "1\r\na\r\n";
  peer.send(request("POST /v1/sessions", "Transfer-Encoding: chunked\r\n"));
  CHECK(peer.reply().status == 501);
  peer.send(chunks);
  CHECK(peer.closed());
}

TEST_CASE("A second request never comes out of a body", "[0.2][T9]") {
  Site site;
  const auto [fields, status] = GENERATE(table<std::string, int>({
      {"Transfer-Encoding: gzip\r\nContent-Length: 5\r\n", 501},
      {"Transfer-Encoding: chunked, gzip\r\n", 501},
      {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 501},
      {"Transfer-Encoding: chunked\r\n", 501},
      {"Transfer-Encoding:\tchunked\r\n", 501},
      {"Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", 501},
      {"Host: other\r\nContent-Length: 0\r\n", 400},
      {"X: a\r\n b\r\nContent-Length: 0\r\n", 400},
      {"Content-Length: 5,5\r\n", 400},
      {"Content-Length: 5\r\nContent-Length: 6\r\n", 400},
      {"Content-Length: +5\r\n", 400},
      {"Content-Length: -5\r\n", 400},
      {"Content-Length : 0\r\n", 400},
      {"Content-Length: 18446744073709551616\r\n", 400},
      {"Content-Length: 0\nX: y\r\n", 400},
  }));
  CAPTURE(fields);
  Peer peer(site);
  peer.send(request("POST /v1/sessions", fields, "") + kCanary);
  const Reply r = peer.reply();
  CHECK(r.status == status);
  CHECK(r.fields.at("connection") == "close");
  CHECK(peer.closed());
}

TEST_CASE("A body that is announced is never a request", "[T9]") {
  Site site;
  Peer peer(site);
  // GET's body is read away; what follows it is the next request.
  peer.send(request("GET /livez", "Content-Length: " + std::to_string(kCanary.size()) + "\r\n", kCanary) +
            request("GET /nothing", ""));
  CHECK(peer.reply().body == "{\"status\":\"ok\"}");
  CHECK(peer.reply().status == 404);
  // A long one that nobody wants ends the connection.
  peer.send(request("GET /livez", "Content-Length: 1000000\r\n", kCanary));
  const Reply last = peer.reply();
  CHECK(last.status == 200);
  CHECK(last.fields.at("connection") == "close");
  peer.finish_sending();
  CHECK(peer.closed());
}

TEST_CASE("Heads over the limits have their own codes", "[T12]") {
  Site site;
  const auto [raw, code] = GENERATE(table<std::string, std::string>({
      {request("GET /livez", "X: " + std::string(9000, 'a') + "\r\n"), "head_too_large"},
      {request("GET /" + std::string(9000, 'a'), ""), "uri_too_long"},
      {request("GET /" + std::string(5000, 'a'), ""), "uri_too_long"},
      {"GET /livez HTTP/1.1\nHost: localhost\n\n", "bad_request"},
      {std::string(8192, '\r'), "uri_too_long"},
      {std::string("\x16\x03\x01\x02\n", 5), "bad_request"},
      {"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_method"},
      {request("TRACE /livez", ""), "bad_method"},
      {request("GET /%zz", ""), "bad_request"},
      {"GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", "forbidden"},
      {request("GET /livez", "Origin: http://evil.example\r\n"), "forbidden"},
  }));
  CAPTURE(raw.substr(0, 60));
  Peer peer(site);
  peer.send(raw + kCanary);
  const Reply r = peer.reply();
  CHECK(code_of(r.body) == code);
  CHECK(r.status == http_status(*code_from(code)));
  CHECK(peer.closed());
}

TEST_CASE("Every error is JSON with a code, whatever the path", "[rest4]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  const auto check = [&](const std::string& method, const std::string& target, const std::string& body,
                         const std::string& fields, const std::string& code) {
    CAPTURE(method, target, body.substr(0, 80), fields);
    const Reply r = peer.ask(method, target, body, fields);
    CHECK(code_of(r.body) == code);
    CHECK(r.status == http_status(*code_from(code)));
    CHECK(r.fields.at("content-type") == "application/json");
  };
  const std::string json = "Content-Type: application/json\r\n";
  check("GET", "/", "", "", "no_route");
  check("GET", "/v1/session", "", "", "no_route");
  check("GET", "/v1//info", "", "", "no_route");
  check("GET", "/v1/info/", "", "", "no_route");
  check("POST", "/v1/info", "", "", "bad_method");
  check("PATCH", "/v1/sessions", "", "Content-Length: 0\r\n", "bad_method");
  check("GET", "/v1/sessions/0123", "", "", "no_session");
  check("DELETE", "/v1/sessions/0123", "", "", "no_session");
  check("GET", "/v1/sessions/0123/tensors/x", "", "", "no_session");
  check("GET", s + "/tensors/x", "", "", "no_tensor");
  check("GET", s + "/tensors/x?part=info", "", "", "no_tensor");
  check("DELETE", s + "/tensors/x", "", "", "no_tensor");
  check("GET", s + "/tensors/x?part=all", "", "", "bad_request");
  check("POST", s + "/programs/p/run", "{}", json, "no_program");
  check("PUT", s + "/tensors/x.grad", "{\"data\":1}", json, "bad_request");
  check("PUT", s + "/tensors/a%2Fb", "{\"data\":1}", json, "bad_request");
  check("PUT", s + "/tensors/a%00b", "{\"data\":1}", json, "bad_request");
  check("PUT", s + "/tensors/" + std::string(256, 'a'), "{\"data\":1}", json, "bad_request");
  check("PUT", s + "/tensors/x?requires_grad=maybe", "{\"data\":1}", json, "bad_request");
  check("PUT", s + "/tensors/x", "{\"data\":1", json, "bad_json");
  check("PUT", s + "/tensors/x", "{\"data\":[1,[2]]}", json, "bad_tensor");
  check("PUT", s + "/tensors/x", "hello", "Content-Type: text/plain\r\n", "unsupported_media_type");
  check("PUT", s + "/tensors/x", "hello", "Content-Type: application/x-npy\r\n", "bad_tensor");
  check("PUT", s + "/tensors/x", "hello", "Content-Type: application/vnd.safetensors\r\n", "bad_tensor");
  check("POST", "/v1/sessions", "{\"dtype\":\"int64\"}", json, "bad_argument");
  check("POST", "/v1/sessions", "{\"colour\":\"red\"}", json, "bad_argument");
  check("POST", "/v1/sessions", "[]", json, "bad_argument");
  check("POST", "/v1/sessions", "{\"memory_limit\":0}", json, "bad_argument");
  check("POST", "/v1/sessions", "{\"restore\":\"x\"}", json, "not_implemented");
  check("POST", s + "/run", "[]", json, "bad_program");
  check("POST", s + "/run", "", json, "bad_json");
  check("POST", s + "/run", "{\"fetch\":[\"nothing\"]}", json, "no_tensor");
  check("POST", s + "/run", "{\"ops\":[{\"op\":\"no_such_operator\",\"out\":\"y\"}]}", json, "unknown_operator");
  check("GET", "/v1/info", "", "Accept: text/html\r\n", "not_acceptable");
  check("GET", "/metrics", "", "Accept: application/json\r\n", "not_acceptable");
}

TEST_CASE("An operator's error names its step and leaves the steps before it", "[rest4]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  const Reply r = peer.ask("POST", s + "/run", R"({"inputs":{"x":{"data":[1.0,2.0]},"y":{"data":[1.0,2.0,3.0]}},"ops":[
    {"op":"add","in":["x","x"],"out":"z"},{"op":"add","in":["x","y"],"out":"w"},{"op":"add","in":["x","x"],"out":"v"}]})");
  CHECK(r.status == 422);
  CHECK(r.body.find("\"step\":1,\"op\":\"add\"") != std::string::npos);
  CHECK(r.body.find("The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0") !=
        std::string::npos);
  CHECK(peer.ask("GET", s + "/tensors/z").status == 200);
  CHECK(code_of(peer.ask("GET", s + "/tensors/w").body) == "no_tensor");
  CHECK(code_of(peer.ask("GET", s + "/tensors/v").body) == "no_tensor");
}

TEST_CASE("A body needs a length, and a limit holds", "[rest2]") {
  Site site;
  Peer peer(site);
  peer.send(request("POST /v1/sessions", ""));
  Reply r = peer.reply();
  CHECK(r.status == 411);
  CHECK(code_of(r.body) == "length_required");
  peer.send(request("POST /v1/sessions", "Content-Length: 16777217\r\n"));
  r = peer.reply();
  CHECK(r.status == 413);
  CHECK(code_of(r.body) == "too_large");
  CHECK(peer.closed());
}

TEST_CASE("100-continue is answered when the body is wanted, and only then", "[rest2]") {
  Site site;
  Peer peer(site);
  peer.send(request("POST /v1/sessions", "Content-Length: 2\r\nExpect: 100-continue\r\n"));
  CHECK(peer.reply().status == 100);
  peer.send("{}");
  CHECK(peer.reply().status == 201);
  peer.send(request("POST /v1/nothing", "Content-Length: 2\r\nExpect: 100-continue\r\n"));
  const Reply r = peer.reply();
  CHECK(r.status == 404);
  CHECK(r.fields.at("connection") == "close");
  CHECK(peer.closed());
}

TEST_CASE("HEAD, OPTIONS and Allow follow from the routes", "[rest]") {
  Site site;
  Peer peer(site);
  const Reply get = peer.ask("GET", "/v1/operators");
  const Reply head = peer.ask("HEAD", "/v1/operators");
  CHECK(head.status == 200);
  CHECK(head.fields.at("content-length") == std::to_string(get.body.size()));
  CHECK(peer.ask("OPTIONS", "/v1/sessions").fields.at("allow") == "GET, HEAD, POST, OPTIONS");
  CHECK(peer.ask("POST", "/livez").fields.at("allow") == "GET, HEAD, OPTIONS");
  CHECK(peer.ask("OPTIONS", "*").status == 204);
}

TEST_CASE("HTTP/1.0 closes unless it asks for more", "[rest]") {
  Site site;
  {
    Peer peer(site);
    peer.send("GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n");
    CHECK(peer.reply().status == 200);
    CHECK(peer.closed());
  }
  Peer peer(site);
  peer.send("GET /livez HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
  CHECK(peer.reply().fields.at("connection") == "keep-alive");
  CHECK(peer.ask("GET", "/livez").status == 200);
}

TEST_CASE("Requests that come together are answered in order", "[rest]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  std::string all;
  const std::string body = R"({"inputs":{"x":{"data":[1,2]}},"fetch":["x"]})";
  for (int i = 0; i < 200; ++i) {
    all += i % 3 == 0   ? request("GET /livez", "")
           : i % 3 == 1 ? request("POST " + s + "/run", "Content-Length: " + std::to_string(body.size()) + "\r\n", body)
                        : "\r\n" + request("GET /nothing", "");
  }
  peer.send(all);
  for (int i = 0; i < 200; ++i) CHECK(peer.reply().status == (i % 3 == 2 ? 404 : 200));
}

TEST_CASE("A request may arrive a byte at a time", "[rest]") {
  Site site;
  Peer peer(site);
  for (const char c : request("POST /v1/sessions", "Content-Length: 2\r\n", "{}")) peer.send({&c, 1});
  CHECK(peer.reply().status == 201);
}

TEST_CASE("What comes too slowly is ended", "[T11]") {
  HttpLimits limits;
  limits.head = 150ms;
  limits.keep_alive = 150ms;
  limits.body_grace = 150ms;
  Site site(limits);
  SECTION("a head") {
    Peer peer(site);
    peer.send("GET /livez HTTP/1.1\r\n");
    const Reply r = peer.reply();
    CHECK(r.status == 408);
    CHECK(code_of(r.body) == "slow_request");
    CHECK(peer.closed());
  }
  SECTION("a body") {
    Peer peer(site);
    peer.send(request("POST /v1/sessions", "Content-Length: 100\r\n", "{"));
    const Reply r = peer.reply();
    CHECK(r.status == 408);
    CHECK(peer.closed());
  }
  SECTION("a connection that says nothing") {
    Peer peer(site);
    CHECK(peer.closed());
  }
  SECTION("a connection that has said all") {
    Peer peer(site);
    CHECK(peer.ask("GET", "/livez").status == 200);
    CHECK(peer.closed());
  }
}

TEST_CASE("A connection serves a bounded number of requests", "[T11]") {
  HttpLimits limits;
  limits.max_requests = 3;
  Site site(limits);
  Peer peer(site);
  peer.ask("GET", "/livez");
  CHECK(peer.ask("GET", "/livez").fields.count("connection") == 0);
  CHECK(peer.ask("GET", "/livez").fields.at("connection") == "close");
  CHECK(peer.closed());
}

TEST_CASE("Connections over the cap wait until one ends", "[T17]") {
  Options o;
  o.max_connections = 8;
  Site site({}, o);
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 8; ++i) {
    peers.push_back(std::make_unique<Peer>(site));
    CHECK(peers.back()->ask("GET", "/livez").status == 200);
  }
  Peer late(site);
  late.send(request("GET /livez", ""));
  peers.pop_back();
  CHECK(late.reply().status == 200);
}

TEST_CASE("A peer that does not read its answers is let go", "[T11]") {
  HttpLimits limits;
  limits.write_grace = 200ms;
  limits.write_rate = 1 << 30;
  Site site(limits);
  Peer peer(site);
  const std::string s = open_session(peer);
  std::string npy = "\x93NUMPY\x01";
  const std::string dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (64000000,), }\n";
  npy += '\0';
  npy += static_cast<char>(dict.size());
  npy += '\0';
  npy += dict + std::string(64000000, '\1');
  REQUIRE(peer.ask("PUT", s + "/tensors/big", npy, "Content-Type: application/x-npy\r\n").status == 201);
  Peer greedy(site);
  greedy.send(request("GET " + s + "/tensors/big", "Accept: application/x-npy\r\n"));
  const Reply r = greedy.reply(true);
  CHECK(r.status == 200);
  std::this_thread::sleep_for(500ms);  // it is the server's time that passes, without a read here
  CHECK_FALSE(greedy.closed());        // some bytes, then the end: fewer than were promised
  CHECK(peer.ask("GET", "/livez").status == 200);
}

TEST_CASE("Clients that vanish in mid-request leave nothing behind", "[T45]") {
  Site site;
  {
    Peer peer(site);
    open_session(peer);
  }
  const std::string whole = request("POST /v1/sessions", "Content-Length: 2\r\n", "{}");
  const size_t sessions = site.rig.service.list().size();
  Peer watch(site);
  const auto vanish = [&](int clients) {
    for (int i = 0; i < clients; ++i) {
      {
        Peer peer(site);
        peer.send(whole.substr(0, static_cast<size_t>(i) % whole.size()));
      }
      if (i % 50 != 49) continue;
      while (watch.ask("GET", "/metrics").body.find("gradwire_http_connections 1\n") == std::string::npos) {}
    }
  };
  vanish(200);
  const int64_t before = resident();
  vanish(1000);
  CHECK(resident() - before < (1 << 20));
  CHECK(site.rig.service.list().size() == sessions);
}

TEST_CASE("The probe listener has its routes and no others, for any host", "[probe]") {
  Site site;
  Peer peer(site.server.probe_address());
  peer.send("GET /livez HTTP/1.1\r\nHost: 10.0.0.7:7423\r\n\r\n");
  CHECK(peer.reply().status == 200);
  CHECK(peer.ask("GET", "/readyz").status == 200);
  CHECK(peer.ask("GET", "/metrics").body.find("gradwire_") != std::string::npos);
  CHECK(code_of(peer.ask("GET", "/v1/info").body) == "no_route");
  site.rig.service.drain();
  const Reply r = peer.ask("GET", "/readyz");
  CHECK(code_of(r.body) == "draining");
  CHECK(r.fields.count("retry-after") == 1);
  CHECK(peer.ask("GET", "/livez").status == 200);
}

TEST_CASE("The probe's livez fails when the clients' loop stands still", "[probe]") {
  HttpLimits limits;
  limits.stall = -1ns;  // any time at all is too long
  Site site(limits);
  Peer peer(site.server.probe_address());
  const Reply r = peer.ask("GET", "/livez");
  CHECK(r.status == 503);
  CHECK(code_of(r.body) == "unavailable");
}

TEST_CASE("Draining closes idle connections and takes no new ones", "[T44]") {
  Site site;
  Peer peer(site);
  CHECK(peer.ask("GET", "/livez").status == 200);
  site.server.drain();
  CHECK(peer.closed());
}

TEST_CASE("A server ends with requests in hand", "[T44]") {
  auto site = std::make_unique<Site>();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 20; ++i) {
    peers.push_back(std::make_unique<Peer>(*site));
    peers.back()->send(request("POST /v1/sessions", "Content-Length: 2\r\n", i % 2 ? "{}" : "{"));
  }
  site.reset();
  for (auto& p : peers) p->reply();
  SUCCEED();
}
