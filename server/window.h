#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "server/service.h"

namespace gradwire::server {

/// The answers that a client has not acknowledged, for repeats: every batch takes effect exactly once. Thread-safe.
class Window {
 public:
  using Answer = std::shared_ptr<const Outcome>;
  static constexpr size_t kOutcomes = 1024, kBytes = size_t{8} << 20;
  static constexpr size_t kInline = size_t{64} << 10;  // larger fetches do not count: their bytes are the session's
  static constexpr size_t kWaiters = 16;               // of one batch: repeats that came before its answer

  struct Slot {
    uint64_t digest = 0;
    Answer answer;  // null while the batch is queued or runs
    std::vector<Done<Answer>> waiters;
    size_t bytes = 0;
    std::shared_ptr<std::atomic<bool>> cancelled;
  };

  /// Takes a batch in: calls `accept` (which queues it and may say why not) for the next one, answers a repeat, and
  /// refuses the rest through `refuse(Code, message)`.
  template <class Accept, class Refuse>
  void take(uint64_t seq, uint64_t acked, uint64_t digest, Done<Answer> done, Accept accept, Refuse refuse) {
    Answer ready;
    std::optional<Error> error;
    {
      const std::lock_guard lock(mutex_);
      error = place(seq, acked, digest, done, ready, accept);
    }
    if (ready) done(ready);
    if (error) refuse(std::move(done), std::move(*error));
  }
  void finish(uint64_t seq, Answer answer) {
    std::vector<Done<Answer>> waiters;
    {
      const std::lock_guard lock(mutex_);
      Slot* s = slot(seq);
      if (!s) return;
      for (const Fetched& f : answer->fetched) {
        if (f.value.bytes.size <= kInline) s->bytes += f.value.bytes.size;
      }
      bytes_ += s->bytes;
      s->answer = answer;
      s->cancelled.reset();
      waiters = std::move(s->waiters);
      s->waiters.clear();
    }
    for (auto& w : waiters) w(answer);
  }
  /// The answer to `seq`; null if there is none (any more).
  Answer answer(uint64_t seq) const {
    const std::lock_guard lock(mutex_);
    const Slot* s = const_cast<Window*>(this)->slot(seq);
    return s ? s->answer : nullptr;
  }
  void cancel(uint64_t seq) {
    const std::lock_guard lock(mutex_);
    Slot* s = slot(seq);
    if (s && s->cancelled) s->cancelled->store(true, std::memory_order_relaxed);
  }
  uint64_t last() const {
    const std::lock_guard lock(mutex_);
    return first_ + slots_.size() - 1;
  }
  /// Forgets the answers; batches that are queued still get theirs.
  void clear() {
    const std::lock_guard lock(mutex_);
    for (Slot& s : slots_) s.answer.reset(), bytes_ -= s.bytes, s.bytes = 0;
  }

 private:
  template <class Accept>
  std::optional<Error> place(uint64_t seq, uint64_t acked, uint64_t digest, Done<Answer>& done, Answer& ready,
                             Accept& accept) {
    const uint64_t next = first_ + slots_.size();
    if (seq == 0 || acked >= seq)
      return Error(Code::bad_program, "a batch is numbered from 1 and acknowledges those before it");
    if (seq > next)
      return Error(Code::bad_program,
                   "batch " + std::to_string(seq) + " came where " + std::to_string(next) + " is next");
    while (!slots_.empty() && first_ <= acked && slots_.front().answer) {
      bytes_ -= slots_.front().bytes;
      slots_.pop_front();
      ++first_;
    }
    if (seq < next) {
      Slot* s = slot(seq);
      if (!s) return Error(Code::bad_program, "batch " + std::to_string(seq) + " has been acknowledged");
      if (s->digest != digest)
        return Error(Code::bad_program,
                     "batch " + std::to_string(seq) + " differs from what came under its number before");
      if ((ready = s->answer)) return std::nullopt;
      if (s->waiters.size() >= kWaiters)
        return Error(Code::overloaded, "too many repeats of batch " + std::to_string(seq));
      s->waiters.push_back(std::move(done));
      return std::nullopt;
    }
    if (slots_.size() >= kOutcomes || bytes_ >= kBytes)
      return Error(Code::overloaded, std::to_string(slots_.size()) + " answers (" + std::to_string(bytes_) +
                                         " bytes) wait to be acknowledged");
    auto flag = std::make_shared<std::atomic<bool>>(false);
    if (auto error = accept(flag)) return error;
    Slot& s = slots_.emplace_back();
    s.digest = digest, s.cancelled = std::move(flag);
    s.waiters.push_back(std::move(done));
    return std::nullopt;
  }
  Slot* slot(uint64_t seq) {
    if (seq < first_ || seq - first_ >= slots_.size()) return nullptr;
    return &slots_[seq - first_];
  }

  mutable std::mutex mutex_;
  uint64_t first_ = 1;  // the number of slots_[0]
  std::deque<Slot> slots_;
  size_t bytes_ = 0;
};

}  // namespace gradwire::server
