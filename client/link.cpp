#include "client/link.h"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "client/answer.h"
#include "client/core.h"
#include "client/errors.h"
#include "client/local.h"
#include "client/socket.h"
#include "schema/gradwire.capnp.h"
#include "schema/wire_columns.h"
#include "schema/wire_stream.h"

namespace gradwire::client {
namespace {

constexpr size_t kFlight = 8;                // batches without an answer, a session
constexpr size_t kPiece = 512 << 10;         // bytes of bulk data in one call
constexpr int kWindow = 16;                  // such calls in flight
constexpr long kGather = 100'000;            // ns that a batch waits for more while others are in flight
constexpr auto kAlive = 60 * kj::SECONDS;    // between two calls that keep an idle connection
constexpr auto kFarewell = 2 * kj::SECONDS;  // for sessions to end when the connection does

std::string text(capnp::Text::Reader t) { return {t.begin(), t.size()}; }
kj::StringPtr text(const std::string& s) { return {s.c_str(), s.size()}; }

Error error_of(wire::Error::Reader e) {
  const auto code = e.getCode() < kCodes ? static_cast<Code>(e.getCode()) : Code::internal;
  Error error(code, text(e.getMessage()), text(e.getOp()));
  error.at(e.getSeq(), e.getStep());
  if (e.getLine()) error.at(Where{text(e.getFile()), e.getLine()});
  return error;
}

Shape shape_of(capnp::List<int64_t>::Reader list) {
  Shape s;
  for (const int64_t d : list) s.push_back(d);
  return s;
}

TensorInfo info_of(wire::TensorInfo::Reader i) {
  TensorInfo info;
  info.dtype = i.getDtype() < kDTypes ? static_cast<DType>(i.getDtype()) : DType::uint8;
  info.shape = shape_of(i.getShape()), info.strides = shape_of(i.getStrides());
  info.device = text(i.getDevice()), info.grad_fn = text(i.getGradFn());
  info.requires_grad = i.getRequiresGrad(), info.is_leaf = i.getIsLeaf();
  info.version = i.getVersion(), info.bytes = i.getBytes(), info.count = i.getCount();
  return info;
}

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

}  // namespace

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

// ---- the thread ----

void Link::Impl::run(const std::string& address, const ConnectOptions& options, Answer<std::vector<uint16_t>>& ready) {
  try {
    const auto until = std::chrono::steady_clock::now() + options.connect_timeout;
    std::string where = address;
    if (address == "local") {
      local_.emplace(options.server_args, options.connect_timeout);
      where = "unix:" + local_->socket();
    }
    address_ = where;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    kj::AutoCloseFd fd(connect_socket(where, std::max(left, std::chrono::milliseconds(1))));

    auto io = kj::setupAsyncIo();
    auto& port = io.unixEventPort;
    clock_ = &io.provider->getTimer();
    auto socket = wire::open_socket(kj::mv(fd), port);
    wire::Stream stream(*socket, {}, kj::refcounted<wire::BlockPool>());
    capnp::ReaderOptions reader;
    reader.traversalLimitInWords = uint64_t{4} << 20;
    capnp::TwoPartyVatNetwork network(stream, capnp::rpc::twoparty::Side::CLIENT, reader);
    auto rpc = capnp::makeRpcClient(network);
    kj::UnixEventPort::FdObserver events(port, event_, kj::UnixEventPort::FdObserver::OBSERVE_READ);
    kj::AutoCloseFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    kj::UnixEventPort::FdObserver ticks(port, timer, kj::UnixEventPort::FdObserver::OBSERVE_READ);
    timer_ = timer.get(), events_ = &events, ticks_ = &ticks;

    capnp::MallocMessageBuilder vat;
    auto id = vat.initRoot<capnp::rpc::twoparty::VatId>();
    id.setSide(capnp::rpc::twoparty::Side::SERVER);
    log_in(rpc.bootstrap(id).castAs<wire::Login>(), options, io.waitScope);
    auto known = operators(io.waitScope);

    kj::TaskSet tasks(*this);
    auto stop = kj::newPromiseAndFulfiller<void>();
    tasks_ = &tasks, stop_ = stop.fulfiller.get();
    const auto cleanup = kj::defer([this] {
      lost("it was ended");
      remotes_.clear();
      gate_.reset();
      tasks_ = nullptr, stop_ = nullptr;
    });
    tasks.add(network.onDisconnect().then([this] { lost("the server closed it"); }));
    tasks.add(listen());
    tasks.add(tick());
    tasks.add(keep_alive());
    ready.set(std::move(known));
    stop.promise.wait(io.waitScope);
  } catch (const Error& e) {
    ready.fail(e);
  } catch (const kj::Exception& e) {
    ready.fail(Error(Code::unavailable, "the connection to " + address_ + " failed: " + e.getDescription().cStr()));
  } catch (const std::exception& e) {
    ready.fail(Error(Code::internal, e.what()));
  }
  finish();
}

void Link::Impl::finish() {
  gate_.reset();
  lost("it was ended");
  std::vector<std::function<void()>> posted;
  std::vector<std::shared_ptr<Core>> dirty;
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    posted.swap(posted_), dirty.swap(dirty_);
  }
  {
    std::lock_guard lock(after_);
    for (auto& f : posted) f();
    for (const auto& u : std::exchange(uploads_, {})) u->answer->fail(*dead_), u->over->set(true);
    for (auto& c : dirty) c->broken(dead_);
  }
  local_.reset();
}

