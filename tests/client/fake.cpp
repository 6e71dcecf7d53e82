#include "tests/client/fake.h"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/async-unix.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>

#include "schema/gradwire.capnp.h"
#include "schema/ops.h"

using namespace gradwire;

namespace {

constexpr size_t kInline = 64 << 10;

struct Value {
  DType dtype = DType::float32;
  std::vector<int64_t> shape;
  std::string bytes;
  bool requires_grad = false;
};

}  // namespace

struct Fake::State {
  Options options;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Batch> batches;
  std::vector<size_t> writes, reads;
  std::map<uint16_t, Error> failures;
  int closed = 0;
  bool held = false;

  // the loop's thread only
  std::vector<kj::Own<kj::PromiseFulfiller<void>>> waiting;
  kj::Own<kj::PromiseFulfiller<void>> stop, cut;
  uint16_t port = 0;

  // Not by kj::Executor: ThreadSanitizer does not see its lock.
  int event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::vector<std::function<void()>> posted;  // guarded by mutex
  ~State() { ::close(event); }
  /// Runs f on the loop's thread and waits for it.
  void run(std::function<void()> f) {
    bool done = false;
    std::unique_lock lock(mutex);
    posted.push_back([&] {
      f();
      std::lock_guard l(mutex);
      done = true;
      changed.notify_all();
    });
    const uint64_t one = 1;
    if (::write(event, &one, sizeof one) != sizeof one) std::abort();
    changed.wait(lock, [&] { return done; });
  }
  kj::Promise<void> listen(kj::UnixEventPort::FdObserver& observer) {
    return observer.whenBecomesReadable().then([this, &observer] {
      uint64_t n;
      while (::read(event, &n, sizeof n) > 0) {}
      std::vector<std::function<void()>> now;
      {
        std::lock_guard lock(mutex);
        now.swap(posted);
      }
      for (auto& f : now) f();
      return listen(observer);
    });
  }
};

namespace {

Batch plain(wire::Batch::Reader from) {
  Batch b;
  b.seq = from.getSeq(), b.acked = from.getAcked(), b.epoch = from.getEpoch();
  for (const auto c : from.getCalls())
    b.calls.push_back({c.getOp(), c.getGradMode(), c.getArgs(), c.getLine(), c.getOut()});
  for (const auto a : from.getArgs()) {
    Arg arg;
    arg.kind = static_cast<ArgKind>(a.getKind()), arg.part = static_cast<Part>(a.getPart()), arg.count = a.getCount();
    arg.i = static_cast<int64_t>(a.getValue());
    b.args.push_back(arg);
  }
  for (const int64_t i : from.getInts()) b.ints.push_back(i);
  for (const auto t : from.getTexts()) b.texts.emplace_back(reinterpret_cast<const char*>(t.begin()), t.size());
  for (const auto l : from.getLines()) b.lines.push_back({l.getFile(), l.getLine()});
  for (const auto f : from.getFetches())
    b.fetches.push_back({f.getId(), static_cast<Part>(f.getPart()), static_cast<FetchKind>(f.getKind())});
  return b;
}

void put_error(wire::Error::Builder to, const Error& e) {
  to.setCode(static_cast<uint8_t>(e.code()));
  to.setMessage(e.message().c_str()), to.setOp(e.op().c_str());
  to.setSeq(e.seq()), to.setStep(e.step());
  to.setFile(e.where().file.c_str()), to.setLine(e.where().line);
}

class FakeSession final : public wire::Session::Server {
 public:
  explicit FakeSession(std::shared_ptr<Fake::State> state) : state_(std::move(state)) {}

