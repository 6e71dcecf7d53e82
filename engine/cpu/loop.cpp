#include "engine/cpu/loop.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cstdlib>

#include "engine/cpu/rows.h"

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kBlock = 8192;    // elements of a task when nothing is packed
constexpr int64_t kBuffer = 16384;  // bytes of a packed operand: all of them stay in the second cache
constexpr int64_t kTile = 128;      // columns of a tile of a transposed operand
constexpr int64_t kShort = 64;      // rows shorter than this are packed together

bool in_parallel(const Nest& n) { return n.total > kParallel; }

/// Where tasks stand: blocks of columns, then of rows, then all outer places.
struct Grid {
  int64_t columns, rows, across, down, tasks;
  Grid(const Nest& n, int64_t columns, int64_t rows) : columns(columns), rows(rows) {
    const int64_t all_rows = n.ndim > 1 ? n.size[1] : 1;
    across = (n.size[0] + columns - 1) / columns, down = (all_rows + rows - 1) / rows;
    tasks = across * down;
    for (int d = 2; d < n.ndim; ++d) tasks *= n.size[d];
  }
};

struct Block {
  int64_t w, h;  // columns and rows
  Plane real[kMaxOperands];
  Block(const Nest& n, const Grid& g, int64_t task) {
    const int64_t c = task % g.across * g.columns, rest = task / g.across, r = rest % g.down * g.rows;
    w = std::min(g.columns, n.size[0] - c), h = std::min(g.rows, (n.ndim > 1 ? n.size[1] : 1) - r);
    char* at[kMaxOperands];
    n.outer(rest / g.down, 2, at);
    for (int k = 0; k < n.operands; ++k) {
      real[k] = {at[k], n.ndim > 1 ? n.stride[1][k] : 0, n.stride[0][k]};
      real[k].at += c * real[k].column + r * real[k].row;
    }
  }
};

bool streams(const Nest& n, int64_t row) {
  bool fresh = true;
  for (int k = 1; k < n.operands; ++k) fresh = fresh && n.at[k] != n.at[0];
  return fresh && row * n.bytes[0] >= 4096 && n.total * n.bytes[0] > kStreamBytes;
}

void run_flat(const Nest& n, RowKernel kernel, const void* functor) {
  const int64_t columns = std::min(n.size[0], kBlock);
  const Grid g(n, columns, std::max<int64_t>(1, kBlock / columns));
  const bool stream = streams(n, columns);
#pragma omp parallel if (in_parallel(n))
  {
#pragma omp for schedule(static) nowait
    for (int64_t task = 0; task < g.tasks; ++task) {
      const Block b(n, g, task);
      Row row;
      row.n = b.w, row.stream = stream;
      for (int k = 1; k < n.operands; ++k) row.step[k - 1] = b.real[k].column != 0;
      for (int64_t r = 0; r < b.h; ++r) {
        row.out = b.real[0].at + r * b.real[0].row;
        for (int k = 1; k < n.operands; ++k) row.in[k - 1] = b.real[k].at + r * b.real[k].row;
        kernel(functor, row);
      }
    }
    if (stream) flush_stream();
  }
}

struct Packing {
  bool packed[kMaxOperands], transposed = false, joined = true;
  int64_t largest = 0;  // bytes of an element that is packed
};

