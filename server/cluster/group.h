#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/collective.h"
#include "server/cluster/data_plane.h"

namespace gradwire::server::cluster {

/// init_process_group's arguments; -1: not given.
struct JoinOptions {
  std::string backend = "gloo", init_method = "env://", group_name;
  int world_size = -1, rank = -1;
  std::chrono::milliseconds timeout{30000};  // of joining, and of each collective
  // What env:// reads: the client's (or the server's) MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK.
  std::vector<std::pair<std::string, std::string>> environment;
  // Joining ends, and the group with it, when what this points to is no more: nobody waits for it. Not set: somebody
  // does.
  std::optional<std::weak_ptr<const void>> asker{};
  bool abandoned() const { return asker && asker->expired(); }
};

/// One rank's membership. Any thread may call.
class Group {
 public:
  virtual ~Group() = default;  // leaves: the others' collectives fail
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual uint64_t epoch() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  /// Throws memory_limit.
  virtual AreaPtr area(size_t bytes) = 0;
  /// Agrees with the other ranks on the terms, then moves the bytes. In the order of the calls; send and recv by
  /// themselves. Fails with group_mismatch that names the difference (on all ranks), unavailable that names the rank
  /// that is gone, deadline_exceeded.
  virtual void start(Work) = 0;
  /// A group of some of this group's ranks. Every rank of this group calls it, in the same order; those that are not
  /// in `ranks` get a null group. The new ranks follow the sorted old ones.
  virtual void split(std::vector<int> ranks, Done<Result<std::shared_ptr<Group>>> done) = 0;
};
using GroupPtr = std::shared_ptr<Group>;

/// Links to other servers and the groups made over them. Made by main(), ends before the executor.
class Cluster {
 public:
  struct Options {
    std::string peer;       // the address to listen on, as "127.0.0.1:7422"; empty: no groups
    std::string advertise;  // how other servers reach it; empty: the address itself
    std::string tls_cert, tls_key, tls_ca;
    bool insecure_no_tls = false;  // else only loopback may be without TLS
    bool multicast = false;        // tcp://[multicast group] rendezvous is off unless enabled
    DataPlaneOptions data;         // its host is the advertised one
    /// Makes the data plane of a backend ("gloo", "nccl"); null where this build has none.
    std::function<std::unique_ptr<DataPlane>(const std::string& backend, const DataPlaneOptions&)> make_plane;
  };
  /// Members elsewhere see this server's ranks gone; what waits here fails with `unavailable`, and so does all that is
  /// called later on groups that outlive it.
  virtual ~Cluster() = default;
  virtual std::string address() const = 0;  // in use; empty: no groups
  /// Blocks nobody: `done` is called when all ranks have joined, or the timeout has passed.
  virtual void join(JoinOptions, Done<Result<GroupPtr>> done) = 0;
};
/// Throws Error{bad_argument} for an address or files that cannot be used.
std::unique_ptr<Cluster> make_cluster(Cluster::Options);

}  // namespace gradwire::server::cluster
