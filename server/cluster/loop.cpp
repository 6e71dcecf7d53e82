#include "server/cluster/loop.h"

#include <algorithm>
#include <utility>

#include "server/cluster/joiner.h"

namespace gradwire::server::cluster {

namespace {

constexpr auto kTick = 50 * kj::MILLISECONDS;
constexpr size_t kMaxJoins = 256;     // under way
constexpr size_t kMaxMembers = 1024;  // each has a process of its own
constexpr auto kParting = kj::SECONDS;
constexpr Milliseconds kLastJoins{2000};  // for threads that take a line out of a file

bool yes(const std::string&) { return true; }

template <class T> kj::Promise<T> within(kj::Timer& timer, kj::Duration time, kj::Promise<T> promise) {
  return promise.exclusiveJoin(timer.afterDelay(time).then([]() -> kj::Promise<T> {
    return kj::Exception(kj::Exception::Type::OVERLOADED, __FILE__, __LINE__, kj::str("connect() timed out"));
  }));
}

Moment ago(kj::Duration d) {
  return std::chrono::steady_clock::now() - std::chrono::milliseconds(d / kj::MILLISECONDS);
}

}  // namespace

Loop::Loop(Setup& setup, std::shared_ptr<LoopQueue> queue, std::optional<Listener> listener, kj::AsyncIoContext& io)
    : setup_(setup),
      queue_(std::move(queue)),
      listener_(std::move(listener)),
      io_(io),
      timer_(io.provider->getTimer()),
      joins_(std::make_shared<Joins>(kMaxJoins)) {
  tasks_.add(queue_->serve(io_.unixEventPort));
  if (listener_) {
    tasks_.add(listener_->serve(io_.unixEventPort, timer_,
                                [this](kj::AutoCloseFd fd, const std::string&) { take(kj::mv(fd)); }));
  }
}

Loop::~Loop() noexcept {
  ending_ = true;
  const Error end(Code::unavailable, "the cluster of this server has ended");
  // Each may drop others meanwhile.
  while (!joiners_.empty()) {
    const auto joiner = joiners_.begin()->second;
    joiners_.erase(joiners_.begin());
    joiner->finish(end);
  }
  while (!members_.empty()) {
    const auto member = members_.begin()->second;
    members_.erase(members_.begin());
    member->end(end);
  }
  coordinators_.clear();
  rooms_.clear();
  where_.clear(), inbound_.clear();
  while (queue_->run_all()) {  // channels that have been let go
  }
  joins_->wait_for_none(kLastJoins);  // those that are held up for longer own what they use
}

// ---- who lives here

void Loop::join(JoinOptions options, Answer<GroupPtr> done) {
  if (ending_) return;  // the answer says it
  try {
    std::string backend = options.backend;
    for (char& c : backend) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (backend != "gloo" && backend != "nccl" && backend != "tcp" && backend != "mpi")
      throw Error(Code::bad_argument, "Invalid distributed backend name: " + options.backend.substr(0, kMaxText));
    options.timeout = std::min(options.timeout, kMaxPatience);
    options.backend = backend == "tcp" ? "gloo" : backend;  // which does all that tcp does
    Plan plan = read_init_method(options);
    if (setup_.options.peer.empty())
      throw Error(Code::unavailable, "this server is in no cluster: it was started without --peer");
    if (plan.kind == Plan::Kind::multicast && !setup_.options.multicast)
      throw Error(Code::forbidden, "rendezvous by multicast is off on this server: it was started without --multicast");
    auto ticket = joins_->enter();
    auto plane = make_plane(options.backend);  // throws now rather than when all have come
    const auto joiner = std::make_shared<Joiner>(*this, std::move(options), std::move(plan), std::move(plane),
                                                 std::move(done), std::move(ticket));
    joiners_.emplace(joiner.get(), joiner);
    arm();
    try {
      joiner->start();
    } catch (const Error& e) {
      joiner->finish(e);
    }
  } catch (const Error& e) {
    done(e);
  }
}

std::unique_ptr<DataPlane> Loop::make_plane(const std::string& backend) {
  if (members_.size() >= kMaxMembers) throw Error(Code::overloaded, "this server's sessions are in too many groups");
  auto plane = setup_.options.make_plane ? setup_.options.make_plane(backend, setup_.options.data) : nullptr;
  if (plane) return plane;
  std::string upper = backend;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  throw Error(Code::not_implemented, "Distributed package doesn't have " + upper + " built in");
}

void Loop::keep(std::shared_ptr<Member> m) {
  members_[m.get()] = std::move(m);
  arm();
}
void Loop::keep(std::shared_ptr<Coordinator> c) {
  coordinators_[c->group()] = std::move(c);
  arm();
}
void Loop::drop(Member& m) { members_.erase(&m); }
void Loop::drop(Coordinator& c) { coordinators_.erase(c.group()); }
void Loop::drop(Joiner& j) { joiners_.erase(&j); }

void Loop::after(Milliseconds time, std::function<void()> f) {
  tasks_.add(timer_.afterDelay(time.count() * kj::MILLISECONDS).then([f = std::move(f)] { f(); }));
}

void Loop::arm() {
  if (armed_ || ending_) return;
  armed_ = true;
  tasks_.add(timer_.afterDelay(kTick).then([this] {
    armed_ = false;
    tick();
  }));
}

void Loop::tick() {
  const Moment now = std::chrono::steady_clock::now();
  const auto look = [now](const auto& all) {
    std::vector<typename std::decay_t<decltype(all)>::mapped_type> copies;
    for (auto& [_, one] : all) copies.push_back(one);
    for (auto& one : copies) one->on_time(now);
  };
  look(joiners_), look(members_), look(coordinators_);
  close_rooms();
  const Moment late = ago(setup_.limits.open_time);
  for (auto it = inbound_.begin(); it != inbound_.end() && it->since < late;) {
    Inbound& in = *it++;
    if (!in.seated) erase(in);
  }
  if (!joiners_.empty() || !members_.empty() || !coordinators_.empty() || strangers_ > 0) arm();
}

// ---- links

ChannelPtr Loop::owned(std::unique_ptr<Link> link) {
  // Never destroyed within its own functions, and not before it has written what it was given.
  return ChannelPtr(link.release(), [this, queue = queue_](Channel* c) {
    auto own = std::unique_ptr<Link>(static_cast<Link*>(c));
    own->on_message = nullptr, own->on_end = nullptr;
    queue->post([this, own = std::move(own)]() mutable { retire(std::move(own)); });
  });
}

void Loop::retire(std::unique_ptr<Link> link) {
  if (ending_) return;
  auto finished = link->finish().exclusiveJoin(timer_.afterDelay(kParting));
  tasks_.add(finished.attach(kj::heap<std::unique_ptr<Link>>(std::move(link))));
}

ChannelPtr Loop::dial(const Address& to) {
  const auto& limits = setup_.limits;
  const std::string text = to.text();
  auto connected = io_.provider->getNetwork()
                       .parseAddress(kj::StringPtr(text.c_str(), text.size()))
                       .then([](kj::Own<kj::NetworkAddress> a) {
                         auto connecting = a->connect();
                         return connecting.attach(kj::mv(a));
                       });
  auto opened = within(timer_, limits.dial_time, kj::mv(connected))
                    .then([this, host = to.host](kj::Own<kj::AsyncIoStream> io) -> kj::Promise<Opened> {
                      if (!setup_.tls) return Opened{kj::mv(io), yes};
                      return within(timer_, setup_.limits.open_time, setup_.tls->dial(kj::mv(io), host));
                    });
  auto link = std::make_unique<Link>(kj::mv(opened), limits, timer_, kj::addRef(*pool_));
  link->known();
  return owned(std::move(link));
}

void Loop::take(kj::AutoCloseFd fd) {
  if (inbound_.size() >= setup_.limits.links) return;
  if (strangers_ >= setup_.limits.strangers) {
    // The one that has had the most time: who means it has spoken long before.
    const auto oldest = std::find_if(inbound_.begin(), inbound_.end(), [](auto& in) { return !in.seated; });
    if (oldest != inbound_.end()) erase(*oldest);
  }
  auto io = wire::open_socket(kj::mv(fd), io_.unixEventPort);
  kj::Promise<Opened> opened = setup_.tls ? within(timer_, setup_.limits.open_time, setup_.tls->accept(kj::mv(io)))
                                          : kj::Promise<Opened>(Opened{kj::mv(io), yes});
  auto link = std::make_unique<Link>(kj::mv(opened), setup_.limits, timer_, kj::addRef(*pool_));
  Link* raw = link.get();
  add(owned(std::move(link)), raw);
  arm();
}

Loop::Inbound& Loop::add(ChannelPtr channel, Link* link) {
  Channel& c = *channel;
  inbound_.push_back({std::move(channel), link, std::chrono::steady_clock::now(), std::nullopt, false});
  where_[&c] = std::prev(inbound_.end());
  ++strangers_;
  c.on_message = [this, &c](Message m) { heard(c, std::move(m)); };
  c.on_end = [this, &c](const Error& why) { lost(c, why); };
  return inbound_.back();
}

void Loop::erase(Inbound& in) {
  const auto found = where_.find(in.channel.get());
  const auto it = found->second;
  where_.erase(found);
  if (!it->seated) --strangers_;
  it->channel->on_message = nullptr, it->channel->on_end = nullptr;
  inbound_.erase(it);
}

void Loop::lost(Channel& channel, const Error& why) {
  std::vector<std::shared_ptr<Coordinator>> all;
  for (auto& [_, c] : coordinators_) all.push_back(c);
  for (auto& c : all) c->on_lost(channel, why);
  if (const auto found = where_.find(&channel); found != where_.end()) erase(*found->second);
}

void Loop::refuse(Inbound& in, Error error) {
  in.channel->send({0, 0, Broken{std::move(error)}});
  erase(in);
}

void Loop::heard(Channel& channel, Message m) {
  const auto found = where_.find(&channel);
  if (found == where_.end()) return;
  Inbound& in = *found->second;
  if (in.seated) {
    const auto group = coordinators_.find(m.group);
    if (group == coordinators_.end()) return;  // it has broken meanwhile
    const auto coordinator = group->second;
    return coordinator->on_message(channel, std::move(m));
  }
  if (const auto* hello = std::get_if<Hello>(&m.body); hello && !in.address) return say_hello(in, *hello);
  if (const auto* join = std::get_if<Join>(&m.body); join && in.address) return seat(in, *join);
  refuse(in, Error(Code::bad_request, "a link begins with hello and join"));
}

void Loop::say_hello(Inbound& in, const Hello& hello) {
  if (hello.max_version < kMinVersion || hello.min_version > kMaxVersion) {
    return refuse(in, Error(Code::bad_request, "this server speaks versions " + std::to_string(kMinVersion) + " to " +
                                                   std::to_string(kMaxVersion) + " among servers, the other " +
                                                   std::to_string(hello.min_version) + " to " +
                                                   std::to_string(hello.max_version)));
  }
  try {
    const Address a = parse_address(hello.address);
    if (in.link && !in.link->is(a.host)) {
      return refuse(in, Error(Code::unauthenticated,
                              "the certificate of the server at " + hello.address + " has not the name " + a.host));
    }
    in.address = hello.address;
  } catch (const Error& e) {
    refuse(in, e);
  }
}

void Loop::seat(Inbound& in, const Join& join) {
  close_rooms();
  const auto room = rooms_.find(join.meeting);
  const auto coordinator = room == rooms_.end() ? nullptr : room->second.coordinator.lock();
  if (!coordinator || !coordinator->is_gathering()) {
    in.channel->send({0, 0, Retry{}});
    return erase(in);
  }
  in.seated = true, --strangers_;
  if (in.link) in.link->known();
  coordinator->seat(join, in.channel, *in.address);
}

// ---- groups that meet here

ChannelPtr Loop::host(const std::string& meeting, int world_size, Milliseconds patience,
                      const std::optional<Address>& at, std::optional<std::weak_ptr<const void>> asker) {
  close_rooms();
  const std::string own = setup_.advertise.text();
  if (rooms_.contains(meeting))
    throw Error(Code::group_mismatch, "two processes (" + own + ", " + own + ") reported a rank of 0");
  std::unique_ptr<Listener> listener;
  if (at && at->port != setup_.listen.port && at->text() != own) {
    Address there = *at;
    const bool numeric = there.host.find(':') != std::string::npos ||
                         (!there.host.empty() && there.host.find_first_not_of("0123456789.") == std::string::npos);
    // A name stands for an address of this server, or of what leads to it.
    if (!numeric && there.host != "localhost") there.host = setup_.listen.host;
    if (!setup_.tls && !setup_.options.insecure_no_tls && !there.is_loopback())
      throw Error(Code::bad_argument, "rank 0 cannot listen at " + there.text() +
                                          ", which is reachable from other machines, without --tls-cert, --tls-key "
                                          "and --tls-ca");
    listener = std::make_unique<Listener>(Listener::tcp(there.text()));
  }
  const auto coordinator = std::make_shared<Coordinator>(*this, world_size, 1, patience);
  keep(coordinator);
  Room& room = rooms_[meeting];
  room.coordinator = coordinator, room.asker = std::move(asker);
  if (listener) {
    room.listener = std::move(listener);
    room.listening =
        room.listener
            ->serve(io_.unixEventPort, timer_, [this](kj::AutoCloseFd fd, const std::string&) { take(kj::mv(fd)); })
            .eagerlyEvaluate(nullptr);
  }
  auto [member, host] = make_pipe([queue = queue_](std::function<void()> f) { queue->post(std::move(f)); });
  // Seated before anybody else is heard: whatever breaks the group, this member is told.
  Inbound& in = add(std::move(host), nullptr);
  in.address = own, in.seated = true, --strangers_;
  coordinator->seat({meeting, world_size, 0}, in.channel, own);
  return std::move(member);
}

void Loop::close_rooms() {
  std::erase_if(rooms_, [](auto& r) {
    const auto coordinator = r.second.coordinator.lock();
    if (!coordinator || !coordinator->is_gathering()) return true;
    // Whoever is seated there, and whoever came now, would go down with the rank 0 that nobody waits for.
    if (!r.second.asker || !r.second.asker->expired()) return false;
    coordinator->break_up(Error(Code::cancelled, "rank 0 waits for the group no longer"));
    return true;
  });
}

}  // namespace gradwire::server::cluster
