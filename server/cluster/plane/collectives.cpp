#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <algorithm>
#include <cstring>

#include "server/cluster/plane/helper.h"
#include "server/cluster/plane/reductions.h"

namespace gradwire::server::cluster::plane {

namespace {

constexpr size_t kPiece = size_t{2} << 20;  // halves that are widened at once: 8 MiB of float32

using ContextPtr = std::shared_ptr<gloo::Context>;

/// Calls f with elements of the dtype's size: Gloo takes the size from a type.
template <class F> void with_size(DType t, F f) {
  switch (size_of(t)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

/// Of `count` elements; to all ranks, or to the root if there is one. One rank computes an element and the others are
/// given it: all have the same bits.
void reduce_plain(const ContextPtr& c, uint32_t tag, Combine f, DType t, int root, char* data, size_t count) {
  with_size(t, [&]<class T>(T) {
    if (root < 0) {
      gloo::AllreduceOptions o(c);
      o.setTag(tag);
      o.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      o.setOutput(reinterpret_cast<T*>(data), count);
      o.setReduceFunction(f);
      gloo::allreduce(o);
    } else {
      gloo::ReduceOptions o(c);
      o.setTag(tag);
      o.setOutput(reinterpret_cast<T*>(data), count);
      o.setRoot(root);
      o.setReduceFunction(f);
      gloo::reduce(o);
    }
  });
}

void reduce(const ContextPtr& c, uint32_t tag, const Terms& terms, int root, char* data, size_t count) {
  const bool divides = terms.op == ReduceOp::avg, mine = root < 0 || root == c->rank;
  if (!in_float32(terms.op, terms.dtype)) {
    reduce_plain(c, tag, combine(terms.op, terms.dtype), terms.dtype, root, data, count);
    if (divides && mine) divide(terms.dtype, data, count, c->size);
    return;
  }
  std::vector<float> wide(std::min(count, kPiece));
  for (size_t done = 0; done < count; done += wide.size()) {
    const size_t n = std::min(wide.size(), count - done);
    char* part = data + done * 2;
    widen(terms.dtype, wide.data(), part, n);
    reduce_plain(c, tag, combine(terms.op, DType::float32), DType::float32, root, reinterpret_cast<char*>(wide.data()),
                 n);
    if (!mine) continue;
    if (divides) divide(DType::float32, wide.data(), n, c->size);
    narrow(terms.dtype, part, wide.data(), n);
  }
}

}  // namespace

void run_collective(const ContextPtr& c, const Terms& terms, uint32_t sequence, char* data) {
  const uint32_t tag = fingerprint(terms, sequence);
  const auto count = static_cast<size_t>(terms.count);
  const size_t part = count * static_cast<size_t>(size_of(terms.dtype));
  const auto rank = static_cast<size_t>(c->rank), size = static_cast<size_t>(c->size);
  auto* bytes = reinterpret_cast<uint8_t*>(data);
  switch (terms.what) {
    case Collective::barrier: {
      gloo::BarrierOptions o(c);
      o.setTag(tag);
      return gloo::barrier(o);
    }
    case Collective::broadcast: {
      gloo::BroadcastOptions o(c);
      o.setTag(tag);
      o.setOutput(bytes, part);
      o.setRoot(terms.root);
      return gloo::broadcast(o);
    }
    case Collective::all_reduce:
      return reduce(c, tag, terms, -1, data, count);
    case Collective::reduce:
      return reduce(c, tag, terms, terms.root, data, count);
    case Collective::reduce_scatter:
      // Gloo's own works on what a context allocates once; of this one the result is the same on all ranks too.
      reduce(c, tag, terms, -1, data, count * size);
      if (rank) std::memcpy(data, data + rank * part, part);
      return;
    case Collective::all_gather: {
      gloo::AllgatherOptions o(c);
      o.setTag(tag);
      o.setOutput(bytes, part * size);
      return gloo::allgather(o);
    }
    case Collective::gather: {
      gloo::GatherOptions o(c);
      o.setTag(tag);
      const bool root = c->rank == terms.root;
      o.setInput(bytes + (root ? rank * part : 0), part);
      if (root) o.setOutput(bytes, part * size);
      o.setRoot(terms.root);
      return gloo::gather(o);
    }
    case Collective::scatter: {
      gloo::ScatterOptions o(c);
      o.setTag(tag);
      const bool root = c->rank == terms.root;
      if (root) {
        std::vector<uint8_t*> parts;
        for (size_t r = 0; r < size; ++r) parts.push_back(bytes + r * part);
        o.setInputs(parts, part);
      }
      // The root's first part belongs to rank 0 until it is sent.
      o.setOutput(bytes + (root ? rank * part : 0), part);
      o.setRoot(terms.root);
      gloo::scatter(o);
      if (root && rank) std::memcpy(data, data + rank * part, part);
      return;
    }
    case Collective::send:
    case Collective::recv:
      break;
  }
  throw Error(Code::internal, "data plane: send and recv are no collectives");
}

}  // namespace gradwire::server::cluster::plane
