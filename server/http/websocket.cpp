#include "server/http/websocket.h"

#include <spdlog/spdlog.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/websocket.hpp>
#include <deque>

#include "server/http/ws_protocol.h"
#include "server/metrics.h"
#include "server/service.h"

namespace gradwire::server::http {
namespace {

namespace beast = boost::beast;
namespace ws = beast::websocket;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMaxWaiting = 256;  // requests read and not yet answered
constexpr size_t kMaxWaitingBytes = size_t{16} << 20;

/// A socket whose incoming bytes are counted as frames on their way to Beast.
class CountedSocket {
 public:
  using executor_type = tcp::socket::executor_type;
  CountedSocket(boost::asio::io_context& loop, int max_fragments) : socket_(loop), frames_(max_fragments) {}
  executor_type get_executor() { return socket_.get_executor(); }
  tcp::socket& socket() { return socket_; }
  bool excess() const { return excess_; }

  template <class Buffers, class Handler> void async_read_some(const Buffers& to, Handler&& handler) {
    socket_.async_read_some(to, Counting<Buffers, std::decay_t<Handler>>{this, to, std::forward<Handler>(handler)});
  }
  template <class Buffers, class Handler> void async_write_some(const Buffers& from, Handler&& handler) {
    socket_.async_write_some(from, std::forward<Handler>(handler));
  }

 private:
  template <class Buffers, class Handler> struct Counting {
    CountedSocket* self;
    Buffers to;
    Handler handler;
    using executor_type = boost::asio::associated_executor_t<Handler, tcp::socket::executor_type>;
    executor_type get_executor() const noexcept {
      return boost::asio::get_associated_executor(handler, self->socket_.get_executor());
    }
    using allocator_type = boost::asio::associated_allocator_t<Handler>;
    allocator_type get_allocator() const noexcept { return boost::asio::get_associated_allocator(handler); }
    void operator()(error_code ec, size_t n) {
      size_t left = n;
      for (auto at = boost::asio::buffer_sequence_begin(to); left > 0 && at != boost::asio::buffer_sequence_end(to);
           ++at) {
        const boost::asio::mutable_buffer b(*at);
        const size_t k = std::min(left, b.size());
        if (!self->frames_.feed(static_cast<const uint8_t*>(b.data()), k)) self->excess_ = true;
        left -= k;
      }
      if (self->excess_) ec = boost::asio::error::connection_aborted;
      handler(ec, self->excess_ ? 0 : n);
    }
  };
  tcp::socket socket_;
  FrameCounter frames_;
  bool excess_ = false;
};
void beast_close_socket(CountedSocket& s) {
  error_code ec;
  s.socket().close(ec);
}
template <class Handler> void async_teardown(beast::role_type role, CountedSocket& s, Handler&& handler) {
  ws::async_teardown(role, s.socket(), std::forward<Handler>(handler));
}

/// Awaits one of Beast's operations: start(handler) begins it, the handler takes (error_code, bytes).
template <class F> struct Operation {
  explicit Operation(F f) : start(std::move(f)) {}
  F start;
  error_code ec;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) {
    start([this, h](error_code e, size_t = 0) {
      ec = e;
      h.resume();
    });
  }
  error_code await_resume() const noexcept { return ec; }
};
template <class F> Operation(F) -> Operation<F>;

class WebSocket final : public Upgraded {
 public:
  WebSocket(Shared& shared, int fd) : shared_(shared), stream_(shared.loop, shared.limits.websocket_fragments) {
    error_code ec;
    stream_.next_layer().socket().assign(tcp::v4(), fd, ec);
  }

  Async<void> run(std::string head, std::string session, Upgraded*& upgraded) {
    upgraded = this;
    try {
      co_await talk(std::move(head), std::move(session));
    } catch (const std::exception& e) {
      spdlog::error("websocket: {}", e.what());
    }
    upgraded = nullptr;
  }