void run_packed(const Nest& n, const Packing& p, RowKernel kernel, const void* functor) {
  const bool is_short = n.ndim > 1 && n.size[0] < kShort;
  const int64_t fits = kBuffer / p.largest;
  const int64_t columns = std::min(n.size[0], is_short ? kShort : p.transposed ? kTile : fits);
  const Grid g(n, columns, std::max<int64_t>(1, fits / columns));
  const bool stream = !p.packed[0] && streams(n, p.joined ? columns * g.rows : columns);
#pragma omp parallel if (in_parallel(n))
  {
    alignas(64) char buffer[kMaxOperands][kBuffer + 64];
    const char* held[kMaxOperands] = {};  // what is in the buffers already
    int64_t held_w[kMaxOperands] = {}, held_h[kMaxOperands] = {};
#pragma omp for schedule(static) nowait
    for (int64_t task = 0; task < g.tasks; ++task) {
      const Block b(n, g, task);
      Plane seen[kMaxOperands];  // where the kernel finds an operand
      Row row;
      for (int k = 0; k < n.operands; ++k) {
        seen[k] = p.packed[k] ? Plane{buffer[k], b.w * n.bytes[k], n.bytes[k]} : b.real[k];
        if (k > 0) row.step[k - 1] = seen[k].column != 0;
        if (!p.packed[k] || k == 0) continue;
        // In place, a source that other tasks write is never the same place twice, but one that repeats may be.
        if (b.real[k].at == held[k] && b.w == held_w[k] && b.h <= held_h[k]) continue;
        copy_plane(n.bytes[k], seen[k], b.real[k], b.h, b.w, true);
        held[k] = b.real[k].at, held_w[k] = b.w, held_h[k] = b.h;
      }
      const bool once = p.joined && b.w == n.size[0];
      row.n = once ? b.w * b.h : b.w, row.stream = stream;
      for (int64_t r = 0; r < (once ? 1 : b.h); ++r) {
        row.out = seen[0].at + r * seen[0].row;
        for (int k = 1; k < n.operands; ++k) row.in[k - 1] = seen[k].at + r * seen[k].row;
        kernel(functor, row);
      }
      if (p.packed[0]) copy_plane(n.bytes[0], b.real[0], seen[0], b.h, b.w, false);
    }
    if (stream) flush_stream();
  }
}

void copy_bytes(const void*, const Row& row) { copy_row(row.out, row.in[0], row.n, row.stream); }

}  // namespace

#ifdef _OPENMP
int team_size() { return omp_get_num_threads(); }
int team_rank() { return omp_get_thread_num(); }
#else
int team_size() { return 1; }
int team_rank() { return 0; }
#endif

void run(const Nest& n, RowKernel kernel, const void* functor) {
  if (n.total == 0) return;
  const bool is_short = n.ndim > 1 && n.size[0] < kShort;
  Packing p;
  for (int k = 0; k < n.operands; ++k) {
    const bool flat = n.stride[0][k] == n.bytes[k];
    const bool follows = n.ndim > 1 && flat && n.stride[1][k] == n.size[0] * n.bytes[k];
    p.packed[k] = is_short ? !follows : !flat && (k == 0 || n.stride[0][k] != 0);
    p.transposed = p.transposed || (p.packed[k] && n.ndim > 1 && std::abs(n.stride[1][k]) < std::abs(n.stride[0][k]));
    p.joined = p.joined && (p.packed[k] || follows);
    if (p.packed[k]) p.largest = std::max(p.largest, n.bytes[k]);
  }
  if (p.largest)
    run_packed(n, p, kernel, functor);
  else
    run_flat(n, kernel, functor);
}

void copy(std::span<const View> views) {
  Nest n = nest_of(views);
  if (n.total == 0) return;
  const int64_t size = n.bytes[0];
  if (n.stride[0][0] == size && n.stride[0][1] == size && n.size[0] * size >= 256) {  // rows of bytes
    n.size[0] *= size;
    n.total *= size;
    n.bytes[0] = n.bytes[1] = n.stride[0][0] = n.stride[0][1] = 1;
    return run_flat(n, copy_bytes, nullptr);
  }
  const bool transposed = n.ndim > 1 && std::abs(n.stride[1][1]) < std::abs(n.stride[0][1]);
  const int64_t columns = std::min(n.size[0], transposed ? kTile : kBlock);
  const Grid g(n, columns, std::max<int64_t>(1, kBlock / columns));
  const bool stream = n.total * size > kStreamBytes;
#pragma omp parallel if (in_parallel(n))
  {
#pragma omp for schedule(static) nowait
    for (int64_t task = 0; task < g.tasks; ++task) {
      const Block b(n, g, task);
      copy_plane(size, b.real[0], b.real[1], b.h, b.w, false, stream);
    }
    if (stream) flush_stream();
  }
}

}  // namespace gradwire::engine::cpu
