#include "server/cluster/member.h"

#include <algorithm>
#include <utility>

namespace gradwire::server::cluster {

namespace {

constexpr Milliseconds kAnswerGrace{100};  // past a deadline: the coordinator's verdict, which names who is missing
constexpr Milliseconds kPlaneGrace{500};   // past a deadline: the data plane's own end
constexpr Milliseconds kFinish{250};       // for what is about to arrive when a rank is gone
constexpr Milliseconds kBlame{700};        // for the coordinator to say who is gone when the data plane has failed

/// The error of the group as that of one call.
Error of_call(const Error& e, Collective what) {
  const std::string op = name(what);
  return Error(e.code(), e.message().starts_with(op + ":") ? e.message() : op + ": " + e.message());
}

/// Bytes that the area of a collective has at least; nothing if no memory has so many.
std::optional<size_t> bytes_of(const Terms& t, int rank, int size) {
  int64_t elements = 0, bytes = 0;
  if (t.what == Collective::barrier) return 0;  // whatever its count is
  if (t.count < 0 || __builtin_mul_overflow(t.count, parts_of(t, rank, size), &elements) ||
      __builtin_mul_overflow(elements, size_of(t.dtype), &bytes))
    return std::nullopt;
  return static_cast<size_t>(bytes);
}

class Handle final : public Group {
 public:
  Handle(std::shared_ptr<LoopQueue> queue, std::shared_ptr<Member> member)
      : queue_(std::move(queue)), member_(std::move(member)) {}
  ~Handle() override {
    queue_->post([m = std::move(member_)] { m->leave(); });
  }
  int rank() const override { return member_->place().rank; }
  int size() const override { return member_->place().size; }
  uint64_t epoch() const override { return member_->place().epoch; }
  Milliseconds timeout() const override { return member_->place().timeout; }
  AreaPtr area(size_t bytes) override { return member_->area(bytes); }
  void start(Work work) override {
    Answer<int> answer(std::move(work.done));
    queue_->post([m = member_, work = std::move(work), answer = std::move(answer)]() mutable {
      m->call(std::move(work), std::move(answer));
    });
  }
  void split(std::vector<int> ranks, Done<Result<GroupPtr>> done) override {
    queue_->post([m = member_, ranks = std::move(ranks), answer = Answer<GroupPtr>(std::move(done))]() mutable {
      m->split(std::move(ranks), std::move(answer));
    });
  }

 private:
  std::shared_ptr<LoopQueue> queue_;
  std::shared_ptr<Member> member_;
};

}  // namespace

void route(const LinePtr& line) {
  line->channel->on_message = [weak = std::weak_ptr<Line>(line)](Message m) {
    const LinePtr l = weak.lock();
    if (!l) return;
    const auto found = l->members.find(m.group);
    if (found == l->members.end()) return;
    if (const auto member = found->second.lock()) member->on_message(std::move(m));
  };
  line->channel->on_end = [weak = std::weak_ptr<Line>(line)](const Error& why) {
    const LinePtr l = weak.lock();
    if (!l) return;
    const auto members = l->members;  // they leave it meanwhile
    for (auto& [_, m] : members) {
      if (const auto member = m.lock()) member->on_lost(why);
    }
  };
}

Member::Member(Home& home, LinePtr line, Place place, std::shared_ptr<DataPlane> plane, Moment deadline,
               Answer<GroupPtr> joined)
    : home_(&home),
      line_(std::move(line)),
      place_(std::move(place)),
      deadline_(deadline),
      joined_(std::move(joined)),
      plane_(std::move(plane)) {}

void Member::begin(Home& home, LinePtr line, Place place, std::shared_ptr<DataPlane> plane, Moment deadline,
                   Answer<GroupPtr> joined) {
  const std::shared_ptr<Member> m(
      new Member(home, std::move(line), std::move(place), std::move(plane), deadline, std::move(joined)));
  m->line_->members[m->place_.group] = m;
  home.keep(m);
  m->prepare();
}

// ---- joining

/// Hands what a data plane answers, on whatever thread, to this member on the loop.
template <class R, class F>
static Done<R> on_loop(const std::shared_ptr<LoopQueue>& queue, std::weak_ptr<Member> member, F f) {
  return Done<R>([queue, member = std::move(member), f = std::move(f)](R r) mutable {
    queue->post([member = std::move(member), f = std::move(f), r = std::move(r)]() mutable {
      if (const auto m = member.lock()) f(*m, std::move(r));
    });
  });
}

void Member::prepare() {
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline_ - std::chrono::steady_clock::now());
  try {
    if (!plane_) plane_ = home_->make_plane(place_.backend);
    plane_->prepare(place_.rank, place_.size, std::max(left, Milliseconds(1)),
                    on_loop<Result<std::string>>(home_->queue(), weak_from_this(), [](Member& m, auto blob) {
                      if (!m.home_ || !m.joined_) return;
                      if (!blob) return m.failed(blob.error());
                      if (blob->size() > kMaxBlob)
                        return m.failed(Error(Code::too_large, "the address of the data plane is too large"));
                      m.say(Blob{std::move(*blob)});
                    }));
  } catch (const Error& e) {
    failed(e);
  }
}

