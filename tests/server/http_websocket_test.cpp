#include "server/http/websocket.h"

#include <catch2/generators/catch_generators.hpp>

#include "schema/safetensors.h"
#include "tests/server/http_support.h"

using namespace gradwire;
using namespace gradwire::server;
using namespace gradwire::server::http_test;
using namespace std::chrono_literals;

namespace {

/// A client's frame: masked with 1, 2, 3, 4.
std::string frame(int opcode, const std::string& payload, bool fin = true, bool masked = true, int reserved = 0) {
  std::string f(1, static_cast<char>((fin ? 0x80 : 0) | reserved << 4 | opcode));
  const int mask = masked ? 0x80 : 0;
  if (payload.size() < 126) {
    f += static_cast<char>(mask | static_cast<int>(payload.size()));
  } else if (payload.size() < 65536) {
    f += static_cast<char>(mask | 126);
    f += static_cast<char>(payload.size() >> 8);
    f += static_cast<char>(payload.size() & 255);
  } else {
    f += static_cast<char>(mask | 127);
    for (int i = 7; i >= 0; --i) f += static_cast<char>(payload.size() >> (8 * i) & 255);
  }
  if (masked) f += "\1\2\3\4";
  for (size_t i = 0; i < payload.size(); ++i) f += masked ? static_cast<char>(payload[i] ^ (i % 4 + 1)) : payload[i];
  return f;
}

struct Message {
  int opcode = 0;
  std::string payload;
};

class Client {
 public:
  explicit Client(Site& site, const std::string& session) : peer_(site) {
    peer_.send(upgrade(session));
    const Reply r = peer_.reply();
    REQUIRE(r.status == 101);
    CHECK(r.fields.at("sec-websocket-protocol") == "gradwire.v1");
    CHECK(r.fields.at("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  }
  static std::string upgrade(const std::string& session, const std::string& protocol = "gradwire.v1",
                             const std::string& more = {}) {
    return "GET " + session +
           "/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "
           "13\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " +
           protocol + "\r\n" + more + "\r\n";
  }
  void send(const std::string& text) { peer_.send(frame(1, text)); }
  void raw(const std::string& bytes) { peer_.send(bytes); }
  Message receive() {
    const std::string head = peer_.take(2);
    size_t n = static_cast<uint8_t>(head[1]);
    CHECK(n < 128);  // a server does not mask
    if (n > 125) {
      const std::string more = peer_.take(n == 126 ? 2 : 8);
      n = 0;
      for (const char c : more) n = n << 8 | static_cast<uint8_t>(c);
    }
    return {static_cast<uint8_t>(head[0]) & 15, peer_.take(n)};
  }
  std::string ask(const std::string& text) {
    send(text);
    const Message m = receive();
    CHECK(m.opcode == 1);
    return m.payload;
  }
  /// The code of the close frame that comes next.
  int close_code() {
    const Message m = receive();
    REQUIRE(m.opcode == 8);
    return m.payload.size() < 2 ? 1005 : static_cast<uint8_t>(m.payload[0]) << 8 | static_cast<uint8_t>(m.payload[1]);
  }
  Peer& peer() { return peer_; }

 private:
  Peer peer_;
};

struct Talk {
  explicit Talk(HttpLimits limits = {}) : site(limits), peer(site), session(open_session(peer)) {}
  Site site;
  Peer peer;
  std::string session;
};

}  // namespace

TEST_CASE("A WebSocket carries a whole conversation", "[rest5]") {
  Talk t;
  Client c(t.site, t.session);
  CHECK(c.ask(R"({"id":1,"put":{"name":"w","tensor":{"data":[1.0,2.0],"requires_grad":true}}})")
            .starts_with(R"({"id":1,"result":{"name":"w","dtype":"float32","shape":[2])"));
  CHECK(c.ask(R"({"id":"a","get":"w"})") ==
        R"({"id":"a","result":{"dtype":"float32","shape":[2],"data":[1.0,2.0],"requires_grad":true}})");
  const std::string run = c.ask(
      R"({"id":2,"run":{"ops":[{"op":"mul","in":["w","w"],"out":"y"},{"op":"sum","in":["y"],"out":"s"},{"op":"backward","in":["s"]}],"fetch":["s","w.grad"]}})");
  CHECK(run.starts_with(R"({"id":2,"result":{"tensors":{"s":{"dtype":"float32","shape":[],"data":5.0)"));
  CHECK(run.find(R"("data":[2.0,4.0])") != std::string::npos);
  CHECK(c.ask(R"({"id":3,"get":{"name":"w","part":"grad"}})").find("[2.0,4.0]") != std::string::npos);
  CHECK(c.ask(R"({"id":4,"release":["y","s"]})") == R"({"id":4,"result":{}})");
  CHECK(c.ask(R"({"id":5,"get":"y"})").starts_with(R"({"id":5,"error":{"code":"no_tensor")"));
  CHECK(c.ask(R"({"id":6,"put":{"a":{"data":1},"b":{"data":2}}})")
            .starts_with(R"({"id":6,"result":{"tensors":[{"name":"a")"));
  REQUIRE(t.peer
              .ask("PUT", t.session + "/programs/p",
                   R"({"inputs":["x"],"ops":[{"op":"add","in":["x","w"],"out":"z"}],"fetch":["z"]})")
              .status == 201);
  CHECK(c.ask(R"({"id":7,"run_program":"p","inputs":{"x":{"data":[1.0,1.0]}}})").find("[2.0,3.0]") !=
        std::string::npos);
  CHECK(c.ask(R"({"id":8,"run_program":{"name":"p","inputs":{"x":{"data":[2.0,2.0]}},"fetch":["z"]}})")
            .find("[3.0,4.0]") != std::string::npos);
  c.raw(frame(8, "\x03\xE8"));
  CHECK(c.close_code() == 1000);
  CHECK(c.peer().closed());
}

TEST_CASE("Requests may be sent without waiting, and answers come in order", "[rest5]") {
  Talk t;
  Client c(t.site, t.session);
  std::string all;
  for (int i = 0; i < 500; ++i) {
    const std::string id = std::to_string(i);
    all += frame(1, i % 2 ? "{\"id\":" + id + ",\"get\":\"none\"}"
                          : "{\"id\":" + id + ",\"put\":{\"x\":{\"data\":" + id + "}}}");
  }
  c.raw(all);
  for (int i = 0; i < 500; ++i) CHECK(c.receive().payload.starts_with("{\"id\":" + std::to_string(i) + ","));
}

TEST_CASE("Binary answers follow their text", "[rest5]") {
  Talk t;
  Client c(t.site, t.session);
  const std::string text = c.ask(
      R"({"id":1,"encoding":"binary","run":{"inputs":{"x":{"dtype":"float32","data":[1,2]},"y":{"dtype":"uint8","data":[7]}},"fetch":["x","x.grad","y"]}})");
  CHECK(
      text ==
      R"({"id":1,"result":{"tensors":{"x":{"dtype":"float32","shape":[2],"requires_grad":false,"frame":0},"x.grad":null,"y":{"dtype":"uint8","shape":[1],"requires_grad":false,"frame":1}},"warnings":[]}})");
  for (const std::string name : {"x", "y"}) {
    const Message m = c.receive();
    CHECK(m.opcode == 2);
    const auto bytes = std::as_bytes(std::span(m.payload));
    const size_t head = safetensors_head_bytes(bytes.first(8), bytes.size());
    const auto file = parse_safetensors_head(bytes.first(head), bytes.size());
    CHECK(file.tensors.at(0).name == name);
    CHECK(bytes.size() - head == (name == "x" ? 8u : 1u));
  }
}

TEST_CASE("A bad request has its error and the conversation goes on", "[rest5]") {
  Talk t;
  Client c(t.site, t.session);
  const auto [request, answer] = GENERATE(table<std::string, std::string>({
      {"{", R"({"id":null,"error":{"code":"bad_json")"},
      {"7", R"({"id":null,"error":{"code":"bad_request")"},
      {R"({"id":1})", R"({"id":1,"error":{"code":"bad_request")"},
      {R"({"id":1.5,"get":"x"})", R"({"id":null,"error":{"code":"bad_request")"},
      {R"({"id":1,"get":"x","release":"x"})", R"({"id":1,"error":{"code":"bad_request")"},
      {R"({"id":1,"dance":"x"})", R"({"id":1,"error":{"code":"bad_request")"},
      {R"({"id":1,"run":[]})", R"({"id":1,"error":{"code":"bad_program")"},
      {R"({"id":1,"put":{"name":"x.grad","tensor":{"data":1}}})", R"({"id":1,"error":{"code":"bad_request")"},
      {R"({"id":1,"put":{"x":{"data":[[1],2]}}})", R"({"id":1,"error":{"code":"bad_tensor")"},
      {R"({"id":1,"run":{"ops":[{"op":"nothing"}]}})", R"({"id":1,"error":{"code":"unknown_operator")"},
      {R"({"id":1,"encoding":"gif","get":"x"})", R"({"id":1,"error":{"code":"bad_request")"},
      {R"({"id":1,"run_program":"p"})", R"({"id":1,"error":{"code":"no_program")"},
  }));
  CAPTURE(request);
  CHECK(c.ask(request).starts_with(answer));
  CHECK(c.ask(R"({"id":2,"put":{"x":{"data":1}}})").starts_with(R"({"id":2,"result")"));
}

TEST_CASE("An upgrade is checked like any request", "[T14][T15]") {
  Talk t;
  Peer peer(t.site);
  const auto [raw, code] = GENERATE_REF(table<std::string, std::string>({
      {Client::upgrade(t.session, "other"), "bad_request"},
      {Client::upgrade(t.session, "gradwire.v1", "Origin: http://evil.example\r\n"), "forbidden"},
      {Client::upgrade("/v1/sessions/0123"), "no_session"},
      {Client::upgrade(t.session, "gradwire.v1", "Content-Length: 3\r\n") + "abc", "bad_request"},
      {"GET " + t.session + "/ws HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request"},
      {"GET " + t.session + "/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
       "bad_request"},
      {"GET " + t.session + "/ws HTTP/1.0\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
       "bad_request"},
      {"POST " + t.session + "/ws HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "bad_method"},
  }));
  CAPTURE(raw);
  peer.send(raw);
  CHECK(code_of(peer.reply().body) == code);
}

TEST_CASE("Frames that break the protocol close the connection with their code", "[T14]") {
  HttpLimits limits;
  limits.websocket_message = 100000;
  Talk t(limits);
  Client c(t.site, t.session);
  const auto [raw, code] = GENERATE(table<std::string, int>({
      {frame(1, "{}", true, false), 1002},  // unmasked
      {frame(1, "{}", true, true, 4), 1002},
      {frame(1, "{}", true, true, 2), 1002},  // reserved bits
      {frame(3, "{}"), 1002},
      {frame(11, "{}"), 1002},
      {frame(0, "{}"), 1002},  // opcodes
      {frame(9, "x", false), 1002},
      {frame(9, std::string(126, 'x')), 1002},                                      // control frames
      {std::string("\x81\xFF\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\1\2\3\4", 14), 1009},  // 2^63 - 1 bytes
      {std::string("\x81\xFE\x00\x05\1\2\3\4", 8), 1002},                           // a length that is not the shortest
      {frame(1, std::string(100001, ' ')), 1009},
      {frame(1, "\xC3("), 1007},
      {frame(2, "{}"), 1003},
      {frame(8, std::string(1, '\3')), 1002},
      {frame(8, "\x03\xED"), 1002},
      {frame(8, "\x03\xE8\xC3("), 1002},
  }));
  CAPTURE(code);
  c.raw(raw);
  CHECK(c.close_code() == code);
  c.peer().finish_sending();
  CHECK(c.peer().closed());
}

TEST_CASE("Empty fragments without end and floods of pings are cut off", "[T14]") {
  HttpLimits limits;
  limits.websocket_fragments = 64;
  Talk t(limits);
  Client c(t.site, t.session);
  SECTION("fragments") {
    std::string flood = frame(1, "", false);
    for (int i = 0; i < 64; ++i) flood += frame(0, "", false);
    c.raw(flood);
    CHECK(c.peer().closed());
  }
  SECTION("pings") {
    std::string flood;
    for (int i = 0; i < 65; ++i) flood += frame(9, "x");
    c.raw(flood);
    c.peer().closed();  // after the pongs of those before
  }
}

TEST_CASE("As many fragments as are allowed make a message", "[T14]") {
  HttpLimits limits;
  limits.websocket_fragments = 64;
  Talk t(limits);
  Client c(t.site, t.session);
  for (int round = 0; round < 3; ++round) {
    const std::string text = R"({"id":1,"put":{"x":{"data":1}}})";
    std::string all = frame(1, text.substr(0, 1), false);
    for (int i = 1; i < 63; ++i)
      all += frame(0, i < static_cast<int>(text.size()) ? text.substr(static_cast<size_t>(i), 1) : "", false);
    c.raw(all + frame(0, ""));
    CHECK(c.receive().payload.starts_with(R"({"id":1,"result")"));
  }
}

TEST_CASE("The counter finds frames however the bytes are cut", "[T14]") {
  const std::string bytes =
      frame(1, std::string(300, 'a'), false) + frame(9, "p") + frame(0, std::string(70000, 'b'), false) + frame(0, "c");
  const auto step = static_cast<size_t>(GENERATE(1, 2, 3, 7, 1000, 100000));
  const auto fits = [&](int max) {
    http::FrameCounter counter(max);
    for (size_t at = 0; at < bytes.size(); at += step) {
      if (!counter.feed(reinterpret_cast<const uint8_t*>(bytes.data()) + at, std::min(step, bytes.size() - at)))
        return false;
    }
    return true;
  };
  CHECK(fits(3));
  CHECK_FALSE(fits(2));
}

TEST_CASE("A ping is answered with its bytes", "[rest5]") {
  Talk t;
  Client c(t.site, t.session);
  c.raw(frame(9, "hello"));
  const Message m = c.receive();
  CHECK(m.opcode == 10);
  CHECK(m.payload == "hello");
}

TEST_CASE("A silent WebSocket is pinged and then ended", "[T14]") {
  HttpLimits limits;
  limits.websocket_idle = 400ms;
  Talk t(limits);
  Client c(t.site, t.session);
  CHECK(c.receive().opcode == 9);
  c.peer().closed();
  CHECK(t.peer.ask("GET", "/livez").status == 200);
}

TEST_CASE("A WebSocket that does not take its answers is let go", "[T14]") {
  HttpLimits limits;
  limits.write_grace = 100ms;
  limits.write_rate = 1 << 30;
  Talk t(limits);
  Client c(t.site, t.session);
  c.ask(R"({"id":1,"run":{"ops":[{"op":"zeros","attrs":{"size":[2000000]},"out":"x"}]}})");
  std::string many;
  for (int i = 0; i < 20; ++i) many += frame(1, R"({"id":2,"get":"x","encoding":"binary"})");
  c.raw(many);
  while (t.peer.ask("GET", "/metrics").body.find("gradwire_http_connections 1\n") == std::string::npos) {}
  CHECK(t.peer.ask("GET", "/livez").status == 200);
}

TEST_CASE("A WebSocket ends with its server, and leaves its session alive", "[T44]") {
  Talk t;
  {
    Client c(t.site, t.session);
    CHECK(c.ask(R"({"id":1,"put":{"x":{"data":1}}})").starts_with(R"({"id":1,"result")"));
  }
  CHECK(t.peer.ask("GET", t.session + "/tensors/x").status == 200);
  Client c(t.site, t.session);
  t.site.server.drain();
  CHECK(c.close_code() == 1001);
}
