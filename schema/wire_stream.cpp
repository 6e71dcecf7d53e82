#include "schema/wire_stream.h"

#include <capnp/rpc.capnp.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace gradwire::wire {

namespace {

uint32_t u32_at(const kj::byte* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

/// Frames of this size and above stay where they were read; smaller ones are copied, so that a small message that is
/// held for long does not hold a whole read buffer.
constexpr size_t kShared = 16 << 10;
/// A buffer may be this much larger than what has arrived of its frame.
constexpr size_t kGrowth = 32;
constexpr size_t kFirstGrowth = 128 << 10;
/// Messages up to this size are not waited for one by one.
constexpr size_t kSmall = 4 << 10;

/// Stands for a segment that is not there yet, so that what refers to it can be read.
constexpr size_t kZeros = 8 << 20;
const kj::byte* zeros() {
  static const kj::byte* const page = [] {
    void* p = mmap(nullptr, kZeros, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    return static_cast<const kj::byte*>(p);
  }();
  return page;
}

/// Whether a message is the end of a call, by its first words: a pointer to a struct that follows, and what kind it is.
bool is_finish(kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) {
  if (segments.size() != 1 || segments[0].size() < 2 || segments[0].size() > 8) return false;
  const auto bytes = segments[0].asBytes();
  return u32_at(bytes.begin()) == 0 && (u32_at(bytes.begin() + 8) & 0xFFFF) == capnp::rpc::Message::FINISH;
}

bool is_block(size_t size) { return size > kFirstGrowth && size <= BlockPool::kBlock; }

}  // namespace

const char* name(Reject r) {
  static constexpr const char* names[kRejects] = {"segments",   "frame_size",   "truncated",   "malformed",
                                                  "questions",  "capabilities", "unsupported", "frame_time",
                                                  "stall_time", "idle_time",    "login_time"};
  return names[static_cast<int>(r)];
}

FrameHead read_head(const kj::byte* bytes, size_t size, const StreamLimits& limits) {
  FrameHead head;
  if (size < 4) return head;
  const uint64_t segments = uint64_t{u32_at(bytes)} + 1;
  if (segments > limits.segments) {
    head.state = FrameHead::State::bad, head.why = Reject::segments;
    return head;
  }
  head.table = 8 * (segments / 2 + 1);
  if (size < head.table) return head;
  uint64_t words = 0;  // at most 2^32 segments of less than 2^32 words: below 2^64
  for (uint64_t i = 0; i < segments; ++i) words += u32_at(bytes + 4 * (i + 1));
  if (words > limits.frame_bytes / 8 || head.table + 8 * words > limits.frame_bytes) {
    head.state = FrameHead::State::bad, head.why = Reject::frame_size;
    return head;
  }
  head.total = head.table + 8 * words;
  head.state = FrameHead::State::whole;
  return head;
}

BlockPool::~BlockPool() noexcept(false) {
  for (auto* b : blocks_) munmap(b, kBlock);
}

kj::byte* BlockPool::take(size_t size) {
  if (!is_block(size)) {
    if (void* p = std::malloc(size)) return static_cast<kj::byte*>(p);
    throw std::bad_alloc();
  }
  if (!blocks_.empty()) {
    auto* b = blocks_.back();
    blocks_.pop_back();
    return b;
  }
  void* p = mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<kj::byte*>(p);
}

void BlockPool::give(kj::byte* p, size_t size) {
  if (!is_block(size)) return std::free(p);
  if (blocks_.size() < kept_) return blocks_.push_back(p);
  munmap(p, kBlock);
}

struct Stream::Chunk final : kj::Refcounted {
  Chunk(BlockPool& p, size_t n) : pool(kj::addRef(p)), data(pool->take(n)), size(n) {}
  ~Chunk() noexcept(false) { pool->give(data, size); }
  kj::Own<BlockPool> pool;
  kj::byte* data;
  size_t size;
};

/// One message, in a chunk of its own or in a shared read buffer; its last segment may lie elsewhere. The table stays
/// in front of the segments.
class Stream::Frame final : public capnp::MessageReader {
 public:
  Frame(capnp::ReaderOptions options, kj::Own<Chunk> chunk, size_t at, const kj::byte* last = nullptr,
        std::shared_ptr<void> hold = nullptr)
      : MessageReader(options), chunk_(kj::mv(chunk)), at_(chunk_->data + at), last_(last), hold_(std::move(hold)) {}

  kj::ArrayPtr<const capnp::word> getSegment(uint id) override {
    const uint64_t segments = uint64_t{u32_at(at_)} + 1;
    if (id >= segments) return nullptr;
    const kj::byte* p = at_ + 8 * (segments / 2 + 1);
    for (uint i = 0; i < id; ++i) p += 8 * size_t{u32_at(at_ + 4 * (i + 1))};
    if (last_ && id + 1 == segments) p = last_;
    return kj::arrayPtr(reinterpret_cast<const capnp::word*>(p), u32_at(at_ + 4 * (id + 1)));
  }

 private:
  kj::Own<Chunk> chunk_;
  const kj::byte* at_;
  const kj::byte* last_;
  std::shared_ptr<void> hold_;
};

Stream::Stream(kj::AsyncIoStream& io, StreamLimits limits, kj::Own<BlockPool> pool, kj::Maybe<kj::Timer&> timer)
    : timer_(timer), io_(io), limits_(limits), pool_(kj::mv(pool)), failure_(nullptr), tasks_(*this) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  failed_ = kj::mv(paf.fulfiller), failure_ = paf.promise.fork();
  begin(idle_);
}

Stream::~Stream() noexcept(false) {}

void Stream::set_limits(const StreamLimits& limits) { limits_ = limits; }

// ---- deadlines

void Stream::begin(Watch& w) {
  KJ_IF_MAYBE (timer, timer_) {
    w.since = timer->now();
    if (!w.armed) {
      w.armed = true;
      tasks_.add(watch(w));
    }
  }
}

kj::Promise<void> Stream::watch(Watch& w) {
  auto& timer = KJ_ASSERT_NONNULL(timer_);
  if (&w == &idle_ && (busy() || unsent_ > 0)) w.since = timer.now();
  KJ_IF_MAYBE (since, w.since) {
    const auto due = *since + limits_.*w.limit;
    if (timer.now() < due) return timer.atTime(due).then([this, &w] { return watch(w); });
    fail(w.reason);
  }
  w.armed = false;
  return kj::READY_NOW;
}

void Stream::fail(Reject reason) {
  if (rejected_) return;
  rejected_ = reason;
  on_reject(reason);
  failed_->fulfill();
}

kj::Exception Stream::refuse(Reject reason) {
  fail(reason);
  return kj::Exception(kj::Exception::Type::DISCONNECTED, __FILE__, __LINE__,
                       kj::str("the connection is refused: ", name(reason)));
}

// ---- reading

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> Stream::tryReadMessage(kj::ArrayPtr<kj::AutoCloseFd>,
                                                                          capnp::ReaderOptions options,
                                                                          kj::ArrayPtr<capnp::word>) {
  return next(options);
}

kj::Promise<Stream::Message> Stream::next(capnp::ReaderOptions options) {
  if (rejected_) return refuse(*rejected_);
  if (queued() > limits_.queued_bytes) {
    return room().then([this, options] { return next(options); });
  }
  const auto head = buffered() ? read_head(buffer_->data + rpos_, buffered(), limits_) : FrameHead{};
  if (head.state == FrameHead::State::bad) return refuse(head.why);
  if (head.state == FrameHead::State::whole && buffered() >= head.total) {
    const size_t at = rpos_;
    rpos_ += head.total;
    end_of(frame_);
    if (head.total >= kShared) return deliver(kj::heap<Frame>(options, kj::addRef(*buffer_), at));
    auto copy = kj::refcounted<Chunk>(*pool_, head.total);
    std::memcpy(copy->data, buffer_->data + at, head.total);
    return deliver(kj::heap<Frame>(options, kj::mv(copy), 0));
  }
  if (buffered() == 0) {
    end_of(frame_);
  } else if (frame_.since == nullptr) {
    begin(frame_);
  }
  if (head.state == FrameHead::State::whole && head.total > kReadAhead) {
    Landing landing;
    size_t size = 0;
    if (auto frame = landed(options, head.total, landing, size); frame.get()) {
      const size_t have = std::min(buffered(), size);
      std::memcpy(landing.at, buffer_->data + rpos_, have);
      rpos_ += have;
      return read_landed(kj::mv(frame), landing.at + have, size - have);
    }
    const size_t have = buffered();
    auto chunk = kj::refcounted<Chunk>(*pool_, std::min(head.total, std::max(have * kGrowth, kFirstGrowth)));
    std::memcpy(chunk->data, buffer_->data + rpos_, have);
    rpos_ = rend_;
    return read_large(options, kj::mv(chunk), have, head.total);
  }
  return read_more(options);
}

kj::Promise<Stream::Message> Stream::read_more(capnp::ReaderOptions options) {
  const size_t have = buffered();
  const bool fresh = !buffer_.get() || (buffer_->isShared() && buffer_->size - rend_ < (4 << 10)) ||
                     (have == 0 && buffer_->size != want_) || have == buffer_->size;
  if (fresh) {
    if (buffer_.get() && have == buffer_->size) want_ = std::min(4 * have, kReadAhead);
    auto chunk = kj::refcounted<Chunk>(*pool_, want_);
    if (have) std::memcpy(chunk->data, buffer_->data + rpos_, have);
    buffer_ = kj::mv(chunk);
    rpos_ = 0, rend_ = have;
  } else if (!buffer_->isShared() && rpos_ > 0) {
    std::memmove(buffer_->data, buffer_->data + rpos_, have);
    rpos_ = 0, rend_ = have;
  }
  const size_t room = buffer_->size - rend_;
  return io_.tryRead(buffer_->data + rend_, 1, room).then([this, options, room](size_t n) -> kj::Promise<Message> {
    if (n == 0) {
      if (buffered()) return refuse(Reject::truncated);
      return Message(nullptr);
    }
    rend_ += n;
    begin(idle_);
    // The buffer follows the traffic, and gets small again where it is not needed for long.
    if (n == room) {
      want_ = std::min(4 * want_, kReadAhead), small_reads_ = 0;
    } else if (n >= want_ / 4) {
      small_reads_ = 0;
    } else if (++small_reads_ == 64) {
      want_ = 4 << 10;
    }
    return next(options);
  });
}

kj::Promise<Stream::Message> Stream::read_large(capnp::ReaderOptions options, kj::Own<Chunk> chunk, size_t have,
                                                size_t total) {
  if (have == total) {
    end_of(frame_);
    return deliver(kj::heap<Frame>(options, kj::mv(chunk), 0));
  }
  if (have == chunk->size) {
    auto more = kj::refcounted<Chunk>(*pool_, std::min(total, have * kGrowth));
    std::memcpy(more->data, chunk->data, have);
    chunk = kj::mv(more);
  }
  const size_t room = chunk->size - have;
  auto read = io_.tryRead(chunk->data + have, room, room);
  return read.then([this, options, chunk = kj::mv(chunk), have, total, room](size_t n) mutable -> kj::Promise<Message> {
    begin(idle_);
    if (n < room) return refuse(Reject::truncated);
    return read_large(options, kj::mv(chunk), have + n, total);
  });
}

/// Takes all but the last segment out of the buffer, if that segment has a place of its own.
kj::Own<Stream::Frame> Stream::landed(capnp::ReaderOptions options, size_t total, Landing& landing, size_t& size) {
  const kj::byte* at = buffer_->data + rpos_;
  size = 8 * size_t{u32_at(at + 4 * (size_t{u32_at(at)} + 1))};
  const size_t rest = total - size;
  if (size < kCopied || size > kZeros || rest > buffered() || u32_at(at) == 0) return {};
  auto chunk = kj::refcounted<Chunk>(*pool_, rest);
  std::memcpy(chunk->data, at, rest);
  try {
    Frame begun(options, kj::addRef(*chunk), 0, zeros());
    landing = land(begun, zeros(), size);
  } catch (const kj::Exception&) {
    landing = {};  // malformed: found again, and told, when it is whole
  }
  if (!landing.at) return {};
  rpos_ += rest;
  return kj::heap<Frame>(options, kj::mv(chunk), 0, landing.at, std::move(landing.hold));
}

kj::Promise<Stream::Message> Stream::read_landed(kj::Own<Frame> frame, kj::byte* to, size_t left) {
  auto read = left ? io_.tryRead(to, left, left) : kj::Promise<size_t>(size_t{0});
  return read.then([this, frame = kj::mv(frame), left](size_t n) mutable -> kj::Promise<Message> {
    begin(idle_);
    if (n < left) return refuse(Reject::truncated);
    end_of(frame_);
    return deliver(kj::mv(frame));
  });
}

Stream::Message Stream::deliver(kj::Own<Frame> frame) {
  std::optional<Reject> why;
  try {
    why = incoming(*frame);
  } catch (const kj::Exception&) {
    why = Reject::malformed;
  }
  if (why) throw refuse(*why);
  return Message(capnp::MessageReaderAndFds{kj::mv(frame), nullptr});
}

// ---- writing

void Stream::append(Segments segments) {
  const size_t n = segments.size();
  const size_t table = 8 * (n / 2 + 1);
  const auto put = [this](uint32_t v) {
    const kj::byte b[4] = {kj::byte(v), kj::byte(v >> 8), kj::byte(v >> 16), kj::byte(v >> 24)};
    out_.insert(out_.end(), b, b + 4);
  };
  put(static_cast<uint32_t>(n - 1));
  for (auto& s : segments) put(static_cast<uint32_t>(s.size()));
  if (n % 2 == 0) put(0);
  unsent_ += table;
}

kj::Promise<void> Stream::writeMessage(kj::ArrayPtr<const int>, Segments segments) {
  KJ_IF_MAYBE (e, broken_) return kj::cp(*e);
  outgoing(segments);
  size_t bytes = 0;
  for (auto& s : segments) bytes += s.size() * sizeof(capnp::word);
  const bool company = !out_.empty() && postponed_ == 0;
  if (out_.empty()) postponed_ = 0;
  postponed_ = carries_rpc && is_finish(segments) && !company ? postponed_ + 1 : 0;
  append(segments);
  if (bytes <= kCopied) {
    for (auto& s : segments) {
      const auto raw = s.asBytes();
      out_.insert(out_.end(), raw.begin(), raw.end());
    }
    unsent_ += bytes;
    let_go(segments);
    if (postponed_ == 0 || postponed_ > kPostponed) schedule();
    if (unsent_ <= kGathered) return kj::READY_NOW;
    auto paf = kj::newPromiseAndFulfiller<void>();
    Item item;
    item.done = kj::mv(paf.fulfiller);
    enqueue(kj::mv(item));
    return kj::mv(paf.promise);
  }
  auto paf = kj::newPromiseAndFulfiller<void>();
  Item item;
  item.done = kj::mv(paf.fulfiller);
  for (auto& s : segments) {
    if (s.size()) item.pieces.push_back(s.asBytes());
  }
  enqueue(kj::mv(item));
  return paf.promise.then([this, segments] { let_go(segments); });
}

kj::Promise<void> Stream::writeMessages(kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>> messages) {
  auto all = kj::heapArrayBuilder<kj::Promise<void>>(messages.size());
  for (auto& m : messages) all.add(writeMessage(nullptr, m));
  return kj::joinPromises(all.finish());
}

kj::Promise<void> Stream::end() {
  KJ_IF_MAYBE (e, broken_) return kj::cp(*e);
  auto paf = kj::newPromiseAndFulfiller<void>();
  Item item;
  item.done = kj::mv(paf.fulfiller), item.last = true;
  enqueue(kj::mv(item));
  return kj::mv(paf.promise);
}

void Stream::schedule() {
  if (scheduled_ || writing_) return;  // whoever writes looks again afterwards
  scheduled_ = true;
  tasks_.add(kj::evalLast([this] {
    scheduled_ = false;
    pump();
  }));
}

void Stream::enqueue(Item item) {
  item.bytes = kj::mv(out_);
  out_ = kj::mv(spare_);
  out_.clear(), spare_ = {};
  items_.push_back(kj::mv(item));
  pump();
}

void Stream::pump() {
  if (writing_ || broken_ != nullptr) return;
  if (items_.empty()) {
    if (out_.empty()) return;
    Item item;
    item.bytes = kj::mv(out_);
    out_ = kj::mv(spare_);
    out_.clear(), spare_ = {};
    items_.push_back(kj::mv(item));
  }
  writing_ = true;
  begin(stall_);
  Item& item = items_.front();
  item.size = item.bytes.size();
  if (!item.bytes.empty()) item.pieces.insert(item.pieces.begin(), kj::arrayPtr(item.bytes.data(), item.bytes.size()));
  auto write = item.pieces.empty() ? kj::Promise<void>(kj::READY_NOW)
                                   : io_.write(kj::arrayPtr(item.pieces.data(), item.pieces.size()));
  tasks_.add(write.then([this] { written(items_.front()); }));
}

void Stream::written(Item& item) {
  writing_ = false;
  end_of(stall_);
  unsent_ -= item.size;
  if (item.last) io_.shutdownWrite();
  KJ_IF_MAYBE (done, item.done) (*done)->fulfill();
  if (item.bytes.capacity() <= kReadAhead) spare_ = kj::mv(item.bytes);
  items_.pop_front();
  pump();
  check_waiters();
}

void Stream::broken(kj::Exception&& e) {
  if (broken_ != nullptr) return;
  for (auto& item : items_) {
    KJ_IF_MAYBE (done, item.done) (*done)->reject(kj::cp(e));
  }
  broken_ = kj::mv(e);
  failed_->fulfill();
}

void Stream::taskFailed(kj::Exception&& e) { broken(kj::mv(e)); }

// ---- waiting for room, and what must live until it is written

bool Stream::has_room(size_t bytes) {
  if (announced_ || !waiters_.empty() || queued() > limits_.queued_bytes) return false;
  if (bytes > kSmall) {
    announced_ = true;
    check_waiters();
  }
  return true;
}

kj::Promise<void> Stream::room() {
  auto paf = kj::newPromiseAndFulfiller<void>();
  waiters_.push_back(kj::mv(paf.fulfiller));
  check_waiters();
  return kj::mv(paf.promise);
}

void Stream::check_waiters() {
  if (checking_ || (!announced_ && waiters_.empty() && holds_.empty())) return;
  checking_ = true;
  // Last of all: by then the network above has let go of what is written, and who was released before has written.
  tasks_.add(kj::evalLast([this] {
    checking_ = false;
    announced_ = false;
    if (queued() == 0 && !writing_ && items_.empty()) holds_.clear(), held_bytes_ = 0;
    if (waiters_.empty() || queued() > limits_.queued_bytes) return;
    waiters_.front()->fulfill();
    waiters_.pop_front();
    announced_ = true;
    check_waiters();
  }));
}

void Stream::hold(const void* begin, size_t size, std::shared_ptr<const void> owner) {
  holds_.emplace(begin, std::make_pair(size, std::move(owner)));
  held_bytes_ += size;
}

void Stream::let_go(Segments segments) {
  if (holds_.empty()) return;
  for (auto& s : segments) {
    const auto it = holds_.find(s.begin());
    if (it == holds_.end()) continue;
    held_bytes_ -= it->second.first;
    holds_.erase(it);
  }
}

}  // namespace gradwire::wire
