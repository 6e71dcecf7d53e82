// Messages from rank to rank.
#include <vector>

#include "engine/ops/party.h"
#include "engine/registry.h"

namespace gradwire::engine {
namespace {

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
  return end_with(c.cx, std::move(p));
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

constexpr OpDef kRows[] = {
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
};

}  // namespace

constinit const std::span<const OpDef> kMessageOps = kRows;

}  // namespace gradwire::engine
