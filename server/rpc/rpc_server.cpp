#include "server/rpc/rpc_server.h"

#include <kj/async-io.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <future>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/options.h"
#include "server/rpc/connection.h"
#include "server/rpc/listener.h"
#include "server/rpc/quiet.h"
#include "server/rpc/setup.h"
#include "server/thread_name.h"

namespace gradwire::server {

namespace {

/// A peer whose machine is gone says nothing: the kernel asks it after a minute. Unix sockets refuse, and need it not.
void keep_alive(int fd) {
  const int on = 1, idle = 60, interval = 15, times = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

/// What runs on the loop, from its first turn to its last.
class Loop final : private kj::TaskSet::ErrorHandler {
 public:
  /// `self` is where the queue's work finds this: some may have been there before the loop began.
  Loop(RpcShared& shared, std::vector<Listener>& listeners, kj::AsyncIoContext& io, int most, Loop*& self)
      : shared_(shared),
        listeners_(listeners),
        io_(io),
        timer_(io.provider->getTimer()),
        pool_(kj::refcounted<wire::BlockPool>()),
        most_(most),
        tasks_(*this),
        accepting_(kj::heap<kj::TaskSet>(static_cast<kj::TaskSet::ErrorHandler&>(*this))) {
    self = this;
    for (auto& l : listeners) {
      accepting_->add(l.serve(io_.unixEventPort, timer_, [this](kj::AutoCloseFd fd, std::string address) {
        take(kj::mv(fd), std::move(address));
      }));
    }
    tasks_.add(shared_.queue->serve(io_.unixEventPort));
  }
  ~Loop() {
    connections_.clear();
    shared_.service.metrics().set(Metric::rpc_connections, 0);
  }

  void drain() {
    accepting_ = nullptr;
    listeners_.clear();
    if (!draining_) tasks_.add(close_quiet());
    draining_ = true;
  }

 private:
  void take(kj::AutoCloseFd fd, std::string address) {
    const auto& limits = shared_.limits;
    int strangers = 0;
    if (static_cast<int>(connections_.size()) >= limits.connections_before_login) {
      for (auto& [_, c] : connections_) strangers += !c->is_logged_in();
    }
    if (static_cast<int>(connections_.size()) >= most_) return refused("connections");
    if (strangers >= limits.connections_before_login) return refused("connections_before_login");
    if (!address.empty() && addresses_[address] >= limits.connections_per_address)
      return refused("connections_per_address");
    keep_alive(fd);
    auto stream = wire::open_socket(kj::mv(fd), io_.unixEventPort);
    auto connection = kj::heap<Connection>(shared_, kj::mv(stream), address, kj::addRef(*pool_), timer_);
    if (!address.empty()) ++addresses_[address];
    const uint64_t id = next_++;
    // Not within the promise of the connection itself, which goes with it.
    tasks_.add(connection->ended().catch_([](kj::Exception&&) {}).then([this, id] {
      tasks_.add(kj::evalLast([this, id] { remove(id); }));
    }));
    connections_.emplace(id, kj::mv(connection));
    shared_.service.metrics().add(Metric::rpc_connections, 1);
  }

  void remove(uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    const auto at = addresses_.find(found->second->address());
    if (at != addresses_.end() && --at->second == 0) addresses_.erase(at);
    connections_.erase(found);
    shared_.service.metrics().add(Metric::rpc_connections, -1);
  }

  void refused(const char* why) { shared_.service.metrics().add(Metric::rpc_frames_rejected, why); }

  kj::Promise<void> close_quiet() {
    std::vector<uint64_t> quiet;
    for (auto& [id, c] : connections_) {
      if (c->quiet()) quiet.push_back(id);
    }
    for (const uint64_t id : quiet) remove(id);
    return timer_.afterDelay(10 * kj::MILLISECONDS).then([this] { return close_quiet(); });
  }

  void taskFailed(kj::Exception&&) override {}

  RpcShared& shared_;
  std::vector<Listener>& listeners_;
  kj::AsyncIoContext& io_;
  kj::Timer& timer_;
  kj::Own<wire::BlockPool> pool_;
  const int most_;
  bool draining_ = false;
  uint64_t next_ = 1;
  std::unordered_map<uint64_t, kj::Own<Connection>> connections_;
  std::unordered_map<std::string, int> addresses_;  // connections of each
  kj::TaskSet tasks_;
  kj::Own<kj::TaskSet> accepting_;
};

}  // namespace

struct RpcServer::Impl {
  Impl(Service& service, RpcSetup s)
      : setup(std::move(s)), shared{service, setup.limits, std::make_shared<LoopQueue>(), setup.before_call} {
    const Options& o = service.options();
    if (!o.token_file.empty() || (!o.tls_cert.empty() && o.peer.empty())) {  // servers among themselves have TLS
      throw Error(Code::bad_argument, "the RPC listener checks no tokens and speaks no TLS");
    }
    if (!o.rpc.empty()) {
      listeners.push_back(Listener::tcp(o.rpc));
      address = listeners.back().address();
    }
    if (!o.unix_path.empty()) listeners.push_back(Listener::unix_socket(o.unix_path));
    auto ready = started.get_future();
    thread = std::thread([this, most = o.max_connections] { run(most); });
    try {
      ready.get();
    } catch (...) {
      thread.join();
      throw;
    }
  }
  ~Impl() {
    shared.queue->post([this] { stop->fulfill(); });
    thread.join();
  }

  void run(int most) {
    name_thread("gradwired:rpc");
    bool running = false;
    try {
      Quiet quiet;
      auto io = kj::setupAsyncIo();
      auto paf = kj::newPromiseAndFulfiller<void>();
      stop = kj::mv(paf.fulfiller);
      {
        Loop l(shared, listeners, io, most, loop);
        started.set_value();
        running = true;
        paf.promise.wait(io.waitScope);
      }
      shared.queue->close();
    } catch (...) {
      const Error e = caught_error(Code::internal);
      spdlog::critical("the RPC loop ended: {}", e.message());
      if (!running)
        started.set_exception(std::make_exception_ptr(Error(Code::unavailable, "the RPC loop cannot start")));
    }
  }

  RpcSetup setup;
  RpcShared shared;
  std::vector<Listener> listeners;
  std::string address;
  Loop* loop = nullptr;                      // the loop's
  kj::Own<kj::PromiseFulfiller<void>> stop;  // the loop's
  std::promise<void> started;
  std::thread thread;
};

RpcServer::RpcServer(Service& service) : RpcServer(service, RpcSetup{}) {}
RpcServer::RpcServer(Service& service, RpcSetup setup) : impl_(std::make_unique<Impl>(service, std::move(setup))) {}
RpcServer::~RpcServer() = default;
const std::string& RpcServer::address() const { return impl_->address; }
void RpcServer::drain() {
  impl_->shared.queue->post([impl = impl_.get()] { impl->loop->drain(); });
}

}  // namespace gradwire::server
