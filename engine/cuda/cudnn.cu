#include "engine/cuda/cudnn.h"

#if GRADWIRE_CUDNN

#include <cudnn.h>

#include <limits>
#include <string>
#include <vector>

#include "engine/cuda/device.h"
#include "schema/error.h"

namespace gradwire::engine::cuda {
namespace {

constexpr size_t kWorkspace = size_t{256} << 20;

void check(cudnnStatus_t s, const char* what) {
  if (s == CUDNN_STATUS_SUCCESS) return;
  throw Error(s == CUDNN_STATUS_ALLOC_FAILED ? Code::memory_limit : Code::unavailable,
              std::string("cuDNN could not ") + what + ": " + cudnnGetErrorString(s));
}

/// This thread's handle on the current device.
class Handle {
 public:
  cudnnHandle_t of(void* stream) {
    int device = 0;
    cuda::check(cudaGetDevice(&device), "ask for the device");
    if (device != device_) {
      drop();
      check(cudnnCreate(&handle_), "start");
      device_ = device;
    }
    check(cudnnSetStream(handle_, static_cast<cudaStream_t>(stream)), "take a stream");
    return handle_;
  }
  ~Handle() { drop(); }

 private:
  void drop() {
    if (device_ >= 0) (void)cudnnDestroy(handle_);
    device_ = -1;
  }
  cudnnHandle_t handle_ = nullptr;
  int device_ = -1;
};

/// A descriptor that goes with its scope.
template <class D, cudnnStatus_t (*kMake)(D*), cudnnStatus_t (*kEnd)(D)> struct Held {
  D d = nullptr;
  Held() { check(kMake(&d), "make a descriptor"); }
  Held(const Held&) = delete;
  ~Held() { (void)kEnd(d); }
};
using TensorDesc = Held<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDesc = Held<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvDesc =
    Held<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor>;

/// Sizes as cuDNN takes them: at least two spatial dims.
std::vector<int> sizes_of(const View& v) {
  std::vector<int> s(v.shape, v.shape + v.ndim);
  if (v.ndim == 3) s.insert(s.begin() + 2, 1);
  return s;
}
void describe(const TensorDesc& t, const View& v) {
  const std::vector<int> size = sizes_of(v);
  std::vector<int> stride(size.size(), 1);
  for (size_t d = size.size() - 1; d > 0; --d) stride[d - 1] = stride[d] * size[d];
  check(cudnnSetTensorNdDescriptor(t.d, CUDNN_DATA_FLOAT, static_cast<int>(size.size()), size.data(), stride.data()),
        "describe a tensor");
}

/// The first of the ways, which are sorted by their expected time, that is allowed.
template <class Perf> const Perf* choose(const std::vector<Perf>& ways, int count) {
  for (int i = 0; i < count; ++i) {
    if (ways[i].status == CUDNN_STATUS_SUCCESS && ways[i].determinism == CUDNN_DETERMINISTIC &&
        ways[i].memory <= kWorkspace)
      return &ways[i];
  }
  return nullptr;
}

}  // namespace

bool run_cudnn(ConvPass pass, const Launch& l) {
  if (l.out[0].dtype != DType::float32) return false;
  for (const View* v : {&l.out[0], &l.in[0], &l.in[1]}) {
    if (v->numel() == 0 || v->numel() > std::numeric_limits<int>::max()) return false;
  }
  const View& x = pass == ConvPass::input ? l.out[0] : pass == ConvPass::weight ? l.in[1] : l.in[0];
  const View& w = pass == ConvPass::weight ? l.out[0] : l.in[1];
  const View& g = pass == ConvPass::forward ? l.out[0] : l.in[0];
  const auto& p = *static_cast<const ConvParams*>(l.params);
  thread_local Handle handles;
  const cudnnHandle_t h = handles.of(l.stream);
  const TensorDesc dx, dg;
  const FilterDesc dw;
  const ConvDesc dc;
  describe(dx, x), describe(dg, g);
  const std::vector<int> ws = sizes_of(w);
  check(cudnnSetFilterNdDescriptor(dw.d, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, static_cast<int>(ws.size()), ws.data()),
        "describe a weight");
  std::vector<int> pad, stride, dilation;
  if (x.ndim == 3) pad.push_back(0), stride.push_back(1), dilation.push_back(1);
  for (int d = 0; d < x.ndim - 2; ++d) {
    pad.push_back(static_cast<int>(p.padding[d])), stride.push_back(static_cast<int>(p.stride[d]));
    dilation.push_back(static_cast<int>(p.dilation[d]));
  }
  check(cudnnSetConvolutionNdDescriptor(dc.d, static_cast<int>(pad.size()), pad.data(), stride.data(), dilation.data(),
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "describe a convolution");
  check(cudnnSetConvolutionGroupCount(dc.d, static_cast<int>(p.groups)), "set groups");
  check(cudnnSetConvolutionMathType(dc.d, CUDNN_FMA_MATH), "set the precision");

  const float one = 1, zero = 0;
  constexpr int kWays = 8;
  int count = 0;
  const auto run = [&](auto ways, auto ask, auto compute) {
    if (ask(ways.data()) != CUDNN_STATUS_SUCCESS) return false;
    const auto* way = choose(ways, count);
    if (!way) return false;
    const Scratch scratch(way->memory, l.stream);
    check(compute(way->algo, scratch.template as<void>(), way->memory), "compute a convolution");
    return true;
  };
  const void *a = l.in[0].data, *b = l.in[1].data;
  void* out = l.out[0].data;
  if (pass == ConvPass::forward) {
    return run(
        std::vector<cudnnConvolutionFwdAlgoPerf_t>(kWays),
        [&](auto* to) { return cudnnGetConvolutionForwardAlgorithm_v7(h, dx.d, dw.d, dc.d, dg.d, kWays, &count, to); },
        [&](auto algo, void* at, size_t n) {
          return cudnnConvolutionForward(h, &one, dx.d, a, dw.d, b, dc.d, algo, at, n, &zero, dg.d, out);
        });
  }
  if (pass == ConvPass::input) {
    return run(
        std::vector<cudnnConvolutionBwdDataAlgoPerf_t>(kWays),
        [&](auto* to) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(h, dw.d, dg.d, dc.d, dx.d, kWays, &count, to);
        },
        [&](auto algo, void* at, size_t n) {
          return cudnnConvolutionBackwardData(h, &one, dw.d, b, dg.d, a, dc.d, algo, at, n, &zero, dx.d, out);
        });
  }
  return run(
      std::vector<cudnnConvolutionBwdFilterAlgoPerf_t>(kWays),
      [&](auto* to) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, dx.d, dg.d, dc.d, dw.d, kWays, &count, to);
      },
      [&](auto algo, void* at, size_t n) {
        return cudnnConvolutionBackwardFilter(h, &one, dx.d, b, dg.d, a, dc.d, algo, at, n, &zero, dw.d, out);
      });
}

}  // namespace gradwire::engine::cuda

#else

namespace gradwire::engine::cuda {

bool run_cudnn(ConvPass, const Launch&) { return false; }

}  // namespace gradwire::engine::cuda

#endif
