#include "server/cluster/link.h"

#include <capnp/serialize.h>

#include <cstring>
#include <utility>

#include "server/cluster/message_wire.h"

namespace gradwire::server::cluster {

namespace {

capnp::ReaderOptions reader_options() {
  capnp::ReaderOptions o;
  o.traversalLimitInWords = (16 << 20) / sizeof(capnp::word);
  o.nestingLimit = 16;
  return o;
}

bool says(const kj::Exception& e, const char* words) {
  return std::strstr(e.getDescription().cStr(), words) != nullptr;
}

}  // namespace

std::string words(const kj::Exception& e) {
  if (says(e, "refused")) return "connection refused";
  if (says(e, "timed out")) return "connect() timed out";
  if (says(e, "unreachable") || says(e, "No route")) return "there is no route to it";
  if (says(e, "DNS") || says(e, "getaddrinfo")) return "the name cannot be resolved";
  if (says(e, "reset")) return "connection reset by peer";
  if (says(e, "certificate") || says(e, "TLS") || says(e, "SSL") || says(e, "OpenSSL"))
    return "TLS: the certificates do not fit, or the other side speaks no TLS";
  return "the connection is broken";
}

class Link::Guarded final : public wire::Stream {
 public:
  using Stream::set_limits;
  using Stream::Stream;
};

Link::Link(kj::Promise<Opened> opening, const LinkLimits& limits, kj::Timer& timer, kj::Own<wire::BlockPool> pool)
    : limits_(limits), timer_(timer), pool_(kj::mv(pool)) {
  running_ = opening
                 .then([this](Opened o) {
                   open(kj::mv(o));
                   return read();
                 })
                 .then([this] { ended(Error(Code::unavailable, "the connection is closed")); },
                       [this](kj::Exception&& e) {
                         const auto why = stream_.get() ? stream_->rejected() : std::nullopt;
                         ended(Error(Code::unavailable,
                                     why ? std::string("it was given up (") + wire::name(*why) + ")" : words(e)));
                       })
                 .eagerlyEvaluate(nullptr);
}

Link::~Link() noexcept {
  // What runs refers to the stream, and the stream to the socket.
  running_ = nullptr, pinging_ = nullptr, failing_ = nullptr;
}

void Link::open(Opened o) {
  is_ = std::move(o.is);
  io_ = kj::mv(o.io);
  stream_ = kj::heap<Guarded>(*io_, known_ ? limits_.known : limits_.stranger, kj::mv(pool_), timer_);
  stream_->carries_rpc = false;
  failing_ = stream_->failure()
                 .then([this] {
                   const auto why = stream_->rejected();
                   ended(Error(Code::unavailable, why ? std::string("it was given up (") + wire::name(*why) + ")"
                                                      : "the connection is broken"));
                 })
                 .eagerlyEvaluate(nullptr);
  pinging_ = ping().eagerlyEvaluate(nullptr);
  for (auto& m : std::exchange(early_, {})) send(std::move(m));
}

void Link::known() {
  known_ = true;
  if (stream_.get()) stream_->set_limits(limits_.known);
}

kj::Promise<void> Link::read() {
  return stream_->tryReadMessage(reader_options())
      .then([this](kj::Maybe<kj::Own<capnp::MessageReader>> got) -> kj::Promise<void> {
        KJ_IF_MAYBE (reader, got) {
          if (ended_) return kj::READY_NOW;
          try {
            Message m = cluster::read((*reader)->getRoot<wire::PeerMessage>());
            if (!std::holds_alternative<Ping>(m.body) && on_message) {
              const auto call = on_message;  // may be changed by what it does
              call(std::move(m));
            }
          } catch (const Error& e) {
            ended(Error(Code::unavailable, e.message()));
            return kj::READY_NOW;
          }
          return read();
        }
        return kj::READY_NOW;
      });
}

kj::Promise<void> Link::ping() {
  return timer_.afterDelay(limits_.ping_every).then([this] {
    if (known_) send({0, 0, Ping{}});  // a stranger hears nothing
    return ping();
  });
}

void Link::send(Message m) {
  if (ended_) return;
  if (!stream_.get()) return early_.push_back(std::move(m));
  // The stream counts what it has copied; what it writes in place, who gave it.
  if (stream_->queued() + in_place_ > limits_.known.queued_bytes) {
    failing_ = kj::evalLater([this] {
                 ended(Error(Code::unavailable, "it does not read what it is sent"));
               }).eagerlyEvaluate(nullptr);
    return;
  }
  auto builder = kj::heap<capnp::MallocMessageBuilder>();
  write(builder->initRoot<wire::PeerMessage>(), m);
  auto& b = *builder;
  const size_t bytes = capnp::computeSerializedSizeInWords(b) * sizeof(capnp::word);
  in_place_ += bytes;
  writes_.add(stream_->writeMessage(b).attach(kj::defer([this, bytes] { in_place_ -= bytes; }), kj::mv(builder)));
}

kj::Promise<void> Link::finish() {
  if (!stream_.get() || ended_) return kj::READY_NOW;
  ended_ = true;
  on_message = nullptr, on_end = nullptr;
  return stream_->end().catch_([](kj::Exception&&) {});
}

void Link::ended(Error why) {
  if (ended_) return;
  ended_ = true;
  if (on_end) {
    const auto call = std::exchange(on_end, nullptr);
    call(std::move(why));
  }
}

// ---- within this server

namespace {

struct Pipe {
  std::function<void(std::function<void()>)> later;
  Channel* ends[2] = {nullptr, nullptr};
};

class PipeEnd final : public Channel {
 public:
  PipeEnd(std::shared_ptr<Pipe> pipe, int side) : pipe_(std::move(pipe)), side_(side) { pipe_->ends[side_] = this; }
  ~PipeEnd() override {
    pipe_->ends[side_] = nullptr;
    pipe_->later([pipe = pipe_, other = 1 - side_] {
      Channel* end = pipe->ends[other];
      if (end && end->on_end) {
        const auto call = std::exchange(end->on_end, nullptr);
        call(Error(Code::unavailable, "it has ended"));
      }
    });
  }
  void send(Message m) override {
    pipe_->later([pipe = pipe_, other = 1 - side_, m = std::move(m)]() mutable {
      Channel* end = pipe->ends[other];
      if (!end || !end->on_message) return;
      const auto call = end->on_message;
      call(std::move(m));
    });
  }

 private:
  std::shared_ptr<Pipe> pipe_;
  const int side_;
};

}  // namespace

std::pair<ChannelPtr, ChannelPtr> make_pipe(std::function<void(std::function<void()>)> later) {
  const auto pipe = std::make_shared<Pipe>();
  pipe->later = std::move(later);
  return {std::make_shared<PipeEnd>(pipe, 0), std::make_shared<PipeEnd>(pipe, 1)};
}

}  // namespace gradwire::server::cluster