void Member::connect(Connect all) {
  if (!joined_ || !plane_) return;
  plane_->connect(std::move(all.blobs), std::move(all.key),
                  on_loop<Result<void>>(home_->queue(), weak_from_this(), [](Member& m, auto connected) {
                    if (!m.home_ || !m.joined_) return;
                    if (!connected) return m.failed(connected.error());
                    m.say(Connected{});
                  }));
}

void Member::formed() {
  if (!joined_) return;
  {
    const std::lock_guard lock(mutex_);
    shown_ = plane_;
  }
  auto joined = std::move(joined_);
  joined(GroupPtr(std::make_shared<Handle>(home_->queue(), shared_from_this())));
}

void Member::hide_plane() {
  const std::lock_guard lock(mutex_);
  shown_ = nullptr, why_not_ = "the group is broken: " + broken_->message();
}

AreaPtr Member::area(size_t bytes) {
  std::shared_ptr<DataPlane> plane;
  {
    const std::lock_guard lock(mutex_);
    if (!shown_) throw Error(Code::unavailable, why_not_);
    plane = shown_;
  }
  return plane->area(bytes);
}

// ---- calls

std::optional<Error> Member::unfit(const Work& w) const {
  const Terms& t = w.terms;
  const std::string op = std::string(name(t.what)) + ": ";
  if (broken_) return Error(Code::unavailable, op + "the group is broken: " + broken_->message());
  if (calls_.size() + pairwise_.size() + splits_.size() >= kMaxPending)
    return Error(Code::overloaded, op + "more than " + std::to_string(kMaxPending) + " calls wait for other ranks");
  if (is_pairwise(t.what)) {
    const bool sends = t.what == Collective::send;
    if (t.root == place_.rank)
      return Error(Code::bad_argument, sends ? "cannot send tensor to process with same rank"
                                             : "cannot receive tensor from process with same rank");
    if (t.root >= place_.size || t.root < (sends ? 0 : -1))
      return Error(Code::bad_argument, op + "rank(" + std::to_string(t.root) +
                                           ") is not member of group: its ranks are [0, " +
                                           std::to_string(place_.size - 1) + "]");
  }
  const auto bytes = bytes_of(t, place_.rank, place_.size);
  if (!bytes || *bytes > (w.area ? w.area->bytes.size() : 0))
    return Error(Code::bad_argument, op + "the area is smaller than " + std::to_string(t.count) + " elements of " +
                                         gradwire::name(t.dtype));
  return std::nullopt;
}

void Member::call(Work work, Answer<int> answer) {
  if (auto e = unfit(work)) return answer(std::move(*e));
  const bool pairwise = is_pairwise(work.terms.what);
  Call c;
  c.sequence = pairwise ? next_pairwise_++ : next_++;
  c.terms = work.terms;
  const Moment now = std::chrono::steady_clock::now();
  work.deadline = std::clamp(work.deadline, now, now + kMaxPatience);
  c.patience = std::chrono::ceil<Milliseconds>(work.deadline - now);
  Pending p{std::move(work), std::move(answer)};
  p.until = p.work.deadline + kAnswerGrace;
  (pairwise ? pairwise_ : calls_).emplace(c.sequence, std::move(p));
  say(std::move(c));
}

