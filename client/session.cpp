#include "client/session.h"

#include <mutex>

#include "client/core.h"
#include "client/errors.h"

namespace gradwire {
namespace {

struct DefaultSession {
  std::mutex mutex;
  std::weak_ptr<client::Core> core;
};
DefaultSession& the_default() {
  static auto* d = new DefaultSession;  // never destroyed: tensors may outlive static objects
  return *d;
}

}  // namespace

client::Core& Session::core() const {
  if (!core_) raise(Error(Code::closed, "there is no session: call gradwire::connect first"));
  return *core_;
}

void Session::sync(std::chrono::milliseconds timeout) { core().sync(timeout); }
void Session::close(std::chrono::milliseconds timeout) { core().close(timeout); }
const std::string& Session::id() const { return core().id(); }
std::vector<Warning> Session::warnings() { return core().warnings(); }

Tensor Session::one(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) {
  Tensor out;
  core().call(op, at, args, {&out, 1});
  return out;
}

void Session::none(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) {
  core().call(op, at, args, {});
}

void Session::fill(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args,
                   std::span<Tensor> out) {
  core().call(op, at, args, out);
}

std::vector<Tensor> Session::list(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args) {
  // grad gives one result an input: no need to ask how many there are.
  return core().list(op, at, args, op == op::grad ? args[1].count : SIZE_MAX);
}

void set_default_session(const Session& session) {
  auto& d = the_default();
  std::lock_guard lock(d.mutex);
  d.core = session.core().weak_from_this();
}

void forget_default_session(const Session& session) {
  auto& d = the_default();
  std::lock_guard lock(d.mutex);
  if (d.core.lock().get() == &session.core()) d.core.reset();
}

Session& default_session() {
  auto& d = the_default();
  std::shared_ptr<client::Core> core;
  {
    std::lock_guard lock(d.mutex);
    core = d.core.lock();
  }
  if (!core) raise(Error(Code::closed, "there is no session: call gradwire::connect first"));
  return core->session();  // lives for as long as its client does
}

bool& GradMode::enabled() {
  thread_local bool on = true;
  return on;
}

}  // namespace gradwire
