#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cpu/cascade.h"
#include "engine/cpu/convert.h"
#include "engine/cpu/loop.h"
#include "engine/cpu/rows.h"
#include "engine/cpu/walk.h"
#include "engine/kernels.h"

// Sums. How a sum is cut into parts depends on the shapes alone, so results do not depend on the number of threads.

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kPiece = 1024;    // elements that are added lane by lane before the cascade
constexpr int64_t kGroup = 65536;   // elements of a task
constexpr int64_t kColumns = 1024;  // of a tile of kept columns
constexpr int64_t kDeep = 16;       // additions into a tile before it moves up a level
constexpr int kLevels = 4;

template <class T> using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, Computed<T>>;

/// What is added up of each element, and what is made of the sum: here scale * sum.
template <class T> struct Scaled {
  double scale = 1;
  static constexpr bool kMaps = false;
  void map(const Sum<T>*, Sum<T>*, int64_t) const {}
  Sum<T> finish(Sum<T> s) const { return static_cast<Sum<T>>(s * scale); }
};

/// (sum of |x|^p)^(1/p)
template <class T> struct Powers {
  double p = 2;
  static constexpr bool kMaps = true;
  void map(const Sum<T>* x, Sum<T>* to, int64_t n) const {
    using S = Sum<T>;
    const S power = static_cast<S>(p);
    if (p == 2)
      for (int64_t i = 0; i < n; ++i) to[i] = x[i] * x[i];
    else if (p == 1)
      for (int64_t i = 0; i < n; ++i) to[i] = std::abs(x[i]);
    else if (p == 0)
      for (int64_t i = 0; i < n; ++i) to[i] = x[i] != 0 ? S(1) : S(0);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = std::pow(std::abs(x[i]), power);
  }
  Sum<T> finish(Sum<T> s) const {
    using S = Sum<T>;
    return p == 2 ? std::sqrt(s) : p == 1 || p == 0 ? s : std::pow(s, static_cast<S>(1 / p));
  }
};

/// n <= kColumns elements as the type they are added in: where they are, or converted into `buffer`.
template <class T, class How>
const Sum<T>* seen(const char* p, int64_t stride, int64_t n, Sum<T>* buffer, const How& how) {
  const auto* in = reinterpret_cast<const T*>(p);
  if (stride == sizeof(T)) {
    if constexpr (std::is_same_v<T, Sum<T>>) {
      if constexpr (How::kMaps) how.map(in, buffer, n);
      return How::kMaps ? buffer : in;
    }
    if constexpr (kHalf<T>)
      to_float(in, buffer, n);
    else
      for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<Sum<T>>(in[i]);
  } else {
    for (int64_t i = 0; i < n; ++i, p += stride)
      buffer[i] = static_cast<Sum<T>>(computed(*reinterpret_cast<const T*>(p)));
  }
  how.map(buffer, buffer, n);
  return buffer;
}

template <class T, class How> void store(char* out, Sum<T> s, const How& how) {
  if constexpr (std::is_integral_v<T>)
    *reinterpret_cast<int64_t*>(out) = static_cast<int64_t>(s);
  else
    *reinterpret_cast<T*>(out) = stored<T>(how.finish(s));
}

