#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/cpu/cascade.h"
#include "engine/cpu/convert.h"
#include "engine/cpu/loop.h"
#include "engine/cpu/rows.h"
#include "engine/cpu/walk.h"
#include "engine/kernels.h"

// Products and extremes. How the elements are cut into parts depends on the shapes alone, and parts are joined in
// order, so results do not depend on the number of threads.

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kPiece = 2048;   // elements that are taken together
constexpr int64_t kTile = 512;     // columns of a tile
constexpr int64_t kGroup = 65536;  // elements of a task

/// Narrow whole numbers are compared as int32.
template <class T>
using Compared =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 8, int64_t, int32_t>, Computed<T>>;
template <class T> using Factor = std::conditional_t<std::is_integral_v<T>, uint64_t, Computed<T>>;

/// n <= kPiece elements as S: where they are, or converted into `buffer`.
template <class T, class S> const S* seen(const char* p, int64_t stride, int64_t n, S* buffer) {
  const auto* in = reinterpret_cast<const T*>(p);
  if (stride == sizeof(T)) {
    if constexpr (std::is_same_v<T, S>) return in;
    if constexpr (kHalf<T> && std::is_same_v<S, float>)
      to_float(in, buffer, n);
    else
      for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<S>(computed(in[i]));
  } else {
    for (int64_t i = 0; i < n; ++i, p += stride) buffer[i] = static_cast<S>(computed(*reinterpret_cast<const T*>(p)));
  }
  return buffer;
}

template <class S> bool is_nan([[maybe_unused]] S x) {
  if constexpr (std::is_floating_point_v<S>)
    return x != x;
  else
    return false;
}

// Four vectors of 32 bytes: enough comparisons in flight to hide their latency. A lane that has met NaN keeps it.
template <class S, bool largest> [[gnu::always_inline]] inline S best_of(const S* p, int64_t n, S best) {
  typedef S V __attribute__((vector_size(32)));
  constexpr int64_t kLanes = 32 / sizeof(S), kAll = 4 * kLanes;
  const auto take = [](S& b, S x) {
    if ((largest ? x > b : x < b) || is_nan(x)) b = x;
  };
  int64_t i = 0;
  if (n >= kAll) {
    V a[4], x;
    for (V& v : a) v = best - V{};
    const auto join = [](V& b, const V& x) {
      if constexpr (std::is_floating_point_v<S>)
        b = (largest ? x > b : x < b) | (x != x) ? x : b;
      else
        b = (largest ? x > b : x < b) ? x : b;
    };
    for (; i + kAll <= n; i += kAll) {
      for (int k = 0; k < 4; ++k) {
        std::memcpy(&x, p + i + k * kLanes, 32);
        join(a[k], x);
      }
    }
    join(a[0], a[1]), join(a[2], a[3]), join(a[0], a[2]);
    S lanes[kLanes];
    std::memcpy(lanes, a, sizeof lanes);
    for (const S lane : lanes) take(best, lane);
  }
  for (; i < n; ++i) take(best, p[i]);
  return best;
}
template <class S> [[gnu::always_inline]] inline S best_piece(const S* p, int64_t n, S best, bool largest) {
  return largest ? best_of<S, true>(p, n, best) : best_of<S, false>(p, n, best);
}
GW_CLONES float best_in(const float* p, int64_t n, float b, bool largest) { return best_piece(p, n, b, largest); }
GW_CLONES double best_in(const double* p, int64_t n, double b, bool largest) { return best_piece(p, n, b, largest); }
GW_CLONES int32_t best_in(const int32_t* p, int64_t n, int32_t b, bool largest) { return best_piece(p, n, b, largest); }
GW_CLONES int64_t best_in(const int64_t* p, int64_t n, int64_t b, bool largest) { return best_piece(p, n, b, largest); }

template <class S> using Count = std::conditional_t<sizeof(S) == 8, int64_t, int32_t>;

/// best[c] and, unless `place` is null, the place (r) of where it stands, over one more row.
template <class S, bool largest, bool places>
[[gnu::always_inline]] inline void best_row(const S* row, int64_t w, S* best, Count<S>* place, Count<S> r) {
#pragma omp simd
  for (int64_t c = 0; c < w; ++c) {
    const S x = row[c], b = best[c];
    bool better = largest ? x > b : x < b;
    if constexpr (std::is_floating_point_v<S>) better |= x != x && b == b;
    best[c] = better ? x : b;
    if constexpr (places) place[c] = better ? r : place[c];
  }
}
template <class S>
[[gnu::always_inline]] inline void best_either(const S* row, int64_t w, S* best, Count<S>* place, Count<S> r,
                                               bool largest) {
  if (place)
    largest ? best_row<S, true, true>(row, w, best, place, r) : best_row<S, false, true>(row, w, best, place, r);
  else
    largest ? best_row<S, true, false>(row, w, best, place, r) : best_row<S, false, false>(row, w, best, place, r);
}
GW_CLONES void best_into(const float* row, int64_t w, float* best, int32_t* place, int32_t r, bool largest) {
  best_either(row, w, best, place, r, largest);
}
GW_CLONES void best_into(const double* row, int64_t w, double* best, int64_t* place, int64_t r, bool largest) {
  best_either(row, w, best, place, r, largest);
}
GW_CLONES void best_into(const int32_t* row, int64_t w, int32_t* best, int32_t* place, int32_t r, bool largest) {
  best_either(row, w, best, place, r, largest);
}
GW_CLONES void best_into(const int64_t* row, int64_t w, int64_t* best, int64_t* place, int64_t r, bool largest) {
  best_either(row, w, best, place, r, largest);
}

