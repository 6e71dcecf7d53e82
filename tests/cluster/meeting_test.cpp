#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "server/cluster/meeting.h"
#include "tests/cluster/rig.h"

namespace gradwire::server::cluster {
namespace {

using std::chrono::milliseconds;

std::string outcome(Joined j) {
  auto r = j.get();
  return r ? "joined" : r.error().message();
}

/// The lock of a meeting's file, as a process has it that does not let go. Waits for the file, and that it is written.
class Held {
 public:
  explicit Held(const std::string& path) {
    for (std::error_code none; std::filesystem::file_size(path, none) == 0 || none;) std::this_thread::yield();
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock {};
    lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET;
    REQUIRE(::fcntl(fd_, F_OFD_SETLKW, &lock) == 0);
  }
  ~Held() { ::close(fd_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  int fd_;
};

/// Ranks that wait in one file each, for as long as the asker is there; and who holds all these files up.
struct Waiting {
  static constexpr int kFiles = 60;
  explicit Waiting(Cluster& c) {
    for (int i = 0; i < kFiles; ++i) {
      JoinOptions o;
      o.init_method = "file://" + path(i), o.world_size = 2;
      o.timeout = std::chrono::hours(1), o.asker = asker;
      joined.push_back(join(c, o));
    }
    for (int i = 0; i < kFiles; ++i) held.push_back(std::make_unique<Held>(path(i)));
  }
  std::string path(int i) const { return folder.path / std::to_string(i); }
  Folder folder;
  std::shared_ptr<int> asker = std::make_shared<int>();
  std::vector<Joined> joined;
  std::vector<std::unique_ptr<Held>> held;
};

TEST_CASE("ranks that give up files which are held up do not keep other groups waiting", "[cluster][H7][T40]") {
  Servers servers(2);
  const auto groups = servers.group();
  Waiting waiting(servers[0]);
  waiting.asker.reset();
  CHECK(outcome(std::move(waiting.joined[0])) == "nobody waits for the group any more");
  // The others' turn is now.
  auto a = start(groups[0], terms(Collective::all_reduce)), b = start(groups[1], terms(Collective::all_reduce));
  REQUIRE(a.done.get());
  REQUIRE(b.done.get());
  CHECK(seconds_since(a.begun) < 2);  // each of them tries for 100 ms to take its line away
  for (size_t i = 1; i < waiting.joined.size(); ++i)
    CHECK(outcome(std::move(waiting.joined[i])) == "nobody waits for the group any more");
}

TEST_CASE("a server ends in time although the files of its ranks are held up", "[cluster][H7]") {
  Servers servers(1);
  Waiting waiting(servers[0]);
  const auto begun = std::chrono::steady_clock::now();
  servers.all.clear();
  CHECK(seconds_since(begun) < 3);
  for (auto& j : waiting.joined) CHECK(outcome(std::move(j)) == "the cluster of this server has ended");
}

TEST_CASE("a server that ends has taken its ranks' lines out of their files", "[cluster][H7]") {
  Servers servers(1);
  Waiting waiting(servers[0]);
  waiting.held.clear();
  servers.all.clear();
  CHECK(std::filesystem::is_empty(waiting.folder.path));
}

/// A meeting as on a file system that hangs: it does not end before it may.
struct Hanging final : Meeting {
  explicit Hanging(std::shared_future<void> f) : may_end(std::move(f)) {}
  void hold() noexcept override { may_end.wait(); }
  void stop() noexcept override { stopped.set_value(); }
  std::shared_future<void> may_end;
  std::promise<void> stopped;
};

TEST_CASE("a meeting that hangs holds nobody up, and counts as a join until it has ended", "[cluster][H7]") {
  const auto joins = std::make_shared<Joins>(1);
  std::promise<void> may_end;
  const auto meeting = std::make_shared<Hanging>(may_end.get_future().share());
  const std::weak_ptr<Hanging> there = meeting;
  auto stopped = meeting->stopped.get_future();
  auto place = begin(meeting, joins->enter());
  place = nullptr;  // the join is over
  CHECK(stopped.wait_for(milliseconds(0)) == std::future_status::ready);
  CHECK_THROWS_WITH(joins->enter(), "too many groups are being made");
  CHECK(!joins->wait_for_none(milliseconds(1)));
  may_end.set_value();
  CHECK(joins->wait_for_none(std::chrono::seconds(20)));
  CHECK(there.use_count() == 1);  // this test's
  CHECK_NOTHROW(joins->enter());
}

TEST_CASE("who leaves a join as rank 0 may join again at once, and takes nobody down", "[cluster][H12][H13]") {
  Servers servers(2);
  for (int round = 0; round < 20; ++round) {
    auto asker = std::make_shared<int>();
    auto o = servers.options(0, 2);
    o.asker = asker;
    auto left = join(servers[0], o);
    asker.reset();
    std::vector<Joined> joined;
    // The other rank comes after it or, every other time, when only the one is there that nobody waits for.
    if (round % 2 == 1) joined.push_back(join(servers[1], servers.options(1, 2)));
    joined.push_back(join(servers[0], servers.options(0, 2)));
    if (round % 2 == 0) joined.push_back(join(servers[1], servers.options(1, 2)));
    for (auto& j : joined) CHECK(outcome(std::move(j)) == "joined");
    CHECK(outcome(std::move(left)) != "joined");
  }
}

}  // namespace
}  // namespace gradwire::server::cluster
