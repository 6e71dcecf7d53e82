#pragma once

#include <cstdint>

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

/// What all ranks must say alike before a byte moves; `sequence` counts a group's collectives, and for send and recv
/// the messages of that pair of ranks.
struct Terms {
  Collective what = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::float32;
  int64_t count = 0;  // elements of one rank's part: of the whole tensor where there are no parts
  int root = -1;  // broadcast, reduce, gather, scatter: the root's group rank. send, recv: the other's; recv: -1: any
  uint64_t part = 0;  // of gradients that travel in buckets: a number of the model, and in the low 16 bits the bucket's
};

}  // namespace gradwire