/// The largest or smallest of type T; NaN wins, and of equal ones the first.
template <class In> struct Best {
  using T = In;
  using S = Compared<T>;
  bool largest, wants_place;

  struct One {
    S best;
    int64_t place = 0;
  };
  S worst() const {
    using L = std::numeric_limits<S>;
    if constexpr (std::is_floating_point_v<S>) return largest ? -L::infinity() : L::infinity();
    return largest ? L::min() : L::max();
  }
  One start() const { return {worst()}; }
  bool better(S x, S than) const { return ((largest ? x > than : x < than) || is_nan(x)) && !is_nan(than); }
  /// n more elements, of which the first stands at place `at`.
  void add(One& one, const S* p, int64_t n, int64_t at) const {
    const S best = best_in(p, n, worst(), largest);
    if (!better(best, one.best)) return;
    one.best = best;
    if (!wants_place) return;
    int64_t i = 0;
    while (is_nan(best) ? !is_nan(p[i]) : p[i] != best) ++i;
    one.place = at + i;
  }
  void join(One& one, const One& later) const {
    if (better(later.best, one.best)) one = later;
  }
  void store(const One& one, char* out, char* place) const {
    *reinterpret_cast<T*>(out) = stored<T>(static_cast<Computed<T>>(one.best));
    if (wants_place) *reinterpret_cast<int64_t*>(place) = one.place;
  }

  struct Tile {
    alignas(64) S best[kTile];
    alignas(64) Count<S> place[kTile];
  };
  static constexpr int64_t kMostRows = sizeof(S) == 8 ? int64_t{1} << 62 : std::numeric_limits<int32_t>::max();
  void start(Tile& t, int64_t w) const {
    std::fill_n(t.best, w, worst());
    std::fill_n(t.place, w, 0);
  }
  void add(Tile& t, const S* row, int64_t w, int64_t at) const {
    best_into(row, w, t.best, wants_place ? t.place : nullptr, static_cast<Count<S>>(at), largest);
  }
  One of(const Tile& t, int64_t c) const { return {t.best[c], t.place[c]}; }
};

template <class T> [[gnu::always_inline]] inline T product_lanes(const T* p, int64_t n) {
  constexpr int64_t kAll = 16;
  T lanes[kAll], all = 1;
  std::fill_n(lanes, kAll, T(1));
  int64_t i = 0;
  for (; i + kAll <= n; i += kAll) {
#pragma omp simd
    for (int64_t k = 0; k < kAll; ++k) lanes[k] *= p[i + k];
  }
  for (; i < n; ++i) all *= p[i];
  for (const T lane : lanes) all *= lane;
  return all;
}
GW_CLONES float product_of(const float* p, int64_t n) { return product_lanes(p, n); }
GW_CLONES double product_of(const double* p, int64_t n) { return product_lanes(p, n); }
GW_CLONES uint64_t product_of(const uint64_t* p, int64_t n) { return product_lanes(p, n); }

template <class In> struct Product {
  using T = In;
  using S = Factor<T>;
  using One = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;  // of pieces
  One start() const { return 1; }
  void add(One& one, const S* p, int64_t n, int64_t) const { one *= product_of(p, n); }
  void join(One& one, const One& later) const { one *= later; }
  void store(const One& one, char* out, char*) const {
    if constexpr (std::is_integral_v<T>)
      *reinterpret_cast<int64_t*>(out) = static_cast<int64_t>(one);
    else
      *reinterpret_cast<T*>(out) = stored<T>(static_cast<Computed<T>>(one));
  }
  struct Tile {
    alignas(64) S all[kTile];
  };
  static constexpr int64_t kMostRows = int64_t{1} << 62;
  void start(Tile& t, int64_t w) const { std::fill_n(t.all, w, S(1)); }
  void add(Tile& t, const S* row, int64_t w, int64_t) const {
#pragma omp simd
    for (int64_t c = 0; c < w; ++c) t.all[c] *= row[c];
  }
  One of(const Tile& t, int64_t c) const { return t.all[c]; }
};

