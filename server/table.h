#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "schema/error.h"
#include "server/engine.h"

namespace gradwire::server {

/// One entry of a session: a tensor, or the place of one that a `grad` step left empty.
struct Entry {
  engine::Tensor tensor;
  int32_t count = -1;  // of the first entry of a list result: how many there are
  bool used = false;
};

/// A session's entries by id. Clients choose ids below kServerIds, in ascending order; entries that HTTP makes take
/// theirs from kServerIds upward. Pages, because ids are dense: a look-up hashes no string and allocates nothing.
/// Pointers to entries stay valid until the entry is erased. Belongs to the session's queue.
class Table {
 public:
  static constexpr uint64_t kServerIds = uint64_t{1} << 63;
  static constexpr uint64_t kListRoom = uint64_t{1} << 20;  // ids that a client leaves free behind a list result

  explicit Table(int64_t max_entries, uint64_t seed) : max_entries_(max_entries), pages_(0, Hash{seed}) {}

  Entry* find(uint64_t id) {
    Page* p = page(id / kPage);
    if (!p) return nullptr;
    Entry& e = p->entries[id % kPage];
    return e.used ? &e : nullptr;
  }

  /// Throws unless `count` entries may be made at `id`: bad_program for ids that are not above all before, memory_limit
  /// for more entries than the session may have.
  void check_room(uint64_t id, uint64_t count) const {
    if (id <= top_ || id >= kServerIds || count > kServerIds - id)
      throw Error(Code::bad_program, "the id " + std::to_string(id) + " is in use or not above the ids before it");
    check_count(count);
  }
  /// check_room() has been asked.
  Entry& add(uint64_t id, engine::Tensor t) {
    top_ = id;
    return place(id, std::move(t));
  }
  /// An entry under an id of the server's.
  uint64_t add_own(engine::Tensor t) {
    check_count(1);
    place(next_own_, std::move(t));
    return next_own_++;
  }
  bool erase(uint64_t id) {
    Page* p = page(id / kPage);
    if (!p || !p->entries[id % kPage].used) return false;
    p->entries[id % kPage] = Entry{};
    --size_;
    if (--p->live == 0) drop(id / kPage);
    return true;
  }
  void clear() {
    cache_ = {};
    pages_.clear();
    spare_.clear();
    size_ = 0;
  }
  size_t size() const { return size_; }
  std::vector<uint64_t> ids() const {
    std::vector<uint64_t> all;
    for (const auto& [n, p] : pages_) {
      for (uint64_t i = 0; i < kPage; ++i) {
        if (p->entries[i].used) all.push_back(n * kPage + i);
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  static constexpr uint64_t kPage = 32;
  struct Page {
    std::array<Entry, kPage> entries;
    uint32_t live = 0;
  };
  struct Hash {  // seeded, so that nobody can aim at one bucket
    uint64_t seed = 0;
    size_t operator()(uint64_t n) const {
      n = (n ^ seed) * 0x9E3779B97F4A7C15u;
      n = (n ^ (n >> 32)) * 0xD6E8FEB86659FD93u;
      return n ^ (n >> 29);
    }
  };
  struct Cached {
    uint64_t number = ~uint64_t{0};
    Page* page = nullptr;
  };

  Page* page(uint64_t n) {
    Cached& c = cache_[n % cache_.size()];
    if (c.number == n) return c.page;
    const auto found = pages_.find(n);
    if (found == pages_.end()) return nullptr;
    c = {n, found->second.get()};
    return c.page;
  }
  Entry& place(uint64_t id, engine::Tensor t) {
    const uint64_t n = id / kPage;
    Page* p = page(n);
    if (!p) {
      std::unique_ptr<Page> fresh;
      if (spare_.empty()) {
        fresh = std::make_unique<Page>();
      } else {
        fresh = std::move(spare_.back());
        spare_.pop_back();
      }
      p = fresh.get();
      pages_.emplace(n, std::move(fresh));
      cache_[n % cache_.size()] = {n, p};
    }
    Entry& e = p->entries[id % kPage];
    e.tensor = std::move(t), e.count = -1, e.used = true;
    ++p->live, ++size_;
    return e;
  }
  void drop(uint64_t n) {
    const auto found = pages_.find(n);
    if (spare_.size() < 64) spare_.push_back(std::move(found->second));
    pages_.erase(found);
    cache_[n % cache_.size()] = {};
  }
  void check_count(uint64_t more) const {
    if (more > static_cast<uint64_t>(max_entries_) - std::min<uint64_t>(size_, static_cast<uint64_t>(max_entries_)))
      throw Error(Code::memory_limit, "the session may hold " + std::to_string(max_entries_) + " tensors and has " +
                                          std::to_string(size_) + "; " + std::to_string(more) + " more were asked for");
  }

  int64_t max_entries_;
  uint64_t top_ = 0, next_own_ = kServerIds;
  size_t size_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Page>, Hash> pages_;
  std::array<Cached, 32> cache_;
  std::vector<std::unique_ptr<Page>> spare_;
};

}  // namespace gradwire::server
