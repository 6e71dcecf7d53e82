#pragma once

#include <cublas_v2.h>

namespace gradwire::engine::cuda {

/// The cuBLAS handle of a stream, made when first asked for.
cublasHandle_t blas_of(cudaStream_t);
/// Called when the stream goes.
void forget_blas(cudaStream_t);

}  // namespace gradwire::engine::cuda
