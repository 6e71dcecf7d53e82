#include "server/cluster/plane/gloo_plane.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>

namespace gradwire::server::cluster {
namespace plane {

namespace {

constexpr size_t kMaxPending = 4096;  // calls of one plane

Time after(std::chrono::milliseconds t) {
  return std::chrono::steady_clock::now() +
         std::clamp<std::chrono::milliseconds>(t, std::chrono::milliseconds(0), std::chrono::hours(24 * 365));
}

int64_t ms_until(Time t) {
  const Time now = std::chrono::steady_clock::now();
  const auto left = std::max(t, now) - now;
  return std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0, int64_t{1} << 40);
}

Error unavailable(const std::string& text) { return Error(Code::unavailable, "data plane: " + text); }

}  // namespace

void Helm::prepare(int rank, int size, std::chrono::milliseconds timeout, Then then) {
  std::unique_lock lock(mutex_);
  if (!usable(then)) return;
  const bool wrong_rank = size < 1 || size > kMaxRanks || rank < 0 || rank >= size;
  if (wrong_rank || prepared_ || options_.host.empty() || options_.host.size() >= kText) {
    lock.unlock();
    return refuse(std::move(then),
                  Error(Code::bad_argument,
                        "data plane: " + (prepared_    ? "it is prepared already"
                                          : wrong_rank ? "rank " + std::to_string(rank) + " of " + std::to_string(size)
                                                       : "the host " + options_.host)));
  }
  prepared_ = true;
  rank_ = rank, size_ = size, timeout_ = timeout;
  Order o;
  o.step = Step::prepare;
  o.rank = rank, o.size = size;
  o.first_port = options_.first_port, o.last_port = options_.last_port;
  set_text(o, options_.host);
  queue(o, std::move(then), nullptr, after(timeout), "no address of the helper");
}

void Helm::connect(std::vector<std::string> blobs, const std::string& key, Then then) {
  std::unique_lock lock(mutex_);
  if (!usable(then)) return;
  std::string why;
  if (!prepared_ || connecting_) why = "connect comes once, after prepare";
  if (blobs.size() != static_cast<size_t>(size_))
    why = std::to_string(blobs.size()) + " addresses for " + std::to_string(size_) + " ranks";
  if (key.empty() || key.size() >= kText) why = "a key of " + std::to_string(key.size()) + " bytes";
  for (size_t r = 0; r < blobs.size(); ++r) {
    if (blobs[r].empty() || blobs[r].size() >= kText)
      why = "the address of rank " + std::to_string(r) + " has " + std::to_string(blobs[r].size()) + " bytes";
  }
  if (!why.empty()) {
    lock.unlock();
    return refuse(std::move(then), Error(Code::bad_argument, "data plane: " + why));
  }
  connecting_ = true;
  for (size_t r = 0; r < blobs.size(); ++r) {
    Order o;
    o.step = Step::peer;
    o.rank = static_cast<int>(r);
    set_text(o, blobs[r]);
    out_.push_back({o, Fd()});
  }
  Order o;
  o.step = Step::connect;
  // The helper says which rank is missing; its server, a little later, only that it has heard nothing.
  const Time deadline = after(timeout_);
  o.timeout_ms = ms_until(deadline);
  set_text(o, key);
  queue(o, std::move(then), nullptr, deadline + std::chrono::milliseconds(200), "no connections");
}

void Helm::run(Work&& w, std::optional<uint64_t> tag) {
  Then then = std::move(w.done);
  std::unique_lock lock(mutex_);
  if (!usable(then)) return;
  std::optional<Error> error;
  if (!connected_) {
    error = Error(Code::bad_argument, "data plane: it is not connected");
  } else if (error = wrong(w.terms, tag.has_value(), rank_, size_); !error) {
    const size_t bytes = bytes_of(w.terms, rank_, size_);
    const auto* area = dynamic_cast<PlaneArea*>(w.area.get());
    if (bytes && (!area || area->owner() != areas_.get() || area->bytes.size() < bytes)) {
      error = Error(Code::bad_argument,
                    "data plane: the area is not this plane's, or has fewer than " + std::to_string(bytes) + " bytes");
    } else if (pending_.size() >= kMaxPending) {
      error = Error(Code::overloaded, "data plane: " + std::to_string(kMaxPending) + " collectives are pending");
    }
  }
  if (error) {
    lock.unlock();
    return refuse(std::move(then), *std::move(error));
  }
  unmap();
  Order o;
  if (auto* area = dynamic_cast<PlaneArea*>(w.area.get()); area && area->memory()) {
    Memory& m = *area->memory();
    o.area = m.id;
    if (m.fd) {
      o.step = Step::map, o.bytes = m.size;
      out_.push_back({o, std::move(m.fd)});
      m.fd = Fd();
    }
  }
  o.step = Step::run;
  o.what = w.terms.what, o.op = w.terms.op, o.dtype = w.terms.dtype, o.root = w.terms.root, o.count = w.terms.count;
  o.pairwise = tag.has_value(), o.tag = tag.value_or(0);
  o.timeout_ms = ms_until(w.deadline);
  queue(o, std::move(then), std::move(w.area), w.deadline, "a collective is not complete");
}

// What follows, up to end(), wants the lock.

/// If not, the loop answers the call.
bool Helm::usable(Then& then) {
  if (!over_) return true;
  refuse(std::move(then), Error(Code::unavailable, over_->message()));
  return false;
}

void Helm::queue(Order o, Then then, AreaPtr area, Time deadline, const char* what) {
  o.id = next_id_++;
  pending_.emplace(o.id, Pending{std::move(then), std::move(area), deadline, what});
  out_.push_back({o, Fd()});
  flush();
  // Before the helper is there, or when its socket is full, the rest is the loop's.
  if (out_.empty())
    Loop::get().wake_for(deadline);
  else
    Loop::get().wake();
}

/// Tells the helper what it need not map any longer.
void Helm::unmap() {
  Order o;
  o.step = Step::unmap;
  for (const uint64_t id : areas_->gone()) {
    o.area = id;
    out_.push_back({o, Fd()});
  }
}

/// What the socket does not take now the loop sends.
void Helm::flush() {
  while (child_.socket && !out_.empty()) {
    const Outgoing& next = out_.front();
    if (send_packet(child_.socket.get(), &next.order, sizeof next.order, next.descriptor.get()) != Sent::yes) return;
    out_.pop_front();
  }
}

void Helm::end(Error e) {
  const std::lock_guard lock(mutex_);
  end_locked(std::move(e));
  Loop::get().wake();
}

void Helm::end_locked(Error e) {
  if (over_) return;
  over_ = std::move(e);
  // Its pid is ours until the loop has buried it.
  if (child_.pid > 0) ::kill(child_.pid, SIGKILL);
}

int Helm::fd() {
  const std::lock_guard lock(mutex_);
  return child_.socket.get();
}

short Helm::events() {
  const std::lock_guard lock(mutex_);
  return static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
}

Time Helm::next() {
  const std::lock_guard lock(mutex_);
  if (over_ || (prepared_ && child_.pid < 0)) return Time{};
  Time t = Time::max();
  for (const auto& [id, p] : pending_) t = std::min(t, p.deadline);
  return t;
}

bool Helm::turn(int events, Time now) {
  Answers answers;
  bool stays = true;
  {
    const std::lock_guard lock(mutex_);
    if (!over_ && prepared_ && child_.pid < 0) start();
    if (connected_) unmap();  // the loop comes by now and then
    if (events & POLLOUT || !out_.empty()) flush();
    if (events & ~POLLOUT) read(answers);
    for (auto p = pending_.begin(); !over_ && p != pending_.end(); ++p) {
      if (p->second.deadline > now) continue;
      Error late(Code::deadline_exceeded, std::string("data plane: the deadline has passed: ") + p->second.what);
      answers.emplace_back(std::move(p->second.then), late);
      pending_.erase(p);
      end_locked(std::move(late));
      break;
    }
    if (over_) {
      for (auto& [id, p] : pending_)
        answers.emplace_back(std::move(p.then), Error(Code::unavailable, over_->message()));
      pending_.clear();
      out_.clear();
      areas_->close();
      if (child_.pid > 0) Loop::get().add(std::make_shared<Burial>(child_.pid, std::move(child_.exit)));
      child_.pid = -1;
      child_.socket = Fd();
      stays = false;
    }
  }
  give(std::move(answers));
  return stays;
}

void Helm::start() {
  try {
    child_ = start_helper(options_.helper);
    flush();
  } catch (const Error& e) {
    end_locked(e);
  } catch (const std::exception& e) {
    end_locked(unavailable(e.what()));
  }
}

void Helm::read(Answers& answers) {
  while (child_.socket && !over_) {
    Answer a;
    const int got = take_packet(child_.socket.get(), &a, sizeof a, nullptr);
    if (got == 0) return;
    if (got < 0) return end_locked(unavailable("its helper process has ended"));
    take(a, answers);
  }
}

void Helm::take(const Answer& a, Answers& answers) {
  const auto p = pending_.find(a.id);
  if (a.failed) {
    Error e(static_cast<int>(a.code) < kCodes ? a.code : Code::internal, text_of(a));
    if (p != pending_.end()) {
      answers.emplace_back(std::move(p->second.then), e);
      pending_.erase(p);
    }
    return end_locked(std::move(e));
  }
  if (p == pending_.end() || a.rank < -1 || a.rank >= size_)
    return end_locked(unavailable("its helper process says what nobody asked"));
  Then then = std::move(p->second.then);
  pending_.erase(p);
  connected_ = connected_ || std::holds_alternative<Done<Result<void>>>(then);
  const bool number = std::holds_alternative<Done<Result<int>>>(then);
  answers.emplace_back(std::move(then), number ? std::to_string(a.rank) : text_of(a));
}

void Helm::give(Answers answers) {
  for (auto& [then, result] : answers) {
    if (auto* text = std::get_if<0>(&then)) {
      (*text)(std::move(result));
    } else if (auto* nothing = std::get_if<1>(&then)) {
      (*nothing)(result ? Result<void>() : Result<void>(result.error()));
    } else if (auto* rank = std::get_if<2>(&then)) {
      (*rank)(result ? Result<int>(std::stoi(*result)) : Result<int>(result.error()));
    }
  }
}

/// On the loop's thread: whoever called may hold locks.
void Helm::refuse(Then then, Error e) {
  Answers answers;
  answers.emplace_back(std::move(then), std::move(e));
  Loop::get().post([a = std::move(answers)](std::monostate) mutable { give(std::move(a)); });
}

namespace {

class GlooPlane final : public DataPlane {
 public:
  explicit GlooPlane(DataPlaneOptions o) : helm_(std::make_shared<Helm>(std::move(o))) { Loop::get().add(helm_); }
  ~GlooPlane() override { helm_->end(unavailable("the group has ended")); }
  void prepare(int rank, int size, std::chrono::milliseconds timeout, Done<Result<std::string>> done) override {
    helm_->prepare(rank, size, timeout, std::move(done));
  }
  void connect(std::vector<std::string> blobs, std::string key, Done<Result<void>> done) override {
    helm_->connect(std::move(blobs), key, std::move(done));
  }
  AreaPtr area(size_t bytes) override { return helm_->area(bytes); }
  void run(Work w) override { helm_->run(std::move(w), std::nullopt); }
  void run(Work w, uint64_t tag) override { helm_->run(std::move(w), tag); }

 private:
  std::shared_ptr<Helm> helm_;
};

}  // namespace
}  // namespace plane

std::unique_ptr<DataPlane> make_gloo_plane(DataPlaneOptions options) {
  return std::make_unique<plane::GlooPlane>(std::move(options));
}

}  // namespace gradwire::server::cluster