  kj::Promise<void> run(RunContext context) override {
    auto batch = std::make_shared<Batch>(plain(context.getParams().getBatch()));
    bool held;
    {
      std::lock_guard lock(state_->mutex);
      state_->batches.push_back(*batch);
      held = state_->held;
    }
    state_->changed.notify_all();
    if (!held) return answer(context, *batch), kj::READY_NOW;
    auto wait = kj::newPromiseAndFulfiller<void>();
    state_->waiting.push_back(kj::mv(wait.fulfiller));
    return wait.promise.then([this, context, batch]() mutable { answer(context, *batch); });
  }
  kj::Promise<void> reserve(ReserveContext context) override {
    Value v;
    v.dtype = static_cast<DType>(context.getParams().getDtype());
    size_t n = static_cast<size_t>(size_of(v.dtype));
    for (const int64_t d : context.getParams().getShape()) v.shape.push_back(d), n *= static_cast<size_t>(d);
    v.bytes.resize(n);
    rooms_[++last_room_] = std::move(v);
    context.getResults().setUpload(last_room_);
    context.getResults().setSize(n);
    return kj::READY_NOW;
  }
  kj::Promise<void> write(WriteContext context) override {
    const auto p = context.getParams();
    auto& room = rooms_.at(p.getUpload());
    std::memcpy(room.bytes.data() + p.getOffset(), p.getData().begin(), p.getData().size());
    std::lock_guard lock(state_->mutex);
    state_->writes.push_back(p.getData().size());
    state_->changed.notify_all();
    if (!state_->held) return kj::READY_NOW;
    auto wait = kj::newPromiseAndFulfiller<void>();
    state_->waiting.push_back(kj::mv(wait.fulfiller));
    return kj::mv(wait.promise);
  }
  kj::Promise<void> read(ReadContext context) override {
    const auto p = context.getParams();
    const std::string& bytes = tickets_.at({p.getSeq(), p.getIndex()});
    context.getResults().setData(
        kj::arrayPtr(reinterpret_cast<const kj::byte*>(bytes.data()) + p.getOffset(), p.getSize()));
    std::lock_guard lock(state_->mutex);
    state_->reads.push_back(p.getSize());
    return kj::READY_NOW;
  }
  kj::Promise<void> close(CloseContext) override {
    std::lock_guard lock(state_->mutex);
    ++state_->closed;
    state_->changed.notify_all();
    return kj::READY_NOW;
  }

 private:
  void answer(RunContext& context, const Batch& b) {
    auto outcome = context.getResults().initOutcome();
    outcome.setSeq(b.seq);
    std::optional<Error> error;
    if (failure_ && b.epoch <= failed_epoch_) error = failure_;
    if (!error) {
      size_t arg = 0, ints = 0;
      for (size_t i = 0; i < b.calls.size() && !error; ++i) {
        const OpCall& c = b.calls[i];
        std::lock_guard lock(state_->mutex);
        if (const auto f = state_->failures.find(c.op); f != state_->failures.end()) {
          error = f->second;
          error->at(b.seq, static_cast<int64_t>(i));
          if (c.line) error->at(Where{b.texts[b.lines[c.line - 1].file], b.lines[c.line - 1].line});
          failure_ = error, failed_epoch_ = b.epoch;
        }
        if (c.op == OpCall::kUpload) {
          Value v;
          v.dtype = static_cast<DType>(b.args[arg].i);
          v.shape.assign(b.ints.begin() + static_cast<long>(ints),
                         b.ints.begin() + static_cast<long>(ints) + b.args[arg + 1].count);
          v.bytes = b.args[arg + 2].kind == ArgKind::text ? b.texts[static_cast<size_t>(b.args[arg + 2].i)]
                                                          : rooms_.at(static_cast<uint64_t>(b.args[arg + 2].i)).bytes;
          v.requires_grad = b.args[arg + 3].i;
          values_[c.out] = std::move(v);
        }
        if (c.op == OpCall::kRelease) values_.erase(c.out);
        for (int k = 0; k < c.args; ++k, ++arg) ints += b.args[arg].kind == ArgKind::ints ? b.args[arg].count : 0;
      }
    }
    if (error) {
      outcome.setFailed(true);
      put_error(outcome.initError(), *error);
      return;
    }
    auto fetched = outcome.initFetched(static_cast<uint32_t>(b.fetches.size()));
    for (uint32_t i = 0; i < fetched.size(); ++i) {
      const Fetch& f = b.fetches[i];
      auto to = fetched[i];
      const auto found = values_.find(f.id);
      const Value none{.dtype = DType::float32, .shape = {}, .bytes = std::string(4, '\0')};
      const Value& v = found == values_.end() ? none : found->second;
      to.setPresent(f.part == Part::value);
      auto info = to.initInfo();
      info.setDtype(static_cast<uint8_t>(v.dtype));
      auto shape = info.initShape(static_cast<uint32_t>(v.shape.size()));
      for (uint32_t d = 0; d < shape.size(); ++d) shape.set(d, v.shape[d]);
      info.setDevice("cpu"), info.setRequiresGrad(v.requires_grad), info.setCount(-1);
      if (f.kind == FetchKind::info) continue;
      to.setSize(v.bytes.size());
      if (v.bytes.size() <= kInline)
        to.setData(kj::arrayPtr(reinterpret_cast<const kj::byte*>(v.bytes.data()), v.bytes.size()));
      else
        tickets_[{b.seq, i}] = v.bytes;
    }
  }

