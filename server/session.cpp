#include "server/session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>

namespace gradwire::server {

Error current_error() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(Code::memory_limit, "out of memory");
  } catch (const std::exception& e) {
    spdlog::error("a call threw: {}", e.what());
  } catch (...) {
    spdlog::error("a call threw");
  }
  return Error(Code::internal, "internal error");
}

// The queue's side.

namespace {

constexpr size_t kPrograms = 1024, kProgramBytes = size_t{64} << 20;  // of one session
constexpr size_t kNameBytes = 255;

std::string shown(const Key& k) { return k.name.empty() ? "#" + std::to_string(k.id) : k.name; }

void check_name(const std::string& name) {
  const bool control = std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  if (name.empty() || name.size() > kNameBytes || control || name.find('/') != std::string::npos)
    throw Error(Code::bad_argument, "a name has 1 to 255 bytes, without '/' and control characters");
  if (name == ".grad" || name.ends_with(".grad"))
    throw Error(Code::bad_argument, "'" + name + "': names that end in .grad are gradients");
}

/// A task of one step that answers with what f returns.
template <class R, class F> class CallTask final : public Task {
 public:
  CallTask(std::shared_ptr<Core> core, F f, Done<Result<R>> done)
      : core_(std::move(core)), f_(std::move(f)), done_(std::move(done)) {}
  Step step(Clock::time_point) override {
    Result<R> r = run();
    if (core_->state) core_->account();
    done_(std::move(r));
    return Step::done;
  }
  void fail(const Error& e) noexcept override {
    try {
      if (done_) done_(e);
    } catch (...) {}
  }

 private:
  Result<R> run() noexcept {
    try {
      if (core_->closing.load(std::memory_order_acquire) || !core_->state)
        return Error(Code::closed, "the session is closed");
      core_->state->cx.pool.collect();
      if constexpr (std::is_void_v<R>) {
        f_(*core_->state);
        return {};
      } else {
        return f_(*core_->state);
      }
    } catch (...) {
      return current_error();
    }
  }
  std::shared_ptr<Core> core_;
  F f_;
  Done<Result<R>> done_;
};

/// Queues f, or answers at once why not.
template <class R, class F> void post(const std::shared_ptr<Core>& core, size_t bytes, Done<Result<R>> done, F f) {
  core->push(std::make_unique<CallTask<R, F>>(core, std::move(f), std::move(done)), bytes);
}

class CloseTask final : public Task {
 public:
  CloseTask(std::shared_ptr<Core> core, Done<Result<void>> done) : core_(std::move(core)), done_(std::move(done)) {}
  Step step(Clock::time_point) override {
    end();
    return Step::done;
  }
  void fail(const Error&) noexcept override { end(); }

 private:
  void end() noexcept {
    try {
      core_->state.reset();
      core_->window.clear();
      {
        const std::lock_guard lock(core_->uploads_mutex);
        core_->uploads.clear();
      }
      core_->account();
      if (done_) done_(Result<void>());
    } catch (...) {
      spdlog::error("a session did not end cleanly");
    }
  }
  std::shared_ptr<Core> core_;
  Done<Result<void>> done_;
};

}  // namespace

Entry& State::entry(const Key& key) {
  uint64_t id = key.id;
  if (!key.name.empty()) {
    const auto found = names.find(key.name);
    if (found == names.end()) throw Error(Code::no_tensor, "there is no tensor '" + key.name + "'");
    id = found->second;
  }
  Entry* e = table.find(id);
  if (!e) throw Error(Code::no_tensor, "there is no tensor '" + shown(key) + "'");
  return *e;
}

void State::set(const std::string& name, engine::Tensor t) {
  check_name(name);
  const auto found = names.find(name);
  if (found == names.end()) {
    const uint64_t id = table.add_own(std::move(t));
    names.emplace(name, id);
  } else {
    Entry& e = *table.find(found->second);
    e.tensor = std::move(t), e.count = -1;
  }
}

void State::put(const Key& key, engine::Tensor t) {
  if (key.part != Part::value)
    throw Error(Code::bad_argument, "'" + shown(key) + ".grad': names that end in .grad are gradients");
  if (!key.name.empty()) return set(key.name, std::move(t));
  table.check_room(key.id, 1);
  table.add(key.id, std::move(t));
}

void State::forget(uint64_t id) {
  if (id < Table::kServerIds) table.erase(id);
}

