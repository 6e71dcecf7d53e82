#include "server/cluster/agreement.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>

namespace gradwire::server::cluster {

namespace {

constexpr size_t kNamed = 8;  // ranks that a text names

bool is_pairwise(const Call& c) { return !c.split && gradwire::is_pairwise(c.terms.what); }

std::string call_name(const Call& c) { return c.split ? "new_group" : name(c.terms.what); }
std::string tensor(const Call& c) {
  return std::string(gradwire::name(c.terms.dtype)) + " of " + std::to_string(c.terms.count) +
         (c.terms.count == 1 ? " element" : " elements");
}
std::string bucket(const Call& c) {
  if (!c.terms.part) return "none";
  char text[64];
  const auto all = static_cast<unsigned long long>(c.terms.part >> 16);
  if ((c.terms.part & 0xffff) == Terms::kList)
    std::snprintf(text, sizeof text, "list %llx", all);
  else
    std::snprintf(text, sizeof text, "bucket %u of model %llx", static_cast<unsigned>(c.terms.part & 0xffff), all);
  return text;
}
std::string list(const std::vector<int>& ranks) {
  std::string out = "[";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 2 * kNamed) return out + ", ...]";
    out += (i ? ", " : "") + std::to_string(ranks[i]);
  }
  return out + "]";
}

/// "rank 0 has x, ranks 1, 2 have y"; empty where all have the same.
std::string parted(const std::vector<const Call*>& calls, const char* one, const char* many,
                   const std::function<std::string(const Call&)>& value) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t r = 0; r < calls.size(); ++r) {
    std::string v = value(*calls[r]);
    auto it = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == v; });
    if (it == groups.end()) it = groups.insert(groups.end(), {std::move(v), {}});
    it->second.push_back(static_cast<int>(r));
  }
  if (groups.size() < 2) return {};
  std::string out;
  for (size_t i = 0; i < groups.size() && i < kNamed; ++i) {
    const auto& [v, ranks] = groups[i];
    out += (i ? ", " : "") + these(ranks) + (ranks.size() > 1 ? many : one) + v;
  }
  return groups.size() > kNamed ? out + ", and so on" : out;
}

/// Calls that are all alike may still mean nothing.
std::string nonsense(const Call& c, int size) {
  if (c.split) {
    if (c.ranks.empty()) return "cannot create empty group";
    std::set<int> seen;
    for (const int r : c.ranks) {
      if (r < 0 || r >= size)
        return "array of ranks contains invalid rank, all ranks should be in range: [0, " + std::to_string(size - 1) +
               "]";
      if (!seen.insert(r).second) return "array of ranks contains rank " + std::to_string(r) + " twice";
    }
    return {};
  }
  const std::string op = name(c.terms.what);
  if (is_rooted(c.terms.what) && (c.terms.root < 0 || c.terms.root >= size))
    return op + ": rank(" + std::to_string(c.terms.root) + ") is not member of group: its ranks are [0, " +
           std::to_string(size - 1) + "]";
  if (c.terms.count < 0) return op + ": " + std::to_string(c.terms.count) + " elements";
  return {};
}

}  // namespace

std::string these(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t shown = ranks.size() > kNamed ? kNamed : ranks.size();
  for (size_t i = 0; i < shown; ++i) out += (i ? ", " : "") + std::to_string(ranks[i]);
  if (shown < ranks.size()) out += " and " + std::to_string(ranks.size() - shown) + " others";
  return out;
}

std::string difference(const std::vector<const Call*>& calls) {
  const std::string names = parted(calls, " calls ", " call ", call_name);
  if (!names.empty()) return "the ranks call different collectives: " + names;
  const Call& first = *calls.front();
  const std::string prefix = call_name(first) + ": ";
  if (first.split) {
    const std::string ranks = parted(calls, " has ", " have ", [](const Call& c) { return list(c.ranks); });
    return ranks.empty() ? "" : prefix + "the arrays of ranks are not equal: " + ranks;
  }
  std::string out;
  const auto add = [&](const char* what, const std::function<std::string(const Call&)>& value) {
    const std::string text = parted(calls, " has ", " have ", value);
    if (!text.empty()) out += (out.empty() ? prefix : "; ") + what + text;
  };
  if (first.terms.what != Collective::barrier) add("tensors are not equal in size or data type: ", tensor);
  if (is_reducing(first.terms.what))
    add("reduce operations are not equal: ", [](const Call& c) { return std::string(name(c.terms.op)); });
  add(is_reducing(first.terms.what) ? "buckets of gradients are not equal: "
                                    : "lists of tensors are not equal in number, shapes or data types: ",
      bucket);
  if (is_rooted(first.terms.what))
    add("roots are not equal: ", [](const Call& c) { return "root " + std::to_string(c.terms.root); });
  return out;
}

Agreement::Agreement(int size)
    : size_(size),
      next_(static_cast<size_t>(size)),
      mail_(static_cast<size_t>(size)),
      waiting_(static_cast<size_t>(size)) {}