void Link::Impl::log_in(wire::Login::Client login, const ConnectOptions& options, kj::WaitScope& scope) {
  // Both calls in one flight.
  auto hello = login.helloRequest();
  hello.setMinVersion(1), hello.setMaxVersion(1);
  auto said = hello.send();
  auto enter = login.loginRequest();
  enter.setToken(text(options.token));
  std::optional<Error> refusal;
  auto entered = enter.send().then([&](auto&& response) {
    if (response.getFailed())
      refusal = error_of(response.getError());
    else
      gate_ = response.getGate();
  });
  auto both = said.then([&, entered = kj::mv(entered)](auto&& response) mutable {
    if (response.getFailed()) refusal = error_of(response.getError());
    return kj::mv(entered);
  });
  const auto limit = options.connect_timeout.count() * kj::MILLISECONDS;
  both.exclusiveJoin(clock_->afterDelay(limit).then([&] {
        refusal = Error(Code::deadline_exceeded, "the server at " + address_ + " did not answer in time");
      }))
      .wait(scope);
  if (refusal) throw *refusal;
}

/// Where the server's catalogue differs: its index of each of our operators.
std::vector<uint16_t> Link::Impl::operators(kj::WaitScope& scope) {
  std::vector<uint16_t> indices;
  if (gate_->infoRequest().send().wait(scope).getInfo().getCatalogueHash() == kCatalogueHash) return indices;
  auto request = gate_->infoRequest();
  request.setOperators(true);
  const auto all = request.send().wait(scope);
  std::map<std::string, uint16_t> there;
  for (const auto name : all.getInfo().getOperators()) there.emplace(text(name), static_cast<uint16_t>(there.size()));
  for (const char* name : kOperatorNames) {
    const auto found = there.find(name);
    indices.push_back(found == there.end() ? kUnknown : found->second);
  }
  return indices;
}

kj::Promise<void> Link::Impl::listen() {
  return events_->whenBecomesReadable().then([this] {
    rung_ = false;  // the count is never read: the loop watches for edges, and each write is one
    std::vector<std::function<void()>> posted;
    std::vector<std::shared_ptr<Core>> dirty;
    {
      std::lock_guard lock(mutex_);
      posted.swap(posted_), dirty.swap(dirty_);
    }
    for (auto& c : dirty) pump(c->remote, false);
    dirty.clear();
    for (auto& f : posted) f();
    if (stopping_ && !said_goodbye_) say_goodbye();
    return listen();
  });
}

/// Ends a session now, not when its lease is over.
void Link::Impl::leave(uint64_t id) {
  Remote* r = find(id);
  if (!r) return;
  if (!dead_) {
    ++leaving_;
    tasks_->add(r->session.closeRequest().send().ignoreResult().then([this] {
      if (--leaving_ == 0 && stopping_) stop_->fulfill();
    }));
  }
  remotes_.erase(id);
}

