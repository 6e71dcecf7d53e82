#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/exchange.h"
#include "server/cluster/group.h"
#include "server/service.h"

namespace gradwire::server {

struct Core;

/// The groups that the server itself belongs to, for its sessions. Thread-safe.
class ServerGroups {
 public:
  void attach(std::string name, cluster::GroupPtr);
  bool has(std::string_view name) const;
  /// A session's use of a group, and others' no meanwhile: a rank is one session at a time. Whoever lets go with a call
  /// under way ends the group: the other ranks would meet that call in the next session's place.
  struct Claim {
    Claim(ServerGroups& o, std::string n) : owner(o), name(std::move(n)) {}
    ~Claim() { owner.release(name, breaks || under_way->load() != 0); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ServerGroups& owner;
    const std::string name;
    const std::shared_ptr<std::atomic<size_t>> under_way = std::make_shared<std::atomic<size_t>>(0);  // calls
    bool breaks = false;  // others wait for a call that is not made
  };
  /// Null if there is none; throws overloaded while another session uses it. The claim ends before the group is let go.
  std::pair<cluster::GroupPtr, std::unique_ptr<Claim>> claim(std::string_view name);

 private:
  struct Held {
    cluster::GroupPtr group;
    bool used = false;
  };
  void release(const std::string& name, bool ends) noexcept;
  mutable std::mutex mutex_;
  std::map<std::string, Held, std::less<>> held_;
};

/// How sessions join groups; null while they cannot. Thread-safe: who takes it away knows that nobody is in it any
/// more.
class ClusterUse {
 public:
  void use(cluster::Cluster* c) {
    const std::lock_guard lock(mutex_);
    cluster_ = c;
  }
  /// Throws unavailable where there is none.
  void join(cluster::JoinOptions, Done<Result<cluster::GroupPtr>>);

 private:
  std::mutex mutex_;
  cluster::Cluster* cluster_ = nullptr;
};

/// A session's process groups by name; the default one, "" in calls, is "world". Belongs to the session's queue, which
/// is woken when something is done. Groups of the server stand behind the session's own.
class Groups final : public engine::Exchange {
 public:
  static constexpr size_t kGroups = 64, kKept = 1024;  // transfers that tensors stay in
  explicit Groups(Core&);

  bool has(std::string_view) override;
  Group group(std::string_view) override;
  engine::TransferPtr prepare(std::string_view, size_t bytes) override;
  void start(const engine::TransferPtr&, std::string_view, const Terms&) override;
  engine::TransferPtr join(std::string_view, const engine::JoinCall&) override;
  engine::TransferPtr join(std::string_view, cluster::JoinOptions);
  engine::TransferPtr split(std::string_view parent, std::string_view name, std::span<const int64_t> ranks) override;
  void leave(std::string_view, std::string_view why = {}) override;

  GroupInfo info(std::string_view);
  /// Nobody waits for it any more: while it is under way the others wait for this rank, so it leaves the group.
  void abandon(std::unique_ptr<engine::Pending>) noexcept;

 private:
  class Moving;
  class Making;
  struct Asker;
  struct Entry {
    cluster::GroupPtr group;                     // null where this session is no member
    std::vector<int> ranks;                      // the default group's rank of each; empty: the same
    int size = 0;                                // of the group
    std::unique_ptr<ServerGroups::Claim> claim;  // of a group of the server's
    std::string left{};                          // why this session is there no more; empty: it is
  };
  struct Held {
    std::atomic<size_t> moving{0};  // bytes under way
    std::atomic<size_t> kept{0};    // transfers that tensors stay in
  };
  Entry* find(std::string_view);
  Entry& at(std::string_view);
  Entry& member(std::string_view);
  template <class R> static Done<R> counted(const Entry&, Done<R>);
  void add(const std::string& name, Entry);
  void check_new(std::string_view name);

  Core& core_;
  std::map<std::string, Entry, std::less<>> groups_;
  const std::shared_ptr<Held> held_ = std::make_shared<Held>();
};

/// Joins a group as init_process_group does.
std::unique_ptr<class Task> make_join_task(std::shared_ptr<Core>, std::string name, cluster::JoinOptions,
                                           Done<Result<GroupInfo>>);

}  // namespace gradwire::server
