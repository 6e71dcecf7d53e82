#include "server/service.h"

#include <sys/random.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>

#include "server/memory_limit.h"
#include "server/session.h"

namespace gradwire::server {
namespace {

constexpr const char* kVersion = "0.1.0";
constexpr int64_t kMaxTtl = 7 * 24 * 3600;  // seconds
constexpr size_t kNameBytes = 255;

/// Random bytes in hex, from the kernel.
std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  for (size_t have = 0; have < bytes;) {
    const ssize_t n = getrandom(raw.data() + have, bytes - have, 0);
    if (n < 0 && errno != EINTR) throw Error(Code::unavailable, "the system gives no random numbers");
    if (n > 0) have += static_cast<size_t>(n);
  }
  std::string hex;
  for (const unsigned char c : raw) hex += "0123456789abcdef"[c >> 4], hex += "0123456789abcdef"[c & 15];
  return hex;
}
uint64_t random_bits() { return std::stoull(random_hex(8), nullptr, 16); }

/// The sessions by id. Shared with them, so that one that ends can take itself off.
struct Registry {
  struct Held {
    SessionPtr session;
    int64_t promised;
  };
  std::mutex mutex;
  std::unordered_map<std::string, Held> sessions;
  int64_t promised = 0;  // sum of the limits that were asked for
  bool closed = false;
};

}  // namespace

struct Service::Impl {
  const Options options;
  const std::shared_ptr<Shared> keep;
  Shared& shared = *keep;
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  std::atomic<bool> draining{false};

  Impl(const Options& o, Executor& x, Clock& c, Metrics& m)
      : options(o),
        keep(std::make_shared<Shared>(x, c, m, o.server_memory > 0 ? o.server_memory : memory_limit() / 10 * 8)) {}

  SessionOptions checked(SessionOptions o) const {
    if (o.device.empty()) o.device = options.device;
    if (o.device != options.device)
      throw Error(Code::bad_argument,
                  "the device '" + o.device + "' is not served here; this server has '" + options.device + "'");
    if (o.name.size() > kNameBytes) throw Error(Code::bad_argument, "a session's name has at most 255 bytes");
    if (!is_floating(o.dtype))
      throw Error(Code::bad_argument, "only floating-point types are supported as the default type");
    if (o.memory_limit < 0 || o.ttl_seconds < 0)
      throw Error(Code::bad_argument, "memory_limit and ttl_seconds are not negative");
    if (o.ttl_seconds > kMaxTtl) throw Error(Code::bad_argument, "ttl_seconds is at most " + std::to_string(kMaxTtl));
    if (o.ttl_seconds == 0) o.ttl_seconds = options.ttl_seconds;
    for (const auto& c : o.compat) engine::compat_flag(c);
    return o;
  }
};

Service::Service(const Options& o, Executor& x, Clock& c, Metrics& m) : impl_(std::make_unique<Impl>(o, x, c, m)) {}

Service::~Service() {
  std::vector<SessionPtr> all;
  {
    const std::lock_guard lock(impl_->registry->mutex);
    impl_->registry->closed = true;
    for (auto& [_, held] : impl_->registry->sessions) all.push_back(held.session);
  }
  for (auto& s : all) {
    core_of(*s).reason = "shutdown";
    s->close(Done<Result<void>>([](Result<void>) {}));
  }
}

