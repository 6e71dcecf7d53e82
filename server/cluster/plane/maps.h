#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "server/cluster/plane/fd.h"

namespace gradwire::server::cluster::plane {

/// Memory of another process that this one has mapped, by the numbers which that process gives it.
class Maps {
 public:
  Maps() = default;
  Maps(const Maps&) = delete;
  ~Maps() { clear(); }
  void clear();
  enum class Use { write, read };
  /// Throws Error{internal}: the number is taken, there are too many, or it is not a memfd whose size stays: memory
  /// that could be cut off would end this process at the next access. Error{memory_limit}: it cannot be mapped.
  void add(uint64_t id, Fd memory, Use);
  void drop(uint64_t id);
  /// Null if not all of it is there.
  char* at(uint64_t id, uint64_t offset, size_t bytes) const;

  /// Where these bytes are, for a third process to map as well.
  struct Place {
    uint64_t id, offset;
    int memory;
  };
  /// Nothing if they are in no map, or in one of those whose descriptor is not kept. Nobody can write into that memory
  /// who has not mapped it already, nor take its pages away from readers.
  std::optional<Place> find(const char* data, size_t bytes) const;

 private:
  struct Map {
    char* data;
    size_t size;
    Fd memory;
    mutable bool sealed = false;
  };
  std::map<uint64_t, Map> maps_;
  std::map<const char*, uint64_t> ids_;  // by address
  size_t kept_ = 0;                      // descriptors
};

}  // namespace gradwire::server::cluster::plane
