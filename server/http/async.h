#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "server/result.h"

// Coroutines of the HTTP loop's one thread. Nothing of Boost is seen here, so handlers need none of it.

namespace gradwire::server::http {

template <class T> class Async;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> caller;
  std::exception_ptr thrown;

  struct Final {
    bool await_ready() noexcept { return false; }
    template <class P> void await_suspend(std::coroutine_handle<P> h) noexcept {
      // The caller may destroy this frame: nothing of it is touched after.
      if (const auto caller = h.promise().caller) caller.resume();
    }
    void await_resume() noexcept {}
  };
  std::suspend_always initial_suspend() noexcept { return {}; }
  Final final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { thrown = std::current_exception(); }
};

template <class T> struct Promise : PromiseBase {
  std::optional<T> value;
  Async<T> get_return_object();
  template <class U> void return_value(U&& v) { value.emplace(std::forward<U>(v)); }
  T take() { return std::move(*value); }
};
template <> struct Promise<void> : PromiseBase {
  Async<void> get_return_object();
  void return_void() {}
  void take() {}
};

}  // namespace detail

/// A coroutine that starts when it is awaited (or by start()) and gives a T or throws. It owns its frame: destroying
/// it while it is suspended ends it where it stands, with all that it awaits.
template <class T> class [[nodiscard]] Async {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Async() = default;
  explicit Async(Handle h) : handle_(h) {}
  Async(Async&& a) noexcept : handle_(std::exchange(a.handle_, {})) {}
  Async& operator=(Async&& a) noexcept {
    Async old(std::exchange(handle_, std::exchange(a.handle_, {})));
    return *this;
  }
  ~Async() {
    if (handle_) handle_.destroy();
  }
  /// Runs up to the first suspension; for a coroutine that nobody awaits.
  void start() { handle_.resume(); }
  /// Awaits the end of a coroutine that start() has begun.
  auto join() {
    struct Join {
      Handle h;
      bool await_ready() const noexcept { return h.done(); }
      void await_suspend(std::coroutine_handle<> caller) { h.promise().caller = caller; }
      T await_resume() {
        if (h.promise().thrown) std::rethrow_exception(h.promise().thrown);
        return h.promise().take();
      }
    };
    return Join{handle_};
  }

  bool await_ready() const noexcept { return false; }
  /// A coroutine that finishes at once costs no stack: its caller goes on from here.
  bool await_suspend(std::coroutine_handle<> caller) {
    handle_.resume();
    if (handle_.done()) return false;
    handle_.promise().caller = caller;
    return true;
  }
  T await_resume() {
    auto& p = handle_.promise();
    if (p.thrown) std::rethrow_exception(p.thrown);
    return p.take();
  }

 private:
  Handle handle_;
};

template <class T> Async<T> detail::Promise<T>::get_return_object() {
  return Async<T>(std::coroutine_handle<Promise>::from_promise(*this));
}
inline Async<void> detail::Promise<void>::get_return_object() {
  return Async<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

/// Something that waits for the loop's turn.
struct Resumable {
  virtual ~Resumable() = default;
  /// On the loop's thread.
  virtual void resume() = 0;
};

/// The only way from other threads to a loop. It outlives the loop: what comes after close() is dropped.
class Gate {
 public:
  virtual ~Gate() = default;
  void post(std::shared_ptr<Resumable> r) {
    const std::lock_guard lock(mutex_);
    if (open_) hand_over(std::move(r));
  }
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }

 private:
  virtual void hand_over(std::shared_ptr<Resumable>) = 0;
  std::mutex mutex_;
  bool open_ = true;
};

/// The answer of another thread, to be awaited once. Destroying it forgets the answer.
template <class R> class [[nodiscard]] Pending {
 public:
  /// Calls start(Done<R>), which hands the Done to whoever will answer.
  template <class F> Pending(const std::shared_ptr<Gate>& gate, F start) : state_(std::make_shared<State>()) {
    start(Done<R>([state = state_, gate](R r) {
      state->value.emplace(std::move(r));
      gate->post(state);
    }));
  }
  Pending(const Pending&) = delete;
  ~Pending() { state_->waiter = {}; }

  bool await_ready() const noexcept { return state_->there; }
  void await_suspend(std::coroutine_handle<> h) { state_->waiter = h; }
  R await_resume() { return std::move(*state_->value); }

 private:
  struct State final : Resumable {
    std::optional<R> value;          // written by the other thread, before it posts
    std::coroutine_handle<> waiter;  // the loop's
    bool there = false;              // the loop's
    void resume() override {
      there = true;
      if (waiter) std::exchange(waiter, {}).resume();
    }
  };
  std::shared_ptr<State> state_;
};

}  // namespace gradwire::server::http
