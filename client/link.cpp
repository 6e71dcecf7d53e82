// What any thread asks of a Link.
#include "client/link.h"

#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "client/link_impl.h"

namespace gradwire::client {

std::shared_ptr<Link> Link::connect(const std::string& address, const ConnectOptions& options) {
  std::shared_ptr<Link> link(new Link);
  link->self_ = link;
  link->address_ = address;
  link->options_ = options;
  link->impl_ = std::make_shared<Impl>();
  link->impl_->event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (link->impl_->event_ < 0)
    raise(Error(Code::unavailable, std::string("cannot make an eventfd: ") + std::strerror(errno)));
  auto ready = std::make_shared<Answer<std::vector<uint16_t>>>();
  // The program's signals are for its own threads, which inherit nothing from this.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  link->thread_ = std::thread([impl = link->impl_, address, options, ready] { impl->run(address, options, *ready); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  try {
    link->operators_ = ready->wait({}, "connecting");
  } catch (...) {
    link->thread_.join();
    throw;
  }
  return link;
}

Link::~Link() {
  if (!thread_.joinable()) return;
  auto* impl = impl_.get();
  impl_->post([impl] { impl->stopping_ = true; });
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
}

void Link::wake(Core& core) {
  auto strong = core.weak_from_this().lock();
  if (!strong) return;
  bool finished;
  {
    std::lock_guard lock(impl_->mutex_);
    finished = impl_->finished_;
    auto& dirty = impl_->dirty_;
    if (finished) {
      dirty.clear();
    } else if (std::none_of(dirty.begin(), dirty.end(), [&](auto& d) { return d.get() == &core; })) {
      dirty.push_back(std::move(strong));
    }
  }
  if (finished) return core.broken(impl_->dead_);
  impl_->ring();
}

std::shared_ptr<Core> Link::open(const SessionOptions& o) {
  struct Opened {
    uint64_t remote;
    std::string id;
  };
  auto answer = std::make_shared<Answer<Opened>>();
  auto* impl = impl_.get();
  impl->post([impl, o, answer] {
    if (impl->refused(answer)) return;
    auto request = impl->gate_->openRequest();
    auto options = request.initOptions();
    options.setDevice(text(o.device)), options.setName(text(o.name));
    options.setDtype(static_cast<uint8_t>(o.dtype));
    if (o.seed) options.setHasSeed(true), options.setSeed(*o.seed);
    options.setMemoryLimit(o.memory_limit), options.setTtlSeconds(o.ttl.count());
    auto compat = options.initCompat(static_cast<uint32_t>(o.compat.size()));
    for (uint32_t i = 0; i < compat.size(); ++i) compat.set(i, text(o.compat[i]));
    impl->ask(request.send(), answer, [impl, answer](auto& response) {
      const uint64_t id = ++impl->last_remote_;
      impl->remotes_.emplace(id, Remote{response.getSession()});
      answer->set({id, text(response.getId())});
    });
  });
  const Opened opened = answer->wait(options_.timeout, "opening a session");
  auto core = std::make_shared<Core>(self_.lock(), opened.id, o.dtype, options_.timeout);
  core->remote = opened.remote;
  auto linked = std::make_shared<Answer<bool>>();
  impl->post([impl, weak = std::weak_ptr<Core>(core), id = opened.remote, linked] {
    if (Remote* r = impl->find(id)) r->core = weak;
    if (const auto c = weak.lock(); c && impl->dead_) c->broken(impl->dead_);
    linked->set(true);
  });
  linked->wait({}, "opening a session");
  return core;
}