void Link::Impl::say_goodbye() {
  said_goodbye_ = true;
  while (!remotes_.empty()) leave(remotes_.begin()->first);
  if (dead_ || leaving_ == 0) return stop_->fulfill();
  tasks_->add(clock_->afterDelay(kFarewell).then([this] { stop_->fulfill(); }));
}

/// The end of the time for gathering.
kj::Promise<void> Link::Impl::tick() {
  return ticks_->whenBecomesReadable().then([this] {
    uint64_t n;
    while (::read(timer_, &n, sizeof n) > 0) {}
    armed_ = false;
    std::vector<uint64_t> ids;
    for (auto& [id, r] : remotes_) ids.push_back(id);
    for (const uint64_t id : ids) pump(id, true);
    return tick();
  });
}

kj::Promise<void> Link::Impl::keep_alive() {
  return clock_->afterDelay(kAlive).then([this]() -> kj::Promise<void> {
    if (dead_) return kj::READY_NOW;
    return gate_->infoRequest().send().ignoreResult().then([this] { return keep_alive(); });
  });
}

void Link::Impl::lost(const std::string& why) {
  if (dead_) return;
  if (stop_) stop_->fulfill();  // nothing of the connection stays
  dead_ = std::make_shared<const Error>(Code::unavailable, "the connection to " + address_ + " is gone: " + why);
  for (auto& [id, r] : remotes_) {
    for (auto& f : r.flight) {
      for (auto& a : f->fetches) a->fail(dead_, UINT64_MAX);
    }
    r.flight.clear();
    if (const auto core = r.core.lock()) core->broken(dead_);
  }
  for (auto& a : settling_) a->set(true);
  settling_.clear();
}

// ---- batches ----

void Link::Impl::pump(uint64_t id, bool open_too) {
  Remote* r = find(id);
  if (!r) return;
  const auto core = r->core.lock();
  if (!core) return;
  if (dead_) return core->broken(dead_);
  while (r->flight.size() < kFlight) {
    std::unique_ptr<Outgoing> o;
    const auto next = core->next(o, open_too || r->flight.empty());
    if (next == Core::Next::batch) {
      send(id, *r, std::move(o), core);
      continue;
    }
    if (next == Core::Next::later && !armed_) {
      itimerspec t{};
      t.it_value.tv_nsec = kGather;
      armed_ = ::timerfd_settime(timer_, 0, &t, nullptr) == 0;
    }
    return;
  }
}

void Link::Impl::send(uint64_t id, Remote& r, std::unique_ptr<Outgoing> o, std::shared_ptr<Core> core) {
  auto flight = std::make_shared<Flight>();
  flight->seq = o->batch.seq, flight->epoch = o->batch.epoch;
  flight->fetches = std::move(o->fetches);
  o->batch.acked = r.acked;
  auto request = r.session.runRequest(capnp::MessageSize{o->size() / 8 + 3 * o->batch.texts.size() + 64, 1});
  wire::put(request.initBatch(), o->batch);
  core->recycle(std::move(o));
  flight->core = std::move(core);
  r.flight.push_back(flight);
  tasks_->add(
      request.send().then([this, id, flight](auto&& response) { answered(id, flight, response.getOutcome()); }));
}

void Link::Impl::answered(uint64_t id, const std::shared_ptr<Flight>& f, wire::Outcome::Reader o) {
  if (!find(id) || dead_) return;
  for (const auto w : o.getWarnings()) f->warnings.push_back({text(w.getOp()), text(w.getMessage()), w.getStep()});
  if (o.getFailed()) {
    f->error = std::make_shared<const Error>(error_of(o.getError()));
  } else {
    const auto fetched = o.getFetched();
    for (uint32_t i = 0; i < f->fetches.size(); ++i) {
      if (i < fetched.size())
        take(id, f, i, fetched[i]);
      else
        f->fetches[i]->fail(std::make_shared<const Error>(Code::internal, "the server left out a value"), UINT64_MAX);
    }
  }
  f->answered = true;
  advance(id);
}

