#include "server/cluster/meeting.h"

#include <charconv>
#include <sstream>
#include <system_error>
#include <thread>

#include "schema/error.h"
#include "server/thread_name.h"

namespace gradwire::server::cluster {

Joins::Ticket Joins::enter() {
  {
    const std::lock_guard lock(mutex_);
    if (now_ >= most_) throw Error(Code::overloaded, "too many groups are being made");
    ++now_;
  }
  return Ticket(this, [self = shared_from_this()](const void*) {
    const std::lock_guard lock(self->mutex_);
    --self->now_;
    self->gone_.notify_all();
  });
}

bool Joins::wait_for_none(Milliseconds time) {
  std::unique_lock lock(mutex_);
  return gone_.wait_for(lock, time, [this] { return now_ == 0; });
}

MeetingPtr begin(std::shared_ptr<Meeting> meeting, Joins::Ticket ticket) {
  try {
    std::thread([meeting, ticket]() mutable {
      name_thread("gradwired:meet");
      meeting->hold();
      // The ticket last: who waits for it finds nothing of the meeting left.
      meeting = nullptr, ticket = nullptr;
    }).detach();
  } catch (const std::system_error& e) {
    throw Error(Code::overloaded, std::string("no thread can be started for the rendezvous: ") + e.what());
  }
  Meeting* raw = meeting.get();
  return MeetingPtr(raw, [meeting = std::move(meeting)](Meeting* m) { m->stop(); });
}

Met seat_guests(const std::vector<Guest>& guests, const std::string& own_id) {
  const int size = static_cast<int>(guests.size());
  std::vector<const Guest*> seats(guests.size(), nullptr);
  for (const Guest& g : guests) {
    if (g.world_size != size)
      throw Error(Code::group_mismatch, "world sizes are not equal: " + g.address + " has " +
                                            std::to_string(g.world_size) + ", others have " + std::to_string(size));
    if (g.rank < 0) continue;
    if (g.rank >= size)
      throw Error(Code::group_mismatch, "worker's rank(" + std::to_string(g.rank) + ") is out of range: [0, " +
                                            std::to_string(size - 1) + "]");
    const Guest*& seat = seats[static_cast<size_t>(g.rank)];
    if (seat)
      throw Error(Code::group_mismatch, "more than one node have assigned same rank: " + seat->address + " and " +
                                            g.address + " have rank " + std::to_string(g.rank));
    seat = &g;
  }
  size_t free = 0;
  for (const Guest& g : guests) {
    if (g.rank >= 0) continue;
    while (seats[free]) ++free;
    seats[free] = &g;
  }
  Met met;
  for (int r = 0; r < size; ++r) {
    if (seats[static_cast<size_t>(r)]->id == own_id) met.rank = r;
  }
  met.host_id = seats[0]->id, met.host_address = seats[0]->address;
  return met;
}

namespace {

constexpr const char* kMark = "gradwire1";

std::string to_hex(const std::string& text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "x";  // so that nothing is something
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4], out += kDigits[byte & 15];
  }
  return out;
}
std::optional<std::string> from_hex(const std::string& text) {
  if (text.empty() || text.front() != 'x' || text.size() % 2 == 0) return std::nullopt;
  std::string out;
  for (size_t i = 1; i < text.size(); i += 2) {
    unsigned byte = 0;
    const char* end = text.data() + i + 2;
    const auto [stop, error] = std::from_chars(text.data() + i, end, byte, 16);
    if (error != std::errc() || stop != end) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

}  // namespace

std::string write_line(const std::string& group_name, const Guest& g) {
  return std::string(kMark) + " " + to_hex(group_name) + " " + g.id + " " + std::to_string(g.rank) + " " +
         std::to_string(g.world_size) + " " + g.address;
}

std::optional<Entry> read_line(const std::string& line) {
  if (line.size() > kMaxText) return std::nullopt;
  std::istringstream in(line);
  std::string mark, name, more;
  Entry e;
  if (!(in >> mark >> name >> e.guest.id >> e.guest.rank >> e.guest.world_size >> e.guest.address) || (in >> more))
    return std::nullopt;
  auto group_name = from_hex(name);
  if (mark != kMark || !group_name || e.guest.id.size() != 32 || e.guest.rank < -1 || e.guest.world_size < 1 ||
      e.guest.world_size > kMaxRanks)
    return std::nullopt;
  e.group_name = std::move(*group_name);
  return e;
}

}  // namespace gradwire::server::cluster
