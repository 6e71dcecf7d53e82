#pragma once

#include <cstdint>
#include <filesystem>

namespace gradwire::server {

/// Bytes of memory that this process may use: the least of what the machine has and what the limits of its cgroup and
/// of those above allow, of cgroup versions 1 and 2. 4 GiB where nothing can be read. `root` is "/", or a test's.
int64_t memory_limit(const std::filesystem::path& root = "/");

}  // namespace gradwire::server
