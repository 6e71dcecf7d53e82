#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/view.h"
#include "schema/op_call.h"

namespace gradwire::engine {

/// One run of a kernel. The front end has normalised everything: shapes agree, dtypes are the kernel's, indexes are
/// in range, outputs do not overlap inputs in part. Kernels are strict and do not check again.
struct Launch {
  void* stream = nullptr;  // a cudaStream_t; null on the CPU
  std::span<const View> out, in;
  const void* params = nullptr;  // the struct that kernels.h names beside the kernel
};
using KernelFn = void (*)(const Launch&);

/// One kernel on every back end. A row whose kernel has no CUDA form says `.cuda = false`; where CUDA is built, a
/// missing definition fails the link.
struct Kernel {
  KernelFn cpu = nullptr, cuda = nullptr;
};
#if GRADWIRE_CUDA
#define GW_KERNEL(name) (::gradwire::engine::Kernel{::gradwire::engine::cpu::name, ::gradwire::engine::cuda::name})
#else
#define GW_KERNEL(name) (::gradwire::engine::Kernel{::gradwire::engine::cpu::name, nullptr})
#endif

/// A row of elements on the CPU: out[i] = f(in[k][i * step[k]] ...), i < n; every step is 0 or 1.
struct Row {
  void* out;
  const void* in[3];
  int64_t step[3];
  int64_t n;
  bool stream;  // the output is larger than the caches
};
using RowKernel = void (*)(const void* functor, const Row&);
/// n elements on a CUDA stream; views are out, in..., all of out's shape (inputs broadcast by stride 0).
using CudaPointwise = void (*)(const void* functor, std::span<const View> views, void* stream);

/// All kernels of one functor of engine/functors, by the dtype in which it computes; null where the functor's Domain
/// has no such dtype. Comparisons write bool; a masked one reads a bool first.
struct Pointwise {
  const char* name = nullptr;
  int inputs = 0;
  bool masked = false;  // of three inputs the first is a bool
  RowKernel cpu[kDTypes] = {};
  CudaPointwise cuda[kDTypes] = {};
};
/// Null if no functor has this name. The tables are built once, before any thread computes.
const Pointwise* find_pointwise(std::string_view functor);

/// A device: its memory and its kernels. Calls come from one thread at a time (a session's queue).
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* device() const = 0;  // "cpu", "cuda:0"
  virtual bool is_cpu() const = 0;
  /// Device memory that lives apart from the session's host pool; never called where is_cpu().
  virtual void* allocate(size_t bytes) = 0;  // throws Error{memory_limit}
  virtual void free(void*, size_t bytes) = 0;
  virtual void to_host(void* to, const void* from, size_t bytes) = 0;  // waits
  virtual void from_host(void* to, const void* from, size_t bytes) = 0;
  virtual void sync() = 0;  // waits for all that was launched; throws Error{unavailable} when the device is lost

  virtual void run(const Kernel&, const Launch&) = 0;
  /// views[0] is the output; all have its shape. `compute` picks the kernel.
  virtual void run(const Pointwise&, DType compute, std::span<const View> views, const void* functor) = 0;
};

std::unique_ptr<Backend> make_cpu_backend();
/// device "cuda:0"; throws Error{bad_argument} where CUDA is not built in, Error{unavailable} where no such device is.
std::unique_ptr<Backend> make_cuda_backend(int ordinal);
int cuda_device_count();

}  // namespace gradwire::engine
