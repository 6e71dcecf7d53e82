#include "server/rpc/loop_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

#include "schema/error.h"

namespace gradwire::server {

namespace {

constexpr auto kLook = std::chrono::microseconds(30);
constexpr int kRounds = 4;  // then it is the sockets' turn

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

/// Stands at the head of a closed queue.
LoopQueue::Node* LoopQueue::closed() {
  struct Closed final : Node {
    void run() override {}
  };
  static Closed mark;
  return &mark;
}

LoopQueue::LoopQueue() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (event_ < 0) throw Error(Code::unavailable, "no file descriptor is left for the RPC loop");
}

LoopQueue::~LoopQueue() {
  close();
  ::close(event_);
}

void LoopQueue::post(std::unique_ptr<Node> node) noexcept {
  Node* n = node.release();
  Node* head = head_.load(std::memory_order_relaxed);
  do {
    if (head == closed()) {
      delete n;
      return;
    }
    n->next_ = head;
  } while (!head_.compare_exchange_weak(head, n, std::memory_order_seq_cst, std::memory_order_relaxed));
  if (head || looking_.load(std::memory_order_seq_cst)) return;  // the loop is awake, or will be by whoever came first
  // The count is never read: the loop watches for edges, and each write is one.
  const uint64_t one = 1;
  [[maybe_unused]] const auto n_written = ::write(event_, &one, sizeof one);
}

bool LoopQueue::run_all() {
  Node* list = head_.load(std::memory_order_seq_cst);  // after what `looking_` was set to
  if (list == nullptr || list == closed()) return false;
  list = head_.exchange(nullptr, std::memory_order_acquire);
  Node* ordered = nullptr;
  while (list) {
    Node* next = list->next_;
    list->next_ = ordered, ordered = list, list = next;
  }
  while (ordered) {
    const std::unique_ptr<Node> node(ordered);
    ordered = ordered->next_;
    try {
      node->run();
    } catch (...) {
      // Whoever waits sees that it is dropped; the loop goes on.
    }
  }
  return true;
}

void LoopQueue::linger() {
  if (lingering_) return;
  if (rest_ > 0) {
    --rest_;
    return;
  }
  lingering_ = true;
  lingered_ = kj::evalLast([this] {
                lingering_ = false;
                look();
              }).eagerlyEvaluate(nullptr);
}

void LoopQueue::look() {
  looking_.store(true, std::memory_order_seq_cst);
  const auto until = std::chrono::steady_clock::now() + kLook;
  bool found = false;
  do {
    for (int i = 0; i < 16 && !found; ++i) {
      found = head_.load(std::memory_order_relaxed) != nullptr;
      if (!found) pause();
    }
  } while (!found && std::chrono::steady_clock::now() < until);
  looking_.store(false, std::memory_order_seq_cst);
  run_all();  // also what came without ringing until now
  if (found) {
    patience_ = kPatience;
  } else if (--patience_ == 0) {
    patience_ = 1, rest_ = kRest;
  }
}

kj::Promise<void> LoopQueue::serve(kj::UnixEventPort& port) {
  auto observer = kj::heap<kj::UnixEventPort::FdObserver>(port, event_, kj::UnixEventPort::FdObserver::OBSERVE_READ);
  auto& o = *observer;
  return watch(o).attach(kj::mv(observer));
}

kj::Promise<void> LoopQueue::watch(kj::UnixEventPort::FdObserver& observer) {
  auto ready = observer.whenBecomesReadable();  // before looking, so that no edge is missed
  // What one of them posts need not ring: it is seen in the next round.
  looking_.store(true, std::memory_order_seq_cst);
  for (int i = 0; i < kRounds && run_all(); ++i) {}
  looking_.store(false, std::memory_order_seq_cst);
  run_all();  // also what came without ringing until now
  return ready.then([this, &observer] { return watch(observer); });
}

void LoopQueue::close() {
  lingered_ = nullptr;
  Node* list = head_.exchange(closed(), std::memory_order_acq_rel);
  if (list == closed()) return;
  while (list) {
    const std::unique_ptr<Node> node(list);
    list = list->next_;
  }
}

}  // namespace gradwire::server
