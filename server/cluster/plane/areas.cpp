#include "server/cluster/plane/areas.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <system_error>

#include "server/cluster/plane/orders.h"

namespace gradwire::server::cluster::plane {

namespace {

constexpr size_t kSmallest = size_t{64} << 10;
constexpr size_t kKept = 16, kKeptBytes = size_t{256} << 20;  // of which one may be larger
constexpr size_t kKeptTogether = size_t{1} << 30;             // by all planes of the process
std::atomic<size_t> kept_together{0};

/// What `bytes` are rounded up to: four sizes for each power of two, so that tensors of one model find what others
/// left.
size_t size_class(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

[[noreturn]] void fail(const char* what, size_t size) {
  throw Error(Code::memory_limit, std::string("data plane: ") + what + " of " + std::to_string(size) +
                                      " bytes: " + std::generic_category().message(errno));
}

}  // namespace

Memory::Memory(size_t n) : size(n), fd(::memfd_create("gradwire-area", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  static std::atomic<uint64_t> next{1};
  id = next++;
  if (!fd) fail("memfd_create", size);
  if (::ftruncate(fd.get(), static_cast<off_t>(size))) fail("ftruncate", size);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) fail("sealing", size);
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) fail("mmap", size);
  data = static_cast<std::byte*>(at);
}

Memory::~Memory() {
  if (!data) return;
  ::madvise(data, size, MADV_REMOVE);  // fails where it was lent: who reads it keeps it until he has let go
  ::munmap(data, size);
}

PlaneArea::PlaneArea(std::shared_ptr<Areas> areas, std::unique_ptr<Memory> memory, size_t n)
    : areas_(std::move(areas)), memory_(std::move(memory)) {
  if (memory_) bytes = {memory_->data, n};
}

PlaneArea::~PlaneArea() {
  if (memory_) areas_->give_back(std::move(memory_));
}

AreaPtr Areas::take(size_t bytes) {
  std::unique_ptr<Memory> memory;
  if (bytes) {
    const auto refuse = [&](const std::string& why) {
      throw Error(Code::memory_limit, "data plane: " + std::to_string(bytes) + " bytes are asked for, " + why);
    };
    if (bytes > static_cast<uint64_t>(limit_))
      refuse("and its tensors may have " + std::to_string(limit_) + " together");
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(kept_.begin(), kept_.end(), [&](const auto& m) { return m->size == size; });
    if (fits != kept_.end()) {
      memory = std::move(*fits);
      kept_bytes_ -= size, kept_together -= size;
      kept_.erase(fits);
    } else {
      const auto left = [&] { return limit_ - used_; };
      while (!kept_.empty() && (static_cast<int64_t>(size) > left() || number_ >= kMaxAreas)) drop_oldest();
      if (static_cast<int64_t>(size) > left()) {
        refuse(std::to_string(used_) + " of its " + std::to_string(limit_) + " are in use");
      }
      if (number_ >= kMaxAreas) refuse("and " + std::to_string(number_) + " tensors are under way");
      memory = std::make_unique<Memory>(size);
      used_ += static_cast<int64_t>(size), ++number_;
    }
  }
  return std::make_shared<PlaneArea>(shared_from_this(), std::move(memory), bytes);
}

std::vector<uint64_t> Areas::gone() {
  const std::lock_guard lock(mutex_);
  return std::exchange(gone_, {});
}

void Areas::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  while (!kept_.empty()) drop_oldest();
  gone_.clear();
}

void Areas::give_back(std::unique_ptr<Memory> memory) {
  const std::lock_guard lock(mutex_);
  kept_bytes_ += memory->size, kept_together += memory->size;
  kept_.push_back(std::move(memory));
  while (!kept_.empty() && (closed_ || kept_.size() > kKept || (kept_.size() > 1 && kept_bytes_ > kKeptBytes) ||
                            kept_together > kKeptTogether)) {
    drop_oldest();
  }
}

void Areas::drop_oldest() {
  const Memory& m = *kept_.front();
  used_ -= static_cast<int64_t>(m.size), --number_;
  kept_bytes_ -= m.size, kept_together -= m.size;
  if (!m.fd && !closed_) gone_.push_back(m.id);
  kept_.pop_front();
}

}  // namespace gradwire::server::cluster::plane
