#pragma once

#include <cstdint>

// Products of matrices in memory: OpenBLAS, or plain loops where it is not built in (GRADWIRE_BLAS). Rows of a matrix
// are lda elements apart; all sizes are at least 1 and below 2^31. What c and y hold is not read unless beta is 1.

namespace gradwire::engine::cpu {

/// c = a b + beta c, with c m x n and k terms a sum; ta, tb: the matrix in memory is the transposed one.
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
          float beta, float* c, int64_t ldc);
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb,
          double beta, double* c, int64_t ldc);

/// y = a x, with m elements of y, k of x; dx, dy > 0 are the steps between elements; t as ta.
void gemv(bool t, int64_t m, int64_t k, const float* a, int64_t lda, const float* x, int64_t dx, float* y, int64_t dy);
void gemv(bool t, int64_t m, int64_t k, const double* a, int64_t lda, const double* x, int64_t dx, double* y,
          int64_t dy);

}  // namespace gradwire::engine::cpu
