// What all ranks of a group compute together.
#include <algorithm>
#include <vector>

#include "engine/ops/party.h"
#include "engine/registry.h"

namespace gradwire::engine {
namespace {

ReduceOp reduce_op(std::string_view text, DType dtype) {
  const auto to_lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), to_lower);
  for (int i = 0; i < kReductions; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    if (!std::ranges::equal(lower, std::string_view(name(op)), {}, {}, to_lower)) continue;
    if (is_bitwise(op) && is_floating(dtype))
      refuse(std::string("Cannot use ReduceOp.") + name(op) + " with non-integral dtype");
    return op;
  }
  refuse("op should be a constant from torch.distributed.reduce_op, got '" + lower.substr(0, 40) + "'");
}

void check_list(const Call& c, const Party& p, std::span<const Tensor> list, const Tensor& like) {
  if (list.size() != static_cast<size_t>(p.group.size))
    refuse(c.row.name() + ": number of input tensors and group size does not match");
  for (const Tensor& t : list) {
    if (t.numel() != like.numel() || t.dtype() != like.dtype())
      refuse(c.row.name() + ": tensors are not equal in size or data type");
  }
}

void put_all(Context& cx, std::span<const Tensor> list, std::byte* to) {
  for (const Tensor& t : list) put_bytes(cx, t, to), to += bytes_of(t);
}

/// The parts as tensors in the shape of `like`.
std::vector<Tensor> parts_of(Context& cx, const Transfer& x, const Tensor& like, int parts) {
  std::vector<Tensor> all;
  const size_t one = bytes_of(like);
  for (int i = 0; i < parts; ++i) {
    all.push_back(cx.empty(like.shape(), like.dtype()));
    take_bytes(cx, x.bytes.data() + static_cast<size_t>(i) * one, all.back());
    all.back()->storage->version = 0;  // nobody has seen it without its values
  }
  return all;
}

Results all_reduce(const Call& c) {
  const Tensor t = c.tensor(0);
  const Party p(c, 2);
  const ReduceOp op = reduce_op(c.text(1), t.dtype());
  if (!p.member()) return t;
  check_target(t);
  TransferPtr x = room(p, bytes_of(t), 1);
  put_bytes(c.cx, t, x->bytes.data());
  return go(c, p, std::move(x), {Collective::all_reduce, op, t.dtype(), t.numel(), -1},
            [&cx = c.cx, t](Transfer& done) -> Results {
              done.result();
              take_bytes(cx, done.bytes.data(), t);
              return t;
            });
}

Results reduce(const Call& c) {
  const Tensor t = c.tensor(0);
  const Party p(c, 3);
  const ReduceOp op = reduce_op(c.text(2), t.dtype());
  const int root = p.rank_of(c.integer(1));
  if (!p.member()) return t;
  const bool here = root == p.group.rank;
  if (here) check_target(t);
  TransferPtr x = room(p, bytes_of(t), 1);
  put_bytes(c.cx, t, x->bytes.data());
  return go(c, p, std::move(x), {Collective::reduce, op, t.dtype(), t.numel(), root},
            [&cx = c.cx, t, here](Transfer& done) -> Results {
              done.result();
              if (here) take_bytes(cx, done.bytes.data(), t);
              return t;
            });
}

Results broadcast(const Call& c) {
  const Tensor t = c.tensor(0);
  const Party p(c, 2);
  const int root = p.rank_of(c.integer(1));
  if (!p.member()) return t;
  const bool here = root == p.group.rank;
  if (!here) check_target(t);
  TransferPtr x = room(p, bytes_of(t), 1);
  if (here) put_bytes(c.cx, t, x->bytes.data());
  return go(c, p, std::move(x), {Collective::broadcast, ReduceOp::sum, t.dtype(), t.numel(), root},
            [&cx = c.cx, t, here](Transfer& done) -> Results {
              done.result();
              if (!here) take_bytes(cx, done.bytes.data(), t);
              return t;
            });
}

Results broadcast_coalesced(const Call& c) {
  const std::vector<Tensor> all(c.tensors(0).begin(), c.tensors(0).end());
  const Party p(c, 2);
  const int root = p.rank_of(c.integer(1));
  if (!p.member()) return {};
  const bool here = root == p.group.rank;
  size_t bytes = 0;
  for (const Tensor& t : all) {
    if (!here) check_target(t);
    bytes += bytes_of(t);
  }
  TransferPtr x = room(p, bytes, 1);
  if (here) put_all(c.cx, all, x->bytes.data());
  return go(c, p, std::move(x),
            {Collective::broadcast, ReduceOp::sum, DType::uint8, static_cast<int64_t>(bytes), root,
             list_number(all) << 16 | Terms::kList},
            [&cx = c.cx, all, here](Transfer& done) -> Results {
              done.result();
              const std::byte* from = done.bytes.data();
              for (const Tensor& t : all) {
                if (!here) take_bytes(cx, from, t);
                from += bytes_of(t);
              }
              return {};
            });
}

Results all_gather(const Call& c) {
  const Tensor t = c.tensor(0);
  const Party p(c, 1);
  if (!p.member()) return std::vector<Tensor>();
  TransferPtr x = room(p, bytes_of(t), p.group.size);
  put_bytes(c.cx, t, x->bytes.data() + static_cast<size_t>(p.group.rank) * bytes_of(t));
  return go(c, p, std::move(x), {Collective::all_gather, ReduceOp::sum, t.dtype(), t.numel(), -1},
            [&cx = c.cx, t, size = p.group.size](Transfer& done) -> Results {
              done.result();
              return parts_of(cx, done, t, size);
            });
}

