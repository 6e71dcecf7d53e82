#include <string>

#include "engine/cuda/blas.h"
#include "engine/cuda/device.h"
#include "engine/cuda/pointwise.h"
#include "schema/error.h"

namespace gradwire::engine {
namespace cuda {

void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  cudaGetLastError();  // a sticky error stays, any other is answered once
  const Code code = e == cudaErrorMemoryAllocation ? Code::memory_limit : Code::unavailable;
  throw Error(code, std::string("CUDA error: ") + cudaGetErrorString(e) + " (" + what + ")");
}

Scratch::Scratch(size_t bytes, void* stream) : stream_(static_cast<cudaStream_t>(stream)) {
  check(cudaMallocAsync(&data_, std::max<size_t>(bytes, 1), stream_), "allocate");
}
Scratch::~Scratch() { (void)cudaFreeAsync(data_, stream_); }

void copy_to_host(void* to, const void* from, size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream)), "copy to host");
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "wait");
}

PointwiseRow pointwise_row(std::string_view op) {
  PointwiseRow r;
  find_unary(op, r), find_curves(op, r), find_binary(op, r), find_ternary(op, r), find_compare(op, r),
      find_logic(op, r);
  return r;
}

}  // namespace cuda

namespace {

using cuda::check;

/// One stream of one device.
class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int ordinal) : ordinal_(ordinal), name_("cuda:" + std::to_string(ordinal)) {
    select();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    cudaMemPool_t pool;
    check(cudaDeviceGetDefaultMemPool(&pool, ordinal), "find the memory pool");
    uint64_t keep = UINT64_MAX;  // freed memory stays warm
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "set up the memory pool");
  }
  ~CudaBackend() override {
    cuda::forget_blas(stream_);
    (void)cudaStreamDestroy(stream_);
  }

  const char* device() const override { return name_.c_str(); }
  bool is_cpu() const override { return false; }

  void* allocate(size_t bytes) override {
    select();
    void* p = nullptr;
    check(cudaMallocAsync(&p, std::max<size_t>(bytes, 1), stream_), "allocate");
    return p;
  }
  void free(void* p, size_t) override {
    if (cudaSetDevice(ordinal_) == cudaSuccess) (void)cudaFreeAsync(p, stream_);
  }
  void to_host(void* to, const void* from, size_t bytes) override {
    select();
    if (bytes) cuda::copy_to_host(to, from, bytes, stream_);
  }
  void from_host(void* to, const void* from, size_t bytes) override {
    select();
    if (bytes) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copy to device");
    check(cudaStreamSynchronize(stream_), "wait");  // `from` may go away
  }
  void sync() override {
    select();
    check(cudaStreamSynchronize(stream_), "wait");
  }

  void run(const Kernel& kernel, const Launch& launch) override {
    if (!kernel.cuda) throw Error(Code::not_implemented, "not implemented on " + name_);
    select();
    Launch mine = launch;
    mine.stream = stream_;
    kernel.cuda(mine);
  }
  void run(const Pointwise& p, DType compute, std::span<const View> views, const void* functor) override {
    const CudaPointwise kernel = p.cuda[static_cast<int>(compute)];
    if (!kernel) {
      throw Error(Code::not_implemented,
                  '"' + std::string(p.name) + "\" not implemented for '" + row(compute).torch + "'");
    }
    select();
    kernel(functor, views, stream_);
  }

 private:
  void select() { check(cudaSetDevice(ordinal_), "select the device"); }

  int ordinal_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

int cuda_device_count() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

std::unique_ptr<Backend> make_cuda_backend(int ordinal) {
  if (ordinal < 0 || ordinal >= cuda_device_count()) {
    throw Error(Code::unavailable, "CUDA error: invalid device ordinal " + std::to_string(ordinal));
  }
  return std::make_unique<CudaBackend>(ordinal);
}

}  // namespace gradwire::engine
