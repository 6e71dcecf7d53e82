#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/arrival.h"
#include "client/tensor.h"
#include "schema/op_call.h"

namespace gradwire::client {

class Link;

// When a batch is full, and how many may wait to be sent. With what is in flight (link.cpp) this stays below 16 MiB.
inline constexpr size_t kBatchCalls = 1024;
inline constexpr size_t kBatchBytes = 256 << 10;
inline constexpr size_t kSealed = 8;
inline constexpr size_t kBatchFetches = 1024;
inline constexpr size_t kCallBytes = 4 << 20;     // of one call's arguments: a message has at most 8 MiB
inline constexpr size_t kInlineBytes = 64 << 10;  // of an upload that travels within a batch

/// A lock for a few dozen instructions.
class Spin {
 public:
  void lock() {
    for (int tries = 0; flag_.exchange(true, std::memory_order_acquire);) {
      while (flag_.load(std::memory_order_relaxed)) {
        if (++tries > 100) std::this_thread::yield();
      }
    }
  }
  void unlock() { flag_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> flag_{false};
};

/// What is known of a tensor beyond its number.
struct Extra {
  std::shared_ptr<const Error> failure;  // the call that makes it failed or was skipped
  std::shared_ptr<const TensorInfo> info;
};

/// A batch and who waits for its fetches, in their order.
struct Outgoing {
  Batch batch;
  std::vector<std::shared_ptr<Arrival>> fetches;
  size_t bytes = 0;  // of texts and uploads within it
  size_t size() const {
    return bytes + 16 * (batch.calls.size() + batch.args.size()) + 8 * (batch.ints.size() + batch.lines.size());
  }
  bool empty() const { return batch.calls.empty() && fetches.empty(); }
};

/// The client's side of one session: records calls into a batch, hands full ones over to the Link, and keeps what is
/// known of tensors and errors. Any thread calls; the network thread calls what stands below its line.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(std::shared_ptr<Link>, std::string id, DType default_dtype, Timeout);
  ~Core();

  static Core& of(const Node& n) { return *n.session->core_; }

  /// Records a call and makes a handle for each of `out`; its results take `ids` ids, if those are more. Throws what is
  /// pending.
  void call(uint16_t op, const std::source_location&, std::span<const Value<Tensor>>, std::span<Tensor> out,
            uint64_t ids = 0);
  /// The same for a list of `count` results; SIZE_MAX: the server is asked how many there are.
  std::vector<Tensor> list(uint16_t op, const std::source_location&, std::span<const Value<Tensor>>, size_t count);
  /// Records a kUpload of inline bytes, or of an upload's number.
  Tensor upload(DType, std::span<const int64_t> shape, std::span<const std::byte> bytes, uint64_t number,
                bool requires_grad, const std::source_location&);
  void fetch(const Node&, Part, FetchKind, const std::shared_ptr<Arrival>&);
  void release(Node*) noexcept;

  /// Sends what is recorded, without waiting to gather more.
  uint64_t flush();
  void sync(Timeout);
  void close(Timeout);
  /// The calling thread has met this error of a batch of this epoch: opens the next epoch, and throws.
  [[noreturn]] void met(const std::shared_ptr<const Error>&, uint64_t epoch);
  /// Throws what is pending, before a call that does not go through a batch.
  void check();
  std::vector<Warning> warnings();

  std::shared_ptr<const TensorInfo> known(const Node&);
  void learn(Node&, TensorInfo);

  Link& link() { return *link_; }
  const std::string& id() const { return id_; }
  DType default_dtype() const { return default_dtype_; }
  Timeout timeout(Timeout t) const { return t.count() ? t : timeout_; }
  Session& session() { return session_; }
  uint64_t remote = 0;  // this session's number in the Link

  // ---- the network thread ----
  enum class Next { none, later, batch };
  /// The next batch to send. `later`: some calls stand in an open batch; `open_too` takes them.
  Next next(std::unique_ptr<Outgoing>&, bool open_too);
  bool idle();  // nothing waits to be sent
  void recycle(std::unique_ptr<Outgoing>);
  /// The answer to a batch; in order.
  void answered(uint64_t seq, uint64_t epoch, std::shared_ptr<const Error>, std::vector<Warning>);
  /// The connection or the session is gone.
  void broken(std::shared_ptr<const Error>);

 private:
  struct Recording;  // undoes a half-written call
  void check_locked();
  void encode(Batch&, const Value<Tensor>&);
  void encode_index(Batch&, const IndexItem<Tensor>&);
  void encode_tensor(Batch&, const Tensor&);
  uint32_t text(Batch&, std::string_view);
  uint32_t line(Batch&, const std::source_location&);
  OpCall& begin(uint16_t op, const std::source_location&);
  Node* node(uint64_t id);
  Node* allocate();
  /// After a call: hands over a full batch. True: the Link must be told.
  bool push_locked(bool was_empty);
  void seal_locked();
  void open_locked();
  void tell_and_wait(bool tell);
  void mark_locked(const Error&, const std::shared_ptr<const Error>&);
  [[noreturn]] void raise_pending_locked(std::unique_lock<Spin>&);
  void wait_for(uint64_t seq, Timeout);
  void wake(std::condition_variable&);

  const std::shared_ptr<Link> link_;
  const std::string id_;
  const DType default_dtype_;
  const Timeout timeout_;
  Session session_;  // lent to tensors: owns nothing

  Spin lock_;  // guards all down to the next comment
  std::unique_ptr<Outgoing> open_;
  std::deque<std::unique_ptr<Outgoing>> sealed_;
  std::vector<std::unique_ptr<Outgoing>> pool_;
  uint64_t next_id_ = 1, next_seq_ = 1, epoch_ = 0;
  std::shared_ptr<const Error> pending_;  // of this epoch, not yet thrown
  std::shared_ptr<const Error> dead_;     // for good
  std::vector<std::unique_ptr<Node[]>> slabs_;
  Node* free_ = nullptr;
  size_t live_ = 0;
  std::shared_ptr<Core> keep_;  // while tensors live
  std::vector<Warning> warnings_;
  struct Line {
    const char* file = nullptr;
    uint32_t line = 0, generation = 0, index = 0;
  };
  Line lines_[64];
  uint32_t generation_ = 0;
  struct File {
    const char* name;
    uint32_t text;
  };
  std::vector<File> files_;  // of the open batch

  std::mutex wait_mutex_;  // for those who wait for answers or for room
  std::condition_variable answers_, room_;
  std::atomic<uint64_t> answered_{0};
  std::atomic<uint64_t> wanted_{UINT64_MAX};  // the least answer that somebody waits for; others wake nobody
  std::atomic<int> blocked_{0};               // who wait for room
};

}  // namespace gradwire::client
