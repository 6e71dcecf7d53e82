#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/exchange.h"

namespace gradwire::engine {

/// Averages the gradients of some leaves over the ranks of a group while backward still goes on: these are split into
/// buckets, from the last parameter to the first, and a bucket travels when all its gradients are there and those
/// before it have begun, of this model and of those that were attached later; so all ranks send the same in the same
/// order. The averages become .grad at the end, all or none: a large gradient that nothing else shares moves to the
/// memory in which they came. Owned by the leaves' Extra; on the Context's thread.
class Reducer {
 public:
  static constexpr int64_t kFirstBucket = int64_t{1} << 20;  // bytes: what comes first should travel early
  ~Reducer();
  /// Attaches itself to `params`, which are leaves that require grad.
  static void attach(Context&, std::span<const Tensor> params, std::string group, int64_t bucket_bytes);

  bool enabled = true;  // else gradients stay this rank's own
  /// A backward begins that comes to these leaves, by their nodes; the others count as they are.
  void begin(const std::unordered_map<Node*, uint32_t>& reached);
  /// The gradient of this parameter is there.
  void arrived(uint32_t slot);
  /// Sends what can be sent. Whether that is all.
  bool pump();
  /// No more gradients will come: what has none counts as zeros.
  void flush();
  bool done() const;
  /// Once done: all that writing the averages needs, or throws what went wrong; nothing is written.
  void prepare();
  /// Writes the averages, once all reducers of a backward are prepared. Then drop().
  void commit();
  /// This backward has failed: where others still wait for gradients of it, leaves the group. Lets go of all transfers.
  void abandon() noexcept;
  /// Lets go of all transfers.
  void drop() noexcept;
  /// The parameter is gone.
  void forget(uint32_t slot) { slots_[slot].param = nullptr; }

 private:
  struct Kept;
  struct Slot {
    TensorImpl* param;  // null: gone
    uint32_t bucket;
    size_t offset, bytes;  // in its bucket
    bool there = false;
    Tensor sent{};   // on a CPU: its part of the transfer
    Tensor fresh{};  // for an average that has no place yet
  };
  struct Bucket {
    DType dtype;
    size_t bytes = 0;
    std::vector<uint32_t> slots{};
    size_t missing = 0;
    TransferPtr transfer{};
    std::shared_ptr<Kept> kept{};  // owns it, for the gradients that stay there
  };
  void start(Bucket&);

  Context* cx_ = nullptr;  // outlives this
  std::string group_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  size_t next_ = 0;     // the bucket that travels next
  bool begun_ = false;  // a gradient has come: others may wait for the rest
  uint64_t model_ = 0;  // of its parameters, which all ranks have alike
};

}  // namespace gradwire::engine
