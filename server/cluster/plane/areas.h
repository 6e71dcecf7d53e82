#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "server/cluster/collective.h"
#include "server/cluster/plane/fd.h"

namespace gradwire::server::cluster::plane {

/// Memory that a helper maps too: a memfd that cannot shrink.
struct Memory {
  explicit Memory(size_t size);  // throws Error{memory_limit}
  ~Memory();                     // gives the pages back at once, unless they were lent
  Memory(const Memory&) = delete;

  uint64_t id;  // unique in the process
  size_t size;
  std::byte* data = nullptr;
  Fd fd;  // until the helper has it
};

class Areas;
class PlaneArea final : public Area {
 public:
  PlaneArea(std::shared_ptr<Areas>, std::unique_ptr<Memory>, size_t bytes);
  ~PlaneArea() override;
  const Areas* owner() const { return areas_.get(); }
  /// None for an area of no bytes.
  Memory* memory() const { return memory_.get(); }

 private:
  std::shared_ptr<Areas> areas_;
  std::unique_ptr<Memory> memory_;
};

/// The areas of one plane. A few that nobody holds are kept for the next who asks for such a size: their pages are
/// there and mapped in both processes. Any thread may call.
class Areas : public std::enable_shared_from_this<Areas> {
 public:
  explicit Areas(int64_t limit) : limit_(limit) {}
  ~Areas() { close(); }
  /// Contents are whatever they are. Throws Error{memory_limit} before it takes any.
  AreaPtr take(size_t bytes);
  /// Ids of memory that is no more, for the helper to unmap.
  std::vector<uint64_t> gone();
  /// Keeps nothing from now on.
  void close();

 private:
  friend class PlaneArea;
  void give_back(std::unique_ptr<Memory>);
  void drop_oldest();

  const int64_t limit_;
  std::mutex mutex_;
  bool closed_ = false;
  int64_t used_ = 0;                         // bytes, of those that are kept too
  size_t number_ = 0;                        // of them
  std::list<std::unique_ptr<Memory>> kept_;  // the one kept longest first
  size_t kept_bytes_ = 0;
  std::vector<uint64_t> gone_;
};

}  // namespace gradwire::server::cluster::plane
