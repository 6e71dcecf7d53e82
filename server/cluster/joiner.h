#pragma once

#include <memory>
#include <string>

#include "server/cluster/loop.h"
#include "server/cluster/meeting.h"

namespace gradwire::server::cluster {

/// One join: finds out where the group meets, comes there as often as it takes, and becomes a Member when all have
/// come. Lives on the loop.
class Joiner : public std::enable_shared_from_this<Joiner> {
 public:
  Joiner(Loop&, JoinOptions, Plan, std::unique_ptr<DataPlane>, Answer<GroupPtr>, Joins::Ticket);
  void start();
  void on_time(Moment now);
  void finish(Result<GroupPtr>);

 private:
  void meet();
  void met(Result<Met>);
  void host(const std::string& meeting, const std::optional<Address>& at);
  void dial();
  void again(const std::string& problem);
  void listen_to(ChannelPtr);
  void heard(Message);
  void seated(const Message&, const Seated&);

  Loop& loop_;
  const JoinOptions options_;
  Plan plan_;
  std::shared_ptr<DataPlane> plane_;
  Answer<GroupPtr> done_;
  const Joins::Ticket ticket_;
  const Moment deadline_;
  std::string meeting_;  // its name
  Address there_;        // rank 0's
  ChannelPtr channel_;
  MeetingPtr place_;
  std::string problem_ = "nothing has answered";
  Milliseconds pause_{25};
};

}  // namespace gradwire::server::cluster
