#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/cluster/group.h"
#include "server/cluster/home.h"

namespace gradwire::server::cluster {

class Member;

/// A member's end of its channel, shared by the groups that it is in: who a message is for.
struct Line {
  ChannelPtr channel;
  std::map<uint64_t, std::weak_ptr<Member>> members;  // by group
};
using LinePtr = std::shared_ptr<Line>;
/// From now on what arrives on the line goes to its members.
void route(const LinePtr&);

/// One rank's membership in one group: tells the coordinator what this rank calls, and gives to the data plane what all
/// have agreed on. Lives on the loop; what a Group's users touch from other threads is said.
class Member : public std::enable_shared_from_this<Member> {
 public:
  struct Place {
    uint64_t group = 0, epoch = 0;
    int rank = 0, size = 0;
    std::string backend;
    Milliseconds timeout{0};
    std::string meets_at = "rank 0";                   // whose server has the coordinator
    std::optional<std::weak_ptr<const void>> asker{};  // as JoinOptions has it
  };
  /// `joined` is called when the group stands, or cannot.
  static void begin(Home&, LinePtr, Place, std::shared_ptr<DataPlane>, Moment deadline, Answer<GroupPtr> joined);

  // Any thread.
  const Place& place() const { return place_; }
  AreaPtr area(size_t bytes);  // throws

  // Loop.
  void call(Work, Answer<int>);
  void split(std::vector<int> ranks, Answer<GroupPtr>);
  void leave();
  void on_message(Message);
  void on_lost(const Error&);
  void on_time(Moment now);
  /// Fails everything and lets go of all that belongs to the loop.
  void end(const Error&);

 private:
  struct Pending {
    Work work;
    Answer<int> answer;
    bool runs = false;
    int source = -1;               // of a recv
    std::optional<Error> fault{};  // of the data plane; until the coordinator says who is gone
    Moment until{};                // when patience with it ends
    bool overdue = false;          // it has ended once
  };
  struct Splitting {
    Answer<GroupPtr> answer;
    Moment deadline;
  };
  using Calls = std::map<uint64_t, Pending>;

  Member(Home&, LinePtr, Place, std::shared_ptr<DataPlane>, Moment deadline, Answer<GroupPtr> joined);
  void prepare();
  void connect(Connect);
  void formed();
  void decided(Verdict);
  void run(Calls&, Calls::iterator, const Verdict&);
  void ran(bool pairwise, uint64_t sequence, Result<int>);
  void broken(const Error&, bool left);
  void failed(const Error& own);  // tells the coordinator, and ends
  void say(decltype(Message::body));
  void hide_plane();
  std::optional<Error> unfit(const Work&) const;
  void tell(Pending&, const Error&);
  void settle();

  Home* home_;
  LinePtr line_;
  const Place place_;
  const Moment deadline_;  // of joining
  Answer<GroupPtr> joined_;
  std::shared_ptr<DataPlane> plane_;  // the loop's
  uint64_t next_ = 0, next_pairwise_ = 0;
  Calls calls_, pairwise_;
  std::map<uint64_t, Splitting> splits_;
  std::optional<Error> broken_;  // all that is called from now on fails with it
  bool left_ = false;

  std::mutex mutex_;  // of these two, which area() reads
  std::shared_ptr<DataPlane> shown_;
  std::string why_not_ = "the group is not formed";
};

}  // namespace gradwire::server::cluster