  /// A peer that does not take its answers is let go.
  void check(std::chrono::steady_clock::time_point now) override {
    if (now < write_until_) return;
    error_code ec;
    stream_.next_layer().socket().close(ec);
  }
  void drain() override {
    draining_ = true;
    if (open_ && !finishing_) {
      finishing_ = true;
      stream_.async_close(ws::close_reason(ws::close_code::going_away, "the server is draining"), [](error_code) {});
    }
  }

 private:
  Async<void> talk(std::string head, std::string session) {
    beast::http::request_parser<beast::http::empty_body> parser;
    error_code ec;
    parser.put(boost::asio::buffer(head), ec);
    if (ec || !parser.is_header_done()) co_return;
    ws::stream_base::timeout times{std::chrono::seconds(10), shared_.limits.websocket_idle, true};
    stream_.set_option(times);
    stream_.set_option(ws::stream_base::decorator(
        [](ws::response_type& answer) { answer.set(beast::http::field::sec_websocket_protocol, kSubprotocol); }));
    stream_.read_message_max(shared_.limits.websocket_message);
    stream_.auto_fragment(false);
    const auto request = parser.release();
    Operation accept([&](auto handler) { stream_.async_accept(request, std::move(handler)); });
    ec = co_await accept;
    if (ec) co_return;
    open_ = true;
    if (draining_) drain();  // what came before Beast can close

    WsProtocol protocol(shared_, std::move(session));
    Async<void> answers = answer_all(protocol);
    answers.start();
    co_await read_all();
    over_ = true;
    if (wake_) std::exchange(wake_, {}).resume();
    co_await answers.join();  // with the requests in hand
    if (close_ && !finishing_) {
      Operation close([&](auto handler) { stream_.async_close(*close_, std::move(handler)); });
      co_await close;
    }
  }

  /// Messages go into the queue until the peer or an error ends it.
  Async<void> read_all() {
    for (;;) {
      beast::flat_buffer message(shared_.limits.websocket_message);
      Operation read([&](auto handler) { stream_.async_read(message, std::move(handler)); });
      const error_code ec = co_await read;
      if (ec) {
        if (stream_.next_layer().excess()) shared_.metrics.add(Metric::http_rejected, "fragments");
        co_return;
      }
      if (finishing_) co_return;
      if (stream_.got_binary()) {
        close_ = ws::close_reason(ws::close_code::unknown_data, "requests are text frames");
        co_return;
      }
      const auto bytes = message.cdata();
      waiting_bytes_ += bytes.size();
      waiting_.emplace_back(static_cast<const char*>(bytes.data()), bytes.size());
      if (wake_) std::exchange(wake_, {}).resume();
      if (waiting_.size() >= kMaxWaiting || waiting_bytes_ >= kMaxWaitingBytes) {
        // Not reading is no sign that the peer is gone.
        set_idle(ws::stream_base::none());
        while ((waiting_.size() >= kMaxWaiting || waiting_bytes_ >= kMaxWaitingBytes) && !broken_) co_await Room{*this};
        set_idle(shared_.limits.websocket_idle);
      }
      if (broken_) co_return;
    }
  }
  void set_idle(std::chrono::steady_clock::duration idle) {
    ws::stream_base::timeout times{std::chrono::seconds(10), idle, idle != ws::stream_base::none()};
    stream_.set_option(times);
  }

