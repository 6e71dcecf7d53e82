#include "server/http/connection.h"

#include <spdlog/spdlog.h>
#include <sys/uio.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <ctime>

#include "server/http/exchange.h"
#include "server/http/routes.h"
#include "server/http/websocket.h"
#include "server/metrics.h"
#include "server/service.h"

namespace gradwire::server::http {
namespace {

using boost::asio::ip::tcp;
using Time = std::chrono::steady_clock::time_point;
constexpr size_t kBuffer = 2 * kMaxHead;          // of one connection: heads, and what comes with them
constexpr size_t kGather = size_t{64} << 10;      // answers that wait to go out together
constexpr uint64_t kDiscard = size_t{64} << 10;   // of a body that nobody wants; a longer one closes
constexpr uint64_t kLinger = uint64_t{16} << 20;  // bytes read after an answer that closes

constexpr size_t kTurn = size_t{256} << 10;       // bytes that one connection moves before the others have a turn
constexpr size_t kRequestCost = size_t{4} << 10;  // of a turn, beside its bytes

/// The peer is gone.
struct Gone {};

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 507:
      return "Insufficient Storage";
    default:
      return "";
  }
}

/// "Mon, 30 Nov 2026 11:00:00 GMT", made once a second.
const std::string& http_date() {
  thread_local std::time_t made = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != made) {
    std::tm t{};
    gmtime_r(&now, &t);
    char s[64];
    text.assign(s, std::strftime(s, sizeof s, "%a, %d %b %Y %H:%M:%S GMT", &t));
    made = now;
  }
  return text;
}

/// An error as an answer, whatever was thrown.
Answer answer_to(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    return error_answer(e);
  } catch (const std::bad_alloc&) {
    return error_answer(Error(Code::memory_limit, "the server is out of memory"));
  } catch (const std::exception& e) {
    spdlog::error("http: {}", e.what());
  }
  return error_answer(Error(Code::internal, "an internal error"));
}

class TcpConnection final : public Connection {
 public:
  TcpConnection(Shared& shared, int fd) : shared_(shared), socket_(shared.loop) {
    boost::system::error_code ec;
    socket_.assign(tcp::v4(), fd, ec);
    socket_.native_non_blocking(true, ec);
    socket_.set_option(tcp::no_delay(true), ec);
  }

  void start(std::function<void()> ended) override {
    ended_ = std::move(ended);
    root_ = serve();
    root_.start();
  }
  void check(Time now) override {
    if (upgraded_) upgraded_->check(now);
    if (now < deadline_) return;
    late_ = true;
    deadline_ = Time::max();
    boost::system::error_code ec;
    socket_.cancel(ec);
  }
  void drain() override {
    if (upgraded_) {
      upgraded_->drain();
    } else if (idle_) {
      deadline_ = Time::min();
      check(Time::max());
    }
  }

 private:
  class Request final : public Exchange {
   public:
    Request(TcpConnection& c, const Head& h, std::span<const std::string> params)
        : Exchange(h, params, c.shared_.service, c.shared_.scribe, c.shared_.gate, c.shared_.json_bytes), c_(c) {}
    Async<void> read(std::span<std::byte> to) override { return c_.read_body(*this, to); }
    Async<void> flush() override { return c_.flush(); }
    bool alive() const override { return !c_.shared_.alive || c_.shared_.alive(); }

   private:
    TcpConnection& c_;
  };

  /// Awaits that the socket can be read or written, or the deadline.
  struct Ready {
    TcpConnection& c;
    tcp::socket::wait_type what;
    bool await_ready() const noexcept { return c.late_; }
    void await_suspend(std::coroutine_handle<> h) {
      c.moved_ = 0;
      c.socket_.async_wait(what, [h](const boost::system::error_code&) { h.resume(); });
    }
    void await_resume() const noexcept {}
  };