void Link::Impl::take(uint64_t id, const std::shared_ptr<Flight>& f, uint32_t index, wire::Fetched::Reader value) {
  const auto& arrival = f->fetches[index];
  const auto data = value.getData();
  const uint64_t size = value.getSize();
  try {
    arrival->begin(value.getPresent(), info_of(value.getInfo()), size);
  } catch (const std::exception& e) {  // no memory for it
    arrival->fail(std::make_shared<const Error>(Code::memory_limit, std::string("no room for the value: ") + e.what()),
                  UINT64_MAX);
    return;
  }
  if (data.size() == size) {
    arrival->write(0, data.begin(), data.size());
    return;
  }
  auto d = std::make_shared<Download>();
  d->flight = f, d->arrival = arrival, d->index = index, d->size = size;
  ++f->reading;
  read(id, d);
}

void Link::Impl::read(uint64_t id, const std::shared_ptr<Download>& d) {
  Remote* r = find(id);
  if (!r || dead_) return;
  // An empty write asks whether anybody wants more.
  while (d->open < kWindow && d->next < d->size && d->arrival->write(0, nullptr, 0)) {
    auto request = r->session.readRequest();
    const uint64_t offset = d->next, size = std::min<uint64_t>(kPiece, d->size - d->next);
    request.setSeq(d->flight->seq), request.setIndex(d->index);
    request.setOffset(offset), request.setSize(static_cast<uint32_t>(size));
    d->next += size;
    ++d->open;
    tasks_->add(request.send().then([this, id, d, offset, size](auto&& response) {
      --d->open;
      if (response.getFailed()) {
        d->next = d->size;
        d->arrival->fail(std::make_shared<const Error>(error_of(response.getError())), UINT64_MAX);
      } else if (response.getData().size() != size) {
        d->next = d->size;
        d->arrival->fail(std::make_shared<const Error>(Code::internal, "the server sent a piece of another size"),
                         UINT64_MAX);
      } else if (!d->arrival->write(offset, response.getData().begin(), size)) {
        d->next = d->size;
      }
      read(id, d);
    }));
  }
  if (d->open == 0) {
    --d->flight->reading;
    advance(id);
  }
}

void Link::Impl::advance(uint64_t id) {
  Remote* r = find(id);
  if (!r) return;
  while (!r->flight.empty() && r->flight.front()->answered && r->flight.front()->reading == 0) {
    const auto f = std::move(r->flight.front());
    r->flight.pop_front();
    r->acked = f->seq;
    f->core->answered(f->seq, f->epoch, f->error, std::move(f->warnings));
    for (auto& a : f->fetches) {
      if (f->error)
        a->fail(f->error, f->epoch);
      else
        a->end();
    }
  }
  pump(id, false);
  if (!settling_.empty()) settle();
}

/// Looks, in a turn of its own that holds nothing else, whether all is answered.
void Link::Impl::settle() {
  if (dead_) {
    for (auto& a : settling_) a->set(true);
    return settling_.clear();
  }
  tasks_->add(kj::evalLater([this] {
    for (auto& [id, r] : remotes_) {
      if (!r.flight.empty()) return;
      const auto core = r.core.lock();
      if (core && !core->idle()) return pump(id, true);
    }
    for (auto& a : settling_) a->set(true);
    settling_.clear();
  }));
}

// ---- uploads ----

void Link::Impl::write(uint64_t id, const std::shared_ptr<Upload>& u) {
  Remote* r = find(id);
  if (dead_) return;  // finish() tells
  if (!r) {
    u->answer->fail(Error(Code::closed, "Attempted to use a closed Session."));
    u->next = u->bytes.size();
  }
  while (u->open < kWindow && u->next < u->bytes.size()) {
    const uint64_t offset = u->next, size = std::min<uint64_t>(kPiece, u->bytes.size() - u->next);
    const auto piece = kj::arrayPtr(reinterpret_cast<const kj::byte*>(u->bytes.data()) + offset, size);
    auto request = r->session.writeRequest(capnp::MessageSize{32, 0});
    request.setUpload(u->number), request.setOffset(offset);
    // A message refers to whole words only.
    if (reinterpret_cast<uintptr_t>(piece.begin()) % 8 == 0 && size % 8 == 0)
      request.adoptData(
          capnp::Orphanage::getForMessageContaining<wire::Session::WriteParams::Builder>(request).referenceExternalData(
              piece));
    else
      request.setData(piece);
    u->next += size;
    ++u->open;
    tasks_->add(request.send().then([this, id, u](auto&& response) {
      --u->open;
      if (response.getFailed()) {
        u->next = u->bytes.size();
        u->answer->fail(error_of(response.getError()));
      }
      write(id, u);
    }));
  }
  if (u->open == 0) over(u);
}

