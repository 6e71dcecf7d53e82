#include "server/http/head.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "schema/error.h"

using namespace gradwire;
using namespace gradwire::server::http;

namespace {

const HostRules kRules = HostRules::make("127.0.0.1:7421", std::vector<std::string>{"Gradwire.example:8080"});

Head check(const std::string& raw) { return check_head(raw, kRules); }

/// The code that a head is refused with, or "none".
std::string code(const std::string& raw) {
  try {
    check(raw);
  } catch (const Error& e) {
    return name(e.code());
  }
  return "none";
}
std::string with(const std::string& fields, const std::string& line = "GET /livez HTTP/1.1") {
  return line + "\r\nHost: localhost\r\n" + fields + "\r\n";
}

size_t find(const std::string& received) {
  size_t scanned = 0;
  return find_head(received, scanned);
}

}  // namespace

TEST_CASE("A head tells its path, query and body", "[T9]") {
  const std::string raw =
      "PUT /v1/sessions/a%20b/tensors/w?requires_grad=true&x= HTTP/1.1\r\nHost: LOCALHOST:7421\r\ncontent-length:  12 "
      "\r\nExpect: 100-Continue\r\n\r\n";
  const Head head = check(raw);
  CHECK(head.method == "PUT");
  CHECK(head.path == std::vector<std::string>{"v1", "sessions", "a b", "tensors", "w"});
  CHECK(*head.query_value("requires_grad") == "true");
  CHECK(head.query_value("y") == nullptr);
  CHECK(head.content_length == 12);
  CHECK(head.expect_continue);
  CHECK(head.keep_alive);
}

TEST_CASE("What two readers could frame in two ways is refused", "[T9][T10]") {
  const auto [fields, expected] = GENERATE(table<std::string, std::string>({
      {"Transfer-Encoding: chunked\r\n", "not_implemented"},
      {"Transfer-Encoding: gzip\r\nContent-Length: 5\r\n", "not_implemented"},
      {"Transfer-Encoding: chunked, gzip\r\n", "not_implemented"},
      {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "not_implemented"},
      {"Transfer-Encoding: identity\r\n", "not_implemented"},
      {"transfer-encoding:\r\n", "not_implemented"},
      {"TRANSFER-ENCODING: xchunked\r\n", "not_implemented"},
      {"Host: localhost\r\n", "bad_request"},
      {"Content-Length: 5,5\r\n", "bad_request"},
      {"Content-Length: 5\r\nContent-Length: 5\r\n", "bad_request"},
      {"Content-Length: 5\r\nContent-Length: 6\r\n", "bad_request"},
      {"Content-Length: +5\r\n", "bad_request"},
      {"Content-Length: -5\r\n", "bad_request"},
      {"Content-Length: 0x5\r\n", "bad_request"},
      {"Content-Length: 5 5\r\n", "bad_request"},
      {"Content-Length:\r\n", "bad_request"},
      {"Content-Length: 18446744073709551616\r\n", "bad_request"},
      {"Content-Length: 9223372036854775808\r\n", "bad_request"},
      {"X: a\r\n b\r\n", "bad_request"},
      {"X: a\r\n\tb\r\n", "bad_request"},
      {" X: a\r\n", "bad_request"},  // obs-fold
      {"Content-Length : 5\r\n", "bad_request"},
      {"Transfer-Encoding : chunked\r\n", "bad_request"},
      {"X\r\n", "bad_request"},
      {": x\r\n", "bad_request"},
      {"X: a\nY: b\r\n", "bad_request"},
      {"X: a\rY: b\r\n", "bad_request"},
      {std::string("X: a\0b\r\n", 8), "bad_request"},
      {"X(y): a\r\n", "bad_request"},
      {"X\x7F: a\r\n", "bad_request"},
      {"Expect: 200-ok\r\n", "bad_request"},
      {"Expect: 100-continue\r\nExpect: 100-continue\r\n", "bad_request"},
  }));
  CAPTURE(fields);
  CHECK(code(with(fields)) == expected);
  CHECK(code(with(fields, "POST /v1/sessions HTTP/1.0")) == expected);
}

TEST_CASE("A request line has one form", "[T12]") {
  const auto [line, expected] = GENERATE(table<std::string, std::string>({
      {"GET / HTTP/1.1", "none"},
      {"GET http://localhost/livez HTTP/1.1", "none"},
      {"OPTIONS * HTTP/1.1", "none"},
      {"GET / HTTP/1.0", "none"},
      {"BREW / HTTP/1.1", "none"},
      {"GET  / HTTP/1.1", "bad_request"},
      {"GET /  HTTP/1.1", "bad_request"},
      {"GET / HTTP/2.0", "bad_request"},
      {"GET / HTTP/1.2", "bad_request"},
      {"GET / http/1.1", "bad_request"},
      {"GET /", "bad_request"},
      {"GET", "bad_request"},
      {"", "bad_request"},
      {"GET /a b HTTP/1.1", "bad_request"},
      {"GET /%zz HTTP/1.1", "bad_request"},
      {"GET /%4 HTTP/1.1", "bad_request"},
      {"GET /a#b HTTP/1.1", "bad_request"},
      {"GET /\xC3\xA4 HTTP/1.1", "bad_request"},
      {"GET /a\tb HTTP/1.1", "bad_request"},
      {"GET livez HTTP/1.1", "bad_request"},
      {"GET * HTTP/1.1", "bad_request"},
      {"GET https://user@localhost/ HTTP/1.1", "bad_request"},
      {"GET ftp://localhost/ HTTP/1.1", "bad_request"},
      {"GET http://other.example/ HTTP/1.1", "bad_request"},
      {"GET /?a=1&a=2 HTTP/1.1", "bad_request"},
      {"G(T / HTTP/1.1", "bad_request"},
      {"CONNECT localhost:80 HTTP/1.1", "bad_method"},
      {"TRACE / HTTP/1.1", "bad_method"},
      {"GET /" + std::string(kMaxTarget - 1, 'a') + " HTTP/1.1", "none"},
      {"GET /" + std::string(kMaxTarget, 'a') + " HTTP/1.1", "uri_too_long"},
  }));
  CAPTURE(line);
  CHECK(code(with("", line)) == expected);
}

