#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "server/cluster/collective.h"

namespace gradwire::server::cluster {

/// Where a data plane listens.
struct DataPlaneOptions {
  std::string host = "127.0.0.1";         // the address that the other ranks reach this server by
  int first_port = 0, last_port = 0;      // the range to bind in; 0, 0: any free port
  std::string helper = "/proc/self/exe";  // the program that runs as helper; it is called as `helper data-plane-helper`
  /// Bytes that areas may have together. None of its own: who asks for areas has limits.
  int64_t memory = std::numeric_limits<int64_t>::max();
};

/// Moves the bytes of one group's collectives: Gloo in a helper process, or NCCL on CUDA. Knows nothing of terms that
/// differ: the group has made sure that all ranks run the same. Any thread may call; calls run in order. A failed call,
/// a passed deadline or a dead helper ends it for good: everything pending and to come fails with `unavailable`
/// or `deadline_exceeded`, and the helper is killed.
class DataPlane {
 public:
  virtual ~DataPlane() = default;  // kills the helper
  /// How the other ranks reach this one: the blob to give to each of them over the authenticated link.
  virtual void prepare(int rank, int size, std::chrono::milliseconds timeout, Done<Result<std::string>> done) = 0;
  /// `blobs` by rank, own one included. Each pair of ranks then proves that it knows `key` (random, 32 bytes, the
  /// group's and epoch's own) before anything else is sent.
  virtual void connect(std::vector<std::string> blobs, std::string key, Done<Result<void>> done) = 0;
  /// Throws Error{memory_limit}.
  virtual AreaPtr area(size_t bytes) = 0;
  /// The area is this plane's own.
  virtual void run(Work) = 0;
  /// For send and recv, which only two ranks take part in: `tag` pairs them up.
  virtual void run(Work, uint64_t tag) = 0;
};

std::unique_ptr<DataPlane> make_gloo_plane(DataPlaneOptions);

/// The helper's main(): what `gradwired data-plane-helper` does. Its orders come on file descriptor 3.
int data_plane_helper();

}  // namespace gradwire::server::cluster
