#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "schema/error.h"
#include "server/http/connection.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/service.h"
#include "server/thread_name.h"

namespace gradwire::server {
namespace http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
constexpr auto kTick = std::chrono::milliseconds(100);  // between two looks at deadlines, and after a refused accept
constexpr int kSpareFiles = 64;                         // descriptors kept back for files and other parts

class LoopGate final : public Gate {
 public:
  explicit LoopGate(asio::io_context& loop) : loop_(loop) {}

 private:
  void hand_over(std::shared_ptr<Resumable> r) override {
    asio::post(loop_, [r = std::move(r)] { r->resume(); });
  }
  asio::io_context& loop_;
};

tcp::endpoint parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  boost::system::error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  const int number = digits ? std::stoi(port) : -1;
  if (ec || number < 0 || number > 65535)
    throw Error(Code::bad_argument, "'" + text + "' is not an address like 127.0.0.1:7421");
  return {address, static_cast<uint16_t>(number)};
}

std::string to_text(const tcp::endpoint& e) {
  const std::string host = e.address().to_string();
  return (e.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(e.port());
}

/// A port, its connections, and the thread that serves them.
class Listener {
 public:
  /// `watched`: the listener whose loop a probe's /livez speaks of, or null; it outlives this one.
  Listener(Service& service, const HttpLimits& limits, const std::string& at, bool probe, const Listener* watched)
      : acceptor_(loop_), timer_(loop_) {
    const tcp::endpoint wanted = parse_address(at);
    boost::system::error_code ec;
    acceptor_.open(wanted.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(wanted, ec);
    if (!ec) acceptor_.listen(1024, ec);
    if (!ec) acceptor_.native_non_blocking(true, ec);
    if (ec) throw Error(Code::bad_argument, "cannot listen on " + at + ": " + ec.message());
    address_ = to_text(acceptor_.local_endpoint());

    HostRules hosts = HostRules::make(address_, service.options().allowed_hosts);
    hosts.any = probe;
    shared_.emplace(loop_, service, service.metrics(), scribe_.emplace(), limits, std::move(hosts),
                    std::make_shared<LoopGate>(loop_), probe);
    if (watched) {
      shared_->alive = [watched, stall = limits.stall] {
        return now_ticks() - watched->turned_.load() <= stall.count();
      };
    }
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    const auto room = static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, 1 << 20)) - kSpareFiles;
    cap_ = static_cast<size_t>(std::clamp<int64_t>(room, 8, std::max(service.options().max_connections, 1)));
    accept_soon();
    tick();
    thread_ = std::thread([this] { run(); });
  }
  Listener(const Listener&) = delete;
  ~Listener() {
    loop_.stop();
    thread_.join();
    scribe_.reset();         // what it does uses frames of the connections
    shared_->gate->close();  // from here on answers of the lanes are dropped
    shared_->metrics.add(Metric::http_connections, -static_cast<double>(connections_.size()));
    connections_.clear();
  }
  const std::string& address() const { return address_; }
  /// Any thread.
  void drain() {
    shared_->draining = true;
    asio::post(loop_, [this] {
      boost::system::error_code ec;
      acceptor_.close(ec);
      for (auto& e : connections_) e.connection->drain();
    });
  }

 private:
  struct Entry {
    std::unique_ptr<Connection> connection;
    std::string peer;  // empty for loopback
  };
  using Place = std::list<Entry>::iterator;

  void run() {
    name_thread("gradwired:http");
    for (;;) {
      try {
        loop_.run();
        return;
      } catch (const std::exception& e) {
        // Connections catch what they throw; this is what is left, and ends nothing but itself.
        spdlog::error("http: {}", e.what());
      }
    }
  }

  void accept_soon() {
    accepting_ = true;
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const boost::system::error_code& ec) {
      accepting_ = false;
      if (!ec) accept_all();
    });
  }
  void accept_all() {
    while (acceptor_.is_open() && connections_.size() < cap_) {
      sockaddr_storage peer{};
      socklen_t size = sizeof peer;
      const int fd =
          ::accept4(acceptor_.native_handle(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        admit(fd, peer);
      } else if (errno == EAGAIN) {
        return accept_soon();
      } else if (errno != ECONNABORTED && errno != EINTR) {
        // Out of descriptors or memory: asking again at once would spin. The next tick does.
        shared_->metrics.add(Metric::http_rejected, "accept");
        return;
      }
    }
  }
  /// The peer's address; empty for loopback, which has no cap of its own.
  static std::string peer_text(const sockaddr_storage& peer) {
    char text[INET6_ADDRSTRLEN] = {};
    if (peer.ss_family == AF_INET) {
      const auto& in = reinterpret_cast<const sockaddr_in&>(peer);
      if (ntohl(in.sin_addr.s_addr) >> 24 == 127) return {};
      ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    } else {
      const auto& in = reinterpret_cast<const sockaddr_in6&>(peer);
      if (IN6_IS_ADDR_LOOPBACK(&in.sin6_addr)) return {};
      ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    }
    return text;
  }
  void admit(int fd, const sockaddr_storage& from) {
    std::string peer = peer_text(from);
    if (!peer.empty() && per_address_[peer] >= shared_->limits.per_address) {
      shared_->metrics.add(Metric::http_rejected, "address");
      ::close(fd);
      return;
    }
    if (!peer.empty()) ++per_address_[peer];
    shared_->metrics.add(Metric::http_connections, 1);
    connections_.push_back({make_connection(*shared_, fd), std::move(peer)});
    const Place place = std::prev(connections_.end());
    // The connection calls from within itself: it is destroyed after that.
    place->connection->start([this, place] { asio::post(loop_, [this, place] { remove(place); }); });
  }
  void remove(Place place) {
    if (!place->peer.empty() && --per_address_[place->peer] == 0) per_address_.erase(place->peer);
    connections_.erase(place);
    shared_->metrics.add(Metric::http_connections, -1);
    if (!accepting_ && acceptor_.is_open()) accept_soon();
  }

  static int64_t now_ticks() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  void tick() {
    turned_ = now_ticks();
    timer_.expires_after(kTick);
    timer_.async_wait([this](const boost::system::error_code& ec) {
      if (ec) return;
      const auto now = std::chrono::steady_clock::now();
      for (auto& e : connections_) e.connection->check(now);
      if (!accepting_ && acceptor_.is_open() && connections_.size() < cap_) accept_soon();
      tick();
    });
  }

  asio::io_context loop_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  std::string address_;
  std::optional<Scribe> scribe_;
  std::optional<Shared> shared_;
  std::list<Entry> connections_;
  std::map<std::string, int> per_address_;
  size_t cap_ = 0;
  bool accepting_ = false;
  std::atomic<int64_t> turned_ = 0;  // ticks of the steady clock at the loop's last turn
  std::thread thread_;
};

}  // namespace
}  // namespace http

struct HttpServer::Impl {
  std::optional<http::Listener> main, probe;
  std::string off;
};

HttpServer::HttpServer(Service& service, const HttpLimits& limits) : impl_(std::make_unique<Impl>()) {
  const Options& options = service.options();
  if (!options.http.empty()) impl_->main.emplace(service, limits, options.http, false, nullptr);
  if (!options.probe.empty())
    impl_->probe.emplace(service, limits, options.probe, true, impl_->main ? &*impl_->main : nullptr);
}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->main ? impl_->main->address() : impl_->off; }
const std::string& HttpServer::probe_address() const { return impl_->probe ? impl_->probe->address() : impl_->off; }
void HttpServer::drain() {
  if (impl_->main) impl_->main->drain();
}

}  // namespace gradwire::server
