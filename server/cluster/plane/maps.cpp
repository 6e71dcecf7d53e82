#include "server/cluster/plane/maps.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <string>

#include "schema/error.h"
#include "server/cluster/plane/orders.h"

namespace gradwire::server::cluster::plane {

namespace {
constexpr size_t kKept = 128;  // descriptors: a process may have 1024
}

void Maps::clear() {
  for (auto& [id, m] : maps_) ::munmap(m.data, m.size);
  maps_.clear(), ids_.clear();
  kept_ = 0;
}

void Maps::add(uint64_t id, Fd memory, Use use) {
  struct stat s;
  const bool there = memory && ::fstat(memory.get(), &s) == 0 && s.st_size > 0;
  // On huge pages it could still be emptied.
  struct statfs fs;
  const bool pages = there && ::fstatfs(memory.get(), &fs) == 0 && fs.f_type == TMPFS_MAGIC;
  const int seals = pages ? ::fcntl(memory.get(), F_GET_SEALS) : -1;
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || maps_.size() >= kMaxAreas || maps_.count(id))
    throw Error(Code::internal, "data plane: no area");
  const auto size = static_cast<size_t>(s.st_size);
  void* at = ::mmap(nullptr, size, use == Use::write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED)
    throw Error(Code::memory_limit, "data plane: the helper cannot map " + std::to_string(size) + " bytes");
  const bool keeps = use == Use::write && kept_ < kKept;
  kept_ += keeps;
  ids_[static_cast<char*>(at)] = id;
  maps_.emplace(id, Map{static_cast<char*>(at), size, keeps ? std::move(memory) : Fd()});
}

void Maps::drop(uint64_t id) {
  const auto found = maps_.find(id);
  if (found == maps_.end()) return;
  Map& m = found->second;
  kept_ -= static_cast<bool>(m.memory);
  ::munmap(m.data, m.size);
  ids_.erase(m.data);
  maps_.erase(found);
}

char* Maps::at(uint64_t id, uint64_t offset, size_t bytes) const {
  const auto found = maps_.find(id);
  if (found == maps_.end() || offset > found->second.size || bytes > found->second.size - offset) return nullptr;
  return found->second.data + offset;
}

std::optional<Maps::Place> Maps::find(const char* data, size_t bytes) const {
  auto next = ids_.upper_bound(data);
  if (next == ids_.begin()) return std::nullopt;
  const auto& [begin, id] = *--next;
  const Map& m = maps_.at(id);
  const auto offset = static_cast<size_t>(data - begin);
  if (!m.memory || offset > m.size || bytes > m.size - offset) return std::nullopt;
  if (!m.sealed && ::fcntl(m.memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)) return std::nullopt;
  m.sealed = true;
  return Place{id, offset, m.memory.get()};
}

}  // namespace gradwire::server::cluster::plane