/// The innermost dimension is added up: kept places, each the cascade of the pieces of its rows.
template <class T, class How>
void sum_rows(const char* in, char* out, const Walk& kept, const Walk& reduced, const How& how) {
  const int64_t row = reduced.size[0], stride = reduced.in[0], pieces_a_row = (row + kPiece - 1) / kPiece;
  const Walk rows = reduced.outer();
  const int64_t pieces = rows.count * pieces_a_row;
  int64_t groups = 1, group = pieces;
  if (kept.count < 64 && reduced.count > kGroup) {
    group = std::max(kGroup / std::min(row, kPiece), (pieces + 1023) / 1024);
    groups = (pieces + group - 1) / group;
  }
  const int64_t outs = groups > 1 ? 1 : std::max<int64_t>(1, kGroup / reduced.count);  // kept places of a task
  const int64_t blocks = (kept.count + outs - 1) / outs;
  std::vector<Sum<T>> parts(groups > 1 ? kept.count * groups : 0);

#pragma omp parallel for schedule(static) if (kept.count * reduced.count > kParallel)
  for (int64_t task = 0; task < blocks * groups; ++task) {
    alignas(64) Sum<T> buffer[kPiece];
    const int64_t first = task / groups * outs, last = std::min(first + outs, kept.count), g = task % groups;
    Place k(kept, first);
    for (int64_t i = first; i < last; ++i, k.next()) {
      if (pieces == 1) {
        store<T>(out + k.out, sum_block(seen<T>(in + k.in, stride, row, buffer, how), row), how);
        continue;
      }
      Cascade<Sum<T>> sum;
      int64_t p = g * group;
      const int64_t end = std::min(p + group, pieces);
      Place r(rows, p / pieces_a_row);
      for (int64_t c = p % pieces_a_row * kPiece; p < end; ++p) {
        const int64_t n = std::min(kPiece, row - c);
        sum.add(sum_block(seen<T>(in + k.in + r.in + c * stride, stride, n, buffer, how), n));
        if ((c += kPiece) >= row) c = 0, r.next();
      }
      if (groups > 1)
        parts[task] = sum.sum();
      else
        store<T>(out + k.out, sum.sum(), how);
    }
  }
  if (groups == 1) return;
  Place k(kept, 0);
  for (int64_t i = 0; i < kept.count; ++i, k.next()) {
    Cascade<Sum<T>> sum;
    for (int64_t g = 0; g < groups; ++g) sum.add(parts[i * groups + g]);
    store<T>(out + k.out, sum.sum(), how);
  }
}

/// The sum of reduced rows [r0, r1) of w columns, into tile[0]; the levels above are scratch.
template <class T, class How>
void sum_tile(const char* in, int64_t stride, const Walk& reduced, int64_t r0, int64_t r1, int64_t w,
              Sum<T> (*tile)[kColumns], Sum<T> (*buffer)[kColumns], const How& how) {
  int levels = 1;  // that will be used
  for (int64_t n = (r1 - r0) / 4; n >= kDeep && levels < kLevels; n /= kDeep) ++levels;
  for (int l = 0; l < levels; ++l) std::fill_n(tile[l], w, Sum<T>(0));
  const auto up = [&](int l) {
    for (int64_t c = 0; c < w; ++c) tile[l + 1][c] += tile[l][c], tile[l][c] = 0;
  };
  Place r(reduced, r0);
  const auto take = [&](int q) {
    const Sum<T>* row = seen<T>(in + r.in, stride, w, buffer[q], how);
    r.next();
    return row;
  };
  int64_t i = r0;
  for (int64_t count = 1; i + 4 <= r1; i += 4, ++count) {
    const Sum<T>* four[4];
    for (int q = 0; q < 4; ++q) four[q] = take(q);
    add_four(tile[0], four, w);
    for (int64_t l = 0, n = count; l + 1 < levels && n % kDeep == 0; ++l, n /= kDeep) up(static_cast<int>(l));
  }
  for (; i < r1; ++i) {
    const Sum<T>* row = take(0);
    for (int64_t c = 0; c < w; ++c) tile[0][c] += row[c];
  }
  for (int l = levels - 1; l > 0; --l) {
    for (int64_t c = 0; c < w; ++c) tile[l - 1][c] += tile[l][c];
  }
}

/// Rows of few columns, one right after another: `fold` of them are added as one wide row, whose parts are then added.
template <class T, class How>
void sum_folded(const char* in, int64_t w, int64_t fold, int64_t r0, int64_t r1, Sum<T> (*tile)[kColumns],
                Sum<T> (*buffer)[kColumns], const How& how) {
  constexpr int64_t size = sizeof(T);
  Walk wide, rest;
  const int64_t whole = (r1 - r0) / fold, left = r0 + whole * fold;
  wide.ndim = rest.ndim = 1, wide.size[0] = wide.count = whole, rest.size[0] = rest.count = r1;
  wide.in[0] = fold * w * size, rest.in[0] = w * size, wide.out[0] = rest.out[0] = wide.more[0] = rest.more[0] = 0;
  sum_tile<T>(in, size, rest, left, r1, w, tile, buffer, how);
  Sum<T> last[kColumns / 4];
  std::copy_n(tile[0], w, last);
  sum_tile<T>(in + r0 * w * size, size, wide, 0, whole, w * fold, tile, buffer, how);
  for (int64_t n = fold; n > 1; n = (n + 1) / 2) {  // in pairs
    for (int64_t i = 0; i < n / 2 * w; ++i) tile[0][i] += tile[0][(n + 1) / 2 * w + i];
  }
  for (int64_t c = 0; c < w; ++c) tile[0][c] += last[c];
}

