#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schema/error.h"
#include "server/http/async.h"
#include "server/http/head.h"
#include "server/http/json.h"
#include "server/http/scribe.h"
#include "server/program.h"

namespace gradwire::server {
class Service;
}

namespace gradwire::server::http {

struct Answer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  Bytes blob;                                               // after the body, without a copy
  std::vector<std::pair<std::string, std::string>> fields;  // further fields of the head
  static Answer json(std::string body, int status = 200) {
    Answer a;
    a.status = status;
    a.body = std::move(body);
    return a;
  }
};
Answer error_answer(const Error&);

/// JSON texts longer than this are read and written by the scribe.
inline constexpr size_t kShortJson = size_t{64} << 10;

/// How coroutines of the loop reach the other threads.
class Turn {
 public:
  Turn(Service& s, Scribe& w, std::shared_ptr<Gate> g) : service(s), scribe(w), gate(std::move(g)) {}
  virtual ~Turn() = default;
  Service& service;
  Scribe& scribe;
  std::shared_ptr<Gate> gate;
  /// Sends the answers of earlier requests that still wait.
  virtual Async<void> flush() = 0;
};

/// What a handler sees of one request. On the loop's thread.
class Exchange : public Turn {
 public:
  /// `all_held`: bytes of JSON of all requests in hand, on this loop.
  Exchange(const Head& h, std::span<const std::string> p, Service& s, Scribe& w, std::shared_ptr<Gate> g,
           size_t& all_held)
      : Turn(s, w, std::move(g)), head(h), params(p), unread(h.content_length.value_or(0)), all_held_(all_held) {}
  ~Exchange() override { all_held_ -= held_; }

  const Head& head;
  std::span<const std::string> params;  // what stands for {…} in the route's pattern, in order
  uint64_t unread;                      // bytes of the body to come

  /// The body's next bytes, exactly that many. Throws Error{slow_request}; the caller keeps within `unread`.
  virtual Async<void> read(std::span<std::byte> to) = 0;
  /// Whether the loop that serves clients turns: for liveness, which the probe's own loop answers.
  virtual bool alive() const = 0;
  /// Counts a text of this size until the request is answered. Throws Error{overloaded} where all of them are too many.
  void hold(size_t bytes) {
    if (all_held_ + bytes > kMaxHeld) throw Error(Code::overloaded, "too much JSON is in hand");
    all_held_ += bytes;
    held_ += bytes;
  }

 private:
  static constexpr size_t kMaxHeld = size_t{512} << 20;
  size_t& all_held_;
  size_t held_ = 0;
};

/// Awaits what start(Done<R>) sets off, while earlier answers go out.
template <class R, class F> Async<R> call(Turn& x, F start) {
  Pending<R> pending(x.gate, std::move(start));
  co_await x.flush();
  co_return co_await pending;
}
template <class T> T value_or_throw(Result<T> r) {
  if (!r) throw r.error();
  return std::move(*r);
}
inline void value_or_throw(Result<void> r) {
  if (!r) throw r.error();
}

/// Runs f, which returns an R or throws Error: at once where `size` bytes of JSON are few, else on the scribe.
template <class R, class F> Async<R> by_size(Turn& x, size_t size, F f) {
  if (size <= kShortJson) co_return f();
  auto start = [&x, &f](Done<Result<R>> done) {
    struct Task {
      F* f;
      Done<Result<R>> done;
      void operator()() {
        try {
          done((*f)());
        } catch (const Error& e) {
          done(e);
        } catch (const std::bad_alloc&) {
          done(Error(Code::memory_limit, "the server is out of memory"));
        }
      }
    };
    Task task{&f, std::move(done)};
    if (!x.scribe.post(task)) task.done(Error(Code::overloaded, "too many long JSON texts are waiting"));
  };
  Result<R> r = co_await call<Result<R>>(x, start);
  co_return value_or_throw(std::move(r));
}

/// The whole body as a text. Throws Error{too_large} over kMaxJson, {unsupported_media_type} where Content-Type is
/// something else than JSON.
Async<std::string> read_json_body(Exchange&);

}  // namespace gradwire::server::http
