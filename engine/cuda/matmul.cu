#include <climits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/cuda/blas.h"
#include "engine/cuda/device.h"
#include "schema/error.h"

namespace gradwire::engine::cuda {
namespace {

void check_blas(cublasStatus_t s) {
  if (s == CUBLAS_STATUS_SUCCESS) return;
  throw Error(s == CUBLAS_STATUS_ALLOC_FAILED ? Code::memory_limit : Code::unavailable,
              std::string("CUDA error: ") + cublasGetStatusString(s));
}

std::mutex handles_lock;
std::unordered_map<cudaStream_t, cublasHandle_t>& handles() {
  static std::unordered_map<cudaStream_t, cublasHandle_t> all;
  return all;
}

/// out, a or b: a batch of matrices; strides in elements.
struct Matrices {
  View view;  // of the last two dims
  int64_t rows, columns, row, column;
  explicit Matrices(const View& v)
      : view(v),
        rows(v.shape[v.ndim - 2]),
        columns(v.shape[v.ndim - 1]),
        row(v.strides[v.ndim - 2]),
        column(v.strides[v.ndim - 1]) {}
};

/// How BLAS reads a row-major matrix in place, if it can.
struct Layout {
  bool ok = false, transposed = false;
  int64_t ld = 1;
  explicit Layout(const Matrices& m) {
    const int64_t row = m.rows == 1 ? m.columns : m.row, column = m.columns == 1 ? m.rows : m.column;
    if (m.rows > INT_MAX || m.columns > INT_MAX) return;
    if ((m.column == 1 || m.columns == 1) && row >= m.columns && row <= INT_MAX)
      ok = true, ld = row;
    else if ((m.row == 1 || m.rows == 1) && column >= m.rows && column <= INT_MAX)
      ok = true, transposed = true, ld = column;
  }
};

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::float16:
      return CUDA_R_16F;
    case DType::bfloat16:
      return CUDA_R_16BF;
    case DType::float64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

/// The matrices of a view copied to contiguous memory, broadcast batches once.
struct Packed {
  std::vector<int64_t> shape, strides;
  std::vector<int64_t> seen;  // strides with the broadcast dims back at 0
  Scratch data;
  Packed(const View& v, void* stream)
      : shape(v.shape, v.shape + v.ndim), strides(v.ndim), seen(v.ndim), data(bytes(v), stream) {
    int64_t n = 1;
    for (int d = v.ndim - 1; d >= 0; --d) {
      const bool once = d < v.ndim - 2 && v.strides[d] == 0;
      if (once) shape[d] = 1;
      strides[d] = n, seen[d] = once ? 0 : n;
      n *= shape[d];
    }
    View to = v, from = v;
    to.data = data.as<void>(), to.shape = from.shape = shape.data(), to.strides = strides.data();
    convert({.stream = stream, .out = {&to, 1}, .in = {&from, 1}});
  }
  View view(const View& v) const {
    View p = v;
    p.data = data.as<void>(), p.strides = seen.data();
    return p;
  }
  static size_t bytes(const View& v) {
    size_t n = size_of(v.dtype);
    for (int d = 0; d < v.ndim; ++d) n *= d < v.ndim - 2 && v.strides[d] == 0 ? 1 : v.shape[d];
    return n;
  }
};

/// All floating dtypes: one strided batch along the innermost batch dimension, a loop over the others.
void multiply(const View& out, const View& a, const View& b, void* stream) {
  const Matrices mo(out), ma(a), mb(b);
  const Layout lo(mo), la(ma), lb(mb);
  if (!la.ok) return multiply(out, Packed(a, stream).view(a), b, stream);
  if (!lb.ok) return multiply(out, a, Packed(b, stream).view(b), stream);
  if (!lo.ok || lo.transposed) {
    const Packed to(out, stream);  // its values are not used
    const View some = to.view(out);
    multiply(some, a, b, stream);
    return convert({.stream = stream, .out = {&out, 1}, .in = {&some, 1}});
  }
  View batch[] = {out, a, b};
  for (View& v : batch) v.ndim -= 2;
  const Nest n = nest_of(batch);
  const int64_t size = size_of(out.dtype), inner = n.size[0];
  const auto step = [&](int k) { return inner > 1 ? n.stride[0][k] / size : 0; };
  const bool wide = out.dtype == DType::float64;
  const float one_f = 1, zero_f = 0;
  const double one_d = 1, zero_d = 0;
  const void *one = wide ? static_cast<const void*>(&one_d) : &one_f,
             *zero = wide ? static_cast<const void*>(&zero_d) : &zero_f;
  const cudaDataType_t type = type_of(out.dtype);
  const cublasHandle_t blas = blas_of(static_cast<cudaStream_t>(stream));
  for (int64_t i = 0; i < n.total / inner; ++i) {
    char* at[kMaxOperands] = {};
    n.outer(i, 1, at);
    // cuBLAS counts by columns: out^T = b^T x a^T
    check_blas(cublasGemmStridedBatchedEx(
        blas, lb.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, la.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        static_cast<int>(mb.columns), static_cast<int>(ma.rows), static_cast<int>(ma.columns), one, at[2], type,
        static_cast<int>(lb.ld), step(2), at[1], type, static_cast<int>(la.ld), step(1), zero, at[0], type,
        static_cast<int>(lo.ld), step(0), static_cast<int>(inner), wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT));
  }
}

struct Steps {
  int64_t rows, columns, depth;
  int64_t row[2], column[2];  // bytes; of a and b
};

/// Whole numbers: a thread an element of out.
template <class T> __global__ void whole_products(const Nest out, const Nest batch, const Steps s) {
  for (int64_t i = first_element(); i < out.total; i += all_threads()) {
    const int64_t c = i % s.columns, r = i / s.columns % s.rows;
    const Place p(batch, i / s.columns / s.rows);
    const char *a = p.at[1] + r * s.row[0], *b = p.at[2] + c * s.column[1];
    Int<T> sum(T(0));
    for (int64_t k = 0; k < s.depth; ++k, a += s.column[0], b += s.row[1]) {
      sum = sum + Int<T>(*reinterpret_cast<const T*>(a)) * Int<T>(*reinterpret_cast<const T*>(b));
    }
    *reinterpret_cast<T*>(Place(out, i).at[0]) = sum.v;
  }
}

}  // namespace

cublasHandle_t blas_of(cudaStream_t stream) {
  const std::lock_guard lock(handles_lock);
  cublasHandle_t& h = handles()[stream];
  if (!h) {
    check_blas(cublasCreate(&h));
    check_blas(cublasSetStream(h, stream));
  }
  return h;
}

void forget_blas(cudaStream_t stream) {
  const std::lock_guard lock(handles_lock);
  const auto found = handles().find(stream);
  if (found == handles().end()) return;
  (void)cublasDestroy(found->second);
  handles().erase(found);
}

void matmul(const Launch& l) {
  const View &out = l.out[0], &a = l.in[0], &b = l.in[1];
  if (out.numel() == 0) return;
  const Matrices ma(a), mb(b);
  if (ma.columns == 0) {
    const FillParams zero{Scalar(0)};
    return fill({.stream = l.stream, .out = l.out, .in = {}, .params = &zero});
  }
  if (is_floating(out.dtype)) return multiply(out, a, b, l.stream);
  View batch[] = {out, a, b};
  for (View& v : batch) v.ndim -= 2;
  const int64_t size = size_of(out.dtype);
  const Steps s{ma.rows, mb.columns, ma.columns, {ma.row * size, mb.row * size}, {ma.column * size, mb.column * size}};
  // in order: element i of out is element i / columns / rows of the batch
  const Nest places = nest_of({&out, 1}, true), batches = nest_of(batch, true);
  with_type(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_integral_v<T>) start(whole_products<T>, places.total, l.stream, places, batches, s);
  });
}

}  // namespace gradwire::engine::cuda