  std::shared_ptr<Fake::State> state_;
  std::map<uint64_t, Value> values_, rooms_;
  std::map<std::pair<uint64_t, uint32_t>, std::string> tickets_;
  uint64_t last_room_ = 0, failed_epoch_ = 0;
  std::optional<Error> failure_;
};

class FakeGate final : public wire::Gate::Server {
 public:
  explicit FakeGate(std::shared_ptr<Fake::State> state) : state_(std::move(state)) {}
  kj::Promise<void> info(InfoContext context) override {
    auto info = context.getResults().initInfo();
    info.setVersion("fake"), info.setCatalogueHash(state_->options.catalogue_hash);
    if (context.getParams().getOperators()) {
      auto names = info.initOperators(static_cast<uint32_t>(state_->options.operators.size()));
      for (uint32_t i = 0; i < names.size(); ++i) names.set(i, state_->options.operators[i].c_str());
    }
    return kj::READY_NOW;
  }
  kj::Promise<void> open(OpenContext context) override {
    context.getResults().setSession(kj::heap<FakeSession>(state_));
    context.getResults().setId("0123456789abcdef");
    return kj::READY_NOW;
  }

 private:
  std::shared_ptr<Fake::State> state_;
};

class FakeLogin final : public wire::Login::Server {
 public:
  explicit FakeLogin(std::shared_ptr<Fake::State> state) : state_(std::move(state)) {}
  kj::Promise<void> hello(HelloContext) override { return kj::READY_NOW; }
  kj::Promise<void> login(LoginContext context) override {
    if (state_->options.token != context.getParams().getToken().cStr()) {
      context.getResults().setFailed(true);
      put_error(context.getResults().initError(), Error(Code::unauthenticated, "wrong token"));
    } else {
      context.getResults().setGate(kj::heap<FakeGate>(state_));
    }
    return kj::READY_NOW;
  }

 private:
  std::shared_ptr<Fake::State> state_;
};

}  // namespace

Fake::Fake(Options options) : state_(std::make_shared<State>()) {
  if (!options.catalogue_hash) options.catalogue_hash = kCatalogueHash;
  state_->options = std::move(options);
  thread_ = std::thread([state = state_] {
    auto io = kj::setupAsyncIo();
    auto listener = io.provider->getNetwork().parseAddress("127.0.0.1", 0).wait(io.waitScope)->listen();
    auto stop = kj::newPromiseAndFulfiller<void>(), cut = kj::newPromiseAndFulfiller<void>();
    state->stop = kj::mv(stop.fulfiller), state->cut = kj::mv(cut.fulfiller);
    kj::UnixEventPort::FdObserver observer(io.unixEventPort, state->event, kj::UnixEventPort::FdObserver::OBSERVE_READ);
    const auto listening = state->listen(observer).eagerlyEvaluate(nullptr);
    {
      auto server = kj::heap<capnp::TwoPartyServer>(kj::heap<FakeLogin>(state));
      auto serving = server->listen(*listener).eagerlyEvaluate(nullptr);
      {
        std::lock_guard lock(state->mutex);
        state->port = static_cast<uint16_t>(listener->getPort());
      }
      state->changed.notify_all();
      cut.promise.wait(io.waitScope);
      state->waiting.clear();
    }
    listener = nullptr;
    stop.promise.wait(io.waitScope);
    state->stop = nullptr, state->cut = nullptr;
  });
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->port != 0; });
  address_ = "127.0.0.1:" + std::to_string(state_->port);
}

Fake::~Fake() {
  state_->run([this] { state_->cut->fulfill(), state_->stop->fulfill(); });
  thread_.join();
}

void Fake::hold() {
  std::lock_guard lock(state_->mutex);
  state_->held = true;
}

void Fake::let_go() {
  {
    std::lock_guard lock(state_->mutex);
    state_->held = false;
  }
  state_->run([this] {
    for (auto& w : state_->waiting) w->fulfill();
    state_->waiting.clear();
  });
}

void Fake::fail(uint16_t op, Error e) {
  std::lock_guard lock(state_->mutex);
  state_->failures[op] = std::move(e);
}

void Fake::hang_up() {
  state_->run([this] { state_->cut->fulfill(); });
}

std::vector<Batch> Fake::batches(size_t at_least) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->batches.size() >= at_least; });
  return state_->batches;
}

std::vector<size_t> Fake::writes(size_t at_least) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->writes.size() >= at_least; });
  return state_->writes;
}
std::vector<size_t> Fake::reads() {
  std::lock_guard lock(state_->mutex);
  return state_->reads;
}
int Fake::closed(int at_least) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->closed >= at_least; });
  return state_->closed;
}
