#include "server/groups.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "server/session.h"

namespace gradwire::server {
namespace {

using engine::TransferPtr;

constexpr size_t kNameBytes = 255, kEnvironment = size_t{64} << 10;
constexpr double kMaxTimeout = 7 * 24 * 3600;  // seconds

std::string_view canonical(std::string_view name) { return name.empty() ? "world" : name; }

/// Lines NAME=VALUE.
std::vector<std::pair<std::string, std::string>> variables(std::string_view text) {
  if (text.size() > kEnvironment)
    throw Error(Code::bad_argument, "the environment has at most " + std::to_string(kEnvironment) + " bytes");
  std::vector<std::pair<std::string, std::string>> all;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      throw Error(Code::bad_argument,
                  "a line of the environment is NAME=VALUE, got '" + std::string(line.substr(0, 80)) + "'");
    all.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return all;
}

int rank_from(int64_t n, const char* what) {
  if (n < -1 || n > 1'000'000) throw Error(Code::bad_argument, std::string(what) + " is out of range");
  return static_cast<int>(n);
}

}  // namespace

// ---- the server's own ----

void ServerGroups::attach(std::string name, cluster::GroupPtr group) {
  const std::lock_guard lock(mutex_);
  held_[std::move(name)] = {std::move(group)};
}

bool ServerGroups::has(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return held_.find(name) != held_.end();
}

std::pair<cluster::GroupPtr, std::unique_ptr<ServerGroups::Claim>> ServerGroups::claim(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(name);
  if (found == held_.end()) return {};
  if (found->second.used)
    throw Error(Code::overloaded, "the server's group '" + found->first + "' is in use by another session");
  auto claim = std::make_unique<Claim>(*this, found->first);
  found->second.used = true;
  return {found->second.group, std::move(claim)};
}

void ServerGroups::release(const std::string& name, bool ends) noexcept {
  cluster::GroupPtr last;  // leaves outside of the lock
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(name);
  if (found == held_.end()) return;
  found->second.used = false;
  if (!ends) return;
  spdlog::warn("the group '{}' made at start ends: a session has left it in the middle of a call", name);
  last = std::move(found->second.group);
  held_.erase(found);
}

void ClusterUse::join(cluster::JoinOptions o, Done<Result<cluster::GroupPtr>> done) {
  const std::lock_guard lock(mutex_);
  if (!cluster_) throw Error(Code::unavailable, "groups are off: start the server with --peer");
  cluster_->join(std::move(o), std::move(done));
}

// ---- what is under way ----

namespace {

/// Wakes a session's queue, on any thread, also when the session is gone.
struct Wake {
  Executor* executor;
  Executor::QueuePtr queue;
  void operator()() const { executor->wake(queue); }
};

/// A transfer that a thread of the cluster answers once.
template <class R> class Answered : public engine::Transfer {
 public:
  bool done() const override { return done_.load(std::memory_order_acquire); }
  void set(Result<R> r) {
    answer_.emplace(std::move(r));
    done_.store(true, std::memory_order_release);
  }

 protected:
  std::optional<Result<R>> answer_;

 private:
  std::atomic<bool> done_{false};
};

}  // namespace

class Groups::Moving final : public Answered<int> {
 public:
  Moving(cluster::AreaPtr a, size_t n, std::shared_ptr<Held> held) : area(std::move(a)), held_(std::move(held)) {
    bytes = area->bytes.first(n);
    held_->moving.fetch_add(n, std::memory_order_relaxed);
  }
  ~Moving() override {
    if (kept_)
      held_->kept.fetch_sub(1, std::memory_order_relaxed);
    else
      held_->moving.fetch_sub(bytes.size(), std::memory_order_relaxed);
  }
  bool keep() override {
    if (kept_ || held_->kept.load(std::memory_order_relaxed) >= kKept) return kept_;
    held_->kept.fetch_add(1, std::memory_order_relaxed);
    held_->moving.fetch_sub(bytes.size(), std::memory_order_relaxed);
    return kept_ = true;
  }
  int result() override {
    if (!*answer_) throw answer_->error();
    return **answer_;
  }
  const cluster::AreaPtr area;

