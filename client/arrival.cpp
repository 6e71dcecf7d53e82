#include "client/arrival.h"

#include <cstring>

#include "client/core.h"
#include "client/errors.h"

namespace gradwire::client {

void Arrival::wait(Timeout timeout) {
  timeout = core->timeout(timeout);
  std::unique_lock lock(mutex_);
  if (!done_) {
    lock.unlock();
    core->flush();
    lock.lock();
    if (timeout.count())
      changed_.wait_for(lock, timeout, [this] { return done_; });
    else
      changed_.wait(lock, [this] { return done_; });
  }
  if (!done_) {
    gone_ = true;
    raise(Error(Code::deadline_exceeded, "the value did not arrive in time"));
  }
  lock.unlock();
  if (error_) core->met(error_, epoch_);
}

bool Arrival::ready() const {
  std::lock_guard lock(mutex_);
  return done_;
}

void Arrival::begin(bool present, TensorInfo info, size_t bytes) {
  std::lock_guard lock(mutex_);
  present_ = present, info_ = std::move(info), bytes_ = bytes;
  if (present && !gone_) room_ = room(info_, bytes);
}

bool Arrival::write(size_t offset, const void* data, size_t size) {
  std::lock_guard lock(mutex_);
  if (gone_ || !room_ || offset > bytes_ || size > bytes_ - offset) return false;
  if (size) std::memcpy(room_ + offset, data, size);
  return true;
}

// Who is woken finds the lock free. It may let go of this at once, but the caller holds it too.

void Arrival::end() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
}

void Arrival::fail(std::shared_ptr<const Error> error, uint64_t epoch) {
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    error_ = std::move(error), epoch_ = epoch, done_ = true;
  }
  changed_.notify_all();
}

}  // namespace gradwire::client
