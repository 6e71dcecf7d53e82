#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/op.h"
#include "schema/collective.h"

// How rows work together with other ranks. The engine knows no network: whoever owns the Context may give it an
// Exchange, and finishes the calls that wait.

namespace gradwire::engine {

/// Something that other ranks take part in, begun or about to begin.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Any thread; what is done stays so. The owner of the Context is woken then.
  virtual bool done() const = 0;
  /// Once done: a number (the group rank that a recv came from, this session's rank in a group that was made), or
  /// throws what went wrong.
  virtual int result() = 0;
  /// Once done: the session keeps the bytes, on its own account from now on. False: it keeps many already.
  virtual bool keep() { return true; }
  /// Parts of contiguous, row-major elements: what goes in and, once done, what came out.
  std::span<std::byte> bytes;
};
using TransferPtr = std::shared_ptr<Transfer>;

/// A call that waits for other ranks. Belongs to the Context's thread, and ends before the Context does.
struct Pending {
  TransferPtr transfer;
  std::string group;
  std::function<Results(Transfer&)> finish;  // once done; throws what went wrong
  Results run() { return finish(*transfer); }
};

/// init_process_group's arguments; -1: not given.
struct JoinCall {
  std::string_view backend, init_method, group_name, environment;
  int64_t world_size = -1, rank = -1;
  double timeout = 0;  // seconds
};

/// The process groups of a Context by name; "" is the default one. On the Context's thread.
class Exchange {
 public:
  struct Group {
    int rank = -1, size = 0;          // rank -1: this session is no member
    const std::vector<int>* ranks{};  // the default group's rank of each; null: the same
  };
  virtual ~Exchange() = default;
  virtual bool has(std::string_view group) = 0;
  /// Throws no_object where there is no such group.
  virtual Group group(std::string_view) = 0;
  /// Room for a transfer of this session, who is a member. Throws memory_limit.
  virtual TransferPtr prepare(std::string_view group, size_t bytes) = 0;
  virtual void start(const TransferPtr&, std::string_view group, const Terms&) = 0;
  virtual TransferPtr join(std::string_view group, const JoinCall&) = 0;
  virtual TransferPtr split(std::string_view parent, std::string_view group, std::span<const int64_t> ranks) = 0;
  /// The others' calls fail. Throws as group() does. With a reason, later calls say it.
  virtual void leave(std::string_view group, std::string_view why = {}) = 0;

  static constexpr size_t kRequests = 1024;  // of isend and irecv, that nobody has waited for
  std::map<int64_t, std::unique_ptr<Pending>> requests;
  int64_t next_request = 1;
};

/// Of tensors that travel as one run of bytes: a number of `seed`, their count, dtypes and shapes, of 48 bits. Ranks
/// whose numbers differ would cut the bytes at different borders.
uint64_t list_number(std::span<const Tensor>, uint64_t seed = 0);

/// The bytes of t, to where a transfer takes them from; and from there into t, whose version grows.
void put_bytes(Context&, const Tensor& t, std::byte* to);
void take_bytes(Context&, const std::byte* from, const Tensor& t);

}  // namespace gradwire::engine
