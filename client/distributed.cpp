#include "client/distributed.h"

#include <atomic>
#include <cstdlib>

#include "client/arrival.h"
#include "client/datasets/sampler.h"
#include "client/errors.h"
#include "client/nn/traits.h"

namespace gradwire::distributed {
namespace {

const char* name_of(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "product", "min", "max", "band", "bor", "bxor", "avg"};
  return kNames[static_cast<size_t>(op)];
}

[[noreturn]] void refuse(const char* op, std::string why, const Here& at) {
  raise(Error(Code::bad_argument, std::move(why), op).at(Where{at.file_name(), at.line()}));
}

/// What env:// reads, as lines NAME=VALUE.
std::string environment() {
  std::string all;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}) {
    if (const char* value = std::getenv(name)) all += std::string(name) + "=" + value + "\n";
  }
  return all;
}

/// What the ranks' tensors are to be copied to, before any of them is asked: one round trip.
std::vector<TensorInfo> places(const char* op, const char* name, const std::vector<Tensor>& list, const Tensor& like,
                               const Here& at) {
  if (list.empty()) return {};
  std::vector<Tensor> all = list;
  all.push_back(like);
  std::vector<TensorInfo> infos = nn::TensorTraits<Tensor>::infos(all);
  const TensorInfo own = std::move(infos.back());
  infos.pop_back();
  for (const TensorInfo& i : infos) {
    if (i.dtype != own.dtype || client::numel_of(i) != client::numel_of(own))
      refuse(op, std::string(name) + ": tensors are not equal in size or data type", at);
  }
  return infos;
}

void copy_into(const std::vector<Tensor>& to, const std::vector<TensorInfo>& places, const std::vector<Tensor>& from,
               const Here& at) {
  const no_grad off;
  for (size_t i = 0; i < to.size(); ++i) gradwire::copy_(to[i], gradwire::reshape(from[i], places[i].shape, at), at);
}

/// What a DistributedSampler asks: the default session's place in its default group.
std::optional<World> world_of_the_default_session() {
  Session& session = default_session();
  if (!is_initialized(session)) return std::nullopt;
  return World{get_world_size(session), get_rank(session)};
}

}  // namespace

void init_process_group(Session& session, const InitOptions& o, Here at) {
  const std::string variables = o.init_method.starts_with("env://") ? environment() : std::string();
  gradwire::init_process_group(session, o.backend, o.init_method, o.world_size, o.rank, o.group_name,
                               std::chrono::duration<double>(o.timeout).count(), variables, "", at)
      .item<int64_t>(at);
  set_default_world(world_of_the_default_session);
}
void init_process_group(const InitOptions& o, Here at) { init_process_group(default_session(), o, at); }

bool is_initialized(Session& session, Here at) { return gradwire::is_initialized(session, "", at).item<bool>(at); }
bool is_initialized(Here at) { return is_initialized(default_session(), at); }

void destroy_process_group(Session& session, const ProcessGroup& g, Here at) {
  gradwire::destroy_process_group(session, g.name, at);
}
void destroy_process_group(const ProcessGroup& g, Here at) { destroy_process_group(default_session(), g, at); }

ProcessGroup new_group(Session& session, const std::vector<int64_t>& ranks, Here at) {
  static std::atomic<uint64_t> made{0};
  ProcessGroup g{"group " + std::to_string(++made)};
  gradwire::new_group(session, std::span<const int64_t>(ranks), g.name, "", at);
  return g;
}
ProcessGroup new_group(const std::vector<int64_t>& ranks, Here at) { return new_group(default_session(), ranks, at); }

int64_t get_rank(Session& session, const ProcessGroup& g, Here at) {
  return gradwire::get_rank(session, g.name, at).item<int64_t>(at);
}
int64_t get_world_size(Session& session, const ProcessGroup& g, Here at) {
  return gradwire::get_world_size(session, g.name, at).item<int64_t>(at);
}
int64_t get_rank(const ProcessGroup& g, Here at) { return get_rank(default_session(), g, at); }
int64_t get_world_size(const ProcessGroup& g, Here at) { return get_world_size(default_session(), g, at); }

