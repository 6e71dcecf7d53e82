#pragma once

#include <capnp/message.h>
#include <capnp/serialize-async.h>
#include <kj/async-io.h>
#include <kj/async-unix.h>
#include <kj/timer.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

/// The transport both sides of the wire share: sockets and message streams for a KJ loop. Everything here lives on the
/// thread of one KJ loop.
namespace gradwire::wire {

inline constexpr size_t kReadAhead = 64 << 10;  // bytes read at once, at most
inline constexpr size_t kCopied =
    32 << 10;  // messages up to this size are copied and gathered, larger ones written in place
inline constexpr size_t kGathered = 256 << 10;  // bytes copied and not yet written, at most
inline constexpr int kPostponed = 16;           // Finish messages that wait for others to go with, at most

/// A connected stream socket (TCP or Unix) as a KJ stream, made for one write, one read and one epoll_wait a round
/// trip: a short read means that the socket is drained, so the next read waits for the loop first. Takes the socket
/// over, makes it non-blocking, and sets TCP_NODELAY where that exists.
kj::Own<kj::AsyncIoStream> open_socket(kj::AutoCloseFd socket, kj::UnixEventPort& port);

/// What a stream takes from the other side. The defaults are a logged-in client's at the server.
struct StreamLimits {
  size_t frame_bytes = 8 << 20;                // a whole frame with its head
  uint32_t segments = 64;                      // of a frame
  size_t queued_bytes = 8 << 20;               // not yet written: above it nothing is read
  kj::Duration frame_time = 10 * kj::SECONDS;  // a frame, from its first byte
  kj::Duration stall_time = 30 * kj::SECONDS;  // one write, of at most about a MiB
  kj::Duration idle_time = 300 * kj::SECONDS;  // nothing arrives and nothing is in work
};

/// Why a stream gave up on the other side.
enum class Reject : uint8_t {
  segments,      // of a frame: none or too many
  frame_size,    // too large
  truncated,     // the stream ended within a frame
  malformed,     // the frame is no RPC message
  questions,     // too many calls without an end
  capabilities,  // too many in one call
  unsupported,   // a form of call that nobody needs
  frame_time,
  stall_time,
  idle_time,
  login_time
};
inline constexpr int kRejects = static_cast<int>(Reject::login_time) + 1;
const char* name(Reject);

/// The head of a frame: a count of segments and their sizes.
struct FrameHead {
  enum class State : uint8_t { more, whole, bad };  // bad: `why` says it
  State state = State::more;
  Reject why = Reject::segments;
  size_t table = 0, total = 0;  // bytes of the head, and of head and segments
};
/// Reads the head from the first bytes of a frame, as many as there are. Costs no memory; sums cannot overflow.
FrameHead read_head(const kj::byte* bytes, size_t size, const StreamLimits&);

/// Memory for frames. Blocks of a MiB and a bit are kept warm, since touching fresh memory costs more than the socket.
class BlockPool final : public kj::Refcounted {
 public:
  static constexpr size_t kBlock = (1 << 20) + (64 << 10);
  explicit BlockPool(size_t kept = 16) : kept_(kept) {}
  ~BlockPool() noexcept(false);
  kj::byte* take(size_t size);  // 16-byte aligned
  void give(kj::byte*, size_t size);

 private:
  size_t kept_;
  std::vector<kj::byte*> blocks_;
};

/// Cap'n Proto messages over a stream of bytes. Small writes are gathered until the loop is idle, large ones go out in
/// place; a Finish, which only says that an answer was received, goes out with the next message; reads run ahead. What
/// arrives is checked before memory is spent on it: heads, sizes, time; buffers grow with the bytes that arrived.
/// Without a timer nothing has a deadline.
class Stream : public capnp::MessageStream, private kj::TaskSet::ErrorHandler {
 public:
  Stream(kj::AsyncIoStream&, StreamLimits, kj::Own<BlockPool>, kj::Maybe<kj::Timer&> = nullptr);
  ~Stream() noexcept(false);

  /// Resolves once, when the stream has given up on the other side or cannot be written any more.
  kj::Promise<void> failure() { return failure_.addBranch(); }
  std::optional<Reject> rejected() const { return rejected_; }

  /// Bytes taken and not yet written, here and (if set) in the queue of the network above.
  size_t queued() const { return unsent_ + (queued_above ? queued_above() : 0); }
  std::function<size_t()> queued_above;
  /// Whether the messages are RPC's, of which some may wait.
  bool carries_rpc = true;
  /// For who makes a message of about so many bytes: at once while no more is queued than the limit allows, else one
  /// after the other as the queue drains. Large ones are made one a turn of the loop, so that each sees the one before
  /// in the queue.
  bool has_room(size_t bytes);
  kj::Promise<void> room();

