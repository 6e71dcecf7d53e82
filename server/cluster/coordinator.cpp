#include "server/cluster/coordinator.h"

#include <algorithm>

namespace gradwire::server::cluster {

namespace {

/// A data plane often notices sooner than the link that a rank is gone: the link's word, which has its name, is waited
/// for.
constexpr Milliseconds kJudgement{300};

}  // namespace

Coordinator::Coordinator(Home& home, int size, uint64_t epoch, Milliseconds patience)
    : home_(home),
      epoch_(epoch),
      patience_(patience),
      deadline_(std::chrono::steady_clock::now() + patience),
      seats_(static_cast<size_t>(size)),
      agreement_(size) {}

void Coordinator::say(int rank, decltype(Message::body) body) {
  if (auto& channel = seats_[static_cast<size_t>(rank)].channel) channel->send({group_, epoch_, std::move(body)});
}

void Coordinator::say_all(const decltype(Message::body)& body) {
  for (size_t r = 0; r < seats_.size(); ++r) say(static_cast<int>(r), body);
}

void Coordinator::seat(const Join& join, ChannelPtr channel, std::string address) {
  const int size = static_cast<int>(seats_.size());
  std::string wrong;
  const bool in_range = join.rank >= 0 && join.rank < size;
  if (join.world_size != size) {
    wrong = "world sizes are not equal: rank 0 has " + std::to_string(size) + ", rank " + std::to_string(join.rank) +
            " has " + std::to_string(join.world_size);
  } else if (!in_range) {
    wrong = "worker's rank(" + std::to_string(join.rank) + ") is out of range: [0, " + std::to_string(size - 1) + "]";
  } else if (const Seat& taken = seats_[static_cast<size_t>(join.rank)]; taken.channel) {
    wrong = "two processes (" + taken.address + ", " + address + ") reported a rank of " + std::to_string(join.rank);
  }
  if (!wrong.empty()) {
    const Error error(Code::group_mismatch, wrong);
    channel->send({group_, epoch_, Broken{error}});
    return break_up(error);
  }
  ranks_.emplace(channel.get(), join.rank);
  Seat& seat = seats_[static_cast<size_t>(join.rank)];
  seat.channel = std::move(channel), seat.address = std::move(address);
  if (ranks_.size() == seats_.size()) form();
}

void Coordinator::seat_all(std::vector<ChannelPtr> channels, std::vector<std::string> addresses) {
  for (size_t r = 0; r < seats_.size(); ++r) {
    ranks_.emplace(channels[r].get(), static_cast<int>(r));
    seats_[r].channel = std::move(channels[r]), seats_[r].address = std::move(addresses[r]);
  }
  state_ = State::preparing;
}

void Coordinator::form() {
  state_ = State::preparing;
  Seated seated;
  for (auto& s : seats_) seated.addresses.push_back(s.address);
  for (size_t r = 0; r < seats_.size(); ++r) {
    seated.rank = static_cast<int>(r);
    say(seated.rank, seated);
  }
}

bool Coordinator::all_ready() {
  if (!std::all_of(seats_.begin(), seats_.end(), [](auto& s) { return s.ready; })) return false;
  for (auto& s : seats_) s.ready = false;
  return true;
}

void Coordinator::on_message(Channel& channel, Message m) {
  const auto found = ranks_.find(&channel);
  if (found == ranks_.end() || m.epoch != epoch_ || state_ == State::broken) return;
  const int rank = found->second;
  Seat& seat = seats_[static_cast<size_t>(rank)];
  if (auto* call = std::get_if<Call>(&m.body)) {
    if (state_ != State::formed) return;
    try {
      carry_out(agreement_.call(rank, *call, std::chrono::steady_clock::now()));
    } catch (const Error& e) {
      break_up(Error(Code::unavailable, "rank " + std::to_string(rank) + " breaks the rules: " + e.message()));
    }
  } else if (auto* blob = std::get_if<Blob>(&m.body)) {
    on_blob(seat, std::move(*blob));
  } else if (std::holds_alternative<Connected>(m.body)) {
    on_connected(seat);
  } else if (auto* failed = std::get_if<Failed>(&m.body)) {
    on_failed(rank, failed->error);
  } else if (std::holds_alternative<Leave>(m.body)) {
    seat.channel = nullptr;
    break_up(Error(Code::unavailable, "rank " + std::to_string(rank) + " has left the group"), true);
  }
}

void Coordinator::on_blob(Seat& seat, Blob blob) {
  if (state_ != State::preparing || seat.ready) return;
  seat.blob = std::move(blob.bytes), seat.ready = true;
  if (!all_ready()) return;
  Connect all;
  size_t bytes = 0;
  for (auto& s : seats_) {
    bytes += s.blob.size();
    all.blobs.push_back(std::move(s.blob));
  }
  if (bytes > kMaxBlobs)
    return break_up(Error(Code::too_large, "the addresses of all data planes have " + std::to_string(bytes) +
                                               " bytes together: at most 4 MiB"));
  all.key = random_bytes(kKeyBytes);
  state_ = State::connecting;
  say_all(all);
}

void Coordinator::on_connected(Seat& seat) {
  if (state_ != State::connecting) return;
  seat.ready = true;
  if (!all_ready()) return;
  state_ = State::formed;
  say_all(Formed{});
}

void Coordinator::on_failed(int rank, const Error& e) {
  Seat& seat = seats_[static_cast<size_t>(rank)];
  const bool again = std::exchange(seat.failed, true);  // once a rank, whatever else it had under way
  const std::string text = "rank " + std::to_string(rank) + ": " + e.message();
  if (!again && failures_.size() < kMaxText / 2) failures_ += (failures_.empty() ? "" : "; ") + text;
  failure_code_ = e.code();
  const bool at_once = e.code() != Code::unavailable;
  if (at_once) return break_up(Error(e.code(), failures_));
  if (judged_at_ == Moment::max()) judged_at_ = std::chrono::steady_clock::now() + kJudgement;
}

void Coordinator::on_lost(Channel& channel, const Error& why) {
  const auto found = ranks_.find(&channel);
  if (found == ranks_.end() || state_ == State::broken) return;
  const int rank = found->second;
  Seat& seat = seats_[static_cast<size_t>(rank)];
  if (!seat.channel) return;
  if (state_ == State::gathering && rank != 0) {  // it may come again
    ranks_.erase(found);
    seat = {};
    return;
  }
  seat.channel = nullptr;
  if (seat.failed) return break_up(Error(failure_code_, failures_));  // and has given up for that
  break_up(Error(Code::unavailable,
                 "rank " + std::to_string(rank) + " is gone: its server at " + seat.address + ": " + why.message()));
}

void Coordinator::on_time(Moment now) {
  if (now >= judged_at_) return break_up(Error(failure_code_, failures_));
  switch (state_) {
    case State::broken:
      return;
    case State::formed: {
      if (auto error = agreement_.overdue(now)) return break_up(std::move(*error));
      return carry_out(agreement_.expired(now));
    }
    case State::gathering: {
      if (now < deadline_) return;
      std::vector<int> missing;
      for (size_t r = 0; r < seats_.size(); ++r) {
        if (!seats_[r].channel) missing.push_back(static_cast<int>(r));
      }
      return break_up(
          Error(Code::deadline_exceeded, "waiting for processes to connect has timed out: " + these(missing) + " of " +
                                             std::to_string(seats_.size()) + " did not come within " +
                                             std::to_string(patience_.count()) + " ms"));
    }
    default: {
      if (now < deadline_) return;
      std::vector<int> missing;
      for (size_t r = 0; r < seats_.size(); ++r) {
        if (!seats_[r].ready) missing.push_back(static_cast<int>(r));
      }
      return break_up(Error(Code::deadline_exceeded,
                            "could not establish connection with other processes: the data plane of " + these(missing) +
                                " was not ready within " + std::to_string(patience_.count()) + " ms"));
    }
  }
}

void Coordinator::carry_out(Agreement::Outcome outcome) {
  for (auto& [rank, verdict] : outcome.verdicts) say(rank, std::move(verdict));
  if (outcome.split) split(*outcome.split, outcome.sequence);
}

void Coordinator::split(const std::vector<int>& ranks, uint64_t sequence) {
  const auto child = std::make_shared<Coordinator>(home_, static_cast<int>(ranks.size()), 1, patience_);
  std::vector<ChannelPtr> channels;
  std::vector<std::string> addresses;
  for (const int r : ranks) {
    channels.push_back(seats_[static_cast<size_t>(r)].channel);
    addresses.push_back(seats_[static_cast<size_t>(r)].address);
  }
  child->seat_all(std::move(channels), std::move(addresses));
  home_.keep(child);
  for (int r = 0; r < static_cast<int>(seats_.size()); ++r) {
    Verdict v;
    v.sequence = sequence;
    const auto found = std::find(ranks.begin(), ranks.end(), r);
    if (found != ranks.end()) {
      v.child = child->group_, v.rank = static_cast<int>(found - ranks.begin());
      v.size = static_cast<int>(ranks.size());
    }
    say(r, std::move(v));
  }
}

void Coordinator::break_up(Error error, bool left) {
  if (state_ == State::broken) return;
  const auto self = shared_from_this();  // drop() may let go of the last one
  state_ = State::broken;
  say_all(Broken{std::move(error), left});
  for (auto& s : seats_) s.channel = nullptr;
  home_.drop(*this);
}

}  // namespace gradwire::server::cluster
