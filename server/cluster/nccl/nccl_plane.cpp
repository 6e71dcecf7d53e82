#include "server/cluster/nccl/nccl_plane.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "server/cluster/plane/loop.h"
#include "server/cluster/plane/orders.h"
#include "server/cluster/plane/reductions.h"

namespace gradwire::server::cluster {

namespace {

using plane::Task;
using plane::Time;

void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess)
    throw Error(Code::unavailable, std::string("data plane: ") + what + ": " + cudaGetErrorString(e));
}
void check(ncclResult_t r, const char* what) {
  if (r == ncclSuccess || r == ncclInProgress) return;
  throw Error(Code::unavailable, std::string("data plane: ") + what + ": " + ncclGetErrorString(r));
}

class PinnedArea final : public Area {
 public:
  PinnedArea(size_t n, std::shared_ptr<std::atomic<int64_t>> used) : used_(std::move(used)) {
    void* at = nullptr;
    if (n && cudaMallocHost(&at, n) != cudaSuccess) {
      cudaGetLastError();  // it would come back from the next call
      *used_ -= static_cast<int64_t>(n);
      throw Error(Code::memory_limit, "data plane: no " + std::to_string(n) + " bytes of pinned memory");
    }
    bytes = {static_cast<std::byte*>(at), n};
  }
  ~PinnedArea() override {
    if (bytes.data()) cudaFreeHost(bytes.data());
    *used_ -= static_cast<int64_t>(bytes.size());
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> used_;
};

/// Device memory that grows.
class Staging {
 public:
  ~Staging() {
    if (data_) cudaFree(data_);
  }
  char* get(size_t n) {
    if (n > size_) {
      if (data_) check(cudaFree(std::exchange(data_, nullptr)), "cudaFree");
      size_ = 0;
      check(cudaMalloc(reinterpret_cast<void**>(&data_), n), "cudaMalloc");
      size_ = n;
    }
    return data_;
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

std::optional<ncclDataType_t> type_of(DType t) {
  switch (t) {
    case DType::boolean:
    case DType::uint8:
      return ncclUint8;
    case DType::int8:
      return ncclInt8;
    case DType::int16:
      return std::nullopt;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
    case DType::float16:
      return ncclFloat16;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> op_of(ReduceOp op, DType t) {
  const bool logical = t == DType::boolean;  // bytes of 0 and 1
  switch (op) {
    case ReduceOp::sum:
      return logical ? ncclMax : ncclSum;
    case ReduceOp::product:
      return logical ? ncclMin : ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:
      return ncclAvg;
    case ReduceOp::band:
      return logical ? std::optional(ncclMin) : std::nullopt;
    case ReduceOp::bor:
      return logical ? std::optional(ncclMax) : std::nullopt;
    case ReduceOp::bxor:
      return std::nullopt;
  }
  return std::nullopt;
}

/// Everything of one plane; all but post() and stop() on its own thread.
class Worker {
 public:
  void post(Task t) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(t));
    }
    there_.notify_one();
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    there_.notify_one();
  }
  /// Until stopped, and all that was posted has been answered.
  void loop() {
    for (std::unique_lock lock(mutex_);;) {
      there_.wait(lock, [&] { return stopped_ || !tasks_.empty(); });
      if (tasks_.empty()) break;
      Task t = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      t({});
      lock.lock();
    }
    end(Error(Code::unavailable, "data plane: the group has ended"));
  }

  std::string prepare(int rank, int size) {
    usable();
    if (size < 1 || rank < 0 || rank >= size) throw Error(Code::bad_argument, "data plane: no such rank");
    rank_ = rank, size_ = size;
    check(cudaGetDevice(&device_), "cudaGetDevice");
    if (rank) return "nccl";
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return std::string(id.internal, sizeof id.internal);
  }

  void connect(const std::vector<std::string>& blobs, Time deadline) {
    usable();
    ncclUniqueId id;
    if (blobs.size() != static_cast<size_t>(size_) || blobs[0].size() != sizeof id.internal) {
      throw Error(Code::bad_argument, "data plane: rank 0 has sent no identity of NCCL");
    }
    std::memcpy(id.internal, blobs[0].data(), sizeof id.internal);
    deadline_ = deadline;
    check(cudaSetDevice(device_), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config), "ncclCommInitRank");
    wait_for_nccl();
  }