Result<SessionPtr> Service::open(const SessionOptions& asked) {
  Impl& m = *impl_;
  try {
    if (draining()) return Error(Code::draining, "the server is shutting down");
    SessionOptions o = m.checked(asked);
    const int64_t promise = o.memory_limit;
    if (o.memory_limit == 0) o.memory_limit = std::min(m.options.session_memory, m.shared.server_memory);
    auto core = std::make_shared<Core>(m.keep, o);
    core->id = random_hex(16), core->secret = random_hex(32);
    core->state =
        std::make_unique<State>(engine::make_backend(o.device), engine::Limits{o.memory_limit, m.options.session_nodes},
                                m.options.session_tensors, random_bits());
    engine::Context& cx = core->state->cx;
    core->state->groups = std::make_unique<Groups>(*core);
    cx.exchange = core->state->groups.get();
    cx.default_dtype = o.dtype;
    cx.generator.seed = o.seed ? *o.seed : random_bits();
    for (const auto& c : o.compat) cx.compat.*engine::compat_flag(c) = true;
    core->on_close = [weak = std::weak_ptr(m.registry), &core = *core] {
      const auto registry = weak.lock();
      if (!registry) return;
      SessionPtr last;  // dies outside of the lock
      const std::lock_guard lock(registry->mutex);
      const auto found = registry->sessions.find(core.id);
      if (found == registry->sessions.end()) return;
      registry->promised -= found->second.promised;
      last = std::move(found->second.session);
      registry->sessions.erase(found);
      core.shared.metrics.add(Metric::sessions, -1);
      core.shared.metrics.add(Metric::sessions_closed, core.reason.load());
    };
    SessionPtr session = make_session(core);
    {
      Registry& r = *m.registry;
      const std::lock_guard lock(r.mutex);
      if (r.closed) throw Error(Code::draining, "the server is shutting down");
      if (r.sessions.size() >= static_cast<size_t>(m.options.max_sessions))
        throw Error(Code::overloaded,
                    "the server holds " + std::to_string(m.options.max_sessions) + " sessions, and no more");
      if (promise > m.shared.server_memory - r.promised)
        throw Error(Code::memory_limit, "a session of " + std::to_string(promise) + " bytes was asked for, and " +
                                            std::to_string(m.shared.server_memory - r.promised) + " are left");
      r.promised += promise;
      r.sessions.emplace(core->id, Registry::Held{session, promise});
      m.shared.metrics.add(Metric::sessions, 1);
    }
    m.shared.metrics.add(Metric::sessions_opened);
    return session;
  } catch (...) {
    return current_error();
  }
}

SessionPtr Service::find(std::string_view id) {
  const std::lock_guard lock(impl_->registry->mutex);
  const auto found = impl_->registry->sessions.find(std::string(id));
  return found == impl_->registry->sessions.end() ? nullptr : found->second.session;
}

std::vector<SessionInfo> Service::list() {
  std::vector<SessionPtr> all;
  {
    const std::lock_guard lock(impl_->registry->mutex);
    for (auto& [_, held] : impl_->registry->sessions) all.push_back(held.session);
  }
  std::vector<SessionInfo> infos;
  for (auto& s : all) infos.push_back(s->info());
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return a.age_seconds > b.age_seconds; });
  return infos;
}

void Service::close(std::string_view id, Done<Result<void>> done) {
  const SessionPtr s = find(id);
  if (!s) return done(Error(Code::no_session, "there is no such session"));
  s->close(std::move(done));
}

ServerInfo Service::info() const {
  ServerInfo i;
  i.version = kVersion;
  i.devices = {impl_->options.device};
  i.catalogue_hash = engine::catalogue_hash();
  i.operators = engine::operator_names();
  i.threads = impl_->shared.executor.threads();
  i.lanes = impl_->shared.executor.lanes();
  return i;
}

const Options& Service::options() const { return impl_->options; }
Metrics& Service::metrics() { return impl_->shared.metrics; }
void Service::use(cluster::Cluster* c) { impl_->shared.cluster.use(c); }
void Service::attach_group(std::string name, cluster::GroupPtr group) {
  impl_->shared.groups.attach(std::move(name), std::move(group));
}
void Service::drain() { impl_->draining.store(true); }
bool Service::draining() const { return impl_->draining.load(); }

void Service::sweep() {
  std::vector<SessionPtr> over;
  const auto now = impl_->shared.clock.now();
  {
    const std::lock_guard lock(impl_->registry->mutex);
    for (auto& [_, held] : impl_->registry->sessions) {
      const Core& c = core_of(*held.session);
      const auto lease = std::chrono::seconds(c.options.ttl_seconds);
      if (c.attachments.load() == 0 && now - c.touched.load() > lease && impl_->shared.executor.rests(c.queue))
        over.push_back(held.session);
    }
  }
  for (auto& s : over) {
    core_of(*s).reason = "lease";
    s->close(Done<Result<void>>([](Result<void>) {}));
  }
  impl_->shared.metrics.set(Metric::session_bytes, static_cast<double>(impl_->shared.bytes.load()));
}

}  // namespace gradwire::server