uint64_t Link::upload(Core& core, DType dtype, std::span<const int64_t> shape, std::span<const std::byte> bytes,
                      Timeout timeout) {
  auto u = std::make_shared<Upload>();
  u->bytes = bytes;
  auto* impl = impl_.get();
  impl->post([impl, id = core.remote, dtype, shape = Shape(shape), u] {
    impl->uploads_.insert(u);
    if (impl->refused(u->answer)) return;
    Remote* r = impl->find(id);
    if (!r) return u->answer->fail(Error(Code::closed, "Attempted to use a closed Session."));
    auto request = r->session.reserveRequest();
    request.setDtype(static_cast<uint8_t>(dtype));
    auto dims = request.initShape(static_cast<uint32_t>(shape.size()));
    for (uint32_t i = 0; i < dims.size(); ++i) dims.set(i, shape[i]);
    impl->ask(request.send(), u->answer, [impl, id, u](auto& response) {
      u->number = response.getUpload();
      if (response.getSize() != u->bytes.size())
        u->answer->fail(Error(Code::internal, "the server made room of another size"));
      else
        impl->write(id, u);
    });
  });
  try {
    return u->answer->wait(timeout, "an upload");
  } catch (const Error&) {
    impl->post([impl, u] { impl->give_up(u); });
    u->over->wait({}, "an upload");
    throw;
  }
}

void Link::close(Core& core, Timeout timeout) {
  auto answer = std::make_shared<Answer<bool>>();
  auto* impl = impl_.get();
  impl->post([impl, id = core.remote, answer] {
    Remote* r = impl->find(id);
    if (!r || impl->dead_) return answer->set(true);
    impl->ask(r->session.closeRequest().send(), answer, [impl, id, answer](auto&) {
      impl->remotes_.erase(id);
      answer->set(true);
    });
  });
  answer->wait(timeout, "closing the session");
}

void Link::settle() noexcept {
  try {
    auto answer = std::make_shared<Answer<bool>>();
    auto* impl = impl_.get();
    impl->post([impl, answer] {
      impl->settling_.push_back(answer);
      impl->settle();
    });
    answer->wait(std::chrono::seconds(2), "the last calls");
  } catch (...) {  // no memory, or the server takes its time: the connection ends without them
  }
}

void Link::forget(uint64_t remote) noexcept {
  try {
    auto* impl = impl_.get();
    impl->post([impl, remote] { impl->leave(remote); });
  } catch (...) {  // no memory: the session ends with the connection
  }
}

ServerInfo Link::info() {
  auto answer = std::make_shared<Answer<ServerInfo>>();
  auto* impl = impl_.get();
  impl->post([impl, answer] {
    if (impl->refused(answer)) return;
    impl->ask(impl->gate_->infoRequest().send(), answer, [answer](auto& response) {
      const auto i = response.getInfo();
      ServerInfo info;
      info.version = text(i.getVersion());
      for (const auto d : i.getDevices()) info.devices.push_back(text(d));
      info.catalogue_hash = i.getCatalogueHash(), info.threads = i.getThreads(), info.lanes = i.getLanes();
      answer->set(std::move(info));
    });
  });
  return answer->wait(options_.timeout, "info");
}

std::vector<SessionInfo> Link::sessions() {
  auto answer = std::make_shared<Answer<std::vector<SessionInfo>>>();
  auto* impl = impl_.get();
  impl->post([impl, answer] {
    if (impl->refused(answer)) return;
    impl->ask(impl->gate_->sessionsRequest().send(), answer, [answer](auto& response) {
      std::vector<SessionInfo> all;
      for (const auto s : response.getSessions())
        all.push_back({text(s.getId()), text(s.getName()), text(s.getDevice()), s.getTensors(), s.getBytes(),
                       s.getMemoryLimit(), s.getOpsRun(), s.getAgeSeconds(), s.getPeakBytes()});
      answer->set(std::move(all));
    });
  });
  return answer->wait(options_.timeout, "listing the sessions");
}

std::string Link::run_json(const std::string& program) {
  auto answer = std::make_shared<Answer<std::string>>();
  auto* impl = impl_.get();
  impl->post([impl, program, answer] {
    if (impl->refused(answer)) return;
    auto request = impl->gate_->runJsonRequest();
    request.setProgram(text(program));
    impl->ask(request.send(), answer, [answer](auto& response) { answer->set(text(response.getAnswer())); });
  });
  return answer->wait(options_.timeout, "the program");
}

}  // namespace gradwire::client
