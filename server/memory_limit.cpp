#include "server/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace gradwire::server {
namespace {

namespace fs = std::filesystem;

/// The least limit of the group and those above it. A container often sees its own group at the top of the mount and
/// the host's path in /proc/self/cgroup, so a level that is not there is no error. "max" is no number: no limit.
int64_t least(const fs::path& mount, fs::path group, const char* file, int64_t limit) {
  for (;; group = group.parent_path()) {
    std::ifstream in(mount / group.relative_path() / file);
    int64_t bytes = 0;
    if (in >> bytes && bytes > 0) limit = std::min(limit, bytes);
    if (!group.has_relative_path()) return limit;
  }
}

}  // namespace

int64_t memory_limit(const fs::path& root) {
  int64_t limit = int64_t{4} << 30;
  std::string word;
  int64_t kib = 0;
  for (std::ifstream in(root / "proc/meminfo"); in >> word;) {
    if (word == "MemTotal:" && in >> kib && kib > 0) {
      limit = kib * 1024;
      break;
    }
  }
  // A line is "0::/path" of version 2, or "7:cpu,memory:/path" of version 1.
  fs::path unified = "/", memory = "/";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") unified = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) memory = line.substr(second + 1);
  }
  const fs::path mount = root / "sys/fs/cgroup";
  limit = least(mount, unified, "memory.max", limit);
  return least(mount / "memory", memory, "memory.limit_in_bytes", limit);
}

}  // namespace gradwire::server