  /// Lets the other connections have their turn where this one has moved much without waiting.
  struct Share {
    TcpConnection& c;
    bool await_ready() const noexcept { return c.moved_ < kTurn; }
    void await_suspend(std::coroutine_handle<> h) {
      c.moved_ = 0;
      boost::asio::post(c.shared_.loop, [h] { h.resume(); });
    }
    void await_resume() const noexcept {}
  };

  /// At least one byte, as they come; 0: the peer has closed or the deadline has passed (late_).
  Async<size_t> read_some(std::span<std::byte> to) {
    co_await Share{*this};
    for (;;) {
      const ssize_t n = ::recv(socket_.native_handle(), to.data(), std::min(to.size(), kTurn), 0);
      if (n > 0) {
        moved_ += static_cast<size_t>(n);
        co_return static_cast<size_t>(n);
      }
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) co_return 0;
      co_await Ready{*this, tcp::socket::wait_read};
      if (late_) co_return 0;
    }
  }

  /// Throws Gone where the peer does not take it in time.
  Async<void> write(std::array<iovec, 3> parts) {
    const Time begin = std::chrono::steady_clock::now();
    uint64_t sent = 0;
    iovec* first = parts.data();
    iovec* const last = first + parts.size();
    for (;;) {
      while (first != last && first->iov_len == 0) ++first;
      if (first == last) break;
      msghdr message{};
      message.msg_iov = first;
      message.msg_iovlen = static_cast<size_t>(last - first);
      ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        deadline_ = begin + shared_.limits.write_grace + seconds(sent, shared_.limits.write_rate);
        co_await Ready{*this, tcp::socket::wait_write};
        if (late_) throw Gone{};
        deadline_ = Time::max();
        continue;
      }
      if (n < 0) throw Gone{};
      sent += static_cast<uint64_t>(n);
      moved_ += static_cast<size_t>(n);
      while (n > 0) {
        const auto k = std::min(first->iov_len, static_cast<size_t>(n));
        first->iov_base = static_cast<char*>(first->iov_base) + k;
        first->iov_len -= k;
        n -= static_cast<ssize_t>(k);
        if (first->iov_len == 0) ++first;
      }
      co_await Share{*this};
    }
    deadline_ = Time::max();
  }
  static std::chrono::steady_clock::duration seconds(uint64_t bytes, uint64_t rate) {
    return std::chrono::milliseconds(bytes / std::max<uint64_t>(rate / 1000, 1));
  }
  static iovec part(const void* data, size_t n) { return {const_cast<void*>(data), n}; }

  Async<void> flush() {
    if (out_.empty()) co_return;
    std::string out = std::exchange(out_, {});
    const std::array<iovec, 3> parts = {part(out.data(), out.size()), {}, {}};
    co_await write(parts);
    out.clear();
    out_ = std::move(out);  // keeps its memory
  }

  /// Exactly to.size() bytes of the request's body: first what came with the head, then from the socket to their place.
  Async<void> read_body(Request& x, std::span<std::byte> to) {
    if (to.size() > x.unread) throw Error(Code::bad_request, "the body is too short");
    if (x.head.expect_continue && !continued_) {
      continued_ = true;
      out_ += "HTTP/1.1 100 Continue\r\n\r\n";
      co_await flush();
    }
    const size_t have = std::min(to.size(), end_ - begin_);
    if (have) std::memcpy(to.data(), buffer_.get() + begin_, have);
    begin_ += have;
    x.unread -= have;
    to = to.subspan(have);
    if (to.empty()) co_return;
    co_await flush();
    // What passes between two reads is not the peer's time.
    const Time begin = std::chrono::steady_clock::now() - body_time_;
    while (!to.empty()) {
      deadline_ = begin + shared_.limits.body_grace + seconds(body_read_, shared_.limits.body_rate);
      const size_t n = co_await read_some(to);
      if (n == 0 && !late_) throw Gone{};
      if (n == 0) throw Error(Code::slow_request, "the body did not arrive in time");
      body_read_ += n;
      x.unread -= n;
      to = to.subspan(n);
    }
    body_time_ = std::chrono::steady_clock::now() - begin;
    deadline_ = Time::max();
  }

  Async<void> serve() {
    bool linger = false;
    try {
      while (co_await one(linger)) {}
      if (socket_.is_open()) co_await flush();
      if (linger && socket_.is_open()) co_await let_go();
    } catch (const Gone&) {
    } catch (const std::exception& e) {
      spdlog::error("http: connection closed: {}", e.what());
    }
    boost::system::error_code ec;
    socket_.close(ec);
    ended_();
  }

  /// Reads on for a moment after the last answer: closing at once would throw it away on its way.
  Async<void> let_go() {
    ::shutdown(socket_.native_handle(), SHUT_WR);
    late_ = false;
    deadline_ = std::chrono::steady_clock::now() + shared_.limits.linger;
    std::array<std::byte, 16384> sink;
    for (uint64_t n = 0; n < kLinger;) {
      const size_t k = co_await read_some(sink);
      if (k == 0) break;
      n += k;
    }
  }

  /// One request and its answer; false: it was the last. `linger`: the peer may still be sending.
  Async<bool> one(bool& linger) {
    std::optional<Head> head;
    std::exception_ptr refused;
    size_t size = 0;
    try {
      size = co_await read_head();
      if (size == 0) co_return false;
      head = check_head({buffer_.get() + begin_, size}, shared_.hosts);
    } catch (const Error& e) {
      refused = std::current_exception();
      shared_.metrics.add(Metric::http_rejected, name(e.code()));
    }
    if (refused) {
      late_ = false;
      Answer answer = answer_to(refused);
      co_await send(std::move(answer), nullptr, false);
      linger = true;
      co_return false;
    }

    const Found found = find_route(*head, shared_.probe);
    Request x(*this, *head, found.params);
    const std::string_view raw(buffer_.get() + begin_, size);
    begin_ += size;
    ++requests_;
    moved_ += kRequestCost;
    co_await Share{*this};
    continued_ = false;
    body_time_ = {};
    body_read_ = 0;
    std::exception_ptr thrown;
    Answer answer;
    try {
      if (found.route && found.route->gives == Gives::upgrade) {
        check_upgrade(*head);
        if (x.unread || begin_ != end_)
          throw Error(Code::bad_request, "nothing may follow an upgrade before its answer");
        if (!shared_.service.find(found.params[0])) throw Error(Code::no_session, "there is no such session");
        co_await flush();
        const int fd = socket_.release();
        std::string copy(raw);
        co_await serve_websocket(shared_, fd, std::move(copy), found.params[0], upgraded_);
        co_return false;
      }
      answer = co_await dispatch(x, found);
    } catch (const Gone&) {
      throw;
    } catch (...) {
      thrown = std::current_exception();
    }
    if (thrown) answer = answer_to(thrown);
    const bool slow = late_;
    late_ = false;

    // What is left of the body would be read as the next request: it is read away, or the connection closes.
    const bool unsent = head->expect_continue && !continued_ && x.unread;
    bool keep = head->keep_alive && !slow && !unsent && x.unread <= kDiscard &&
                requests_ < shared_.limits.max_requests && !shared_.draining;
    if (keep && x.unread) {
      try {
        std::array<std::byte, 4096> sink;
        while (x.unread) co_await read_body(x, std::span(sink).first(std::min<uint64_t>(sink.size(), x.unread)));
      } catch (const Error&) {
        keep = false;
        late_ = false;
      }
    }
    co_await send(std::move(answer), &*head, keep);
    linger = !keep;
    co_return keep;
  }

  /// Bytes of the next head, at buffer_ + begin_; 0: no more requests. Throws Error.
  Async<size_t> read_head() {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    const auto& limits = shared_.limits;
    Time begin = std::chrono::steady_clock::now();
    bool begun = end_ > 0 || requests_ == 0;
    size_t scanned = 0;
    bool may_skip = true;
    for (;;) {
      if (may_skip && end_ - begin_ >= 2) {
        may_skip = false;
        if (std::memcmp(buffer_.get() + begin_, "\r\n", 2) == 0) {  // an empty line before a request
          begin_ += 2;
          scanned = 0;
        }
      }
      const size_t size = find_head({buffer_.get() + begin_, end_ - begin_}, scanned);
      if (size) {
        deadline_ = Time::max();
        idle_ = false;
        co_return size;
      }
      co_await flush();
      if (shared_.draining && end_ == begin_) co_return 0;
      idle_ = end_ == begin_;
      deadline_ = begin + (begun ? limits.head : limits.keep_alive);
      if (end_ == begin_ && !begun && buffer_) {
        // An idle connection holds no buffer.
        char probe;
        if (::recv(socket_.native_handle(), &probe, 1, MSG_PEEK) < 0 && errno == EAGAIN) {
          buffer_.reset();
          begin_ = end_ = 0;
          co_await Ready{*this, tcp::socket::wait_read};
          buffer_ = std::make_unique<char[]>(kBuffer);
        }
      }
      size_t n = 0;
      if (!late_) {
        const std::span<char> space(buffer_.get() + end_, kBuffer - end_);
        n = co_await read_some(std::as_writable_bytes(space));
      }
      idle_ = false;
      if (n == 0 && late_ && end_ != begin_) throw Error(Code::slow_request, "the head did not arrive in time");
      if (n == 0) co_return 0;
      end_ += n;
      if (!begun) {
        begun = true;
        begin = std::chrono::steady_clock::now();
      }
    }
  }

  /// Puts an answer behind those that wait, and sends them where they are many or long.
  Async<void> send(Answer answer, const Head* head, bool keep) {
    shared_.metrics.add(Metric::http_requests, std::to_string(answer.status));
    const bool no_body = answer.status == 204;
    out_ +=
        "HTTP/1.1 " + std::to_string(answer.status) + " " + reason(answer.status) + "\r\nDate: " + http_date() + "\r\n";
    if (!no_body) {
      out_ += "Content-Type: " + answer.type +
              "\r\nContent-Length: " + std::to_string(answer.body.size() + answer.blob.size) + "\r\n";
    }
    for (const auto& [name, value] : answer.fields) out_ += name + ": " + value + "\r\n";
    out_ += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
    if (!keep) {
      out_ += "Connection: close\r\n";
    } else if (head && head->minor == 0) {
      out_ += "Connection: keep-alive\r\n";
    }
    out_ += "\r\n";
    if (no_body || (head && head->method == "HEAD")) co_return;
    if (answer.blob.size == 0 && out_.size() + answer.body.size() <= kGather) {
      out_ += answer.body;
      co_return;
    }
    const std::string out = std::exchange(out_, {});
    const std::array<iovec, 3> parts = {part(out.data(), out.size()), part(answer.body.data(), answer.body.size()),
                                        part(answer.blob.data, answer.blob.size)};
    co_await write(parts);
  }

  Shared& shared_;
  tcp::socket socket_;
  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kBuffer);
  size_t begin_ = 0, end_ = 0;  // of what has arrived and is not used
  std::string out_;             // answers that wait to go out
  Time deadline_ = Time::max();
  Time::duration body_time_{};  // how long the reading of this body has taken
  uint64_t body_read_ = 0;
  size_t moved_ = 0;  // bytes since the last wait or turn
  int requests_ = 0;
  bool late_ = false, idle_ = false, continued_ = false;
  std::function<void()> ended_;
  Upgraded* upgraded_ = nullptr;
  Async<void> root_;  // last: it uses the rest
};

}  // namespace

std::unique_ptr<Connection> make_connection(Shared& shared, int fd) {
  return std::make_unique<TcpConnection>(shared, fd);
}

}  // namespace gradwire::server::http