void Link::Impl::over(const std::shared_ptr<Upload>& u) {
  uploads_.erase(u);
  u->answer->set(u->number);
  u->over->set(true);
}

/// The user waits no longer: what is on its way may still be answered, for a short time.
void Link::Impl::give_up(const std::shared_ptr<Upload>& u) {
  u->next = u->bytes.size();
  if (u->open == 0 || !tasks_) return over(u);
  tasks_->add(clock_->afterDelay(kFarewell).then([this, u] {
    if (u->open) lost("an upload did not end in time");
  }));
}

// ---- Link ----

std::shared_ptr<Link> Link::connect(const std::string& address, const ConnectOptions& options) {
  std::shared_ptr<Link> link(new Link);
  link->self_ = link;
  link->address_ = address;
  link->options_ = options;
  link->impl_ = std::make_shared<Impl>();
  link->impl_->event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (link->impl_->event_ < 0)
    raise(Error(Code::unavailable, std::string("cannot make an eventfd: ") + std::strerror(errno)));
  auto ready = std::make_shared<Answer<std::vector<uint16_t>>>();
  // The program's signals are for its own threads, which inherit nothing from this.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  link->thread_ = std::thread([impl = link->impl_, address, options, ready] { impl->run(address, options, *ready); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  try {
    link->operators_ = ready->wait({}, "connecting");
  } catch (...) {
    link->thread_.join();
    throw;
  }
  return link;
}

Link::~Link() {
  if (!thread_.joinable()) return;
  auto* impl = impl_.get();
  impl_->post([impl] { impl->stopping_ = true; });
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
}

void Link::wake(Core& core) {
  auto strong = core.weak_from_this().lock();
  if (!strong) return;
  bool finished;
  {
    std::lock_guard lock(impl_->mutex_);
    finished = impl_->finished_;
    auto& dirty = impl_->dirty_;
    if (finished) {
      dirty.clear();
    } else if (std::none_of(dirty.begin(), dirty.end(), [&](auto& d) { return d.get() == &core; })) {
      dirty.push_back(std::move(strong));
    }
  }
  if (finished) return core.broken(impl_->dead_);
  impl_->ring();
}

std::shared_ptr<Core> Link::open(const SessionOptions& o) {
  struct Opened {
    uint64_t remote;
    std::string id;
  };
  auto answer = std::make_shared<Answer<Opened>>();
  auto* impl = impl_.get();
  impl->post([impl, o, answer] {
    if (impl->refused(answer)) return;
    auto request = impl->gate_->openRequest();
    auto options = request.initOptions();
    options.setDevice(text(o.device)), options.setName(text(o.name));
    options.setDtype(static_cast<uint8_t>(o.dtype));
    if (o.seed) options.setHasSeed(true), options.setSeed(*o.seed);
    options.setMemoryLimit(o.memory_limit), options.setTtlSeconds(o.ttl.count());
    auto compat = options.initCompat(static_cast<uint32_t>(o.compat.size()));
    for (uint32_t i = 0; i < compat.size(); ++i) compat.set(i, text(o.compat[i]));
    impl->ask(request.send(), answer, [impl, answer](auto& response) {
      const uint64_t id = ++impl->last_remote_;
      impl->remotes_.emplace(id, Remote{response.getSession()});
      answer->set({id, text(response.getId())});
    });
  });
  const Opened opened = answer->wait(options_.timeout, "opening a session");
  auto core = std::make_shared<Core>(self_.lock(), opened.id, o.dtype, options_.timeout);
  core->remote = opened.remote;
  auto linked = std::make_shared<Answer<bool>>();
  impl->post([impl, weak = std::weak_ptr<Core>(core), id = opened.remote, linked] {
    if (Remote* r = impl->find(id)) r->core = weak;
    if (const auto c = weak.lock(); c && impl->dead_) c->broken(impl->dead_);
    linked->set(true);
  });
  linked->wait({}, "opening a session");
  return core;
}

