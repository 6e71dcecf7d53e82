#pragma once

// The inside of a Link: what lives on its network thread.

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/async-unix.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/answer.h"
#include "client/core.h"
#include "client/errors.h"
#include "client/link.h"
#include "client/local.h"
#include "schema/gradwire.capnp.h"

namespace gradwire::client {

inline std::string text(capnp::Text::Reader t) { return {t.begin(), t.size()}; }
inline kj::StringPtr text(const std::string& s) { return {s.c_str(), s.size()}; }

Error error_of(wire::Error::Reader);

/// A batch on its way, until its answer and all that it fetched are here.
struct Flight {
  uint64_t seq = 0, epoch = 0;
  std::shared_ptr<Core> core;
  std::vector<std::shared_ptr<Arrival>> fetches;
  std::shared_ptr<const Error> error;
  std::vector<Warning> warnings;
  int reading = 0;  // fetches that still come in pieces
  bool answered = false;
};

struct Remote {
  wire::Session::Client session;
  std::deque<std::shared_ptr<Flight>> flight{};
  uint64_t acked = 0;
  std::weak_ptr<Core> core{};
};

/// A value that comes in pieces.
struct Download {
  std::shared_ptr<Flight> flight;
  std::shared_ptr<Arrival> arrival;
  uint32_t index = 0;
  uint64_t next = 0, size = 0;
  int open = 0;
};

/// Bytes of the user's that go out in pieces, by reference: the user waits until nothing here refers to them.
struct Upload {
  std::shared_ptr<Answer<uint64_t>> answer = std::make_shared<Answer<uint64_t>>();
  std::shared_ptr<Answer<bool>> over = std::make_shared<Answer<bool>>();
  std::span<const std::byte> bytes{};
  uint64_t number = 0, next = 0;
  int open = 0;
};

struct Link::Impl : kj::TaskSet::ErrorHandler {
  // ---- any thread ----
  ~Impl() {
    if (event_ >= 0) ::close(event_);
  }
  void post(std::function<void()> f) {
    {
      std::lock_guard lock(mutex_);
      if (!finished_) {
        posted_.push_back(std::move(f));
        f = nullptr;
      }
    }
    if (!f) return ring();
    std::lock_guard lock(after_);  // the thread has ended: all that is left to do is to say so
    f();
  }
  void ring() {
    if (rung_.exchange(true)) return;
    const uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(event_, &one, sizeof one);
  }

  // ---- the network thread ----
  void run(const std::string& address, const ConnectOptions& options, Answer<std::vector<uint16_t>>& ready);
  void log_in(wire::Login::Client, const ConnectOptions&, kj::WaitScope&);
  std::vector<uint16_t> operators(kj::WaitScope&);
  void finish();
  void leave(uint64_t id);
  void settle();
  void say_goodbye();
  kj::Promise<void> listen();
  kj::Promise<void> tick();
  kj::Promise<void> keep_alive();
  void taskFailed(kj::Exception&& e) override { lost(e); }
  void lost(const kj::Exception& e) { lost(std::string(e.getDescription().cStr())); }
  void lost(const std::string& why);

  void pump(uint64_t id, bool open_too);
  void send(uint64_t id, Remote&, std::unique_ptr<Outgoing>, std::shared_ptr<Core>);
  void answered(uint64_t id, const std::shared_ptr<Flight>&, wire::Outcome::Reader);
  void take(uint64_t id, const std::shared_ptr<Flight>&, uint32_t index, wire::Fetched::Reader);
  void read(uint64_t id, const std::shared_ptr<Download>&);
  void advance(uint64_t id);
  void write(uint64_t id, const std::shared_ptr<Upload>&);
  void over(const std::shared_ptr<Upload>&);
  void give_up(const std::shared_ptr<Upload>&);
  Remote* find(uint64_t id) {
    const auto r = remotes_.find(id);
    return r == remotes_.end() ? nullptr : &r->second;
  }

  /// Makes `answer` fail with the connection, and `then` run with each good response.
  template <class P, class R, class F> void ask(P promise, std::shared_ptr<Answer<R>> answer, F then) {
    tasks_->add(promise.then(
        [answer, then = std::move(then)](auto&& response) mutable {
          if (response.getFailed())
            answer->fail(error_of(response.getError()));
          else
            then(response);
        },
        [answer, this](kj::Exception&& e) {
          if (e.getType() == kj::Exception::Type::DISCONNECTED) lost(e);
          answer->fail(dead_ ? *dead_
                             : Error(Code::internal, std::string("the server failed: ") + e.getDescription().cStr()));
        }));
  }
  template <class R> bool refused(const std::shared_ptr<Answer<R>>& answer) {
    if (dead_) answer->fail(*dead_);
    return dead_ != nullptr;
  }

  int event_ = -1, timer_ = -1;
  std::mutex mutex_;  // guards the next three
  std::vector<std::function<void()>> posted_;
  std::vector<std::shared_ptr<Core>> dirty_;
  bool finished_ = false;  // the thread has ended, and `dead_` says why
  std::mutex after_;       // held while something is done in its place
  std::atomic<bool> rung_{false};

  kj::UnixEventPort::FdObserver* events_ = nullptr;
  kj::UnixEventPort::FdObserver* ticks_ = nullptr;
  kj::Timer* clock_ = nullptr;
  kj::TaskSet* tasks_ = nullptr;
  kj::PromiseFulfiller<void>* stop_ = nullptr;
  std::optional<wire::Gate::Client> gate_;
  std::map<uint64_t, Remote> remotes_;
  std::set<std::shared_ptr<Upload>> uploads_;
  std::optional<Local> local_;
  uint64_t last_remote_ = 0;
  bool armed_ = false, stopping_ = false, said_goodbye_ = false;
  std::vector<std::shared_ptr<Answer<bool>>> settling_;
  int leaving_ = 0;  // sessions whose end is not answered yet
  std::shared_ptr<const Error> dead_;
  std::string address_;
};

}  // namespace gradwire::client