void all_reduce(const Tensor& tensor, ReduceOp op, const ProcessGroup& g, Here at) {
  gradwire::all_reduce(tensor, name_of(op), g.name, at);
}
void reduce(const Tensor& tensor, int64_t dst, ReduceOp op, const ProcessGroup& g, Here at) {
  gradwire::reduce(tensor, dst, name_of(op), g.name, at);
}
void broadcast(const Tensor& tensor, int64_t src, const ProcessGroup& g, Here at) {
  gradwire::broadcast(tensor, src, g.name, at);
}
std::vector<Tensor> all_gather(const Tensor& tensor, const ProcessGroup& g, Here at) {
  return gradwire::all_gather(tensor, g.name, at);
}
void all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, const ProcessGroup& g, Here at) {
  const auto size = static_cast<size_t>(std::max<int64_t>(0, get_world_size(tensor.maker(), g, at)));
  if (get_rank(tensor.maker(), g, at) < 0) return;
  if (tensor_list.size() != size)
    refuse("all_gather", "allGather: number of output tensors and group size does not match", at);
  const auto to = places("all_gather", "allGather", tensor_list, tensor, at);
  copy_into(tensor_list, to, all_gather(tensor, g, at), at);
}
std::vector<Tensor> gather(const Tensor& tensor, int64_t dst, const ProcessGroup& g, Here at) {
  return gradwire::gather(tensor, dst, g.name, at);
}
void gather(const Tensor& tensor, const std::vector<Tensor>& gather_list, int64_t dst, const ProcessGroup& g, Here at) {
  if (get_rank(tensor.maker(), g, at) < 0) return;
  const bool here = get_rank(tensor.maker(), group::WORLD, at) == dst;
  if (here && gather_list.empty()) refuse("gather", "gather_list is a required argument in gather destination", at);
  if (!here && !gather_list.empty())
    refuse("gather", "non-empty gather_list can be given only to gather destination", at);
  if (here && gather_list.size() != static_cast<size_t>(get_world_size(tensor.maker(), g, at)))
    refuse("gather", "gather: number of output tensors and group size does not match", at);
  const auto to = places("gather", "gather", gather_list, tensor, at);
  copy_into(gather_list, to, gather(tensor, dst, g, at), at);
}
void scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list, int64_t src, const ProcessGroup& g,
             Here at) {
  gradwire::scatter(tensor, scatter_list, src, g.name, at);
}
void reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op, const ProcessGroup& g,
                    Here at) {
  gradwire::reduce_scatter(output, input_list, name_of(op), g.name, at);
}
void barrier(Session& session, const ProcessGroup& g, Here at) {
  gradwire::barrier(session, g.name, at);
  session.sync();
}
void barrier(const ProcessGroup& g, Here at) { barrier(default_session(), g, at); }

void send(const Tensor& tensor, int64_t dst, const ProcessGroup& g, Here at) {
  gradwire::send(tensor, dst, g.name, at);
}
int64_t recv(const Tensor& tensor, std::optional<int64_t> src, const ProcessGroup& g, Here at) {
  return gradwire::recv(tensor, src, g.name, at).item<int64_t>(at);
}
Work isend(const Tensor& tensor, int64_t dst, const ProcessGroup& g, Here at) {
  return Work(gradwire::isend(tensor, dst, g.name, at));
}
Work irecv(const Tensor& tensor, std::optional<int64_t> src, const ProcessGroup& g, Here at) {
  return Work(gradwire::irecv(tensor, src, g.name, at));
}

void Work::wait(Here at) {
  if (waited_) return;
  waited_ = true;
  source_ = gradwire::wait(request_, at).item<int64_t>(at);
}
bool Work::is_completed(Here at) { return waited_ || gradwire::is_completed(request_, at).item<bool>(at); }

DistributedData::DistributedData(std::vector<Tensor> parameters, std::vector<Tensor> buffers,
                                 DistributedOptions options, Here at)
    : parameters_(std::move(parameters)), buffers_(std::move(buffers)), options_(std::move(options)) {
  if (parameters_.empty()) {
    refuse("DistributedDataParallel",
           "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient.",
           at);
  }
  std::vector<Tensor> all = parameters_;
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  gradwire::broadcast_coalesced(all, 0, options_.process_group.name, at);
  gradwire::ddp(parameters_, options_.process_group.name, options_.bucket_bytes, at);
}

void DistributedData::sync_buffers(Here at) const {
  if (options_.broadcast_buffers && !buffers_.empty())
    gradwire::broadcast_coalesced(buffers_, 0, options_.process_group.name, at);
}

void DistributedData::set_sync(bool on) const { gradwire::ddp_sync(parameters_, on); }

DistributedData::NoSync::~NoSync() {
  try {
    data_.set_sync(true);
  } catch (...) {  // the error waits for the next call
  }
}

}  // namespace gradwire::distributed