  void run(const Work& w, bool pairwise) {
    usable();
    if (!comm_) throw Error(Code::bad_argument, "data plane: it is not connected");
    const Terms& t = w.terms;
    if (auto error = plane::wrong(t, pairwise, rank_, size_)) throw *error;
    const size_t bytes = plane::bytes_of(t, rank_, size_);
    if (bytes && (!w.area || w.area->bytes.size() < bytes))
      throw Error(Code::bad_argument, "data plane: the area is too small");
    if (is_reducing(t.what) && (!type_of(t.dtype) || !op_of(t.op, t.dtype))) {
      throw Error(Code::not_implemented, std::string("data plane: NCCL cannot reduce ") + name(t.dtype) + " so");
    }
    if (!bytes && t.what != Collective::barrier) return;
    try {
      move(t, bytes ? w.area->bytes.data() : nullptr, bytes, w.deadline);
    } catch (const Error& e) {
      end(e);
      throw;
    }
  }

  bool stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  void end(const Error& e) {
    if (!over_) over_ = e;
    if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
    if (stream_) cudaStreamDestroy(std::exchange(stream_, nullptr));
  }

 private:
  void usable() const {
    if (over_) throw Error(Code::unavailable, over_->message());
  }

  void move(const Terms& t, std::byte* area, size_t bytes, Time deadline) {
    // NCCL adds halves as halves: they are widened here.
    const bool wide = is_reducing(t.what) && plane::in_float32(t.op, t.dtype);
    const size_t n = bytes / static_cast<size_t>(size_of(t.dtype));
    std::vector<float> widened(wide ? n : 0);
    if (wide) plane::widen(t.dtype, widened.data(), area, n);
    void* host = wide ? static_cast<void*>(widened.data()) : area;
    const size_t size = wide ? n * sizeof(float) : std::max<size_t>(bytes, 1);
    deadline_ = deadline;
    char* device = staging_.get(size);
    if (bytes) check(cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    start(t, device, wide ? DType::float32 : t.dtype);
    wait_for_nccl();
    if (bytes) check(cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    for (cudaError_t e; (e = cudaStreamQuery(stream_)) != cudaSuccess;) {
      if (e != cudaErrorNotReady) check(e, "the device");
      ncclResult_t r = ncclSuccess;
      check(ncclCommGetAsyncError(comm_, &r), "ncclCommGetAsyncError");
      check(r, "NCCL");
      pause();
    }
    if (wide) plane::narrow(t.dtype, area, widened.data(), n);
  }

  void start(const Terms& t, char* d, DType dtype) {
    const auto count = static_cast<size_t>(t.count);
    const size_t part = count * static_cast<size_t>(size_of(dtype)), own = static_cast<size_t>(rank_) * part;
    const auto type = type_of(dtype).value_or(ncclUint8);
    const auto op = op_of(t.op, dtype).value_or(ncclSum);
    const bool root = t.root == rank_;
    switch (t.what) {
      case Collective::barrier:
        return check(ncclAllReduce(d, d, 1, ncclUint8, ncclMax, comm_, stream_), "ncclAllReduce");
      case Collective::broadcast:
        return check(ncclBroadcast(d, d, part, ncclUint8, t.root, comm_, stream_), "ncclBroadcast");
      case Collective::all_reduce:
        return check(ncclAllReduce(d, d, count, type, op, comm_, stream_), "ncclAllReduce");
      case Collective::reduce:
        return check(ncclReduce(d, d, count, type, op, t.root, comm_, stream_), "ncclReduce");
      case Collective::reduce_scatter:
        // In place is where the own part is; it is wanted in front.
        check(ncclReduceScatter(d, d + own, count, type, op, comm_, stream_), "ncclReduceScatter");
        wait_for_nccl();
        if (own) check(cudaMemcpyAsync(d, d + own, part, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
        return;
      case Collective::all_gather:
        return check(ncclAllGather(d + own, d, part, ncclUint8, comm_, stream_), "ncclAllGather");
      case Collective::send:
        return check(ncclSend(d, part, ncclUint8, t.root, comm_, stream_), "ncclSend");
      case Collective::recv:
        return check(ncclRecv(d, part, ncclUint8, t.root, comm_, stream_), "ncclRecv");
      case Collective::gather:
      case Collective::scatter:
        break;
    }
    const bool gather = t.what == Collective::gather;
    check(ncclGroupStart(), "ncclGroupStart");
    for (int r = 0; r < size_ && root; ++r) {
      if (r == rank_) continue;
      char* at = d + static_cast<size_t>(r) * part;
      check(
          gather ? ncclRecv(at, part, ncclUint8, r, comm_, stream_) : ncclSend(at, part, ncclUint8, r, comm_, stream_),
          "NCCL");
    }
    if (!root) {
      check(gather ? ncclSend(d, part, ncclUint8, t.root, comm_, stream_)
                   : ncclRecv(d, part, ncclUint8, t.root, comm_, stream_),
            "NCCL");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
    if (gather || !root || !own) return;
    wait_for_nccl();
    check(cudaMemcpyAsync(d, d + own, part, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
  }

  /// Until what was called has been taken in.
  void wait_for_nccl() {
    for (ncclResult_t r = ncclInProgress;;) {
      check(ncclCommGetAsyncError(comm_, &r), "ncclCommGetAsyncError");
      check(r, "NCCL");
      if (r == ncclSuccess) return;
      pause();
    }
  }

  void pause() {
    if (std::chrono::steady_clock::now() >= deadline_)
      throw Error(Code::deadline_exceeded, "data plane: the deadline has passed");
    if (stopped()) throw Error(Code::unavailable, "data plane: the group has ended");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  std::mutex mutex_;
  std::condition_variable there_;
  bool stopped_ = false;
  std::deque<Task> tasks_;

  std::optional<Error> over_;
  Time deadline_;  // of the call in hand
  int rank_ = 0, size_ = 0, device_ = 0;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  Staging staging_;
};

/// f() or the error it throws.
template <class R, class F> Result<R> result_of(F f) {
  try {
    if constexpr (std::is_void_v<R>)
      return f(), Result<void>();
    else
      return f();
  } catch (const Error& e) {
    return e;
  } catch (const std::exception& e) {
    return Error(Code::internal, std::string("data plane: ") + e.what());
  }
}

class NcclPlane final : public DataPlane {
 public:
  explicit NcclPlane(int64_t memory) : memory_(memory), thread_([w = worker_] { w->loop(); }) {}
  ~NcclPlane() override {
    worker_->stop();
    if (std::this_thread::get_id() == thread_.get_id())
      thread_.detach();  // an answer has ended us
    else
      thread_.join();
  }

  void prepare(int rank, int size, std::chrono::milliseconds timeout, Done<Result<std::string>> done) override {
    timeout_ = timeout;
    worker_->post([w = worker_, rank, size, done = std::move(done)](std::monostate) mutable {
      done(result_of<std::string>([&] { return w->prepare(rank, size); }));
    });
  }
  void connect(std::vector<std::string> blobs, std::string, Done<Result<void>> done) override {
    const Time deadline = std::chrono::steady_clock::now() + timeout_.load();
    worker_->post([w = worker_, blobs = std::move(blobs), deadline, done = std::move(done)](std::monostate) mutable {
      auto result = result_of<void>([&] { w->connect(blobs, deadline); });
      if (!result) w->end(result.error());
      done(std::move(result));
    });
  }
  AreaPtr area(size_t bytes) override {
    const auto n = static_cast<int64_t>(std::min<size_t>(bytes, INT64_MAX));
    int64_t used = *used_;
    do {
      if (n > memory_ - used) {
        throw Error(Code::memory_limit, "data plane: " + std::to_string(bytes) + " bytes are asked for, " +
                                            std::to_string(used) + " of its " + std::to_string(memory_) +
                                            " are in use");
      }
    } while (!used_->compare_exchange_weak(used, used + n));
    return std::make_shared<PinnedArea>(bytes, used_);
  }
  void run(Work w) override { post(std::move(w), false); }
  void run(Work w, uint64_t) override { post(std::move(w), true); }

 private:
  void post(Work work, bool pairwise) {
    worker_->post([w = worker_, work = std::move(work), pairwise](std::monostate) mutable {
      auto result = result_of<int>([&] {
        w->run(work, pairwise);
        return work.terms.what == Collective::recv ? work.terms.root : -1;
      });
      work.area = nullptr;
      work.done(std::move(result));
    });
  }

  const int64_t memory_;
  std::atomic<std::chrono::milliseconds> timeout_{std::chrono::seconds(30)};
  std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<Worker> worker_ = std::make_shared<Worker>();
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DataPlane> make_nccl_plane(DataPlaneOptions options) {
  return std::make_unique<NcclPlane>(options.memory);
}

}  // namespace gradwire::server::cluster