TEST_CASE("Host must be one of this server's names", "[T15]") {
  const auto [host, expected] = GENERATE(table<std::string, std::string>({
      {"localhost", "none"},
      {"localhost:1", "none"},
      {"127.0.0.1:7421", "none"},
      {"[::1]:7421", "none"},
      {"gradwire.EXAMPLE", "none"},
      {"LocalHost:65535", "none"},
      {"evil.example", "forbidden"},
      {"localhost.evil.example", "forbidden"},
      {"localhost.", "forbidden"},
      {"0.0.0.0", "forbidden"},
      {"127.0.0.2", "forbidden"},
      {"[::2]", "forbidden"},
      {"", "bad_request"},
      {"localhost, evil", "bad_request"},
      {"localhost:", "none"},
      {"localhost:x", "bad_request"},
      {"localhost:123456", "bad_request"},
      {"user@localhost", "bad_request"},
      {"[::1", "bad_request"},
      {"local host", "bad_request"},
      {":80", "bad_request"},
  }));
  CAPTURE(host);
  CHECK(code("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n") == expected);
}

TEST_CASE("A request without Host is refused, also in HTTP/1.0", "[T15]") {
  CHECK(code("GET / HTTP/1.1\r\n\r\n") == "bad_request");
  CHECK(code("GET / HTTP/1.0\r\n\r\n") == "bad_request");
}

TEST_CASE("Origin must be this server's own", "[T15]") {
  const auto [origin, expected] = GENERATE(table<std::string, std::string>({
      {"http://localhost:7421", "none"},
      {"https://LOCALHOST:7421", "none"},
      {"http://localhost", "forbidden"},
      {"http://localhost:3000", "forbidden"},
      {"null", "forbidden"},
      {"http://evil.example", "forbidden"},
      {"", "forbidden"},
      {"file://localhost:7421", "forbidden"},
  }));
  CAPTURE(origin);
  CHECK(code("GET / HTTP/1.1\r\nHost: localhost:7421\r\nOrigin: " + origin + "\r\n\r\n") == expected);
}

TEST_CASE("The probe listener answers to any host", "[T15]") {
  HostRules any;
  any.any = true;
  CHECK_NOTHROW(check_head("GET /livez HTTP/1.1\r\nHost: 10.1.2.3:7423\r\n\r\n", any));
}

TEST_CASE("A head has limits", "[T12]") {
  CHECK(code(with("X: " + std::string(kMaxHead, 'a') + "\r\n")) == "head_too_large");
  std::string many;
  for (size_t i = 1; i < kMaxFields; ++i) many += "X: a\r\n";
  CHECK(code(with(many)) == "none");
  CHECK(code(with(many + "X: a\r\n")) == "head_too_large");
}

TEST_CASE("The end of a head is found however it arrives", "[T9]") {
  const std::string raw = with("X: y\r\n");
  size_t scanned = 0;
  for (size_t n = 0; n < raw.size(); ++n) CHECK(find_head(raw.substr(0, n), scanned) == 0);
  CHECK(find_head(raw + "GET", scanned) == raw.size());
  CHECK(find(raw + raw) == raw.size());
}

TEST_CASE("A head that never ends is given up", "[T12]") {
  const auto thrown = [](const std::string& received) -> std::string {
    try {
      find(received);
    } catch (const Error& e) {
      return name(e.code());
    }
    return "none";
  };
  CHECK(thrown("GET /" + std::string(6000, 'a')) == "uri_too_long");
  CHECK(thrown("GET / HTTP/1.1\r\n" + std::string(kMaxHead, 'a')) == "head_too_large");
  CHECK(thrown("GET / HTTP/1.1\nHost: x\n\n") == "bad_request");
  CHECK(thrown("GET / HTTP/1.1\r\nHost: x\n\r\n") == "bad_request");
  CHECK(thrown("GET / HTTP/1.1\r\n") == "none");
}

TEST_CASE("Accept chooses among what is offered", "[rest1]") {
  const std::vector<std::string_view> offers = {"application/json", "application/x-npy", "application/vnd.safetensors"};
  CHECK(negotiate("", offers) == 0u);
  CHECK(negotiate("*/*", offers) == 0u);
  CHECK(negotiate("application/x-npy", offers) == 1u);
  CHECK(negotiate("Application/X-NPY;q=0.5, application/json;q=0.4", offers) == 1u);
  CHECK(negotiate("application/*;q=0.1, application/vnd.safetensors", offers) == 2u);
  CHECK(negotiate("application/json;q=0, */*;q=0.1", offers) == 1u);
  CHECK(negotiate("text/html", offers) == std::nullopt);
  CHECK(negotiate("application/json;q=0", offers) == std::nullopt);
  CHECK(media_type("Application/JSON; charset=utf-8") == "application/json");
}
