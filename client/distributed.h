#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "client/tensor.h"

// What sessions of several servers compute together, as torch.distributed has it:
//
//   namespace dist = gradwire::distributed;
//   dist::init_process_group();                    // reads MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK
//   auto t = gradwire::full({2}, dist::get_rank());
//   dist::all_reduce(t);                           // in place, the same bits on all ranks
//
// A rank is a session. Bytes travel between the servers, never through the client. Operations are calls like any other:
// they do not wait but where that is said, run in the order of the program, and their errors come as those of other
// calls do. Ranks are those of the default group, also where an operation names another.

namespace gradwire::distributed {

enum class ReduceOp : uint8_t { SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG };
using enum ReduceOp;

/// A process group of a session, by its name there.
struct ProcessGroup {
  std::string name{};
};
namespace group {
inline const ProcessGroup WORLD{};
}

struct InitOptions {
  std::string backend = "gloo";
  std::string init_method = "env://";  // or tcp://HOST:PORT, tcp://[multicast group]:PORT, file://PATH
  int64_t world_size = -1, rank = -1;  // -1: not given
  std::string group_name{};
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // of joining, and of each operation
};

using Here = std::source_location;

/// Makes the default group, and waits until all ranks have joined. env:// reads this program's environment.
void init_process_group(Session&, const InitOptions& = {}, Here = Here::current());
void init_process_group(const InitOptions& = {}, Here = Here::current());
/// The backend in front, as PyTorch has it: init_process_group("nccl"). No template would take `{.rank = 1}` for a
/// text.
template <std::convertible_to<std::string_view> S>
void init_process_group(const S& backend, InitOptions o = {}, Here at = Here::current()) {
  o.backend = std::string_view(backend);
  init_process_group(o, at);
}
bool is_initialized(Here = Here::current());
bool is_initialized(Session&, Here = Here::current());
/// Leaves a group; the others' operations fail from then on.
void destroy_process_group(const ProcessGroup& = group::WORLD, Here = Here::current());
void destroy_process_group(Session&, const ProcessGroup& = group::WORLD, Here = Here::current());
/// A group of some ranks. All ranks call it, in the same order; for those that are not in it, operations with it do
/// nothing.
ProcessGroup new_group(const std::vector<int64_t>& ranks, Here = Here::current());
ProcessGroup new_group(Session&, const std::vector<int64_t>& ranks, Here = Here::current());

/// These wait for the server. -1: not a member.
int64_t get_rank(const ProcessGroup& = group::WORLD, Here = Here::current());
int64_t get_world_size(const ProcessGroup& = group::WORLD, Here = Here::current());
int64_t get_rank(Session&, const ProcessGroup& = group::WORLD, Here = Here::current());
int64_t get_world_size(Session&, const ProcessGroup& = group::WORLD, Here = Here::current());

void all_reduce(const Tensor& tensor, ReduceOp op = SUM, const ProcessGroup& = group::WORLD, Here = Here::current());
/// Only dst's tensor is written to.
void reduce(const Tensor& tensor, int64_t dst, ReduceOp op = SUM, const ProcessGroup& = group::WORLD,
            Here = Here::current());
void broadcast(const Tensor& tensor, int64_t src, const ProcessGroup& = group::WORLD, Here = Here::current());
/// Waits to know how many ranks there are.
std::vector<Tensor> all_gather(const Tensor& tensor, const ProcessGroup& = group::WORLD, Here = Here::current());
/// Into tensors that are there.
void all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, const ProcessGroup& = group::WORLD,
                Here = Here::current());
/// dst gets all ranks' tensors, the others none.
std::vector<Tensor> gather(const Tensor& tensor, int64_t dst = 0, const ProcessGroup& = group::WORLD,
                           Here = Here::current());
/// Into tensors that are there; only dst gives some.
void gather(const Tensor& tensor, const std::vector<Tensor>& gather_list, int64_t dst = 0,
            const ProcessGroup& = group::WORLD, Here = Here::current());
void scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list = {}, int64_t src = 0,
             const ProcessGroup& = group::WORLD, Here = Here::current());
void reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op = SUM,
                    const ProcessGroup& = group::WORLD, Here = Here::current());
/// Waits until all ranks have come to it.
void barrier(const ProcessGroup& = group::WORLD, Here = Here::current());
void barrier(Session&, const ProcessGroup& = group::WORLD, Here = Here::current());

void send(const Tensor& tensor, int64_t dst, const ProcessGroup& = group::WORLD, Here = Here::current());
/// Waits for the message; without src it takes any rank's. Returns the sender's rank.
int64_t recv(const Tensor& tensor, std::optional<int64_t> src = {}, const ProcessGroup& = group::WORLD,
             Here = Here::current());

/// A message under way. Every request is waited for once.
class Work {
 public:
  explicit Work(Tensor request) : request_(std::move(request)) {}
  /// Waits; throws what went wrong.
  void wait(Here = Here::current());
  bool is_completed(Here = Here::current());
  /// The sender's rank, after wait().
  int64_t source_rank() const { return source_; }

 private:
  Tensor request_;
  bool waited_ = false;
  int64_t source_ = -1;
};
Work isend(const Tensor& tensor, int64_t dst, const ProcessGroup& = group::WORLD, Here = Here::current());
/// The tensor is written when wait() has returned.
Work irecv(const Tensor& tensor, std::optional<int64_t> src = {}, const ProcessGroup& = group::WORLD,
           Here = Here::current());

struct DistributedOptions {
  ProcessGroup process_group{};
  bool broadcast_buffers = true;
  int64_t bucket_bytes = 25 << 20;
};

/// Trains one model on several ranks: each computes on its own part of a batch, and backward leaves the mean of all
/// ranks' gradients in .grad, sent in buckets between the servers while it goes on. Parameters and buffers start as
/// rank 0 has them, and buffers are as rank 0 has them before each forward.
///
///   nn::DistributedDataParallel ddp(net);
///   loss(ddp(x), y).backward();
///   optimizer.step();
///
/// Construction, forward and backward are points that all ranks come to, in the same order. Parameters that are added
/// later are not averaged; grad() averages nothing, and backward with create_graph is refused. Where a backward fails on
/// a rank when others wait for its gradients, that rank leaves the group.
class DistributedData {
 public:
  explicit DistributedData(std::vector<Tensor> parameters, std::vector<Tensor> buffers = {}, DistributedOptions = {},
                           Here = Here::current());
  /// What forward begins with.
  void sync_buffers(Here = Here::current()) const;

  /// While it lives gradients add up without travelling; the next backward after it averages the sums.
  class NoSync {
   public:
    explicit NoSync(const DistributedData& d) : data_(d) { data_.set_sync(false); }
    ~NoSync();
    NoSync(const NoSync&) = delete;

   private:
    const DistributedData& data_;
  };
  NoSync no_sync() const { return NoSync(*this); }

 private:
  void set_sync(bool) const;
  std::vector<Tensor> parameters_, buffers_;
  DistributedOptions options_;
};

template <class Model> class DistributedDataParallel : public DistributedData {
 public:
  explicit DistributedDataParallel(Model& module, DistributedOptions options = {}, Here at = Here::current())
      : DistributedData(module.parameters(), buffers_of(module), std::move(options), at), module_(module) {}
  Model& module() const { return module_; }
  // The module's own.
  std::vector<Tensor> parameters() const { return module_.parameters(); }
  void train(bool mode = true) const { module_.train(mode); }
  void eval() const { module_.train(false); }
  void zero_grad(bool set_to_none = true, Here at = Here::current()) const { module_.zero_grad(set_to_none, at); }
  template <class... Args> auto operator()(Args&&... args) const {
    sync_buffers();
    return module_(std::forward<Args>(args)...);
  }

 private:
  static std::vector<Tensor> buffers_of(Model& m) {
    if constexpr (requires { m.buffers(); })
      return m.buffers();
    else
      return {};
  }
  Model& module_;
};

}  // namespace gradwire::distributed

namespace gradwire::nn {
using distributed::DistributedDataParallel;
}