bool State::forget(const std::string& name) {
  const auto found = names.find(name);
  if (found == names.end()) return false;
  table.erase(found->second);
  names.erase(found);
  return true;
}

TensorInfo info_of(const engine::Tensor& t, int32_t count) {
  TensorInfo info = engine::info(t);
  info.count = count;
  return info;
}

TensorValue value_of(const engine::Tensor& t) {
  engine::Snapshot s = engine::snapshot(t);
  return {engine::info(t), {std::move(s.hold), static_cast<const std::byte*>(s.data), s.bytes}};
}

engine::Tensor tensor_of(engine::Context& cx, const Room& room, bool requires_grad) {
  engine::Tensor t = engine::adopt(cx, engine::Upload{room.hold, room.data, room.size, room.dtype, room.shape});
  if (requires_grad) engine::require_grad(t);
  return t;
}

// The core.

std::optional<Room> Core::take_upload(uint64_t number) {
  const std::lock_guard lock(uploads_mutex);
  const auto found = uploads.find(number);
  if (found == uploads.end()) return std::nullopt;
  Room room = std::move(found->second);
  uploads.erase(found);
  return room;
}

void Core::account() {
  const int64_t now = state ? state->cx.bytes_used() : 0, before = bytes.exchange(now, std::memory_order_relaxed);
  if (now != before) shared.bytes.fetch_add(now - before, std::memory_order_relaxed);
  if (!state) return tensors.store(0, std::memory_order_relaxed);
  tensors.store(static_cast<int64_t>(state->table.size()), std::memory_order_relaxed);
  peak_bytes.store(state->cx.pool.peak(), std::memory_order_relaxed);
  const uint64_t ran = state->ops - ops.exchange(state->ops, std::memory_order_relaxed);
  if (ran) shared.metrics.add(Metric::ops, static_cast<double>(ran));
  touched.store(shared.clock.now(), std::memory_order_relaxed);
}

void Core::check_server_memory() const {
  const int64_t used = shared.bytes.load(std::memory_order_relaxed);
  if (used > shared.server_memory)
    throw Error(Code::memory_limit, "all sessions together hold " + std::to_string(used) +
                                        " bytes, and the server may hold " + std::to_string(shared.server_memory));
}

std::optional<Error> Core::try_push(std::unique_ptr<Task>& task, size_t task_bytes, bool forced) {
  const auto code = shared.executor.push(queue, task, task_bytes, forced);
  if (!code) return std::nullopt;
  return Error(*code, *code == Code::closed ? "the session is closed" : "the session's queue is full");
}

void Core::push(std::unique_ptr<Task> task, size_t task_bytes, bool forced) {
  if (const auto error = try_push(task, task_bytes, forced)) task->fail(*error);
}

// The side of the front ends.