/// The innermost dimension is kept: tiles of columns, added row by row.
template <class T, class How>
void sum_columns(const char* in, char* out, const Walk& kept, const Walk& reduced, const How& how) {
  const int64_t columns = kept.size[0], across = (columns + kColumns - 1) / kColumns;
  const Walk outer = kept.outer();
  const int64_t tiles = across * outer.count, wide = std::min(columns, kColumns);
  const bool follow = reduced.ndim == 1 && kept.in[0] == sizeof(T) && reduced.in[0] == columns * kept.in[0];
  const int64_t fold = follow && columns <= kColumns / 4 ? std::min(kColumns / columns, reduced.count) : 1;
  int64_t groups = 1;
  if (tiles < 64) groups = std::min<int64_t>({64 / tiles, reduced.count / 64, reduced.count * wide / 16384});
  groups = std::max<int64_t>(groups, 1);
  const int64_t group = (reduced.count + groups - 1) / groups;
  std::vector<Sum<T>> parts(groups > 1 ? tiles * groups * wide : 0);

#pragma omp parallel for schedule(static) if (kept.count * reduced.count > kParallel)
  for (int64_t task = 0; task < tiles * groups; ++task) {
    alignas(64) Sum<T> tile[kLevels][kColumns], buffer[4][kColumns];
    const int64_t t = task / groups, g = task % groups, c = t % across * kColumns, w = std::min(kColumns, columns - c);
    const Place k(outer, t / across);
    const char* from = in + k.in + c * kept.in[0];
    const int64_t r0 = std::min(g * group, reduced.count), r1 = std::min(r0 + group, reduced.count);
    if (fold > 1)
      sum_folded<T>(from, w, fold, r0, r1, tile, buffer, how);
    else
      sum_tile<T>(from, kept.in[0], reduced, r0, r1, w, tile, buffer, how);
    if (groups > 1) {
      std::copy_n(tile[0], w, parts.data() + task * wide);
    } else {
      for (int64_t i = 0; i < w; ++i) store<T>(out + k.out + (c + i) * kept.out[0], tile[0][i], how);
    }
  }
  if (groups == 1) return;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t c = t % across * kColumns, w = std::min(kColumns, columns - c);
    const Place k(outer, t / across);
    for (int64_t i = 0; i < w; ++i) {
      Cascade<Sum<T>> sum;
      for (int64_t g = 0; g < groups; ++g) sum.add(parts[(t * groups + g) * wide + i]);
      store<T>(out + k.out + (c + i) * kept.out[0], sum.sum(), how);
    }
  }
}

template <class T, class How> void add_up(const View& out, const View& in, const How& how) {
  const Split s(in, {&out, 1});
  if (s.columns())
    sum_columns<T>(s.nest.at[0], s.nest.at[1], s.kept, s.reduced, how);
  else
    sum_rows<T>(s.nest.at[0], s.nest.at[1], s.kept, s.reduced, how);
}

void zeros(const Launch& l) {
  const FillParams zero{Scalar(0)};
  fill({.out = l.out, .in = {}, .params = &zero});
}

}  // namespace

void sum(const Launch& l) {
  const View &out = l.out[0], &in = l.in[0];
  if (out.numel() == 0) return;
  if (in.numel() == 0) return zeros(l);
  with_type(in.dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    add_up<T>(out, in, Scaled<T>{static_cast<const SumParams*>(l.params)->scale});
  });
}

void norm(const Launch& l) {
  const View &out = l.out[0], &in = l.in[0];
  if (out.numel() == 0) return;
  if (in.numel() == 0) return zeros(l);
  with_floating(in.dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    add_up<T>(out, in, Powers<T>{static_cast<const NormParams*>(l.params)->p});
  });
}

}  // namespace gradwire::engine::cpu
