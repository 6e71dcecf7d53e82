#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/rig.h"

namespace gradwire::server::http_test {

/// A Service with an HTTP server on free ports.
struct Site {
  explicit Site(HttpLimits limits = {}, Options o = {}) : rig(with_ports(std::move(o))), server(rig.service, limits) {}
  static Options with_ports(Options o) {
    o.http = "127.0.0.1:0";
    o.probe = "127.0.0.1:0";
    return o;
  }
  Rig rig;
  HttpServer server;
};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;
};

/// A raw TCP peer. What does not come within ten seconds fails the test.
class Peer {
 public:
  explicit Peer(const std::string& address) {
    const size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  explicit Peer(Site& site) : Peer(site.server.address()) {}
  Peer(const Peer&) = delete;
  ~Peer() { ::close(fd_); }

  /// Sends what the server takes; it may have closed already.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  /// One answer with its body; status 0 where the connection ended before one.
  Reply reply(bool head_only = false) {
    Reply r;
    size_t end;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return r;
    }
    std::string head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    REQUIRE(head.starts_with("HTTP/1.1 "));
    r.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t stop = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      r.fields[name] = head.substr(colon + 2, stop - colon - 2);
      at = stop + 2;
    }
    if (r.status == 100 || r.status == 101 || r.status == 204 || head_only) return r;
    REQUIRE(r.fields.count("content-length") == 1);
    const size_t n = std::stoul(r.fields["content-length"]);
    while (in_.size() < n) {
      if (!receive()) return r;
    }
    r.body = in_.substr(0, n);
    in_.erase(0, n);
    return r;
  }
  /// True if the server closes without sending more.
  bool closed() {
    while (receive()) {}
    return in_.empty();
  }
  /// The next n bytes.
  std::string take(size_t n) {
    while (in_.size() < n && receive()) {}
    REQUIRE(in_.size() >= n);
    std::string s = in_.substr(0, n);
    in_.erase(0, n);
    return s;
  }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }

  Reply ask(const std::string& method, const std::string& target, const std::string& body = {},
            const std::string& fields = {}) {
    std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + fields;
    if (!body.empty() || method == "POST" || method == "PUT")
      request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    send(request + "\r\n" + body);
    return reply(method == "HEAD");
  }

 private:
  bool receive() {
    pollfd p{fd_, POLLIN, 0};
    if (::poll(&p, 1, 10000) != 1) FAIL("nothing came in ten seconds");
    char bytes[65536];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    in_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  int fd_ = -1;
  std::string in_;
};

/// "code" of an error body.
inline std::string code_of(const std::string& body) {
  const std::string mark = "{\"error\":{\"code\":\"";
  if (!body.starts_with(mark)) return "no error: " + body.substr(0, 200);
  return body.substr(mark.size(), body.find('"', mark.size()) - mark.size());
}

/// Opens a session and returns "/v1/sessions/ID".
inline std::string open_session(Peer& peer, const std::string& options = "{}") {
  const Reply r = peer.ask("POST", "/v1/sessions", options);
  REQUIRE(r.status == 201);
  return r.fields.at("location");
}

}  // namespace gradwire::server::http_test
