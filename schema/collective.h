#pragma once

#include <cstdint>
#include <iterator>

#include "schema/dtype.h"

// What ranks compute together: the words of the engine's rows and of the servers' groups.

namespace gradwire {

enum class Collective : uint8_t {
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  barrier,
  send,
  recv
};
enum class ReduceOp : uint8_t { sum, product, min, max, band, bor, bxor, avg };

/// By their numbers, as users call them.
inline constexpr const char* kCollectiveNames[] = {"broadcast", "all_reduce",     "reduce",  "all_gather", "gather",
                                                   "scatter",   "reduce_scatter", "barrier", "send",       "recv"};
inline constexpr const char* kReduceOpNames[] = {"SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"};
inline constexpr int kCollectiveKinds = std::size(kCollectiveNames), kReductions = std::size(kReduceOpNames);
constexpr const char* name(Collective c) { return kCollectiveNames[static_cast<int>(c)]; }
constexpr const char* name(ReduceOp op) { return kReduceOpNames[static_cast<int>(op)]; }

constexpr bool is_reducing(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::reduce_scatter;
}
/// One rank is not as the others.
constexpr bool is_rooted(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather || c == Collective::scatter;
}
constexpr bool is_pairwise(Collective c) { return c == Collective::send || c == Collective::recv; }
/// Not for floating types.
constexpr bool is_bitwise(ReduceOp op) { return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor; }

/// What all ranks must say alike before a byte moves; `sequence` counts a group's collectives, and for send and recv
/// the messages of that pair of ranks.
struct Terms {
  Collective what = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::float32;
  int64_t count = 0;  // elements of one rank's part: of the whole tensor where there are no parts
  int root = -1;  // broadcast, reduce, gather, scatter: the root's group rank. send, recv: the other's; recv: -1: any
  uint64_t part = 0;  // of tensors that travel together: a number of all, and in the low 16 bits the bucket's, or kList
  static constexpr uint64_t kList = 0xffff;  // all of them at once
};

/// How many parts of t.count elements this rank of `size` holds, before or after.
constexpr int parts_of(const Terms& t, int rank, int size) {
  if (t.what == Collective::barrier) return 0;
  const bool all = t.what == Collective::all_gather || t.what == Collective::reduce_scatter ||
                   ((t.what == Collective::gather || t.what == Collective::scatter) && t.root == rank);
  return all ? size : 1;
}

}  // namespace gradwire
