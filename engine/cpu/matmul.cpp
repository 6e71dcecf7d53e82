#include <algorithm>
#include <climits>
#include <memory>
#include <new>
#include <string>

#include "engine/cpu/convert.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "schema/error.h"

namespace gradwire::engine::cpu {
namespace {

// A panel of an operand that BLAS cannot read where it is: bounded, since expanded operands may be larger than memory.
constexpr int64_t kPanelRows = 2048, kPanelDepth = 1024;
constexpr int64_t kSmall = int64_t{1} << 21;  // multiplications: such products of a batch run side by side

/// A matrix in memory; strides in elements.
struct Matrix {
  char* at;
  int64_t rows, columns, row, column;
};

template <class T> struct Panel {
  std::unique_ptr<T[]> data;
  int64_t size = 0;
  T* get(int64_t n) {
    if (n > size) {
      data.reset(new (std::nothrow) T[n]);
      if (!data)
        throw Error(Code::memory_limit, "out of memory: tried to allocate " + std::to_string(n * sizeof(T)) + " bytes");
      size = n;
    }
    return data.get();
  }
};

/// How BLAS reads a matrix in place, if it can.
struct Layout {
  bool ok = false, transposed = false;
  int64_t ld = 0;
  explicit Layout(const Matrix& m) {
    const int64_t row = m.rows == 1 ? m.columns : m.row, column = m.columns == 1 ? m.rows : m.column;
    if (m.rows > INT_MAX || m.columns > INT_MAX) return;
    if ((m.column == 1 || m.columns == 1) && row >= m.columns && row <= INT_MAX)
      ok = true, ld = std::max<int64_t>(row, 1);
    else if ((m.row == 1 || m.rows == 1) && column >= m.rows && column <= INT_MAX)
      ok = true, transposed = true, ld = std::max<int64_t>(column, 1);
  }
};

/// m's part at (r, c), h x w, as contiguous rows of C.
template <class T, class C> void pack(const Matrix& m, int64_t r, int64_t c, int64_t h, int64_t w, C* to) {
  char* from = m.at + (r * m.row + c * m.column) * static_cast<int64_t>(sizeof(T));
  const int64_t shape[] = {h, w}, dense[] = {w, 1}, strides[] = {m.row, m.column};
  const View views[] = {{to, shape, dense, 2, std::is_same_v<C, double> ? DType::float64 : DType::float32},
                        {from, shape, strides, 2, dtype_of<T>}};
  const Launch l{.out = {views, 1}, .in = {views + 1, 1}};
  convert(l);
}

/// out = a x b in floats; T as stored, C as computed.
template <class T> struct Product {
  using C = Computed<T>;
  Panel<C> pa, pb, pc;

  void operator()(const Matrix& a, const Matrix& b, const Matrix& out) {
    const int64_t m = a.rows, k = a.columns, n = b.columns;
    if constexpr (!kHalf<T>) {
      const Layout la(a), lb(b), lc(out);
      if (n == 1 && la.ok && b.row > 0 && out.row > 0 && std::max(b.row, out.row) <= INT_MAX) {
        return gemv(la.transposed, m, k, at(a), la.ld, at(b), b.row, at(out), out.row);
      }
      if (m == 1 && lb.ok && a.column > 0 && out.column > 0 && std::max(a.column, out.column) <= INT_MAX) {
        return gemv(!lb.transposed, n, k, at(b), lb.ld, at(a), a.column, at(out), out.column);
      }
      if (la.ok && lb.ok && lc.ok && !lc.transposed) {
        return gemm(la.transposed, lb.transposed, m, n, k, at(a), la.ld, at(b), lb.ld, C(0), at(out), lc.ld);
      }
      if (la.ok && lb.ok && lc.ok) {  // out^T = b^T x a^T
        return gemm(!lb.transposed, !la.transposed, n, m, k, at(b), lb.ld, at(a), la.ld, C(0), at(out), lc.ld);
      }
    }
    for (int64_t r = 0; r < m; r += kPanelRows) {
      for (int64_t c = 0; c < n; c += kPanelRows) {
        const int64_t h = std::min(kPanelRows, m - r), w = std::min(kPanelRows, n - c);
        C* to = pc.get(std::min(kPanelRows, m) * std::min(kPanelRows, n));
        for (int64_t d = 0; d < k; d += kPanelDepth) {
          const int64_t depth = std::min(kPanelDepth, k - d);
          const Part x(a, r, d, h, depth, pa), y(b, d, c, depth, w, pb);
          gemm(x.transposed, y.transposed, h, w, depth, x.at, x.ld, y.at, y.ld, C(d > 0), to, w);
        }
        unpack(to, out, r, c, h, w);
      }
    }
  }

 private:
  static C* at(const Matrix& m) { return reinterpret_cast<C*>(m.at); }

  /// A part of an operand, where it is or packed.
  struct Part {
    const C* at;
    bool transposed = false;
    int64_t ld;
    Part(const Matrix& m, int64_t r, int64_t c, int64_t h, int64_t w, Panel<C>& panel) {
      if constexpr (!kHalf<T>) {
        const Layout l({m.at, h, w, m.row, m.column});
        if (l.ok) {
          at = reinterpret_cast<const C*>(m.at) + r * m.row + c * m.column, transposed = l.transposed, ld = l.ld;
          return;
        }
      }
      C* to = panel.get(h * w);
      pack<T>(m, r, c, h, w, to);
      at = to, ld = w;
    }
  };

  static void unpack(C* from, const Matrix& m, int64_t r, int64_t c, int64_t h, int64_t w) {
    const int64_t shape[] = {h, w}, dense[] = {w, 1}, strides[] = {m.row, m.column};
    const View views[] = {
        {m.at + (r * m.row + c * m.column) * static_cast<int64_t>(sizeof(T)), shape, strides, 2, dtype_of<T>},
        {from, shape, dense, 2, dtype_of<C>}};
    const Launch l{.out = {views, 1}, .in = {views + 1, 1}};
    convert(l);
  }
};

/// out = a x b in whole numbers, one row; wraps, and for bool is the or of ands.
template <class T> void whole_row(const Matrix& a, const Matrix& b, const Matrix& out, int64_t i) {
  using V = Int<T>;
  const T *x = reinterpret_cast<const T*>(a.at) + i * a.row, *y = reinterpret_cast<const T*>(b.at);
  T* to = reinterpret_cast<T*>(out.at) + i * out.row;
  if (b.column == 1 && out.column == 1) {
    std::fill_n(to, b.columns, T(0));
    for (int64_t p = 0; p < a.columns; ++p) {
      const V f(x[p * a.column]);
      const T* line = y + p * b.row;
#pragma omp simd
      for (int64_t j = 0; j < b.columns; ++j) to[j] = (V(to[j]) + f * V(line[j])).v;
    }
  } else {
    for (int64_t j = 0; j < b.columns; ++j) {
      V s(T(0));
      for (int64_t p = 0; p < a.columns; ++p) s = s + V(x[p * a.column]) * V(y[p * b.row + j * b.column]);
      to[j * out.column] = s.v;
    }
  }
}

Matrix matrix(const View& v, char* at) {
  return {at, v.shape[v.ndim - 2], v.shape[v.ndim - 1], v.strides[v.ndim - 2], v.strides[v.ndim - 1]};
}

}  // namespace

void matmul(const Launch& l) {
  View batch[] = {l.out[0], l.in[0], l.in[1]};
  const Matrix whole[] = {matrix(l.out[0], nullptr), matrix(l.in[0], nullptr), matrix(l.in[1], nullptr)};
  if (l.out[0].numel() == 0) return;
  const int64_t m = whole[0].rows, n = whole[0].columns, k = whole[1].columns;
  if (k == 0) {
    const FillParams zero{Scalar(0)};
    return fill({.out = l.out, .in = {}, .params = &zero});
  }
  for (View& v : batch) v.ndim -= 2;
  const Nest nest = nest_of(batch);
  const int64_t size = nest.bytes[0];
  const auto place = [&](int j, int64_t i) {
    Matrix x = whole[j];
    char* at[kMaxOperands] = {};
    nest.outer(i, 0, at);
    x.at = at[j];
    return x;
  };
  with_type(l.out[0].dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    if constexpr (!kFloating<T>) {
#pragma omp parallel for schedule(static) if (nest.total * m * n > kParallel / std::max <int64_t>(k, 1))
      for (int64_t i = 0; i < nest.total * m; ++i) {
        whole_row<T>(place(1, i / m), place(2, i / m), place(0, i / m), i % m);
      }
    } else {
      if (nest.total == 1) return Product<T>()(place(1, 0), place(2, 0), place(0, 0));
      const bool stacked = nest.ndim == 1 && nest.stride[0][2] == 0 && nest.stride[0][1] == m * whole[1].row * size &&
                           nest.stride[0][0] == m * whole[0].row * size;
      if (stacked) {  // one matrix for all: the batch is more rows
        Matrix a = place(1, 0), out = place(0, 0);
        a.rows = out.rows = m * nest.total;
        return Product<T>()(a, place(2, 0), out);
      }
      // BLAS runs on one thread inside a parallel region. An error leaves the region as a value.
      const bool side_by_side = nest.total > 1 && m <= kSmall / n / k;
      bool failed = false;
#pragma omp parallel if (side_by_side && nest.total * m * n > kParallel / k)
      {
        Product<T> product;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < nest.total; ++i) {
          try {
            product(place(1, i), place(2, i), place(0, i));
          } catch (const Error&) {
#pragma omp atomic write
            failed = true;
          }
        }
      }
      if (failed) throw Error(Code::memory_limit, "out of memory in matmul");
    }
  });
}

}  // namespace gradwire::engine::cpu