void Member::split(std::vector<int> ranks, Answer<GroupPtr> answer) {
  if (broken_) return answer(Error(Code::unavailable, "new_group: the group is broken: " + broken_->message()));
  if (ranks.size() > static_cast<size_t>(kMaxRanks))
    return answer(Error(Code::bad_argument, "new_group: more than " + std::to_string(kMaxRanks) + " ranks"));
  if (calls_.size() + pairwise_.size() + splits_.size() >= kMaxPending)
    return answer(Error(Code::overloaded, "new_group: too many calls wait for other ranks"));
  Call c;
  c.sequence = next_++;
  c.split = true, c.ranks = std::move(ranks), c.patience = place_.timeout;
  splits_.emplace(c.sequence, Splitting{std::move(answer), std::chrono::steady_clock::now() + place_.timeout});
  say(std::move(c));
}

void Member::say(decltype(Message::body) body) {
  if (line_) line_->channel->send({place_.group, place_.epoch, std::move(body)});
}

void Member::on_message(Message m) {
  if (!home_ || m.epoch != place_.epoch) return;
  if (auto* verdict = std::get_if<Verdict>(&m.body)) {
    decided(std::move(*verdict));
  } else if (auto* all = std::get_if<Connect>(&m.body)) {
    connect(std::move(*all));
  } else if (std::holds_alternative<Formed>(m.body)) {
    formed();
  } else if (auto* b = std::get_if<Broken>(&m.body)) {
    broken(b->error, b->left);
  }
}

void Member::decided(Verdict v) {
  if (const auto s = splits_.find(v.sequence); !v.pairwise && s != splits_.end()) {
    auto answer = std::move(s->second.answer);
    splits_.erase(s);
    if (v.error) return answer(std::move(*v.error));
    if (v.child == 0) return answer(GroupPtr());
    const std::string meets_at = place_.meets_at == "rank 0" ? "rank 0 of the whole group" : place_.meets_at;
    return begin(*home_, line_, Place{v.child, 1, v.rank, v.size, place_.backend, place_.timeout, meets_at}, nullptr,
                 std::chrono::steady_clock::now() + place_.timeout, std::move(answer));
  }
  Calls& calls = v.pairwise ? pairwise_ : calls_;
  const auto found = calls.find(v.sequence);
  if (found == calls.end() || found->second.runs) return;
  if (v.error) {
    auto answer = std::move(found->second.answer);
    calls.erase(found);
    return answer(std::move(*v.error));
  }
  run(calls, found, v);
}

void Member::run(Calls& calls, Calls::iterator found, const Verdict& v) {
  Pending& p = found->second;
  p.runs = true, p.source = p.work.terms.what == Collective::recv ? v.source : -1;
  p.until = p.work.deadline + kPlaneGrace;
  const bool pairwise = &calls == &pairwise_;
  const uint64_t sequence = found->first;
  Work w;
  w.terms = p.work.terms, w.area = p.work.area, w.deadline = p.work.deadline;
  if (p.source >= 0) w.terms.root = p.source;
  w.done = on_loop<Result<int>>(home_->queue(), weak_from_this(), [pairwise, sequence](Member& m, Result<int> r) {
    m.ran(pairwise, sequence, std::move(r));
  });
  try {
    if (pairwise) {
      plane_->run(std::move(w), v.tag);
    } else {
      plane_->run(std::move(w));
    }
  } catch (const Error& e) {
    ran(pairwise, sequence, e);
  }
}

void Member::ran(bool pairwise, uint64_t sequence, Result<int> r) {
  Calls& calls = pairwise ? pairwise_ : calls_;
  const auto found = calls.find(sequence);
  if (found == calls.end()) return;
  Pending& p = found->second;
  if (r) {
    auto answer = std::move(p.answer);
    const int source = p.source;
    calls.erase(found);
    answer(source);
    return settle();
  }
  if (broken_) {
    auto pending = std::move(p);
    calls.erase(found);
    tell(pending, *broken_);
    return settle();
  }
  const Code code = r.error().code();
  if (code == Code::deadline_exceeded || code == Code::internal) return failed(r.error());
  if (code != Code::unavailable) {  // what it has not begun: the same on all ranks, as the terms are
    auto pending = std::move(p);
    calls.erase(found);
    return tell(pending, r.error());
  }
  if (!p.fault) say(Failed{r.error()});
  p.fault = r.error();
  p.until = std::chrono::steady_clock::now() + kBlame;
}

