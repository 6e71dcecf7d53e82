#pragma once

#include <memory>
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

/// A meeting that is held on a thread of its own: files and names may be slow. `done` is called on that thread, once,
/// unless the meeting ends before. Ends with its destruction, which waits for the thread.
class Meeting {
 public:
  virtual ~Meeting() = default;
};
using MeetingPtr = std::unique_ptr<Meeting>;

/// In a file, which does not exist yet in a directory that does; each guest writes a line under a lock of fcntl(), the
/// last one to have read them all removes it. Who gives up takes its line away.
MeetingPtr meet_in_file(std::string path, std::string group_name, Guest, Moment deadline, Done<Result<Met>> done);

/// By UDP datagrams to a multicast group, from the interface that has the address `local`; each guest says its line
/// ten times a second for as long as the meeting lives, and who is silent for two seconds has gone. Whoever sends there
/// can keep a group from forming: what the guests are is known by their links. Throws Error{unavailable} where the
/// system has no such multicast.
MeetingPtr meet_by_multicast(Address group, std::string local, std::string group_name, Guest, Moment deadline,
                             Done<Result<Met>> done);

}  // namespace gradwire::server::cluster