/// The innermost dimension is reduced.
template <class Op> void fold_rows(const Split& s, const Op& op) {
  using S = typename Op::S;
  const Walk &kept = s.kept, &reduced = s.reduced;
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
  std::vector<typename Op::One> parts(groups > 1 ? kept.count * groups : 0, op.start());

#pragma omp parallel for schedule(static) if (kept.count * reduced.count > kParallel)
  for (int64_t task = 0; task < blocks * groups; ++task) {
    alignas(64) S buffer[kPiece];
    const int64_t first = task / groups * outs, last = std::min(first + outs, kept.count), g = task % groups;
    Place k(kept, first);
    for (int64_t i = first; i < last; ++i, k.next()) {
      typename Op::One one = op.start();
      int64_t p = g * group;
      const int64_t end = std::min(p + group, pieces);
      Place r(rows, p / pieces_a_row);
      for (int64_t c = p % pieces_a_row * kPiece; p < end; ++p) {
        const int64_t n = std::min(kPiece, row - c);
        op.add(one, seen<typename Op::T>(s.nest.at[0] + k.in + r.in + c * stride, stride, n, buffer), n, c);
        if ((c += kPiece) >= row) c = 0, r.next();
      }
      if (groups > 1)
        parts[task] = one;
      else
        op.store(one, s.nest.at[1] + k.out, s.nest.at[2] + k.more);
    }
  }
  if (groups == 1) return;
  Place k(kept, 0);
  for (int64_t i = 0; i < kept.count; ++i, k.next()) {
    typename Op::One one = op.start();
    for (int64_t g = 0; g < groups; ++g) op.join(one, parts[i * groups + g]);
    op.store(one, s.nest.at[1] + k.out, s.nest.at[2] + k.more);
  }
}

/// The innermost dimension is kept: tiles of columns, row by row.
template <class Op> void fold_columns(const Split& s, const Op& op) {
  using S = typename Op::S;
  const Walk &kept = s.kept, &reduced = s.reduced, outer = kept.outer();
  const int64_t columns = kept.size[0], across = (columns + kTile - 1) / kTile;
  const int64_t tiles = across * outer.count, wide = std::min(columns, kTile);
  int64_t groups = 1;
  if (tiles < 64) groups = std::min<int64_t>({64 / tiles, reduced.count / 64, reduced.count * wide / 16384});
  groups = std::max<int64_t>(groups, 1);
  const int64_t group = (reduced.count + groups - 1) / groups;
  std::vector<typename Op::One> parts(groups > 1 ? tiles * groups * wide : 0, op.start());

#pragma omp parallel for schedule(static) if (kept.count * reduced.count > kParallel)
  for (int64_t task = 0; task < tiles * groups; ++task) {
    alignas(64) S buffer[kTile];
    typename Op::Tile tile;
    const int64_t t = task / groups, g = task % groups, c = t % across * kTile, w = std::min(kTile, columns - c);
    const Place k(outer, t / across);
    const char* from = s.nest.at[0] + k.in + c * kept.in[0];
    const int64_t r0 = std::min(g * group, reduced.count), r1 = std::min(r0 + group, reduced.count);
    op.start(tile, w);
    Place r(reduced, r0);
    for (int64_t i = r0; i < r1; ++i, r.next())
      op.add(tile, seen<typename Op::T>(from + r.in, kept.in[0], w, buffer), w, i);
    for (int64_t i = 0; i < w; ++i) {
      if (groups > 1)
        parts[task * wide + i] = op.of(tile, i);
      else
        op.store(op.of(tile, i), s.nest.at[1] + k.out + (c + i) * kept.out[0],
                 s.nest.at[2] + k.more + (c + i) * kept.more[0]);
    }
  }
  if (groups == 1) return;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t c = t % across * kTile, w = std::min(kTile, columns - c);
    const Place k(outer, t / across);
    for (int64_t i = 0; i < w; ++i) {
      typename Op::One one = op.start();
      for (int64_t g = 0; g < groups; ++g) op.join(one, parts[(t * groups + g) * wide + i]);
      op.store(one, s.nest.at[1] + k.out + (c + i) * kept.out[0], s.nest.at[2] + k.more + (c + i) * kept.more[0]);
    }
  }
}

template <class Op> void fold(const Split& s, const Op& op) {
  if (s.columns() && s.reduced.count <= Op::kMostRows)
    fold_columns(s, op);
  else
    fold_rows(s, op);
}

}  // namespace

void prod(const Launch& l) {
  const View &out = l.out[0], &in = l.in[0];
  if (out.numel() == 0) return;
  if (in.numel() == 0) {
    const FillParams one{Scalar(1)};
    return fill({.out = l.out, .in = {}, .params = &one});
  }
  const Split s(in, {&out, 1});
  with_type(in.dtype, [&](auto t) { fold(s, Product<typename decltype(t)::type>{}); });
}

void extreme(const Launch& l) {
  if (l.out[0].numel() == 0) return;
  const bool largest = static_cast<const ExtremeParams*>(l.params)->largest, places = l.out.size() > 1;
  // Places are counted along a dimension, so it keeps its direction.
  const Split s(l.in[0], l.out,
                places && std::any_of(l.in[0].strides, l.in[0].strides + l.in[0].ndim,
                                      [](int64_t stride) { return stride < 0; }));
  with_type(l.in[0].dtype, [&](auto t) { fold(s, Best<typename decltype(t)::type>{largest, places}); });
}

}  // namespace gradwire::engine::cpu