  /// Keeps `owner` until the next message with a segment that begins at `begin` is written. All are let go with the
  /// stream, and when nothing is queued and the loop is idle.
  void hold(const void* begin, size_t size, std::shared_ptr<const void> owner);
  size_t held() const { return held_bytes_; }

  // of MessageStream
  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> tryReadMessage(kj::ArrayPtr<kj::AutoCloseFd> fds,
                                                                    capnp::ReaderOptions options,
                                                                    kj::ArrayPtr<capnp::word> scratch) override;
  kj::Promise<void> writeMessage(kj::ArrayPtr<const int> fds,
                                 kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) override;
  kj::Promise<void> writeMessages(kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>> messages) override;
  kj::Maybe<int> getSendBufferSize() override { return nullptr; }
  kj::Promise<void> end() override;
  using MessageStream::tryReadMessage;
  using MessageStream::writeMessage;
  using MessageStream::writeMessages;

 protected:
  using Segments = kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>;
  /// What a guard above adds: a look at each message (a reason refuses it and ends the stream), whether anything is in
  /// work, and the end.
  virtual std::optional<Reject> incoming(capnp::MessageReader&) { return std::nullopt; }
  virtual void outgoing(Segments) {}
  /// Where the last segment of a large frame shall be read to, so that nobody need copy it: memory of `size` bytes that
  /// is kept by `hold`; nowhere by default. The message has all but that segment, which reads as zeros.
  struct Landing {
    kj::byte* at = nullptr;
    std::shared_ptr<void> hold;
  };
  virtual Landing land(capnp::MessageReader& begun, const kj::byte* zeros, size_t size) {
    (void)begun, (void)zeros, (void)size;
    return {};
  }
  virtual bool busy() const { return false; }
  virtual void on_reject(Reject) {}

  void set_limits(const StreamLimits&);
  void fail(Reject);
  kj::Maybe<kj::Timer&> timer_;

 private:
  class Frame;
  struct Chunk;
  using Message = kj::Maybe<capnp::MessageReaderAndFds>;

  /// A time that must not pass while `since` is set. The timer is armed once and looks again when it fires, so setting
  /// and clearing costs nothing.
  struct Watch {
    Reject reason;
    kj::Duration StreamLimits::*limit;
    kj::Maybe<kj::TimePoint> since = nullptr;
    bool armed = false;
  };
  void begin(Watch&);
  void end_of(Watch& w) { w.since = nullptr; }
  kj::Promise<void> watch(Watch&);

  kj::Promise<Message> next(capnp::ReaderOptions);
  kj::Promise<Message> read_more(capnp::ReaderOptions);
  kj::Promise<Message> read_landed(kj::Own<Frame>, kj::byte* to, size_t left);
  kj::Own<Frame> landed(capnp::ReaderOptions, size_t total, Landing&, size_t& size);
  kj::Promise<Message> read_large(capnp::ReaderOptions, kj::Own<Chunk>, size_t have, size_t total);
  Message deliver(kj::Own<Frame>);
  kj::Exception refuse(Reject);
  size_t buffered() const { return rend_ - rpos_; }

  /// What goes out in one write: copied bytes, then pieces in place.
  struct Item {
    std::vector<kj::byte> bytes;
    std::vector<kj::ArrayPtr<const kj::byte>> pieces;
    kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> done = nullptr;
    bool last = false;
    size_t size = 0;
  };
  void append(Segments);
  void enqueue(Item);
  void schedule();
  void pump();
  void written(Item&);
  void let_go(Segments);
  void check_waiters();
  void broken(kj::Exception&&);
  void taskFailed(kj::Exception&& e) override;

  kj::AsyncIoStream& io_;
  StreamLimits limits_;
  kj::Own<BlockPool> pool_;
  std::optional<Reject> rejected_;
  kj::Own<kj::PromiseFulfiller<void>> failed_;
  kj::ForkedPromise<void> failure_;

  kj::Own<Chunk> buffer_;
  size_t rpos_ = 0, rend_ = 0, want_ = 4 << 10;
  int small_reads_ = 0;
  Watch frame_{Reject::frame_time, &StreamLimits::frame_time}, stall_{Reject::stall_time, &StreamLimits::stall_time},
      idle_{Reject::idle_time, &StreamLimits::idle_time};

  std::vector<kj::byte> out_, spare_;
  std::deque<Item> items_;
  size_t unsent_ = 0;
  bool scheduled_ = false, writing_ = false, checking_ = false, announced_ = false;
  int postponed_ = 0;  // how many Finish messages out_ holds, if it holds nothing else
  kj::Maybe<kj::Exception> broken_;
  std::deque<kj::Own<kj::PromiseFulfiller<void>>> waiters_;
  std::multimap<const void*, std::pair<size_t, std::shared_ptr<const void>>> holds_;
  size_t held_bytes_ = 0;

  kj::TaskSet tasks_;  // last: its tasks refer to all above
};

}  // namespace gradwire::wire