Agreement::Outcome Agreement::call(int rank, const Call& c, Moment now) {
  const auto r = static_cast<size_t>(rank);
  const Moment deadline = now + c.patience;
  if (is_pairwise(c)) return pair_up(rank, c, deadline);
  if (c.sequence != next_[r]) throw Error(Code::bad_request, "a collective is out of sequence");
  const size_t at = next_[r] - decided_;
  if (at >= kMaxPending) throw Error(Code::bad_request, "too many collectives wait");
  ++next_[r];
  if (at == open_.size()) open_.push_back({std::vector<std::optional<Call>>(static_cast<size_t>(size_))});
  Ballot& b = open_[at];
  b.calls[r] = c;
  b.deadline = std::min(b.deadline, deadline);
  // Every rank calls in order, so ballots fill in order.
  if (++b.have < size_) return {};
  return decide();
}

Agreement::Outcome Agreement::decide() {
  const Ballot b = std::move(open_.front());
  open_.pop_front();
  Outcome out;
  out.sequence = decided_++;
  std::vector<const Call*> calls;
  for (auto& c : b.calls) calls.push_back(&*c);
  std::optional<Error> error;
  const Call& first = *calls.front();
  if (std::string text = difference(calls); !text.empty()) {
    error = Error(Code::group_mismatch, std::move(text));
  } else if (text = nonsense(first, size_); !text.empty()) {
    error = Error(Code::bad_argument, std::move(text));
  } else if (first.split) {
    out.split = first.ranks;
    std::sort(out.split->begin(), out.split->end());
    return out;
  }
  for (int i = 0; i < size_; ++i) {
    Verdict v;
    v.sequence = out.sequence, v.error = error;
    out.verdicts.emplace_back(i, std::move(v));
  }
  return out;
}

Agreement::Outcome Agreement::pair_up(int rank, const Call& c, Moment deadline) {
  const bool sends = c.terms.what == Collective::send;
  const int other = c.terms.root;
  if (other >= size_ || other == rank || other < (sends ? 0 : -1) || c.terms.count < 0)
    throw Error(Code::bad_request, "a message to or from no rank of the group");
  if (waiting_[static_cast<size_t>(rank)] >= kMaxPending) throw Error(Code::bad_request, "too many messages wait");
  Outcome out;
  Mailbox& box = mail_[static_cast<size_t>(sends ? other : rank)];
  auto& counterparts = sends ? box.recvs : box.sends;
  const auto fits = [&](const Waiting& w) {
    return sends ? w.call.terms.root == -1 || w.call.terms.root == rank : other == -1 || w.rank == other;
  };
  const auto found = std::find_if(counterparts.begin(), counterparts.end(), fits);
  const Waiting mine{rank, c, deadline};
  if (found == counterparts.end()) {
    (sends ? box.sends : box.recvs).push_back(mine);
    ++waiting_[static_cast<size_t>(rank)];
    return out;
  }
  --waiting_[static_cast<size_t>(found->rank)];
  match(out, sends ? mine : *found, sends ? *found : mine);
  counterparts.erase(found);
  return out;
}

void Agreement::match(Outcome& out, const Waiting& send, const Waiting& recv) {
  Verdict v;
  v.pairwise = true, v.tag = ++tag_;
  const Terms &s = send.call.terms, &r = recv.call.terms;
  if (s.count != r.count || s.dtype != r.dtype) {
    v.error = Error(Code::group_mismatch, "tensor sizes do not match: rank " + std::to_string(send.rank) + " sends " +
                                              tensor(send.call) + ", rank " + std::to_string(recv.rank) + " receives " +
                                              tensor(recv.call));
  }
  v.sequence = send.call.sequence;
  out.verdicts.emplace_back(send.rank, v);
  v.sequence = recv.call.sequence, v.source = send.rank;
  out.verdicts.emplace_back(recv.rank, std::move(v));
}

std::optional<Error> Agreement::overdue(Moment now) const {
  for (const Ballot& b : open_) {
    if (now < b.deadline) continue;
    std::vector<int> missing;
    const Call* caller = nullptr;
    for (int r = 0; r < size_; ++r) {
      const auto& c = b.calls[static_cast<size_t>(r)];
      if (c) {
        if (!caller || c->patience < caller->patience) caller = &*c;
      } else {
        missing.push_back(r);
      }
    }
    return Error(Code::deadline_exceeded, call_name(*caller) + ": " + these(missing) + " did not call it within " +
                                              std::to_string(caller->patience.count()) + " ms");
  }
  return std::nullopt;
}

Agreement::Outcome Agreement::expired(Moment now) {
  Outcome out;
  for (size_t receiver = 0; receiver < mail_.size(); ++receiver) {
    for (auto* side : {&mail_[receiver].sends, &mail_[receiver].recvs}) {
      side->remove_if([&](const Waiting& w) {
        if (now < w.deadline) return false;
        const bool sends = side == &mail_[receiver].sends;
        const int other = w.call.terms.root;
        const std::string who = other < 0 ? "no rank" : "rank " + std::to_string(other);
        Verdict v;
        v.sequence = w.call.sequence, v.pairwise = true;
        v.error = Error(Code::deadline_exceeded, std::string(sends ? "send: " : "recv: ") + who +
                                                     (other < 0 ? " has" : " has not") +
                                                     (sends ? " called recv" : " called send") + " within " +
                                                     std::to_string(w.call.patience.count()) + " ms");
        --waiting_[static_cast<size_t>(w.rank)];
        out.verdicts.emplace_back(w.rank, std::move(v));
        return true;
      });
    }
  }
  return out;
}

}  // namespace gradwire::server::cluster
