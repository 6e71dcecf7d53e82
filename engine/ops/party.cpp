#include "engine/ops/party.h"

#include <algorithm>
#include <vector>

#include "engine/apply.h"
#include "engine/shape.h"

namespace gradwire::engine {

void refuse(std::string why) { throw Error(Code::bad_argument, std::move(why)); }

Exchange& exchange_of(Context& cx) {
  if (cx.exchange) return *cx.exchange;
  throw Error(Code::no_object,
              "Default process group has not been initialized, please make sure to call init_process_group.");
}

int Party::rank_of(int64_t rank) const {
  if (!group.ranks) {
    if (rank >= 0 && rank < group.size) return static_cast<int>(rank);
  } else {
    const auto at = std::ranges::find(*group.ranks, rank);
    if (at != group.ranks->end()) return static_cast<int>(at - group.ranks->begin());
  }
  refuse("rank(" + std::to_string(rank) + ") is not member of group");
}

Tensor number(Context& cx, int64_t n) { return cx.full({}, Scalar(n), DType::int64); }

size_t bytes_of(const Tensor& t) { return static_cast<size_t>(t.numel() * size_of(t.dtype())); }

void check_target(const Tensor& t) {
  if (overlaps_itself(t.shape(), t.strides())) {
    refuse(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
  }
}

TransferPtr room(const Party& p, size_t one, int parts) {
  size_t bytes;
  if (__builtin_mul_overflow(one, static_cast<size_t>(parts), &bytes))
    throw Error(Code::memory_limit, "the tensors of all ranks are too large");
  return p.exchange.prepare(p.name, bytes);
}

Results end_with(Context& cx, std::unique_ptr<Pending> p) {
  if (p->transfer->done()) return p->run();
  cx.pending = std::move(p);
  return {};
}

Results go(const Call& c, const Party& p, TransferPtr transfer, const Terms& terms,
           std::function<Results(Transfer&)> finish) {
  auto pending = std::make_unique<Pending>(Pending{std::move(transfer), std::string(p.name), std::move(finish)});
  p.exchange.start(pending->transfer, p.name, terms);
  return end_with(c.cx, std::move(pending));
}

uint64_t list_number(std::span<const Tensor> all, uint64_t seed) {
  uint64_t h = seed;
  const auto add = [&h](uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15;
    h ^= h >> 29;
  };
  add(all.size());
  for (const Tensor& t : all) {
    add(static_cast<uint64_t>(t.dtype()) << 8 | static_cast<uint64_t>(t.ndim()));
    for (const int64_t n : t.shape()) add(static_cast<uint64_t>(n));
  }
  return h >> 16;
}

void put_bytes(Context& cx, const Tensor& t, std::byte* to) {
  if (t.numel() == 0) return;
  const Tensor flat = cx.contiguous(t);
  cx.backend.to_host(to, flat.data(), bytes_of(flat));
}

void take_bytes(Context& cx, const std::byte* from, const Tensor& t) {
  const size_t bytes = bytes_of(t);
  if (bytes > 0) {
    std::vector<std::byte> whole;  // a bool is 0 or 1, whatever came
    if (t.dtype() == DType::boolean) {
      whole.assign(from, from + bytes);
      for (std::byte& b : whole) b = std::byte{b != std::byte{0}};
      from = whole.data();
    }
    if (t->contiguous) {
      cx.backend.from_host(out_view(t).data, from, bytes);
    } else {
      const Tensor flat = cx.empty(t.shape(), t.dtype());
      cx.backend.from_host(flat.data(), from, bytes);
      cx.copy(t, flat);
    }
  }
  bump_version(t);
}

}  // namespace gradwire::engine
