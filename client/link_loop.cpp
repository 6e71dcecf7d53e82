// The network thread of a Link.
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>

#include "client/link_impl.h"
#include "client/socket.h"
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

}  // namespace

Error error_of(wire::Error::Reader e) {
  const auto code = e.getCode() < kCodes ? static_cast<Code>(e.getCode()) : Code::internal;
  Error error(code, text(e.getMessage()), text(e.getOp()));
  error.at(e.getSeq(), e.getStep());
  if (e.getLine()) error.at(Where{text(e.getFile()), e.getLine()});
  return error;
}

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
  for (const auto w : o.getWarnings()) {
    f->warnings.push_back({text(w.getOp()), text(w.getMessage()), w.getStep(), text(w.getFile()), w.getLine()});
  }
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

}  // namespace gradwire::client