  /// Answers in the order of the requests.
  Async<void> answer_all(WsProtocol& protocol) {
    while (!broken_) {
      if (waiting_.empty()) {
        if (over_) break;
        co_await Work{*this};
        continue;
      }
      const std::string request = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= request.size();
      WsAnswer answer = co_await protocol.answer(request);
      size_t size = answer.text.size();
      for (const WsAnswer::Frame& frame : answer.frames) size += frame.head.size() + frame.bytes.size;
      write_until_ = std::chrono::steady_clock::now() + shared_.limits.write_grace +
                     std::chrono::milliseconds(size / std::max<uint64_t>(shared_.limits.write_rate / 1000, 1));
      stream_.text(true);
      Operation write([&](auto handler) { stream_.async_write(boost::asio::buffer(answer.text), std::move(handler)); });
      if (co_await write) broken_ = true;
      for (const WsAnswer::Frame& frame : answer.frames) {
        if (broken_) break;
        stream_.binary(true);
        const std::array<boost::asio::const_buffer, 2> parts = {
            boost::asio::buffer(frame.head), boost::asio::const_buffer(frame.bytes.data, frame.bytes.size)};
        Operation write_binary([&](auto handler) { stream_.async_write(parts, std::move(handler)); });
        if (co_await write_binary) broken_ = true;
      }
      write_until_ = std::chrono::steady_clock::time_point::max();
      if (room_) std::exchange(room_, {}).resume();
    }
    if (broken_) {
      error_code ec;
      stream_.next_layer().socket().close(ec);
    }
    if (room_) std::exchange(room_, {}).resume();
  }

  struct Work {
    WebSocket& w;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) { w.wake_ = h; }
    void await_resume() const noexcept {}
  };
  struct Room {
    WebSocket& w;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) { w.room_ = h; }
    void await_resume() const noexcept {}
  };
  Shared& shared_;
  ws::stream<CountedSocket> stream_;
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  std::chrono::steady_clock::time_point write_until_ = std::chrono::steady_clock::time_point::max();
  bool over_ = false;    // no more requests come
  bool broken_ = false;  // nothing can be written any more
  bool open_ = false;    // the upgrade's answer is out
  bool draining_ = false;
  bool finishing_ = false;  // a close frame is on its way
  std::optional<ws::close_reason> close_;
  std::coroutine_handle<> wake_, room_;
};

}  // namespace

bool FrameCounter::feed(const uint8_t* bytes, size_t n) {
  while (n > 0) {
    if (skip_ > 0) {
      const auto k = static_cast<size_t>(std::min<uint64_t>(skip_, n));
      skip_ -= k;
      bytes += k;
      n -= k;
      continue;
    }
    head_[have_++] = *bytes++;
    --n;
    if (have_ < 2) continue;
    const uint8_t length = head_[1] & 127;
    const size_t extended = length == 126 ? 2 : length == 127 ? 8 : 0;
    if (have_ < 2 + extended) continue;
    skip_ = length;
    if (extended) {
      skip_ = 0;
      for (size_t i = 0; i < extended; ++i) skip_ = skip_ << 8 | head_[2 + i];
    }
    // A length over the limit ends the connection in Beast; here it only must not wrap around.
    skip_ = std::min(skip_, uint64_t{1} << 62) + (head_[1] & 128 ? 4 : 0);
    have_ = 0;
    if (head_[0] & 8) {
      if (++controls_ > max_) return false;
    } else if (++frames_ > max_) {
      return false;
    }
    if (!(head_[0] & 8) && head_[0] & 128) frames_ = controls_ = 0;
  }
  return true;
}

void check_upgrade(const Head& head) {
  if (head.minor < 1 || !head.has_word("Connection", "upgrade") || !head.has_word("Upgrade", "websocket")) {
    throw Error(Code::bad_request, "this path needs an upgrade to a WebSocket");
  }
  if (head.field("Sec-WebSocket-Version") != "13")
    throw Error(Code::bad_request, "only WebSocket version 13 is spoken");
  if (head.field("Sec-WebSocket-Key").size() != 24) throw Error(Code::bad_request, "Sec-WebSocket-Key is malformed");
  if (!head.has_word("Sec-WebSocket-Protocol", kSubprotocol)) {
    throw Error(Code::bad_request, std::string("the subprotocol ") + kSubprotocol + " must be offered");
  }
}

Async<void> serve_websocket(Shared& shared, int fd, std::string head, std::string session, Upgraded*& upgraded) {
  WebSocket socket(shared, fd);
  co_await socket.run(std::move(head), std::move(session), upgraded);
}

}  // namespace gradwire::server::http
