#include "server/memory_limit.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <string>

namespace gradwire::server {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMiB = 1 << 20, kMachine = 8192 * kMiB;

/// A file system of the test's own, with a machine of 8 GiB.
struct Root {
  fs::path path = fs::temp_directory_path() / ("gradwire_memory_" + std::to_string(::getpid()));
  Root() { write("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:          12345 kB\n"); }
  ~Root() { fs::remove_all(path); }
  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((path / file).parent_path());
    std::ofstream(path / file) << text;
  }
  void write_limit(const fs::path& file, int64_t bytes) const { write(file, std::to_string(bytes) + "\n"); }
};

TEST_CASE("memory without a cgroup is the machine's", "[server][memory_limit]") {
  const Root root;
  CHECK(memory_limit(root.path) == kMachine);
  CHECK(memory_limit(root.path / "nothing") == int64_t{4} << 30);
}

TEST_CASE("a limit of cgroup version 2 counts, and max is none", "[server][memory_limit]") {
  const Root root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  CHECK(memory_limit(root.path) == kMachine);
  root.write_limit("sys/fs/cgroup/memory.max", 512 * kMiB);
  CHECK(memory_limit(root.path) == 512 * kMiB);
  root.write_limit("sys/fs/cgroup/memory.max", 2 * kMachine);
  CHECK(memory_limit(root.path) == kMachine);
}

TEST_CASE("the least limit of the groups above counts", "[server][memory_limit]") {
  const Root root;
  root.write("proc/self/cgroup", "0::/kube.slice/pod1/box\n");
  root.write("sys/fs/cgroup/kube.slice/pod1/box/memory.max", "max\n");
  root.write_limit("sys/fs/cgroup/kube.slice/pod1/memory.max", 700 * kMiB);
  root.write_limit("sys/fs/cgroup/kube.slice/memory.max", 900 * kMiB);
  CHECK(memory_limit(root.path) == 700 * kMiB);
  root.write_limit("sys/fs/cgroup/kube.slice/pod1/box/memory.max", 600 * kMiB);
  CHECK(memory_limit(root.path) == 600 * kMiB);
  root.write_limit("sys/fs/cgroup/kube.slice/pod2/memory.max", 100 * kMiB);  // a neighbour's
  CHECK(memory_limit(root.path) == 600 * kMiB);
}

TEST_CASE("a limit of cgroup version 1 counts, by the host's path or at the top of the mount",
          "[server][memory_limit]") {
  const Root root;
  root.write("proc/self/cgroup", "12:cpu,cpuacct:/a\n7:devices,memory:/docker/b\n0::/c\n");
  root.write_limit("sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712);  // what version 1 says for none
  CHECK(memory_limit(root.path) == kMachine);
  root.write_limit("sys/fs/cgroup/memory/memory.limit_in_bytes", 300 * kMiB);
  CHECK(memory_limit(root.path) == 300 * kMiB);
  root.write_limit("sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", 200 * kMiB);
  CHECK(memory_limit(root.path) == 200 * kMiB);
  root.write_limit("sys/fs/cgroup/memory/a/memory.limit_in_bytes", 100 * kMiB);  // of another controller
  CHECK(memory_limit(root.path) == 200 * kMiB);
}

TEST_CASE("lines that mean nothing are passed over", "[server][memory_limit]") {
  const Root root;
  root.write("proc/self/cgroup", "\n:\n::\n0::\n0::../../x\nmemory\n5:memory:\n0::/ok\n");
  root.write_limit("sys/fs/cgroup/ok/memory.max", 64 * kMiB);
  CHECK(memory_limit(root.path) == 64 * kMiB);
  root.write("sys/fs/cgroup/ok/memory.max", "-5\n");
  CHECK(memory_limit(root.path) == kMachine);
}

}  // namespace
}  // namespace gradwire::server
