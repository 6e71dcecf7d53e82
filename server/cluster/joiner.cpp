#include "server/cluster/joiner.h"

#include <algorithm>

namespace gradwire::server::cluster {

namespace {

constexpr Milliseconds kMaxPause{1000};
constexpr Milliseconds kGrace{150};  // past the deadline, for the host to say who is missing

std::string hex_id() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : random_bytes(16)) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4], out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace

Joiner::Joiner(Loop& loop, JoinOptions options, Plan plan, std::unique_ptr<DataPlane> plane, Answer<GroupPtr> done,
               Joins::Ticket ticket)
    : loop_(loop),
      options_(std::move(options)),
      plan_(std::move(plan)),
      plane_(std::move(plane)),
      done_(std::move(done)),
      ticket_(std::move(ticket)),
      deadline_(std::chrono::steady_clock::now() + options_.timeout) {}

void Joiner::start() {
  if (plan_.kind != Plan::Kind::tcp) return meet();
  const std::string meeting = "tcp:" + std::to_string(plan_.address.port) + ":" + options_.group_name;
  if (plan_.rank == 0) return host(meeting, plan_.address);
  meeting_ = meeting, there_ = plan_.address;
  dial();
}

void Joiner::meet() {
  const Guest self{hex_id(), plan_.rank, plan_.world_size, loop_.setup().advertise.text()};
  auto done = Done<Result<Met>>([queue = loop_.queue(), weak = weak_from_this()](Result<Met> r) {
    queue->post([weak, r = std::move(r)]() mutable {
      if (const auto self = weak.lock()) self->met(std::move(r));
    });
  });
  if (plan_.kind == Plan::Kind::file) {
    place_ = meet_in_file(plan_.path, options_.group_name, self, deadline_, std::move(done), ticket_);
  } else {
    place_ = meet_by_multicast(plan_.address, loop_.setup().listen.host, options_.group_name, self, deadline_,
                               std::move(done), ticket_);
  }
}

void Joiner::met(Result<Met> r) {
  if (!done_) return;
  if (!r) return finish(r.error());
  plan_.rank = r->rank;
  // Only the guests know the id of their host.
  if (plan_.rank == 0) return host("met:" + r->host_id, std::nullopt);
  try {
    there_ = parse_address(r->host_address);
  } catch (const Error& e) {
    return finish(e);
  }
  meeting_ = "met:" + r->host_id;
  dial();
}

void Joiner::host(const std::string& meeting, const std::optional<Address>& at) {
  try {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline_ - std::chrono::steady_clock::now());
    listen_to(loop_.host(meeting, plan_.world_size, std::max(left, Milliseconds(1)), at, options_.asker));
  } catch (const Error& e) {
    finish(e);
  }
}

void Joiner::dial() {
  if (!done_) return;
  listen_to(loop_.dial(there_));
  channel_->send({0, 0, Hello{kMinVersion, kMaxVersion, loop_.setup().advertise.text()}});
  channel_->send({0, 0, Join{meeting_, plan_.world_size, plan_.rank}});
}

void Joiner::listen_to(ChannelPtr channel) {
  channel_ = std::move(channel);
  channel_->on_message = [weak = weak_from_this()](Message m) {
    if (const auto self = weak.lock()) self->heard(std::move(m));
  };
  channel_->on_end = [weak = weak_from_this()](const Error& why) {
    if (const auto self = weak.lock()) self->again(why.message());
  };
}

void Joiner::heard(Message m) {
  if (!done_) return;
  if (std::holds_alternative<Retry>(m.body)) return again("rank 0 is not there yet");
  if (auto* broken = std::get_if<Broken>(&m.body)) return finish(broken->error);
  if (auto* s = std::get_if<Seated>(&m.body)) seated(m, *s);
}

void Joiner::again(const std::string& problem) {
  if (!done_) return;
  problem_ = problem;
  channel_ = nullptr;
  if (problem.starts_with("TLS"))
    return finish(Error(Code::unauthenticated,
                        "could not establish connection with other processes: " + there_.text() + ": " + problem));
  if (plan_.rank == 0) return finish(Error(Code::unavailable, "could not host the group: " + problem));
  const auto now = std::chrono::steady_clock::now();
  if (now + pause_ >= deadline_) return;  // on_time() has the last word
  loop_.after(pause_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->dial();
  });
  pause_ = std::min(2 * pause_, kMaxPause);
}

void Joiner::seated(const Message& m, const Seated& s) {
  const auto line = std::make_shared<Line>(Line{std::move(channel_), {}});
  route(line);
  const Member::Place place{m.group,          m.epoch,          s.rank,   static_cast<int>(s.addresses.size()),
                            options_.backend, options_.timeout, "rank 0", options_.asker};
  auto done = std::move(done_);
  // What was needed to meet stays until the others have met as well: the group forms then, or fails.
  Member::begin(loop_, line, place, std::move(plane_), deadline_,
                Answer<GroupPtr>([self = shared_from_this(), done = std::move(done)](Result<GroupPtr> r) mutable {
                  done(std::move(r));
                  self->loop_.drop(*self);
                }));
}

void Joiner::on_time(Moment now) {
  if (done_ && options_.abandoned()) return finish(Error(Code::cancelled, "nobody waits for the group any more"));
  if (!done_ || now < deadline_) return;
  if (place_ && !channel_ && meeting_.empty()) {
    if (now >= deadline_ + kMaxPause)
      finish(Error(Code::deadline_exceeded, "waiting for processes to connect has timed out"));
    return;  // the meeting says who is there
  }
  if (channel_ && now < deadline_ + kGrace) return;
  const std::string after = " within " + std::to_string(options_.timeout.count()) + " ms";
  if (channel_ && channel_->is_open())
    return finish(Error(Code::deadline_exceeded, "waiting for processes to connect has timed out" + after));
  finish(Error(Code::deadline_exceeded,
               "could not establish connection with other processes" + after + ": " + there_.text() + ": " + problem_));
}

void Joiner::finish(Result<GroupPtr> r) {
  if (!done_) return;
  const auto self = shared_from_this();
  auto done = std::move(done_);
  channel_ = nullptr, place_ = nullptr;
  loop_.drop(*this);
  done(std::move(r));
}

}  // namespace gradwire::server::cluster
