#include <algorithm>
#include <vector>

#include "engine/cpu/cascade.h"
#include "engine/cpu/convert.h"
#include "engine/cpu/loop.h"
#include "engine/cpu/rows.h"
#include "engine/kernels.h"

// Sums. How a sum is cut into parts depends on the shapes alone, so results do not depend on the number of threads.

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kPiece = 1024;    // elements that are added lane by lane before the cascade
constexpr int64_t kGroup = 65536;   // elements of a task
constexpr int64_t kColumns = 1024;  // of a tile of kept columns
constexpr int64_t kDeep = 16;       // additions into a tile before it moves up a level
constexpr int kLevels = 4;

/// Dimensions of a walk, innermost first.
struct Walk {
  int ndim = 0;
  int64_t count = 1, size[kMaxDims], in[kMaxDims], out[kMaxDims];
  void push(const Nest& n, int d) {
    size[ndim] = n.size[d], in[ndim] = n.stride[d][0], out[ndim] = n.stride[d][1];
    count *= n.size[d], ++ndim;
  }
};

/// A place in a walk, which moves on one element at a time.
struct Place {
  const Walk& w;
  int64_t at[kMaxDims], in = 0, out = 0;
  Place(const Walk& w, int64_t i) : w(w) {
    for (int d = 0; d < w.ndim; i /= w.size[d++]) at[d] = i % w.size[d], in += at[d] * w.in[d], out += at[d] * w.out[d];
  }
  void next() {
    for (int d = 0; d < w.ndim; ++d) {
      in += w.in[d], out += w.out[d];
      if (++at[d] < w.size[d]) return;
      in -= w.in[d] * w.size[d], out -= w.out[d] * w.size[d], at[d] = 0;
    }
  }
};

template <class T> using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, Computed<T>>;

/// n <= kColumns elements as the type they are added in: where they are, or converted into `buffer`.
template <class T> const Sum<T>* seen(const char* p, int64_t stride, int64_t n, Sum<T>* buffer) {
  const auto* in = reinterpret_cast<const T*>(p);
  if (stride == sizeof(T)) {
    if constexpr (std::is_same_v<T, Sum<T>>) return in;
    if constexpr (kHalf<T>)
      to_float(in, buffer, n);
    else
      for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<Sum<T>>(in[i]);
  } else {
    for (int64_t i = 0; i < n; ++i, p += stride)
      buffer[i] = static_cast<Sum<T>>(computed(*reinterpret_cast<const T*>(p)));
  }
  return buffer;
}

template <class T, class Out> void store(char* out, Sum<T> s, double scale) {
  if constexpr (std::is_integral_v<T>)
    *reinterpret_cast<int64_t*>(out) = static_cast<int64_t>(s);
  else
    *reinterpret_cast<Out*>(out) = stored<Out>(static_cast<Sum<T>>(s * scale));
}

/// The innermost dimension is added up: kept places, each the cascade of the pieces of its rows.
template <class T, class Out>
void sum_rows(const char* in, char* out, const Walk& kept, const Walk& reduced, double scale) {
  const int64_t row = reduced.size[0], stride = reduced.in[0], pieces_a_row = (row + kPiece - 1) / kPiece;
  Walk rows = reduced;  // without the innermost
  rows.ndim = reduced.ndim - 1, rows.count = reduced.count / row;
  std::copy_n(reduced.size + 1, rows.ndim, rows.size);
  std::copy_n(reduced.in + 1, rows.ndim, rows.in);
  std::fill_n(rows.out, rows.ndim, 0);
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
        store<T, Out>(out + k.out, sum_block(seen<T>(in + k.in, stride, row, buffer), row), scale);
        continue;
      }
      Cascade<Sum<T>> sum;
      int64_t p = g * group;
      const int64_t end = std::min(p + group, pieces);
      Place r(rows, p / pieces_a_row);
      for (int64_t c = p % pieces_a_row * kPiece; p < end; ++p) {
        const int64_t n = std::min(kPiece, row - c);
        sum.add(sum_block(seen<T>(in + k.in + r.in + c * stride, stride, n, buffer), n));
        if ((c += kPiece) >= row) c = 0, r.next();
      }
      if (groups > 1)
        parts[task] = sum.sum();
      else
        store<T, Out>(out + k.out, sum.sum(), scale);
    }
  }
  if (groups == 1) return;
  Place k(kept, 0);
  for (int64_t i = 0; i < kept.count; ++i, k.next()) {
    Cascade<Sum<T>> sum;
    for (int64_t g = 0; g < groups; ++g) sum.add(parts[i * groups + g]);
    store<T, Out>(out + k.out, sum.sum(), scale);
  }
}

