#pragma once

#include <kj/async-io.h>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/cluster/coordinator.h"
#include "server/cluster/home.h"
#include "server/cluster/init_method.h"
#include "server/cluster/link.h"
#include "server/cluster/member.h"
#include "server/rpc/listener.h"

namespace gradwire::server::cluster {

class Joiner;
class Joins;

/// What the cluster is made with, checked.
struct Setup {
  Cluster::Options options;
  Address listen, advertise;
  std::unique_ptr<Tls> tls;  // null: plain
  LinkLimits limits;
};

/// The loop's side of the cluster: listens, dials, knows what lives on it.
class Loop final : public Home, private kj::TaskSet::ErrorHandler {
 public:
  Loop(Setup&, std::shared_ptr<LoopQueue>, std::optional<Listener>, kj::AsyncIoContext&);
  ~Loop() noexcept override;

  void join(JoinOptions, Answer<GroupPtr>);

  // for joiners
  const Setup& setup() const { return setup_; }
  /// A link to another server; what is sent before it is open waits.
  ChannelPtr dial(const Address&);
  /// A group that others may come to under this name, through the peer address or, where the port is another, a
  /// listener of its own for as long as the group gathers and its host is waited for (`asker`: as JoinOptions has it).
  /// Returns the channel of this server's member, which is rank 0. Throws Error.
  ChannelPtr host(const std::string& meeting, int world_size, Milliseconds patience, const std::optional<Address>&,
                  std::optional<std::weak_ptr<const void>> asker);
  void after(Milliseconds, std::function<void()>);
  void drop(Joiner&);

  // of Home
  const std::shared_ptr<LoopQueue>& queue() override { return queue_; }
  std::unique_ptr<DataPlane> make_plane(const std::string& backend) override;
  void keep(std::shared_ptr<Member>) override;
  void keep(std::shared_ptr<Coordinator>) override;
  void drop(Member&) override;
  void drop(Coordinator&) override;

 private:
  struct Inbound {
    ChannelPtr channel;
    Link* link = nullptr;  // null: this server's own member
    Moment since;
    std::optional<std::string> address;  // once it has said hello
    bool seated = false;
  };
  struct Room {
    std::weak_ptr<Coordinator> coordinator;
    std::unique_ptr<Listener> listener;
    std::optional<kj::Promise<void>> listening;
    std::optional<std::weak_ptr<const void>> asker;
  };
  ChannelPtr owned(std::unique_ptr<Link>);
  void take(kj::AutoCloseFd);
  Inbound& add(ChannelPtr, Link*);
  void erase(Inbound&);
  void heard(Channel&, Message);
  void say_hello(Inbound&, const Hello&);
  void seat(Inbound&, const Join&);
  void lost(Channel&, const Error&);
  void refuse(Inbound&, Error);
  void close_rooms();
  void retire(std::unique_ptr<Link>);
  void arm();
  void tick();
  void taskFailed(kj::Exception&&) override {}

  Setup& setup_;
  std::shared_ptr<LoopQueue> queue_;
  std::optional<Listener> listener_;
  kj::AsyncIoContext& io_;
  kj::Timer& timer_;
  kj::Own<wire::BlockPool> pool_ = kj::refcounted<wire::BlockPool>();
  bool ending_ = false, armed_ = false;
  const std::shared_ptr<Joins> joins_;
  std::map<Joiner*, std::shared_ptr<Joiner>> joiners_;
  std::map<Member*, std::shared_ptr<Member>> members_;
  std::unordered_map<uint64_t, std::shared_ptr<Coordinator>> coordinators_;  // by group
  std::unordered_map<std::string, Room> rooms_;
  std::list<Inbound> inbound_;  // the oldest first
  std::unordered_map<const Channel*, std::list<Inbound>::iterator> where_;
  size_t strangers_ = 0;
  kj::TaskSet tasks_{*this};
};

}  // namespace gradwire::server::cluster
