#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/cluster/init_method.h"
#include "server/cluster/message.h"
#include "server/result.h"

namespace gradwire::server::cluster {

/// Who wants to be in a group, as it says where all can read it.
struct Guest {
  std::string id;  // 32 hexadecimal digits, random
  int rank = -1, world_size = 0;
  std::string address;  // of its server
};
/// What a meeting comes to for one of its guests.
struct Met {
  int rank = 0;
  std::string host_id, host_address;  // rank 0's
};

/// Given ranks are kept, the rest fill the free places in the order of `guests`. Throws Error{group_mismatch}:
/// "more than one node have assigned same rank", a rank out of range, sizes that differ.
Met seat_guests(const std::vector<Guest>& guests, const std::string& own_id);

/// What a guest says, as one line without its end; the group's name tells jobs apart that meet in one place.
std::string write_line(const std::string& group_name, const Guest&);
struct Entry {
  std::string group_name;
  Guest guest;
};
std::optional<Entry> read_line(const std::string&);

/// The joins under way, which are bounded. Each has a ticket, and so has the thread of its meeting: one that is slow to
/// notice that its join is over counts until it has ended.
class Joins : public std::enable_shared_from_this<Joins> {
 public:
  using Ticket = std::shared_ptr<const void>;  // copies are one; any thread may let go of it
  explicit Joins(size_t most) : most_(most) {}
  Ticket enter();  // throws overloaded
  /// False if some are still there after that time.
  bool wait_for_none(Milliseconds);

 private:
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable gone_;
  size_t now_ = 0;
};

/// A meeting is held on a thread of its own, which owns it: files and names may be slow, and a file system that hangs
/// may never answer. `done` is called on that thread, at most once.
class Meeting {
 public:
  virtual ~Meeting() = default;
  virtual void hold() noexcept = 0;  // on the thread
  virtual void stop() noexcept = 0;  // any thread, waits for nothing; hold() ends as soon as it can
};
/// Stops the meeting when it is let go, and does not wait until it has ended.
using MeetingPtr = std::shared_ptr<Meeting>;
/// Throws overloaded where the system has no thread for it.
MeetingPtr begin(std::shared_ptr<Meeting>, Joins::Ticket);

/// In a file, which does not exist yet in a directory that does; each guest writes a line under a lock of fcntl(), the
/// last one to have read them all removes it. Who gives up takes its line away.
MeetingPtr meet_in_file(std::string path, std::string group_name, Guest, Moment deadline, Done<Result<Met>> done,
                        Joins::Ticket);

/// By UDP datagrams to a multicast group, from the interface that has the address `local`; each guest says its line
/// ten times a second for as long as the meeting lives, and who is silent for two seconds has gone. Whoever sends there
/// can keep a group from forming: what the guests are is known by their links. Throws Error{unavailable} where the
/// system has no such multicast.
MeetingPtr meet_by_multicast(Address group, std::string local, std::string group_name, Guest, Moment deadline,
                             Done<Result<Met>> done, Joins::Ticket);

}  // namespace gradwire::server::cluster