uint64_t Link::upload(Core& core, DType dtype, std::span<const int64_t> shape, std::span<const std::byte> bytes,
                      Timeout timeout) {
  auto u = std::make_shared<Upload>();
  u->bytes = bytes;
  auto* impl = impl_.get();
  impl->post([impl, id = core.remote, dtype, shape = Shape(shape), u] {
    impl->uploads_.insert(u);
    if (impl->refused(u->answer)) return;
    Remote* r = impl->find(id);
    if (!r) return u->answer->fail(Error(Code::closed, "Attempted to use a closed Session."));
    auto request = r->session.reserveRequest();
    request.setDtype(static_cast<uint8_t>(dtype));
    auto dims = request.initShape(static_cast<uint32_t>(shape.size()));
    for (uint32_t i = 0; i < dims.size(); ++i) dims.set(i, shape[i]);
    impl->ask(request.send(), u->answer, [impl, id, u](auto& response) {
      u->number = response.getUpload();
      if (response.getSize() != u->bytes.size())
        u->answer->fail(Error(Code::internal, "the server made room of another size"));
      else
        impl->write(id, u);
    });
  });
  try {
    return u->answer->wait(timeout, "an upload");
  } catch (const Error&) {
    impl->post([impl, u] { impl->give_up(u); });
    u->over->wait({}, "an upload");
    throw;
  }
}

void Link::close(Core& core, Timeout timeout) {
  auto answer = std::make_shared<Answer<bool>>();
  auto* impl = impl_.get();
  impl->post([impl, id = core.remote, answer] {
    Remote* r = impl->find(id);
    if (!r || impl->dead_) return answer->set(true);
    impl->ask(r->session.closeRequest().send(), answer, [impl, id, answer](auto&) {
      impl->remotes_.erase(id);
      answer->set(true);
    });
  });
  answer->wait(timeout, "closing the session");
}

void Link::settle() noexcept {
  try {
    auto answer = std::make_shared<Answer<bool>>();
    auto* impl = impl_.get();
    impl->post([impl, answer] {
      impl->settling_.push_back(answer);
      impl->settle();
    });
    answer->wait(std::chrono::seconds(2), "the last calls");
  } catch (...) {  // no memory, or the server takes its time: the connection ends without them
  }
}

void Link::forget(uint64_t remote) noexcept {
  try {
    auto* impl = impl_.get();
    impl->post([impl, remote] { impl->leave(remote); });
  } catch (...) {  // no memory: the session ends with the connection
  }
}

ServerInfo Link::info() {
  auto answer = std::make_shared<Answer<ServerInfo>>();
  auto* impl = impl_.get();
  impl->post([impl, answer] {
    if (impl->refused(answer)) return;
    impl->ask(impl->gate_->infoRequest().send(), answer, [answer](auto& response) {
      const auto i = response.getInfo();
      ServerInfo info;
      info.version = text(i.getVersion());
      for (const auto d : i.getDevices()) info.devices.push_back(text(d));
      info.catalogue_hash = i.getCatalogueHash(), info.threads = i.getThreads(), info.lanes = i.getLanes();
      answer->set(std::move(info));
    });
  });
  return answer->wait(options_.timeout, "info");
}

std::vector<SessionInfo> Link::sessions() {
  auto answer = std::make_shared<Answer<std::vector<SessionInfo>>>();
  auto* impl = impl_.get();
  impl->post([impl, answer] {
    if (impl->refused(answer)) return;
    impl->ask(impl->gate_->sessionsRequest().send(), answer, [answer](auto& response) {
      std::vector<SessionInfo> all;
      for (const auto s : response.getSessions())
        all.push_back({text(s.getId()), text(s.getName()), text(s.getDevice()), s.getTensors(), s.getBytes(),
                       s.getMemoryLimit(), s.getOpsRun(), s.getAgeSeconds()});
      answer->set(std::move(all));
    });
  });
  return answer->wait(options_.timeout, "listing the sessions");
}

std::string Link::run_json(const std::string& program) {
  auto answer = std::make_shared<Answer<std::string>>();
  auto* impl = impl_.get();
  impl->post([impl, program, answer] {
    if (impl->refused(answer)) return;
    auto request = impl->gate_->runJsonRequest();
    request.setProgram(text(program));
    impl->ask(request.send(), answer, [answer](auto& response) { answer->set(text(response.getAnswer())); });
  });
  return answer->wait(options_.timeout, "the program");
}

}  // namespace gradwire::client
