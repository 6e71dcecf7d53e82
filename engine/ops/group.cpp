// Process groups themselves, and what averages gradients over one.
#include <algorithm>

#include "engine/ops/party.h"
#include "engine/reducer.h"
#include "engine/registry.h"

namespace gradwire::engine {
namespace {

Results init(const Call& c) {
  JoinCall j;
  j.backend = c.text(0), j.init_method = c.text(1), j.world_size = c.integer(2), j.rank = c.integer(3);
  j.group_name = c.text(4), j.timeout = c.scalar(5).real(), j.environment = c.text(6);
  const std::string name(c.text(7));
  auto pending =
      std::make_unique<Pending>(Pending{exchange_of(c.cx).join(name, j), name,
                                        [&cx = c.cx](Transfer& done) -> Results { return number(cx, done.result()); }});
  return end_with(c.cx, std::move(pending));
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
  return end_with(c.cx, std::move(pending));
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
        .sig = "ddp(Tensor[] params, *, str group='', int bucket_bytes=26214400) -> ()",
        .doc =
            "From here on backward averages the gradients of these leaves over the ranks of the group, in buckets of "
            "about bucket_bytes that travel while it goes on. Where a backward reaches "
            "some of them, the others count with the gradients they have, or zeros. Gradients of several such models "
            "travel in the reverse order of these calls, which all ranks make in one order, with leaves of the same "
            "shapes and dtypes. Where a backward fails when others wait for its gradients, it leaves the group. Not "
            "for create_graph; grad() averages nothing.",
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

constinit const std::span<const OpDef> kGroupOps = kRows;

}  // namespace gradwire::engine
