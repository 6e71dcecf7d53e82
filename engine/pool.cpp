#include "engine/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "schema/error.h"

namespace gradwire::engine {
namespace {
constexpr size_t kHead = 64;  // a Map, and the alignment of what follows
constexpr size_t kPast = 64;  // readable behind the last block
}  // namespace

void Pool::refuse(size_t bytes) const {
  throw Error(Code::memory_limit, "out of memory: tried to allocate " + std::to_string(bytes) + " bytes; " +
                                      std::to_string(std::max<int64_t>(0, limit_ - used_)) +
                                      " of the session's limit of " + std::to_string(limit_) + " bytes are left");
}

void Pool::make_room(size_t bytes, size_t size) {
  collect();
  if (used_ + static_cast<int64_t>(size) > limit_) refuse(bytes);
}

Pool::Map* Pool::map(size_t bytes) {
  bytes = (kHead + bytes + kPast + 4095) / 4096 * 4096;
  const size_t align = bytes >= kHuge ? kHuge : 4096;  // small mappings need no huge page
  if (mapped_ + static_cast<int64_t>(bytes) > limit_ + kSlack) {
    trim();
    if (mapped_ + static_cast<int64_t>(bytes) > limit_ + kSlack) refuse(bytes);
  }
  void* p = mmap(nullptr, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw Error(Code::memory_limit, "out of memory: the machine has no " + std::to_string(bytes) + " bytes left");
  const uintptr_t from = reinterpret_cast<uintptr_t>(p), at = (from + align - 1) / align * align;
  if (at > from) munmap(p, at - from);
  if (at - from < align) munmap(reinterpret_cast<void*>(at + bytes), align - (at - from));
  char* start = reinterpret_cast<char*>(at);
  if (bytes >= kHuge) madvise(start, bytes, MADV_HUGEPAGE);
  maps_ = new (start) Map{.next = maps_, .prev = nullptr, .bytes = bytes};
  if (maps_->next) maps_->next->prev = maps_;
  mapped_ += static_cast<int64_t>(bytes);
  return maps_;
}

void Pool::unmap(Map* m) {
  (m->prev ? m->prev->next : maps_) = m->next;
  if (m->next) m->next->prev = m->prev;
  mapped_ -= static_cast<int64_t>(m->bytes);
  open(m, m->bytes);
  munmap(m, m->bytes);
}

// The slab that a small block was cut from: all but the first are aligned to their size.
Pool::Map* Pool::slab_of(Block* b) const {
  const auto at = reinterpret_cast<uintptr_t>(b), first = reinterpret_cast<uintptr_t>(first_slab_);
  return at - first < first_slab_->bytes ? first_slab_ : reinterpret_cast<Map*>(at / kHuge * kHuge);
}

// Gives mappings of which every block is free back to the system.
void Pool::trim() {
  const int small = class_of(kLarge);
  for (int c = small + 1; c < kClasses; ++c) {
    while (Block* b = free_[c]) {
      free_[c] = b->next;
      unmap(reinterpret_cast<Map*>(reinterpret_cast<char*>(b) - kHead));
    }
  }
  if (!first_slab_) return;
  for (int c = 0; c <= small; ++c) {
    for (Block* b = free_[c]; b; b = b->next) slab_of(b)->free += class_bytes(c);
  }
  auto idle = [this](const Map* m) { return m->cut > 0 && m->free == m->cut && m != first_slab_; };
  for (int c = 0; c <= small; ++c) {
    for (Block** at = &free_[c]; *at;) {
      if (idle(slab_of(*at)))
        *at = (*at)->next;
      else
        at = &(*at)->next;
    }
  }
  for (Map *m = maps_, *next; m; m = next) {
    next = m->next;
    const bool gone = idle(m);
    m->free = 0;
    if (!gone) continue;
    if (m == slab_) slab_ = nullptr, fresh_ = nullptr, fresh_left_ = 0;
    unmap(m);
  }
}

void* Pool::grow(int c) {
  collect();
  if (Block* b = free_[c]) return free_[c] = b->next, b;
  const size_t bytes = class_bytes(c);
  if (c > class_of(kLarge)) return reinterpret_cast<char*>(map(bytes)) + kHead;
  const size_t gap = bytes < 256 ? 0 : -reinterpret_cast<uintptr_t>(fresh_) % 64;
  if (fresh_left_ < gap + bytes) {
    // The first slab is small, so that ten thousand idle sessions cost little.
    const size_t slab = std::max(bytes, first_slab_ ? kHuge - kHead - kPast : size_t{64} << 10);
    slab_ = map(slab);
    if (!first_slab_) first_slab_ = slab_;
    fresh_ = reinterpret_cast<char*>(slab_) + kHead, fresh_left_ = slab;
  } else {
    fresh_ += gap, fresh_left_ -= gap;
  }
  slab_->cut += bytes;
  fresh_left_ -= bytes;
  return (fresh_ += bytes) - bytes;
}

void Pool::give_remote(void* p, size_t bytes) {
  const std::lock_guard lock(remote_lock_);
  remote_ = new (p) Remote{remote_, bytes};
  remote_any_.store(true, std::memory_order_relaxed);
}

void Pool::uncharge_remote(size_t bytes) {
  const std::lock_guard lock(remote_lock_);
  remote_charge_ += static_cast<int64_t>(bytes);
  remote_any_.store(true, std::memory_order_relaxed);
}

void Pool::collect_remote() {
  Remote* r;
  {
    const std::lock_guard lock(remote_lock_);
    r = std::exchange(remote_, nullptr);
    used_ -= std::exchange(remote_charge_, 0);
    remote_any_.store(false, std::memory_order_relaxed);
  }
  while (r) {
    Remote* next = r->next;
    give(r, r->bytes);
    r = next;
  }
}

Pool::~Pool() {
  while (maps_) unmap(maps_);
}

}  // namespace gradwire::engine
