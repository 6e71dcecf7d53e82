#include <kj/async-io.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "server/cluster/group.h"
#include "server/cluster/loop.h"
#include "server/rpc/quiet.h"
#include "server/thread_name.h"

namespace gradwire::server::cluster {

namespace {

bool is_wildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

std::string own_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// Checks the options and opens the peer address.
std::optional<Listener> prepare(Setup& s) {
  const Cluster::Options& o = s.options;
  if (o.peer.empty()) return std::nullopt;
  s.listen = parse_address(o.peer);
  const int files = !o.tls_cert.empty() + !o.tls_key.empty() + !o.tls_ca.empty();
  if (files == 3) {
    s.tls = std::make_unique<Tls>(o.tls_cert, o.tls_key, o.tls_ca);
  } else if (files != 0) {
    throw Error(Code::bad_argument, "servers among themselves need --tls-cert, --tls-key and --tls-ca together");
  } else if (!s.listen.is_loopback() && !o.insecure_no_tls) {
    throw Error(Code::bad_argument, "--peer " + o.peer +
                                        " is reachable from other machines, and needs --tls-cert, --tls-key and "
                                        "--tls-ca");
  }
  Listener listener = Listener::tcp(o.peer);
  s.listen = parse_address(listener.address());
  s.advertise = o.advertise.empty() ? s.listen : parse_address(o.advertise);
  if (s.advertise.port == 0) s.advertise.port = s.listen.port;
  if (is_wildcard(s.advertise.host)) s.advertise.host = own_name();
  s.options.data.host = s.advertise.host;
  return listener;
}

class ClusterThread final : public Cluster {
 public:
  explicit ClusterThread(Options options) {
    setup_.options = std::move(options);
    auto listener = prepare(setup_);
    if (listener) address_ = listener->address();
    auto ready = started_.get_future();
    thread_ = std::thread([this, l = std::move(listener)]() mutable { run(std::move(l)); });
    try {
      ready.get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }
  ~ClusterThread() noexcept override {
    queue_->post([this] { stop_->fulfill(); });
    thread_.join();
  }

  std::string address() const override { return address_; }
  void join(JoinOptions options, Done<Result<GroupPtr>> done) override {
    queue_->post([this, options = std::move(options), answer = Answer<GroupPtr>(std::move(done))]() mutable {
      loop_->join(std::move(options), std::move(answer));
    });
  }

 private:
  void run(std::optional<Listener> listener) {
    name_thread("gradwired:peer");
    bool running = false;
    try {
      Quiet quiet;
      auto io = kj::setupAsyncIo();
      auto paf = kj::newPromiseAndFulfiller<void>();
      stop_ = kj::mv(paf.fulfiller);
      {
        Loop loop(setup_, queue_, std::move(listener), io);
        loop_ = &loop;
        started_.set_value();
        running = true;
        paf.promise.wait(io.waitScope);
      }
      queue_->close();
      stop_ = nullptr;
    } catch (...) {
      if (running) {
        spdlog::critical("the cluster's loop ended");
      } else {
        started_.set_exception(std::make_exception_ptr(Error(Code::unavailable, "the cluster's loop cannot start")));
      }
    }
  }

  Setup setup_;
  std::shared_ptr<LoopQueue> queue_ = std::make_shared<LoopQueue>();
  std::string address_;
  Loop* loop_ = nullptr;                      // the loop's
  kj::Own<kj::PromiseFulfiller<void>> stop_;  // the loop's
  std::promise<void> started_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Cluster> make_cluster(Cluster::Options options) {
  return std::make_unique<ClusterThread>(std::move(options));
}

}  // namespace gradwire::server::cluster