/// The sum of reduced rows [r0, r1) of w columns, into tile[0]; the levels above are scratch.
template <class T>
void sum_tile(const char* in, int64_t stride, const Walk& reduced, int64_t r0, int64_t r1, int64_t w,
              Sum<T> (*tile)[kColumns], Sum<T> (*buffer)[kColumns]) {
  int levels = 1;  // that will be used
  for (int64_t n = (r1 - r0) / 4; n >= kDeep && levels < kLevels; n /= kDeep) ++levels;
  for (int l = 0; l < levels; ++l) std::fill_n(tile[l], w, Sum<T>(0));
  const auto up = [&](int l) {
    for (int64_t c = 0; c < w; ++c) tile[l + 1][c] += tile[l][c], tile[l][c] = 0;
  };
  Place r(reduced, r0);
  const auto take = [&](int q) {
    const Sum<T>* row = seen<T>(in + r.in, stride, w, buffer[q]);
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
template <class T>
void sum_folded(const char* in, int64_t w, int64_t fold, int64_t r0, int64_t r1, Sum<T> (*tile)[kColumns],
                Sum<T> (*buffer)[kColumns]) {
  constexpr int64_t size = sizeof(T);
  Walk wide, rest;
  const int64_t whole = (r1 - r0) / fold, left = r0 + whole * fold;
  wide.ndim = rest.ndim = 1, wide.size[0] = wide.count = whole, rest.size[0] = rest.count = r1;
  wide.in[0] = fold * w * size, rest.in[0] = w * size, wide.out[0] = rest.out[0] = 0;
  sum_tile<T>(in, size, rest, left, r1, w, tile, buffer);
  Sum<T> last[kColumns / 4];
  std::copy_n(tile[0], w, last);
  sum_tile<T>(in + r0 * w * size, size, wide, 0, whole, w * fold, tile, buffer);
  for (int64_t n = fold; n > 1; n = (n + 1) / 2) {  // in pairs
    for (int64_t i = 0; i < n / 2 * w; ++i) tile[0][i] += tile[0][(n + 1) / 2 * w + i];
  }
  for (int64_t c = 0; c < w; ++c) tile[0][c] += last[c];
}

/// The innermost dimension is kept: tiles of columns, added row by row.
template <class T, class Out>
void sum_columns(const char* in, char* out, const Walk& kept, const Walk& reduced, double scale) {
  const int64_t columns = kept.size[0], across = (columns + kColumns - 1) / kColumns;
  Walk outer = kept;
  outer.ndim = kept.ndim - 1, outer.count = kept.count / columns;
  std::copy_n(kept.size + 1, outer.ndim, outer.size);
  std::copy_n(kept.in + 1, outer.ndim, outer.in);
  std::copy_n(kept.out + 1, outer.ndim, outer.out);
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
      sum_folded<T>(from, w, fold, r0, r1, tile, buffer);
    else
      sum_tile<T>(from, kept.in[0], reduced, r0, r1, w, tile, buffer);
    if (groups > 1) {
      std::copy_n(tile[0], w, parts.data() + task * wide);
    } else {
      for (int64_t i = 0; i < w; ++i) store<T, Out>(out + k.out + (c + i) * kept.out[0], tile[0][i], scale);
    }
  }
  if (groups == 1) return;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t c = t % across * kColumns, w = std::min(kColumns, columns - c);
    const Place k(outer, t / across);
    for (int64_t i = 0; i < w; ++i) {
      Cascade<Sum<T>> sum;
      for (int64_t g = 0; g < groups; ++g) sum.add(parts[(t * groups + g) * wide + i]);
      store<T, Out>(out + k.out + (c + i) * kept.out[0], sum.sum(), scale);
    }
  }
}

template <class T, class Out> void sum_as(const View& out, const View& in, double scale) {
  View wide = out;  // as large as in
  int64_t strides[kMaxDims];
  for (int d = 0; d < in.ndim; ++d) strides[d] = out.shape[d] == in.shape[d] ? out.strides[d] : 0;
  wide.shape = in.shape, wide.strides = strides;
  const View views[] = {in, wide};
  const Nest n = nest_of(views);
  Walk kept, reduced;
  for (int d = 0; d < n.ndim; ++d) (n.stride[d][1] ? kept : reduced).push(n, d);
  if (reduced.ndim == 0) {  // every sum is of one element
    reduced.ndim = 1, reduced.size[0] = 1, reduced.in[0] = sizeof(T), reduced.out[0] = 0;
  }
  if (kept.ndim > 0 && n.stride[0][1] != 0)
    sum_columns<T, Out>(n.at[0], n.at[1], kept, reduced, scale);
  else
    sum_rows<T, Out>(n.at[0], n.at[1], kept, reduced, scale);
}

}  // namespace

void sum(const Launch& l) {
  const View &out = l.out[0], &in = l.in[0];
  const double scale = static_cast<const SumParams*>(l.params)->scale;
  if (out.numel() == 0) return;
  if (in.numel() == 0) {
    const FillParams zero{Scalar(0)};
    return fill({.out = l.out, .in = {}, .params = &zero});
  }
  with_type(in.dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    sum_as<T, std::conditional_t<kFloating<T>, T, int64_t>>(out, in, scale);
  });
}

}  // namespace gradwire::engine::cpu