 private:
  const std::shared_ptr<Held> held_;
  bool kept_ = false;  // no longer under way
};

/// Who waits for a group: when this is gone, nobody does.
struct Groups::Asker {
  std::shared_ptr<Making> making;
};

class Groups::Making final : public Answered<cluster::GroupPtr> {
 public:
  Making(Groups& owner, std::string name, std::vector<int> ranks)
      : owner_(owner), name_(std::move(name)), ranks_(std::move(ranks)) {}
  int result() override {
    if (!*answer_) throw answer_->error();
    Entry e{std::move(**answer_), std::move(ranks_), 0, {}};
    e.size = e.group ? e.group->size() : static_cast<int>(e.ranks.size());
    const int rank = e.group ? e.group->rank() : -1;
    owner_.add(name_, std::move(e));
    return rank;
  }

 private:
  Groups& owner_;
  std::string name_;
  std::vector<int> ranks_;
};

// ---- a session's ----

Groups::Groups(Core& core) : core_(core) {}

Groups::Entry* Groups::find(std::string_view name) {
  name = canonical(name);
  const auto found = groups_.find(name);
  if (found != groups_.end()) return &found->second;
  auto [group, claim] = core_.shared.groups.claim(name);
  if (!group) return nullptr;
  const int size = group->size();
  return &groups_.emplace(std::string(name), Entry{std::move(group), {}, size, std::move(claim)}).first->second;
}

Groups::Entry& Groups::at(std::string_view name) {
  if (Entry* e = find(name)) {
    if (e->left.empty()) return *e;
    throw Error(Code::unavailable, "the process group '" + std::string(canonical(name)) +
                                       "' is no more: this rank has left it, as " + e->left);
  }
  throw Error(Code::no_object,
              canonical(name) == "world"
                  ? "Default process group has not been initialized, please make sure to call init_process_group."
                  : "there is no process group '" + std::string(name.substr(0, kNameBytes)) + "'");
}

bool Groups::has(std::string_view name) {
  name = canonical(name);
  const auto found = groups_.find(name);
  return found != groups_.end() ? found->second.left.empty() : core_.shared.groups.has(name);
}

Groups::Group Groups::group(std::string_view name) {
  const Entry& e = at(name);
  return {e.group ? e.group->rank() : -1, e.size, e.ranks.empty() ? nullptr : &e.ranks};
}

Groups::Entry& Groups::member(std::string_view name) {
  Entry& e = at(name);
  if (!e.group) throw Error(Code::internal, "who is no member of a group takes no part in it");
  return e;
}

/// `done`, and until then a call that is under way in a group of the server's.
template <class R> Done<R> Groups::counted(const Entry& e, Done<R> done) {
  if (!e.claim) return done;
  e.claim->under_way->fetch_add(1);
  return [calls = e.claim->under_way, done = std::move(done)](R r) mutable {
    calls->fetch_sub(1);
    done(std::move(r));
  };
}

void Groups::check_new(std::string_view name) {
  if (name.size() > kNameBytes) throw Error(Code::bad_argument, "a group's name has at most 255 bytes");
  const auto found = groups_.find(name);
  if (found != groups_.end() && !found->second.left.empty()) {
    groups_.erase(found);
  } else if (found != groups_.end()) {  // one of its own stands before the server's
    throw Error(Code::bad_argument, name == "world" ? "trying to initialize the default process group twice!"
                                                    : "the process group '" + std::string(name) + "' is there already");
  }
  if (groups_.size() >= kGroups)
    throw Error(Code::memory_limit, "a session has at most " + std::to_string(kGroups) + " groups");
}

void Groups::add(const std::string& name, Entry e) {
  if (!groups_.try_emplace(name, std::move(e)).second)
    throw Error(Code::bad_argument, "the process group '" + name + "' is there already");
}

TransferPtr Groups::prepare(std::string_view name, size_t bytes) {
  const auto limit = static_cast<size_t>(core_.options.memory_limit);
  if (bytes > limit - std::min(limit, held_->moving.load(std::memory_order_relaxed)))
    throw Error(Code::memory_limit, "what a session exchanges with other ranks is at most its limit of " +
                                        std::to_string(limit) + " bytes at a time");
  return std::make_shared<Moving>(member(name).group->area(bytes), bytes, held_);
}

void Groups::start(const TransferPtr& t, std::string_view name, const Terms& terms) {
  const Entry& e = member(name);
  const auto moving = std::static_pointer_cast<Moving>(t);
  cluster::Work w;
  w.terms = terms;
  w.area = moving->area;
  w.deadline = std::chrono::steady_clock::now() + e.group->timeout();
  w.done = counted(e, Done<Result<int>>([moving, wake = Wake{&core_.shared.executor, core_.queue}](Result<int> r) {
                     moving->set(std::move(r));
                     wake();
                   }));
  e.group->start(std::move(w));
}

TransferPtr Groups::join(std::string_view name, const engine::JoinCall& j) {
  if (!(j.timeout > 0) || j.timeout > kMaxTimeout)
    throw Error(Code::bad_argument, "timeout is positive and at most a week, in seconds");
  cluster::JoinOptions o;
  o.backend = j.backend, o.init_method = j.init_method, o.group_name = j.group_name;
  o.world_size = rank_from(j.world_size, "world_size"), o.rank = rank_from(j.rank, "rank");
  o.timeout = std::chrono::milliseconds(std::max<int64_t>(1, std::llround(j.timeout * 1000)));
  o.environment = variables(j.environment);
  return join(name, std::move(o));
}

TransferPtr Groups::join(std::string_view name, cluster::JoinOptions o) {
  name = canonical(name);
  check_new(name);
  const auto making = std::make_shared<Making>(*this, std::string(name), std::vector<int>());
  auto done = [making, wake = Wake{&core_.shared.executor, core_.queue}](Result<cluster::GroupPtr> r) {
    making->set(std::move(r));
    wake();
  };
  const auto asker = std::make_shared<Asker>(making);
  o.asker = asker;
  core_.shared.cluster.join(std::move(o), std::move(done));
  return {asker, making.get()};
}

TransferPtr Groups::split(std::string_view parent, std::string_view name, std::span<const int64_t> ranks) {
  check_new(name);
  const Entry& from = member(parent);
  std::vector<int> own(ranks.begin(), ranks.end()), global;
  for (const int r : own) global.push_back(from.ranks.empty() ? r : from.ranks.at(static_cast<size_t>(r)));
  const auto making = std::make_shared<Making>(*this, std::string(name), std::move(global));
  using Made = Result<cluster::GroupPtr>;
  from.group->split(std::move(own),
                    counted(from, Done<Made>([making, wake = Wake{&core_.shared.executor, core_.queue}](Made r) {
                              making->set(std::move(r));
                              wake();
                            })));
  return making;
}

void Groups::leave(std::string_view name, std::string_view why) {
  Entry* e = find(name);
  if (!e || (!why.empty() && !e->left.empty())) at(name);  // throws
  if (why.empty()) {
    groups_.erase(groups_.find(canonical(name)));
  } else {
    if (e->claim) e->claim->breaks = true;
    *e = Entry{nullptr, {}, 0, nullptr, std::string(why)};
  }
}

GroupInfo Groups::info(std::string_view name) {
  const Entry& e = at(name);
  return {std::string(canonical(name)), e.group ? e.group->rank() : -1, e.size, e.group ? e.group->epoch() : 0};
}

void Groups::abandon(std::unique_ptr<engine::Pending> p) noexcept {
  try {
    if (p && !p->transfer->done()) leave(p->group);
  } catch (...) {  // it has been left, or was never joined
  }
}

// ---- HTTP's way to join ----

namespace {

class JoinTask final : public Task {
 public:
  JoinTask(std::shared_ptr<Core> core, std::string name, cluster::JoinOptions options, Done<Result<GroupInfo>> done)
      : core_(std::move(core)), name_(std::move(name)), options_(std::move(options)), done_(std::move(done)) {}
  Step step(Clock::time_point) override {
    try {
      if (core_->closing.load(std::memory_order_acquire) || !core_->state)
        throw Error(Code::closed, "the session is closed");
      Groups& groups = *core_->state->groups;
      if (!transfer_) transfer_ = groups.join(name_, std::move(options_));
      if (!transfer_->done()) return Step::waiting;
      transfer_->result();
      done_(groups.info(name_));
    } catch (...) {
      fail(current_error());
    }
    return Step::done;
  }
  void fail(const Error& e) noexcept override {
    try {
      if (done_) done_(e);
    } catch (...) {}
  }

 private:
  std::shared_ptr<Core> core_;
  std::string name_;
  cluster::JoinOptions options_;
  Done<Result<GroupInfo>> done_;
  TransferPtr transfer_;
};

}  // namespace

std::unique_ptr<Task> make_join_task(std::shared_ptr<Core> core, std::string name, cluster::JoinOptions options,
                                     Done<Result<GroupInfo>> done) {
  return std::make_unique<JoinTask>(std::move(core), std::move(name), std::move(options), std::move(done));
}

}  // namespace gradwire::server
