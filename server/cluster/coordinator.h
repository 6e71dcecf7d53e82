#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/cluster/agreement.h"
#include "server/cluster/home.h"

namespace gradwire::server::cluster {

/// One group as the server of its rank 0 sees it: seats the members, hands round what their data planes need to meet,
/// hears every call, and says who is gone. As all is said here and links keep the order, all members hear their
/// verdicts in one order. Lives on the loop.
class Coordinator : public std::enable_shared_from_this<Coordinator> {
 public:
  Coordinator(Home&, int size, uint64_t epoch, Milliseconds patience);

  uint64_t group() const { return group_; }
  bool is_gathering() const { return state_ == State::gathering; }
  bool is_broken() const { return state_ == State::broken; }

  /// Takes a rank for a member. When the last one sits, the group is being formed. What is wrong with one (its rank is
  /// taken or out of range, it wants another size) breaks the group: all of them are told.
  void seat(const Join&, ChannelPtr, std::string address);
  /// The same for a group that was split off, whose members are here already.
  void seat_all(std::vector<ChannelPtr>, std::vector<std::string> addresses);

  void on_message(Channel&, Message);
  /// The other end of this channel is gone. While the group gathers, its place is free again.
  void on_lost(Channel&, const Error&);
  void on_time(Moment now);
  void break_up(Error, bool left = false);

 private:
  enum class State : uint8_t { gathering, preparing, connecting, formed, broken };
  struct Seat {
    ChannelPtr channel;
    std::string address, blob;
    bool ready = false, failed = false;
  };
  void form();
  void say(int rank, decltype(Message::body));
  void say_all(const decltype(Message::body)&);
  void on_blob(Seat&, Blob);
  void on_connected(Seat&);
  void on_failed(int rank, const Error&);
  void carry_out(Agreement::Outcome);
  void split(const std::vector<int>& ranks, uint64_t sequence);
  bool all_ready();

  Home& home_;
  const uint64_t group_ = random_id(), epoch_;
  const Milliseconds patience_;
  const Moment deadline_;  // of forming
  State state_ = State::gathering;
  std::vector<Seat> seats_;  // by rank
  std::unordered_map<const Channel*, int> ranks_;
  Agreement agreement_;
  std::string failures_;  // of data planes, until it is clear whether somebody is gone
  Code failure_code_ = Code::unavailable;
  Moment judged_at_ = Moment::max();
};

}  // namespace gradwire::server::cluster
