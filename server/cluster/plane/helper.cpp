#include "server/cluster/plane/helper.h"

#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "server/cluster/data_plane.h"

namespace gradwire::server::cluster {
namespace plane {

namespace {

Terms terms_of(const Order& o) { return {o.what, o.op, o.dtype, o.count, o.root}; }

}  // namespace

int Helper::run() {
  try {
    while (!over_) {
      if (!waiting_.empty()) {
        const Order o = waiting_.front();
        waiting_.pop_front();
        collective(o);
      } else if (transport_) {
        transport_->deadline = Transport::Time::max();
        current_ = 0;
        transport_->progress();
      } else {
        pollfd p{socket_, POLLIN, 0};
        if (::poll(&p, 1, -1) > 0) read_orders();
      }
    }
    return 0;
  } catch (const Error& e) {
    refuse(current_, e.code(), e.message());
  } catch (const std::exception& e) {
    refuse(current_, Code::unavailable, std::string("data plane: ") + e.what());
  }
  return 1;
}

void Helper::read_orders() {
  for (;;) {
    Order o;
    Fd descriptor;
    const int got = take_packet(socket_, &o, sizeof o, &descriptor);
    if (got == 0) return;
    if (got < 0) {
      over_ = true;
      // Nobody waits for what is under way.
      if (transport_) transport_->deadline = {};
      return;
    }
    take(o, std::move(descriptor));
  }
}

void Helper::take(const Order& o, Fd descriptor) {
  const uint64_t before = current_;
  const bool early = o.step == Step::peer || o.step == Step::connect, late = o.step == Step::run;
  if (early || late || o.step == Step::prepare) current_ = o.id;
  if (o.step > Step::run || (o.step == Step::prepare && mesh_) || (early && (!mesh_ || transport_)) ||
      (late && !transport_)) {
    throw Error(Code::internal, "data plane: an order out of turn");
  }
  switch (o.step) {
    case Step::prepare:
      prepare(o);
      break;
    case Step::peer:
      if (o.rank < 0 || o.rank >= size_) throw Error(Code::internal, "data plane: the address of no rank");
      addresses_[static_cast<size_t>(o.rank)] = text_of(o);
      break;
    case Step::connect:
      connect(o);
      break;
    case Step::map:
      areas_.add(o.area, std::move(descriptor), Maps::Use::write);
      break;
    case Step::unmap:
      areas_.drop(o.area);
      if (transport_) transport_->dropped(o.area);
      break;
    case Step::run:
      if (auto error = wrong(terms_of(o), o.pairwise, rank_, size_)) throw *error;
      if (o.pairwise)
        start_pairwise(o);
      else
        waiting_.push_back(o);
      break;
  }
  current_ = before;  // maybe a collective that is under way
}

void Helper::prepare(const Order& o) {
  if (o.size < 1 || o.size > kMaxRanks || o.rank < 0 || o.rank >= o.size) {
    throw Error(Code::bad_argument, "data plane: rank " + std::to_string(o.rank) + " of " + std::to_string(o.size));
  }
  rank_ = o.rank, size_ = o.size;
  addresses_.resize(static_cast<size_t>(size_));
  mesh_ = std::make_unique<Mesh>(rank_, size_);
  answer(o.id, -1, mesh_->listen(text_of(o), o.first_port, o.last_port));
}

void Helper::connect(const Order& o) {
  std::string key = text_of(o);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(o.timeout_ms);
  auto connections = mesh_->connect(addresses_, key, deadline);
  OPENSSL_cleanse(key.data(), key.size());
  transport_ = std::make_shared<Transport>(rank_, size_, std::move(connections), areas_, socket_);
  transport_->on_control = [this] { read_orders(); };
  transport_->on_progress = [this] { finish_pairwise(); };
  context_ = std::make_shared<TransportContext>(transport_);
  answer(o.id, -1);
}

char* Helper::memory_of(const Order& o, size_t bytes) {
  if (!bytes) return nullptr;
  char* data = areas_.at(o.area, 0, bytes);
  if (!data) throw Error(Code::internal, "data plane: the area is smaller than its tensors");
  return data;
}

void Helper::start_pairwise(const Order& o) {
  const size_t bytes = bytes_of(terms_of(o), rank_, size_);
  char* data = memory_of(o, bytes);
  Pairwise p{o.id, o.root, o.what == Collective::send, transport_->createUnboundBuffer(data, bytes)};
  if (p.sends) {
    p.buffer->send(o.root, Transport::pairwise_slot(o.tag), 0, bytes);
  } else {
    p.buffer->recv(o.root, Transport::pairwise_slot(o.tag), 0, bytes);
  }
  pairwise_.push_back(std::move(p));
  finish_pairwise();
}

void Helper::finish_pairwise() {
  for (auto p = pairwise_.begin(); p != pairwise_.end();) {
    auto& b = static_cast<Transport::Buffer&>(*p->buffer);
    if (p->sends ? b.sent() : b.received()) {
      answer(p->id, p->sends ? -1 : p->rank);
      p = pairwise_.erase(p);
      continue;
    }
    try {
      b.check();
    } catch (...) {
      current_ = p->id;
      throw;
    }
    ++p;
  }
}

void Helper::collective(const Order& o) {
  current_ = o.id;
  const Terms terms = terms_of(o);
  const size_t bytes = bytes_of(terms, rank_, size_);
  transport_->deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(o.timeout_ms);
  const uint32_t sequence = sequence_++;
  if (size_ > 1 && (bytes || terms.what == Collective::barrier))
    run_collective(context_, terms, sequence, memory_of(o, bytes));
  answer(o.id, -1);
}

void Helper::answer(uint64_t id, int rank, std::string_view text) {
  Answer a;
  a.id = id, a.rank = rank;
  set_text(a, text);
  if (send_packet(socket_, &a, sizeof a, -1) == Sent::gone) over_ = true;
}

void Helper::refuse(uint64_t id, Code code, std::string_view text) {
  Answer a;
  a.id = id, a.failed = 1, a.code = code;
  set_text(a, text);
  send_packet(socket_, &a, sizeof a, -1);
}

}  // namespace plane

int data_plane_helper() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the end of its socket says the same to a helper that runs
  ::prctl(PR_SET_NAME, "gradwire-plane");
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(SIGPIPE, SIG_IGN);
  return plane::Helper(3).run();
}

}  // namespace gradwire::server::cluster
