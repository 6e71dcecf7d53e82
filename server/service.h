#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schema/op_call.h"
#include "server/program.h"
#include "server/result.h"

namespace gradwire::server {

class Executor;
class Clock;
class Metrics;
struct Options;
namespace cluster {
class Cluster;
class Group;
struct JoinOptions;
}  // namespace cluster

struct SessionOptions {
  std::string device, name;      // empty: the server's device; no name
  DType dtype = DType::float32;  // the default dtype
  std::optional<uint64_t> seed;
  int64_t memory_limit = 0, ttl_seconds = 0;  // 0: the server's defaults
  std::vector<std::string> compat;
};

struct SessionInfo {
  std::string id, name, device;
  DType dtype = DType::float32;  // the default dtype
  int64_t tensors = 0, bytes = 0, peak_bytes = 0, memory_limit = 0;
  uint64_t ops_run = 0;
  double age_seconds = 0;
};

/// A process group as one session sees it; rank -1: it is no member.
struct GroupInfo {
  std::string name;
  int rank = -1, world_size = 0;
  uint64_t epoch = 0;
};

/// One fetch of a batch; absent where there is no such gradient.
struct Fetched {
  bool present = false;
  TensorValue value;
};

/// The answer to a batch. A failed one carries the first error of its epoch.
struct Outcome {
  uint64_t seq = 0;
  std::optional<Error> error;
  std::vector<Fetched> fetched;
  std::vector<Warning> warnings;
};

/// One client's tensors, graphs and programs. Every method may be called on any thread: it puts a task into the
/// session's queue, in order, and `done` is called once, on a compute thread. What cannot be queued is answered before
/// the method returns, on the caller's thread: `overloaded` by a full queue, `closed` by a closed session, a repeat or
/// a wrong number by run(Batch).
class Session {
 public:
  const std::string& id() const;      // 128 random bits in hex
  const std::string& secret() const;  // for resuming; not for HTTP
  SessionInfo info() const;           // from counters: no waiting
  /// Attached sessions live; others end when their lease is over. RPC holds one attachment a capability, HTTP renews.
  void attach();
  void detach();
  void touch();

  /// Exactly once: seq counts without gaps; a repeat of a seq in the window is answered from it (another digest:
  /// bad_program); a gap is bad_program.
  void run(Batch, uint64_t digest, Done<std::shared_ptr<const Outcome>>);
  /// The snapshot of a fetch that was too large for its outcome, until acked. Calls back at once.
  Result<Bytes> fetched(uint64_t seq, uint32_t index);
  uint64_t last_seq() const;
  void cancel(uint64_t seq);

  void run(std::shared_ptr<const Program>, std::vector<Program::Input> feeds, Done<Result<ProgramResult>>);
  void define(std::string name, std::shared_ptr<const Program>, Done<Result<void>>);
  void run_defined(std::string name, std::vector<Program::Input> feeds, std::vector<std::string> fetch,
                   Done<Result<ProgramResult>>);
  void drop_program(std::string name, Done<Result<void>>);

  void reserve(DType, Shape, Done<Result<Room>>);
  /// An upload's number for a batch's kUpload call.
  uint64_t hold(Room);
  Result<Room> held(uint64_t upload);
  void put(Key, Room, bool requires_grad, Done<Result<TensorInfo>>);
  void get(Key, Done<Result<TensorValue>>);
  void describe(Key, Done<Result<TensorInfo>>);
  void list(Done<Result<std::vector<std::pair<std::string, TensorInfo>>>>);
  void release(Key, Done<Result<void>>);
  /// Joins a process group under a name ("world" is the default one); done when all ranks have. The operators of
  /// engine/ops/{group,collective,message}.cpp work with it.
  void join_group(std::string name, cluster::JoinOptions, Done<Result<GroupInfo>>);
  void describe_group(std::string name, Done<Result<GroupInfo>>);
  void leave_group(std::string name, Done<Result<void>>);
  /// Ends the session: what is queued is answered with `closed`, memory goes back.
  void close(Done<Result<void>>);

  struct Impl;
  explicit Session(std::unique_ptr<Impl>);
  ~Session();
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};
using SessionPtr = std::shared_ptr<Session>;

struct ServerInfo {
  std::string version;
  std::vector<std::string> devices;
  uint64_t catalogue_hash = 0;
  std::vector<std::string> operators;  // full names in index order
  int threads = 0, lanes = 0;
};

/// What the front ends call. Thread-safe; lives as long as they do.
class Service {
 public:
  Service(const Options&, Executor&, Clock&, Metrics&);
  ~Service();

  Result<SessionPtr> open(const SessionOptions&);
  SessionPtr find(std::string_view id);  // null if there is none
  std::vector<SessionInfo> list();
  void close(std::string_view id, Done<Result<void>>);
  ServerInfo info() const;
  const Options& options() const;
  Metrics& metrics();

  /// Draining: no new sessions, /readyz fails.
  void drain();
  bool draining() const;
  /// Ends sessions whose lease is over; called by a timer.
  void sweep();

  /// How sessions reach other servers, from here on. Null, as at first: not at all; before it ends.
  void use(cluster::Cluster*);
  /// A group that this server belongs to, for one session at a time by its name; "world" is then their default group.
  void attach_group(std::string name, std::shared_ptr<cluster::Group>);

  /// Runs a program's JSON text in a session of its own and answers with JSON text. HTTP provides it; main() connects
  /// it.
  std::function<void(std::string, Done<Result<std::string>>)> run_json;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::server
