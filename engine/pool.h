#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#if GRADWIRE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace gradwire::engine {

/// One session's host memory: free lists by size class over blocks that stay mapped while the pool lives. Large blocks
/// are huge-page backed and stay warm, so a new result costs no page faults. What is mapped is bounded by the limit:
/// when it is reached, mappings of which nothing is in use go back to the system first.
///
/// Owned by one thread at a time (the session's queue), but for give_remote() and the reference count. take() returns
/// memory, fresh or from this owner, that may be read, not written, up to 64 bytes past the asked size; it is aligned
/// to 16 bytes, from 256 bytes on to 64.
class Pool {
 public:
  /// limit: bytes that take() may have given out at a time; the mapped memory stays below limit + kSlack.
  static Pool* make(int64_t limit) { return new Pool(limit); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  /// Throws Error{memory_limit} that names what was asked and what is left.
  void* take(size_t bytes) {
    const int c = class_of(bytes);
    const size_t size = class_bytes(c);
    if (used_ + static_cast<int64_t>(size) > limit_) make_room(bytes, size);
    Block* b = free_[c];
    if (b) {
      free_[c] = b->next;
    } else {
      b = static_cast<Block*>(grow(c));
    }
    count(size);
    open(b, size);
    return b;
  }
  /// bytes is the size that take() was asked for.
  void give(void* p, size_t bytes) {
    const int c = class_of(bytes);
    used_ -= static_cast<int64_t>(class_bytes(c));
    free_[c] = new (p) Block{free_[c]};
    close(p, class_bytes(c));
  }
  /// From any thread: the block comes back at the next collect().
  void give_remote(void* p, size_t bytes);
  /// Takes in what other threads gave back. Called by the owner, now and then.
  void collect() {
    if (remote_any_.load(std::memory_order_relaxed)) collect_remote();
  }

  /// Counts memory that lives elsewhere (a device) against the limit.
  void charge(size_t bytes) {
    if (used_ + static_cast<int64_t>(bytes) > limit_) make_room(bytes, bytes);
    count(bytes);
  }
  void uncharge(size_t bytes) { used_ -= static_cast<int64_t>(bytes); }
  /// From any thread: as give_remote().
  void uncharge_remote(size_t bytes);

  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }  // the most that was in use at a time
  int64_t limit() const { return limit_; }
  int64_t mapped() const { return mapped_; }

  static constexpr int64_t kSlack = int64_t{16} << 20;

 private:
  explicit Pool(int64_t limit) : limit_(limit) {}
  ~Pool();
  struct Block {
    Block* next;
  };
  struct Remote {
    Remote* next;
    size_t bytes;
  };
  struct Map {  // before the first block of every mapping
    Map *next, *prev;
    size_t bytes;
    size_t cut = 0, free = 0;  // of a slab: bytes cut into blocks, and of those, in trim(), the free ones
  };
  static constexpr int kClasses = 4 * 64;
  static constexpr size_t kHuge = size_t{2} << 20,
                          kLarge = size_t{1} << 20;  // larger blocks have a mapping of their own

  /// Four classes to a doubling: at most a fifth is lost.
  static int class_of(size_t bytes) {
    if (bytes <= 64) return 0;
    const int log = 63 - __builtin_clzll(bytes - 1);
    return 4 * (log - 6) + static_cast<int>((bytes - 1) >> (log - 2) & 3) + 1;
  }
  static size_t class_bytes(int c) { return c == 0 ? 64 : (size_t{4} + (c - 1) % 4 + 1) << ((c - 1) / 4 + 4); }
  // AddressSanitizer sees the use of a free block, but for its first bytes: they hold the list, and may be read past
  // the end of the block before.
#if GRADWIRE_ASAN
  static void open(void* p, size_t bytes) { __asan_unpoison_memory_region(p, bytes); }
  static void close(void* p, size_t bytes) {
    __asan_poison_memory_region(static_cast<char*>(p) + 64, bytes < 64 ? 0 : bytes - 64);
  }
#else
  static void open(void*, size_t) {}
  static void close(void*, size_t) {}
#endif
  void count(size_t bytes) {
    used_ += static_cast<int64_t>(bytes);
    peak_ = used_ > peak_ ? used_ : peak_;
  }
  [[noreturn]] void refuse(size_t bytes) const;
  void make_room(size_t bytes, size_t size);
  void* grow(int c);
  Map* map(size_t bytes);
  Map* slab_of(Block*) const;
  void unmap(Map*);
  void trim();
  void collect_remote();

  std::atomic<int32_t> refs_{1};
  Block* free_[kClasses] = {};
  Map *slab_ = nullptr, *first_slab_ = nullptr;  // the one that is being cut; the first one, which is small
  char* fresh_ = nullptr;
  size_t fresh_left_ = 0;
  int64_t limit_, used_ = 0, peak_ = 0, mapped_ = 0;
  Map* maps_ = nullptr;
  std::atomic<bool> remote_any_{false};
  std::mutex remote_lock_;
  Remote* remote_ = nullptr;
  int64_t remote_charge_ = 0;  // to be taken off
};

}  // namespace gradwire::engine
