// What the sessions of several ranks compute together. A row checks its arguments, hands the bytes over and comes back:
// whoever runs the session's calls finishes it when the other ranks have taken part (see engine/exchange.h).
#include <algorithm>
#include <cstring>

#include "engine/apply.h"
#include "engine/exchange.h"
#include "engine/reducer.h"
#include "engine/registry.h"
#include "engine/shape.h"

namespace gradwire::engine {
namespace {

constexpr const char* kRemote = "it works on values, as PyTorch's does: history does not cross ranks";

[[noreturn]] void refuse(std::string why) { throw Error(Code::bad_argument, std::move(why)); }

struct OpName {
  const char* name;
  ReduceOp op;
};
constexpr OpName kOpNames[] = {{"sum", ReduceOp::sum},   {"product", ReduceOp::product}, {"min", ReduceOp::min},
                               {"max", ReduceOp::max},   {"band", ReduceOp::band},       {"bor", ReduceOp::bor},
                               {"bxor", ReduceOp::bxor}, {"avg", ReduceOp::avg}};

ReduceOp reduce_op(std::string_view text, DType dtype) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  for (const OpName& o : kOpNames) {
    if (lower != o.name) continue;
    const bool bits = o.op == ReduceOp::band || o.op == ReduceOp::bor || o.op == ReduceOp::bxor;
    if (bits && is_floating(dtype)) {
      for (char& c : lower) c = static_cast<char>(c & ~0x20);
      refuse("Cannot use ReduceOp." + lower + " with non-integral dtype");
    }
    return o.op;
  }
  refuse("op should be a constant from torch.distributed.reduce_op, got '" + lower.substr(0, 40) + "'");
}

Exchange& exchange_of(Context& cx) {
  if (cx.exchange) return *cx.exchange;
  throw Error(Code::no_object,
              "Default process group has not been initialized, please make sure to call init_process_group.");
}

// The group that a call names, in its parameter `at`.
struct Party {
  Exchange& exchange;
  std::string_view name;
  Exchange::Group group;