// ---- the end

void Member::tell(Pending& p, const Error& e) { p.answer(of_call(e, p.work.terms.what)); }

void Member::failed(const Error& own) {
  say(Failed{own});
  end(own);
}

void Member::broken(const Error& e, bool left) {
  if (joined_) return end(e);
  const auto self = shared_from_this();
  broken_ = e;
  hide_plane();
  auto splits = std::exchange(splits_, {});
  std::vector<Pending> over;
  for (Calls* calls : {&calls_, &pairwise_}) {
    for (auto it = calls->begin(); it != calls->end();) {
      Pending& p = it->second;
      if (p.runs && !p.fault) {
        if (!left) p.until = std::min(p.until, std::chrono::steady_clock::now() + kFinish);
        ++it;
      } else {
        over.push_back(std::move(p));
        it = calls->erase(it);
      }
    }
  }
  for (auto& p : over) tell(p, e);
  for (auto& [_, s] : splits) s.answer(Error(e.code(), "new_group: " + e.message()));
  if (e.code() == Code::deadline_exceeded) return end(e);
  settle();
}

void Member::settle() {
  if (home_ && broken_ && calls_.empty() && pairwise_.empty()) end(*broken_);
}

void Member::on_lost(const Error& why) {
  if (!home_ || broken_) return;
  broken(Error(Code::unavailable, "the server of " + place_.meets_at + " is gone: " + why.message()), false);
}

void Member::on_time(Moment now) {
  if (!home_) return;
  if (joined_ && place_.asker && place_.asker->expired())
    return failed(Error(Code::cancelled, "a rank waits for the group no longer"));
  if (joined_ && now >= deadline_ + kAnswerGrace)
    return failed(Error(Code::deadline_exceeded,
                        "could not establish connection with other processes: waiting for "
                        "processes to connect has timed out"));
  for (auto& [_, s] : splits_) {
    if (now >= s.deadline + kAnswerGrace)
      return failed(
          Error(Code::deadline_exceeded, "new_group: the server of " + place_.meets_at + " has not answered in time"));
  }
  for (Calls* calls : {&calls_, &pairwise_}) {
    for (auto& [_, p] : *calls) {
      if (now < p.until) continue;
      if (broken_) return end(*broken_);
      if (p.fault) return failed(*p.fault);
      // This loop may be the late one, with the verdict among what it has yet to read.
      if (!std::exchange(p.overdue, true)) {
        p.until = now + kAnswerGrace;
        continue;
      }
      const std::string op = name(p.work.terms.what);
      return failed(Error(Code::deadline_exceeded,
                          p.runs ? op + ": the other ranks have not finished it in time"
                                 : op + ": the server of " + place_.meets_at + " has not answered in time"));
    }
  }
}

void Member::leave() {
  if (!home_) return;
  say(Leave{});
  end(Error(Code::unavailable, "this rank has left the group"));
}

void Member::end(const Error& e) {
  if (!home_) return;
  const auto self = shared_from_this();
  Home& home = *std::exchange(home_, nullptr);
  broken_ = e;
  hide_plane();
  plane_ = nullptr;  // before the answers: nothing touches an area any more
  line_->members.erase(place_.group);
  line_ = nullptr;
  home.drop(*this);
  for (Calls* calls : {&calls_, &pairwise_}) {
    auto all = std::exchange(*calls, {});
    for (auto& [_, p] : all) tell(p, e);
  }
  auto splits = std::exchange(splits_, {});
  for (auto& [_, s] : splits) s.answer(Error(e.code(), "new_group: " + e.message()));
  auto joined = std::move(joined_);
  if (joined) joined(e);
}

}  // namespace gradwire::server::cluster
