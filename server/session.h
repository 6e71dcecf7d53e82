#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "server/engine.h"
#include "server/executor.h"
#include "server/groups.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/service.h"
#include "server/table.h"
#include "server/window.h"

namespace gradwire::server {

/// What all sessions of a server share. What it refers to outlives them.
struct Shared {
  Shared(Executor& x, const Clock& c, Metrics& m, int64_t memory)
      : executor(x), clock(c), metrics(m), server_memory(memory) {}
  Executor& executor;
  const Clock& clock;
  Metrics& metrics;
  const int64_t server_memory;
  std::atomic<int64_t> bytes{0};  // of all sessions, brought up to date between calls
  ClusterUse cluster;
  ServerGroups groups;
};

/// A session's engine state. Belongs to its queue.
struct State {
  State(std::unique_ptr<engine::Backend> b, engine::Limits limits, int64_t max_tensors, uint64_t table_seed)
      : backend(std::move(b)), cx(*backend, limits), table(max_tensors, table_seed) {}
  ~State() { cx.pending.reset(); }
  std::unique_ptr<engine::Backend> backend;
  engine::Context cx;
  Table table;
  std::unordered_map<std::string, uint64_t> names;  // of HTTP: aliases of entries
  std::map<std::string, std::shared_ptr<const Program>> programs;
  size_t program_bytes = 0;
  std::optional<Error> failure;  // the first error of failed_epoch
  uint64_t failed_epoch = 0;
  uint64_t ops = 0;
  std::unique_ptr<Groups> groups;  // also cx.exchange

  /// Throws no_tensor.
  Entry& entry(const Key&);
  /// Makes or overwrites a named entry; a tensor that other names hold stays as it is.
  void set(const std::string& name, engine::Tensor);
  /// Makes the entry of a key that names a value: a name, or an id not used before.
  void put(const Key&, engine::Tensor);
  void forget(uint64_t id);  // unnamed entries
  bool forget(const std::string& name);
};

/// The inside of a Session, which its tasks share.
struct Core : std::enable_shared_from_this<Core> {
  Core(std::shared_ptr<Shared> s, SessionOptions o)
      : keep(std::move(s)), options(std::move(o)), created(shared.clock.now()) {}
  const std::shared_ptr<Shared> keep;  // tasks may outlive the service
  Shared& shared = *keep;
  const SessionOptions options;  // with the defaults filled in
  std::string id, secret;
  const Clock::time_point created;
  Executor::QueuePtr queue = shared.executor.make_queue();

  // any thread
  std::atomic<int64_t> tensors{0}, bytes{0}, peak_bytes{0};
  std::atomic<uint64_t> ops{0};
  std::atomic<int> attachments{0};
  std::atomic<Clock::time_point> touched{created};
  std::atomic<bool> closing{false};
  Window window;
  std::function<void()> on_close;             // tells the service, once, when the session begins to end
  std::atomic<const char*> reason{"client"};  // why it ends, for the metrics

  std::mutex uploads_mutex;
  uint64_t next_upload = 1;
  std::unordered_map<uint64_t, Room> uploads;

  std::unique_ptr<State> state;  // the queue's; null once closed

  static constexpr size_t kUploads = 4096;
  /// Removes an upload that a call takes (or that a skipped call would have taken).
  std::optional<Room> take_upload(uint64_t number);
  /// After a step: brings the counters up to date.
  void account();
  /// Throws memory_limit while all sessions together have more than the server may.
  void check_server_memory() const;
  /// Queues a task, or leaves it and says why not: `overloaded` or `closed`.
  std::optional<Error> try_push(std::unique_ptr<Task>& task, size_t task_bytes, bool forced = false);
  /// Queues a task, or has it answer why not before this returns.
  void push(std::unique_ptr<Task> task, size_t task_bytes, bool forced = false);
};

SessionPtr make_session(std::shared_ptr<Core>);
Core& core_of(Session&);

/// Shape, values and gradients of an engine tensor as plain data.
TensorInfo info_of(const engine::Tensor&, int32_t count);
TensorValue value_of(const engine::Tensor&);
engine::Tensor tensor_of(engine::Context&, const Room&, bool requires_grad);

std::unique_ptr<Task> make_batch_task(std::shared_ptr<Core>, Batch, std::shared_ptr<std::atomic<bool>> cancelled);
size_t bytes_of(const Batch&);
size_t bytes_of(const Program&);
size_t bytes_of(const std::vector<Program::Input>&);

/// Runs a program in steps. `find` is called on the queue.
std::unique_ptr<Task> make_program_task(std::shared_ptr<Core>,
                                        std::function<std::shared_ptr<const Program>(State&)> find,
                                        std::vector<Program::Input> feeds, std::vector<std::string> fetch,
                                        Done<Result<ProgramResult>>);

/// How long one backward may take, on lanes.
inline constexpr auto kOpDeadline = std::chrono::seconds(60);

/// Whatever was thrown, as an Error.
Error current_error() noexcept;

}  // namespace gradwire::server
