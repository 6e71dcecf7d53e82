#include "engine/cpu/gemm.h"

#if GRADWIRE_BLAS
#include <cblas.h>
#else
#include <algorithm>
#endif

namespace gradwire::engine::cpu {
namespace {

#if GRADWIRE_BLAS
CBLAS_TRANSPOSE form(bool t) { return t ? CblasTrans : CblasNoTrans; }
int i(int64_t n) { return static_cast<int>(n); }
#else
/// Row by row of c: sums of multiples of b's rows.
template <class T>
void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb,
             T beta, T* c, int64_t ldc) {
  for (int64_t r = 0; r < m; ++r) {
    T* to = c + r * ldc;
    if (beta == 0) std::fill_n(to, n, T(0));
    for (int64_t p = 0; p < k; ++p) {
      const T f = ta ? a[p * lda + r] : a[r * lda + p];
      for (int64_t j = 0; j < n; ++j) to[j] += f * (tb ? b[j * ldb + p] : b[p * ldb + j]);
    }
  }
}
template <class T>
void product(bool t, int64_t m, int64_t k, const T* a, int64_t lda, const T* x, int64_t dx, T* y, int64_t dy) {
  for (int64_t r = 0; r < m; ++r) {
    T sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += (t ? a[p * lda + r] : a[r * lda + p]) * x[p * dx];
    y[r * dy] = sum;
  }
}
#endif

}  // namespace

#if GRADWIRE_BLAS
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
          float beta, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, form(ta), form(tb), i(m), i(n), i(k), 1, a, i(lda), b, i(ldb), beta, c, i(ldc));
}
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb,
          double beta, double* c, int64_t ldc) {
  cblas_dgemm(CblasRowMajor, form(ta), form(tb), i(m), i(n), i(k), 1, a, i(lda), b, i(ldb), beta, c, i(ldc));
}
void gemv(bool t, int64_t m, int64_t k, const float* a, int64_t lda, const float* x, int64_t dx, float* y, int64_t dy) {
  cblas_sgemv(CblasRowMajor, form(t), i(t ? k : m), i(t ? m : k), 1, a, i(lda), x, i(dx), 0, y, i(dy));
}
void gemv(bool t, int64_t m, int64_t k, const double* a, int64_t lda, const double* x, int64_t dx, double* y,
          int64_t dy) {
  cblas_dgemv(CblasRowMajor, form(t), i(t ? k : m), i(t ? m : k), 1, a, i(lda), x, i(dx), 0, y, i(dy));
}
#else
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
          float beta, float* c, int64_t ldc) {
  product(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb,
          double beta, double* c, int64_t ldc) {
  product(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}
void gemv(bool t, int64_t m, int64_t k, const float* a, int64_t lda, const float* x, int64_t dx, float* y, int64_t dy) {
  product(t, m, k, a, lda, x, dx, y, dy);
}
void gemv(bool t, int64_t m, int64_t k, const double* a, int64_t lda, const double* x, int64_t dx, double* y,
          int64_t dy) {
  product(t, m, k, a, lda, x, dx, y, dy);
}
#endif

}  // namespace gradwire::engine::cpu