Results gather(const Call& c) {
  const Tensor t = c.tensor(0);
  const Party p(c, 2);
  const int root = p.rank_of(c.integer(1));
  if (!p.member()) return std::vector<Tensor>();
  const bool here = root == p.group.rank;
  const int parts = here ? p.group.size : 1;
  TransferPtr x = room(p, bytes_of(t), parts);
  put_bytes(c.cx, t, x->bytes.data() + (here ? static_cast<size_t>(root) * bytes_of(t) : 0));
  return go(c, p, std::move(x), {Collective::gather, ReduceOp::sum, t.dtype(), t.numel(), root},
            [&cx = c.cx, t, here, parts](Transfer& done) -> Results {
              done.result();
              return here ? parts_of(cx, done, t, parts) : std::vector<Tensor>();
            });
}

Results scatter(const Call& c) {
  const Tensor t = c.tensor(0);
  const Party p(c, 3);
  const int root = p.rank_of(c.integer(2));
  if (!p.member()) return t;
  const bool here = root == p.group.rank;
  const std::span<const Tensor> list = c.has(1) ? c.tensors(1) : std::span<const Tensor>();
  if (here && list.empty()) refuse("scatter_list is a required argument in scatter source");
  if (!here && !list.empty()) refuse("non-empty can be given only to scatter source");
  if (here) check_list(c, p, list, t);
  check_target(t);
  TransferPtr x = room(p, bytes_of(t), here ? p.group.size : 1);
  if (here) put_all(c.cx, list, x->bytes.data());
  return go(c, p, std::move(x), {Collective::scatter, ReduceOp::sum, t.dtype(), t.numel(), root},
            [&cx = c.cx, t](Transfer& done) -> Results {
              done.result();
              take_bytes(cx, done.bytes.data(), t);
              return t;
            });
}

Results reduce_scatter(const Call& c) {
  const Tensor t = c.tensor(0);
  const Party p(c, 3);
  const ReduceOp op = reduce_op(c.text(2), t.dtype());
  if (!p.member()) return t;
  check_list(c, p, c.tensors(1), t);
  check_target(t);
  TransferPtr x = room(p, bytes_of(t), p.group.size);
  put_all(c.cx, c.tensors(1), x->bytes.data());
  return go(c, p, std::move(x), {Collective::reduce_scatter, op, t.dtype(), t.numel(), -1},
            [&cx = c.cx, t](Transfer& done) -> Results {
              done.result();
              take_bytes(cx, done.bytes.data(), t);
              return t;
            });
}

Results barrier(const Call& c) {
  const Party p(c, 0);
  if (!p.member()) return {};
  return go(c, p, room(p, 0, 1), {}, [](Transfer& done) -> Results { return done.result(), Results(); });
}

constexpr OpDef kRows[] = {
    {
        .sig = "all_reduce(Tensor tensor, str op='sum', *, str group='') -> Tensor",
        .doc =
            "Writes the sum (product, min, max, avg; band, bor, bxor of integers) of all ranks' tensors into each of "
            "them: the same bits everywhere. Halves are summed in float32. Where it fails the tensor is as it was. "
            "Gives the tensor.",
        .compute = all_reduce,
        .no_grad = kRemote,
        .samples = {"f(2, 3)", "i5(4); 'bxor'", "f(0)"},
    },
    {
        .sig = "reduce(Tensor tensor, int dst, str op='sum', *, str group='') -> Tensor",
        .doc = "As all_reduce, but only the tensor of rank dst is written to; the others stay as they are.",
        .compute = reduce,
        .no_grad = kRemote,
        .samples = {"f(2, 3); 0"},
    },
    {
        .sig = "broadcast(Tensor tensor, int src, *, str group='') -> Tensor",
        .doc = "Writes the tensor of rank src into those of the other ranks. Gives the tensor.",
        .compute = broadcast,
        .no_grad = kRemote,
        .samples = {"f(2, 3); 0", "f(2); 1"},
    },
    {
        .sig = "broadcast_coalesced(Tensor[] tensors, int src=0, *, str group='') -> ()",
        .doc = "As broadcast, for many tensors in one message; all ranks have as many, of the same shapes and dtypes.",
        .compute = broadcast_coalesced,
        .no_grad = kRemote,
        .samples = {"f(2, 3); i5(2); src=1"},
    },
    {
        .sig = "all_gather(Tensor tensor, *, str group='') -> Tensor[]",
        .doc = "All ranks' tensors by rank, which have one number of elements and one dtype; in the shape of this one.",
        .compute = all_gather,
        .no_grad = kRemote,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "gather.ranks(Tensor tensor, int dst=0, *, str group='') -> Tensor[]",
        .doc = "As all_gather, but only rank dst gets them: an empty list elsewhere.",
        .compute = gather,
        .no_grad = kRemote,
        .samples = {"f(2, 3); 0"},
    },
    {
        .sig = "scatter.ranks(Tensor tensor, Tensor[]? scatter_list=None, int src=0, *, str group='') -> Tensor",
        .doc = "Writes item i of the list that rank src gives into the tensor of rank i. Gives the tensor.",
        .compute = scatter,
        .no_grad = kRemote,
        .samples = {"f(2); None; 1", "f(2); f(2); group='one'"},
    },
    {
        .sig = "reduce_scatter(Tensor output, Tensor[] input_list, str op='sum', *, str group='') -> Tensor",
        .doc = "Reduces item i of all ranks' lists into the output of rank i. Gives the output.",
        .compute = reduce_scatter,
        .no_grad = kRemote,
        .samples = {"f(2); f(2); group='one'"},
    },
    {
        .sig = "barrier(*, str group='') -> ()",
        .doc = "Done when all ranks have come to it.",
        .compute = barrier,
        .no_grad = "it makes no tensor",
        .samples = {"group='g'"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kCollectiveOps = kRows;

}  // namespace gradwire::engine