  Party(const Call& c, int at) : exchange(exchange_of(c.cx)), name(c.text(at)), group(exchange.group(name)) {}
  bool member() const { return group.rank >= 0; }
  /// Its rank here of what is a rank of the default group.
  int rank_of(int64_t rank) const {
    if (!group.ranks) {
      if (rank >= 0 && rank < group.size) return static_cast<int>(rank);
    } else {
      const auto at = std::ranges::find(*group.ranks, rank);
      if (at != group.ranks->end()) return static_cast<int>(at - group.ranks->begin());
    }
    refuse("rank(" + std::to_string(rank) + ") is not member of group");
  }
  int64_t global(int rank) const { return rank >= 0 && group.ranks ? (*group.ranks)[static_cast<size_t>(rank)] : rank; }
};

Tensor number(Context& cx, int64_t n) { return cx.full({}, Scalar(n), DType::int64); }

size_t bytes_of(const Tensor& t) { return static_cast<size_t>(t.numel() * size_of(t.dtype())); }

/// Room for `parts` times as many bytes as t has.
TransferPtr room(const Party& p, size_t one, int parts) {
  size_t bytes;
  if (__builtin_mul_overflow(one, static_cast<size_t>(parts), &bytes))
    throw Error(Code::memory_limit, "the tensors of all ranks are too large");
  return p.exchange.prepare(p.name, bytes);
}

/// Sets off what is prepared. The call ends now where it can, else when it is done.
Results go(const Call& c, const Party& p, TransferPtr transfer, const Terms& terms,
           std::function<Results(Transfer&)> finish) {
  auto pending = std::make_unique<Pending>(Pending{std::move(transfer), std::string(p.name), std::move(finish)});
  p.exchange.start(pending->transfer, p.name, terms);
  if (pending->transfer->done()) return pending->run();
  c.cx.pending = std::move(pending);
  return {};
}

/// One of the tensors that are written to when all is done.
void check_target(const Tensor& t) {
  if (overlaps_itself(t.shape(), t.strides())) {
    refuse(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
  }
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
  return go(c, p, std::move(x), {Collective::broadcast, ReduceOp::sum, DType::uint8, static_cast<int64_t>(bytes), root},
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

// What send and isend, recv and irecv begin; nothing for who is no member.
struct Message {
  TransferPtr transfer;
  Terms terms;
  std::function<Results(Transfer&)> finish;
};

Message sending(const Call& c, const Party& p) {
  const Tensor& t = c.tensor(0);
  const int to = p.rank_of(c.integer(1));
  if (!p.member()) return {};
  if (to == p.group.rank) refuse("cannot send tensor to process with same rank");
  Message m{room(p, bytes_of(t), 1), {Collective::send, ReduceOp::sum, t.dtype(), t.numel(), to}, {}};
  put_bytes(c.cx, t, m.transfer->bytes.data());
  m.finish = [&cx = c.cx](Transfer& done) -> Results { return done.result(), number(cx, -1); };
  return m;
}

Message receiving(const Call& c, const Party& p) {
  const Tensor t = c.tensor(0);
  const int from = c.has(1) ? p.rank_of(c.integer(1)) : -1;
  if (!p.member()) return {};
  if (from == p.group.rank) refuse("cannot receive tensor from process with same rank");
  check_target(t);
  Message m{room(p, bytes_of(t), 1), {Collective::recv, ReduceOp::sum, t.dtype(), t.numel(), from}, {}};
  const std::vector<int> ranks = p.group.ranks ? *p.group.ranks : std::vector<int>();
  m.finish = [&cx = c.cx, t, ranks](Transfer& done) -> Results {
    const int rank = done.result();
    Tensor source = number(cx, rank >= 0 && !ranks.empty() ? ranks.at(static_cast<size_t>(rank)) : rank);
    take_bytes(cx, done.bytes.data(), t);
    return source;
  };
  return m;
}

Results send(const Call& c) {
  const Party p(c, 2);
  Message m = sending(c, p);
  if (!m.transfer) return {};
  return go(c, p, std::move(m.transfer), m.terms, [](Transfer& done) -> Results { return done.result(), Results(); });
}

Results recv(const Call& c) {
  const Party p(c, 2);
  Message m = receiving(c, p);
  if (!m.transfer) return number(c.cx, -1);
  return go(c, p, std::move(m.transfer), m.terms, std::move(m.finish));
}

/// The number of a request, which wait() ends; 0 where there is nothing to wait for.
template <Message (*kBegin)(const Call&, const Party&)> Results begin(const Call& c) {
  const Party p(c, 2);
  Exchange& all = p.exchange;
  if (all.requests.size() >= Exchange::kRequests) {
    throw Error(Code::overloaded,
                std::to_string(all.requests.size()) + " requests have not been waited for, which is the most");
  }
  Tensor id = number(c.cx, all.next_request), none = number(c.cx, 0);
  Message m = kBegin(c, p);
  if (!m.transfer) return none;
  p.exchange.start(m.transfer, p.name, m.terms);
  if (m.transfer->done()) {  // nothing to wait for, unless somebody asks who sent it
    const Results r = m.finish(*m.transfer);
    if (item(r.at[0]).integer() < 0) return none;
    m.finish = [r](Transfer&) -> Results { return r; };
  }
  all.requests.emplace(all.next_request++, std::make_unique<Pending>(Pending{std::move(m.transfer), std::string(p.name),
                                                                             std::move(m.finish)}));
  return id;
}

int64_t request_of(const Call& c) {
  const Tensor& t = c.tensor(0);
  if (t.dtype() != DType::int64 || t.numel() != 1) refuse("a request is what isend() or irecv() gave");
  return item(t).integer();
}

Results wait(const Call& c) {
  Exchange& all = exchange_of(c.cx);
  const int64_t id = request_of(c);
  if (id == 0) return number(c.cx, -1);
  const auto found = all.requests.find(id);
  if (found == all.requests.end()) refuse("there is no such request, or it has been waited for");
  std::unique_ptr<Pending> p = std::move(found->second);
  all.requests.erase(found);
  if (p->transfer->done()) return p->run();
  c.cx.pending = std::move(p);
  return {};
}

Results is_completed(const Call& c) {
  Exchange& all = exchange_of(c.cx);
  const int64_t id = request_of(c);
  if (id < 0 || id >= all.next_request) refuse("there is no such request");
  const auto found = all.requests.find(id);
  const bool gone = found == all.requests.end();  // it has been waited for
  const Tensor answer = c.cx.full({}, Scalar(gone || found->second->transfer->done()), DType::boolean);
  if (gone || !found->second->transfer->done()) return answer;
  // What came is in its tensor from now on; wait() only tells how it went.
  Pending& p = *found->second;
  try {
    const Results r = p.run();
    p.finish = [r](Transfer&) -> Results { return r; };
  } catch (const Error& e) {
    p.finish = [e](Transfer&) -> Results { throw e; };
  }
  return answer;
}

Results init(const Call& c) {
  JoinCall j;
  j.backend = c.text(0), j.init_method = c.text(1), j.world_size = c.integer(2), j.rank = c.integer(3);
  j.group_name = c.text(4), j.timeout = c.scalar(5).real(), j.environment = c.text(6);
  const std::string name(c.text(7));
  auto pending =
      std::make_unique<Pending>(Pending{exchange_of(c.cx).join(name, j), name,
                                        [&cx = c.cx](Transfer& done) -> Results { return number(cx, done.result()); }});
  if (pending->transfer->done()) return pending->run();
  c.cx.pending = std::move(pending);
  return {};
}

Results new_group(const Call& c) {
  const Party p(c, 2);
  const std::string name(c.text(1));
  const std::span<const int64_t> ranks = c.ints(0);
  if (name.empty()) refuse("a new group needs a name");
  if (ranks.empty()) refuse("cannot create empty group");
  std::vector<int64_t> sorted;
  for (const int64_t r : ranks) {
    if (r < 0 || (!p.group.ranks && r >= p.group.size)) {
      refuse("array of ranks contains invalid rank, all ranks should be in range: [0, " +
             std::to_string(p.group.size - 1) + "]");
    }
    sorted.push_back(p.rank_of(r));
  }
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) refuse("array of ranks contains a rank twice");
  if (!p.member()) return number(c.cx, -1);
  auto pending =
      std::make_unique<Pending>(Pending{p.exchange.split(p.name, name, sorted), std::string(p.name),
                                        [&cx = c.cx](Transfer& done) -> Results { return number(cx, done.result()); }});
  if (pending->transfer->done()) return pending->run();
  c.cx.pending = std::move(pending);
  return {};
}

Results ddp(const Call& c) {
  const Party p(c, 1);
  std::vector<Tensor> wanted;
  for (const Tensor& t : c.tensors(0)) {
    if (!t.requires_grad()) continue;
    if (!t.is_leaf()) refuse("DistributedDataParallel takes parameters: leaves that require grad");
    wanted.push_back(t);
  }
  if (wanted.empty()) {
    throw Error(
        Code::no_grad_fn,
        "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient.");
  }
  if (c.integer(2) <= 0) refuse("bucket_bytes is positive, got " + std::to_string(c.integer(2)));
  if (p.member()) Reducer::attach(c.cx, wanted, std::string(p.name), c.integer(2));
  return {};
}

Results ddp_sync(const Call& c) {
  for (const Tensor& t : c.tensors(0)) {
    if (t->extra && t->extra->reducer) t->extra->reducer->enabled = c.flag(1);
  }
  return {};
}

constexpr OpDef kRows[] = {
    {
        .sig = "init_process_group(str backend='gloo', str init_method='env://', int world_size=-1, int rank=-1, *, "
               "str group_name='', float timeout=1800.0, str environment='', str name='') -> Tensor",
        .doc =
            "Joins a process group with the sessions of other servers, and is done when all have joined; gives this "
            "session's rank. init_method is tcp://HOST:PORT, tcp://[multicast group]:PORT, file://PATH or env://, "
            "which reads environment: lines NAME=VALUE of MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK. timeout, in "
            "seconds, is that of joining and of each operation. Without a name it is the default group.",
        .compute = init,
        .no_grad = "it makes a group",
        .samples = {"'gloo'; 'tcp://127.0.0.1:1'; 2; 0; name='other'"},
    },
    {
        .sig = "destroy_process_group(*, str group='') -> ()",
        .doc = "Leaves a group. Operations of the other ranks fail from then on.",
        .compute = [](const Call& c) -> Results {
          exchange_of(c.cx).leave(c.text(0));
          return {};
        },
        .no_grad = "it ends a group",
        .samples = {"group='g'"},
    },
    {
        .sig = "is_initialized(*, str group='') -> Tensor",
        .doc = "Whether the session has this group.",
        .compute = [](const Call& c) -> Results {
          return c.cx.full({}, Scalar(c.cx.exchange && c.cx.exchange->has(c.text(0))), DType::boolean);
        },
        .no_grad = "it tells of a group",
        .samples = {"group='g'"},
    },
    {
        .sig = "new_group(int[] ranks, str name, *, str group='') -> Tensor",
        .doc =
            "A group of some of a group's ranks, under a name; gives this session's rank in it, -1 for who is not in "
            "it. Every rank of the group calls it, in the same order. The new ranks follow the sorted old ones.",
        .compute = new_group,
        .no_grad = "it makes a group",
        .samples = {"(0); 'other'"},
    },
    {
        .sig = "get_rank(*, str group='') -> Tensor",
        .doc = "This session's rank in a group, -1 for who is not in it.",
        .compute = [](const Call& c) -> Results { return number(c.cx, Party(c, 0).group.rank); },
        .no_grad = "it tells of a group",
        .samples = {"group='g'"},
    },
    {
        .sig = "get_world_size(*, str group='') -> Tensor",
        .doc = "How many ranks a group has.",
        .compute = [](const Call& c) -> Results { return number(c.cx, Party(c, 0).group.size); },
        .no_grad = "it tells of a group",
        .samples = {"group='g'"},
    },
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
        .doc = "As broadcast, for many tensors in one message.",
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
    {
        .sig = "send(Tensor tensor, int dst, *, str group='') -> ()",
        .doc = "Sends a tensor to rank dst, which receives it; done when it has arrived.",
        .compute = send,
        .no_grad = kRemote,
        .samples = {"f(2, 3); 1"},
    },
    {
        .sig = "recv(Tensor tensor, int? src=None, *, str group='') -> Tensor",
        .doc = "Writes what rank src (without it: any rank) sends into the tensor, which has as many elements and the "
               "same dtype. Gives the sender's rank.",
        .compute = recv,
        .no_grad = kRemote,
        .samples = {"f(2, 3); 1", "f(2)"},
    },
    {
        .sig = "isend(Tensor tensor, int dst, *, str group='') -> Tensor",
        .doc = "As send, but the calls after it run meanwhile. Gives a request for wait, which every request needs.",
        .compute = begin<sending>,
        .no_grad = kRemote,
        .samples = {"f(2, 3); 1"},
    },
    {
        .sig = "irecv(Tensor tensor, int? src=None, *, str group='') -> Tensor",
        .doc = "As recv, but the calls after it run meanwhile; wait writes the tensor. Gives a request.",
        .compute = begin<receiving>,
        .no_grad = kRemote,
        .samples = {"f(2, 3); 1", "f(2)"},
    },
    {
        .sig = "wait(Tensor request) -> Tensor",
        .doc = "Waits for what isend or irecv began. Gives the sender's rank, -1 of isend.",
        .compute = wait,
        .no_grad = "it waits",
        .samples = {"i1()"},
    },
    {
        .sig = "is_completed(Tensor request) -> Tensor",
        .doc = "Whether what isend or irecv began is done; if so, what irecv received is in its tensor.",
        .compute = is_completed,
        .no_grad = "it looks",
        .samples = {"i1()"},
    },
    {
        .sig = "ddp(Tensor[] params, *, str group='', int bucket_bytes=26214400) -> ()",
        .doc =
            "From here on backward averages the gradients of these leaves over the ranks of the group, in buckets of "
            "about bucket_bytes that travel while it goes on. A parameter that a backward does not reach counts with "
            "the gradient it has, or zeros. Not for create_graph; grad() averages nothing.",
        .compute = ddp,
        .no_grad = "it concerns gradients themselves",
        .samples = {"f(2); f(3)"},
    },
    {
        .sig = "ddp_sync(Tensor[] params, bool enabled) -> ()",
        .doc = "Whether backward averages the gradients of these leaves, which ddp was called with.",
        .compute = ddp_sync,
        .no_grad = "it concerns gradients themselves",
        .samples = {"f(2); enabled=False"},
    },
};

}  // namespace

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

constinit const std::span<const OpDef> kDistributedOps = kRows;

}  // namespace gradwire::engine