struct Session::Impl {
  std::shared_ptr<Core> core;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() {
  close(Done<Result<void>>([](Result<void>) {}));
}

SessionPtr make_session(std::shared_ptr<Core> core) {
  return std::make_shared<Session>(std::make_unique<Session::Impl>(Session::Impl{std::move(core)}));
}
Core& core_of(Session& s) { return *s.impl().core; }

const std::string& Session::id() const { return impl_->core->id; }
const std::string& Session::secret() const { return impl_->core->secret; }

SessionInfo Session::info() const {
  const Core& c = *impl_->core;
  SessionInfo i;
  i.id = c.id, i.name = c.options.name, i.device = c.options.device, i.dtype = c.options.dtype;
  i.tensors = c.tensors.load(std::memory_order_relaxed);
  i.bytes = c.bytes.load(std::memory_order_relaxed);
  i.peak_bytes = c.peak_bytes.load(std::memory_order_relaxed);
  i.memory_limit = c.options.memory_limit;
  i.ops_run = c.ops.load(std::memory_order_relaxed);
  i.age_seconds = std::chrono::duration<double>(c.shared.clock.now() - c.created).count();
  return i;
}

void Session::attach() { impl_->core->attachments.fetch_add(1, std::memory_order_acq_rel); }
void Session::detach() {
  touch();
  impl_->core->attachments.fetch_sub(1, std::memory_order_acq_rel);
}
void Session::touch() { impl_->core->touched.store(impl_->core->shared.clock.now(), std::memory_order_relaxed); }

void Session::run(Batch batch, uint64_t digest, Done<std::shared_ptr<const Outcome>> done) {
  const auto& core = impl_->core;
  const uint64_t seq = batch.seq, acked = batch.acked;
  auto accept = [&](const std::shared_ptr<std::atomic<bool>>& cancelled) -> std::optional<Error> {
    const size_t bytes = bytes_of(batch);
    std::unique_ptr<Task> task = make_batch_task(core, std::move(batch), cancelled);
    return core->try_push(task, bytes);  // answered by `refuse`: the window is locked here
  };
  auto refuse = [&](Done<std::shared_ptr<const Outcome>> d, Error e) {
    auto outcome = std::make_shared<Outcome>();
    outcome->seq = seq;
    outcome->error = std::move(e.at(seq, -1));
    d(std::move(outcome));
  };
  if (core->closing.load(std::memory_order_acquire))
    return refuse(std::move(done), Error(Code::closed, "the session is closed"));
  core->window.take(seq, acked, digest, std::move(done), accept, refuse);
}

Result<Bytes> Session::fetched(uint64_t seq, uint32_t index) {
  const auto outcome = impl_->core->window.answer(seq);
  if (!outcome) return Error(Code::bad_program, "there is no answer to batch " + std::to_string(seq));
  if (index >= outcome->fetched.size() || !outcome->fetched[index].present)
    return Error(Code::bad_program, "batch " + std::to_string(seq) + " fetched no value " + std::to_string(index));
  return outcome->fetched[index].value.bytes;
}

uint64_t Session::last_seq() const { return impl_->core->window.last(); }
void Session::cancel(uint64_t seq) {
  impl_->core->window.cancel(seq);
  impl_->core->shared.executor.wake(impl_->core->queue);  // where it waits for other ranks
}

void Session::run(std::shared_ptr<const Program> program, std::vector<Program::Input> feeds,
                  Done<Result<ProgramResult>> done) {
  const size_t bytes = bytes_of(*program) + bytes_of(feeds);
  impl_->core->push(make_program_task(
                        impl_->core, [program](State&) { return program; }, std::move(feeds), {}, std::move(done)),
                    bytes);
}

void Session::define(std::string name, std::shared_ptr<const Program> program, Done<Result<void>> done) {
  const size_t bytes = bytes_of(*program);
  post<void>(
      impl_->core, bytes, std::move(done), [name = std::move(name), program = std::move(program), bytes](State& s) {
        check_name(name);
        const auto old = s.programs.find(name);
        const size_t freed = old == s.programs.end() ? 0 : bytes_of(*old->second);
        if (s.program_bytes - freed + bytes > kProgramBytes || (!freed && s.programs.size() >= kPrograms))
          throw Error(Code::memory_limit, "a session may store " + std::to_string(kPrograms) +
                                              " programs of together " + std::to_string(kProgramBytes) + " bytes");
        s.program_bytes += bytes - freed;
        s.programs.insert_or_assign(name, program);
      });
}

void Session::run_defined(std::string name, std::vector<Program::Input> feeds, std::vector<std::string> fetch,
                          Done<Result<ProgramResult>> done) {
  const size_t bytes = bytes_of(feeds);
  auto find = [name = std::move(name)](State& s) {
    const auto found = s.programs.find(name);
    if (found == s.programs.end()) throw Error(Code::no_program, "there is no program '" + name + "'");
    return found->second;
  };
  impl_->core->push(
      make_program_task(impl_->core, std::move(find), std::move(feeds), std::move(fetch), std::move(done)), bytes);
}

void Session::drop_program(std::string name, Done<Result<void>> done) {
  post<void>(impl_->core, name.size(), std::move(done), [name](State& s) {
    const auto found = s.programs.find(name);
    if (found == s.programs.end()) throw Error(Code::no_program, "there is no program '" + name + "'");
    s.program_bytes -= bytes_of(*found->second);
    s.programs.erase(found);
  });
}

void Session::reserve(DType dtype, Shape shape, Done<Result<Room>> done) {
  Core* core = impl_->core.get();
  post<Room>(impl_->core, 0, std::move(done), [core, dtype, shape = std::move(shape)](State& s) {
    {
      const std::lock_guard lock(core->uploads_mutex);
      if (core->uploads.size() >= Core::kUploads) throw Error(Code::overloaded, "too many uploads are open");
    }
    core->check_server_memory();
    engine::Upload u = engine::reserve(s.cx, dtype, shape);
    return Room{std::move(u.hold), static_cast<std::byte*>(u.data), u.bytes, u.dtype, u.shape};
  });
}

uint64_t Session::hold(Room room) {
  const std::lock_guard lock(impl_->core->uploads_mutex);
  impl_->core->uploads.emplace(impl_->core->next_upload, std::move(room));
  return impl_->core->next_upload++;
}

Result<Room> Session::held(uint64_t upload) {
  const std::lock_guard lock(impl_->core->uploads_mutex);
  const auto found = impl_->core->uploads.find(upload);
  if (found == impl_->core->uploads.end())
    return Error(Code::bad_program, "there is no upload " + std::to_string(upload));
  return found->second;
}

void Session::put(Key key, Room room, bool requires_grad, Done<Result<TensorInfo>> done) {
  post<TensorInfo>(impl_->core, key.name.size(), std::move(done),
                   [key = std::move(key), room = std::move(room), requires_grad](State& s) mutable {
                     engine::Tensor t = tensor_of(s.cx, room, requires_grad);
                     room = Room();
                     s.put(key, t);
                     return info_of(t, -1);
                   });
}

namespace {
/// What a key names; throws no_tensor and no_grad.
engine::Tensor named(State& s, const Key& key) {
  engine::Tensor t = s.entry(key).tensor;
  if (!t) throw Error(Code::no_tensor, "'" + shown(key) + "' is a gradient that does not exist");
  if (key.part == Part::grad) {
    t = engine::grad_of(t);
    if (!t) throw Error(Code::no_grad, "'" + shown(key) + "' has no gradient");
  }
  return t;
}
}  // namespace

void Session::get(Key key, Done<Result<TensorValue>> done) {
  post<TensorValue>(impl_->core, key.name.size(), std::move(done), [key](State& s) { return value_of(named(s, key)); });
}

void Session::describe(Key key, Done<Result<TensorInfo>> done) {
  post<TensorInfo>(impl_->core, key.name.size(), std::move(done), [key](State& s) {
    const engine::Tensor t = named(s, key);
    return info_of(t, key.part == Part::value ? s.entry(key).count : -1);
  });
}

void Session::list(Done<Result<std::vector<std::pair<std::string, TensorInfo>>>> done) {
  using List = std::vector<std::pair<std::string, TensorInfo>>;
  post<List>(impl_->core, 0, std::move(done), [](State& s) {
    List all;
    all.reserve(s.table.size());
    std::vector<std::pair<std::string_view, uint64_t>> names(s.names.begin(), s.names.end());
    std::sort(names.begin(), names.end());
    for (const auto& [name, id] : names) {
      if (const auto& t = s.table.find(id)->tensor) all.emplace_back(name, info_of(t, -1));
    }
    for (const uint64_t id : s.table.ids()) {
      if (id >= Table::kServerIds) break;
      const Entry& e = *s.table.find(id);
      if (e.tensor) all.emplace_back("#" + std::to_string(id), info_of(e.tensor, e.count));
    }
    return all;
  });
}

void Session::release(Key key, Done<Result<void>> done) {
  post<void>(impl_->core, key.name.size(), std::move(done), [key](State& s) {
    if (key.part != Part::value) throw Error(Code::bad_argument, "a gradient is released with its tensor");
    s.entry(key);
    if (key.name.empty()) {
      s.forget(key.id);
    } else {
      s.forget(key.name);
    }
  });
}

void Session::join_group(std::string name, cluster::JoinOptions options, Done<Result<GroupInfo>> done) {
  impl_->core->push(make_join_task(impl_->core, std::move(name), std::move(options), std::move(done)), 0);
}

void Session::describe_group(std::string name, Done<Result<GroupInfo>> done) {
  post<GroupInfo>(impl_->core, name.size(), std::move(done), [name](State& s) { return s.groups->info(name); });
}

void Session::leave_group(std::string name, Done<Result<void>> done) {
  post<void>(impl_->core, name.size(), std::move(done), [name](State& s) { s.groups->leave(name); });
}

void Session::close(Done<Result<void>> done) {
  const auto& core = impl_->core;
  if (core->closing.exchange(true, std::memory_order_acq_rel))
    return done(Error(Code::closed, "the session is closed"));
  if (core->on_close) core->on_close();
  core->push(std::make_unique<CloseTask>(core, std::move(done)), 0, true);
  core->shared.executor.shut(core->queue);
  core->shared.executor.wake(core->queue);
}

}  // namespace gradwire::server
