#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdio>

#include "tests/cluster/rig.h"

// The groups with the data plane that servers have.

namespace gradwire::server::cluster {
namespace {

using Catch::Matchers::ContainsSubstring;
using std::chrono::milliseconds;

Servers real(int n) {
  return Servers(n, [](Cluster::Options& o, int) {
    o.make_plane = [](const std::string&, const DataPlaneOptions& data) { return make_gloo_plane(data); };
  });
}

TEST_CASE("four servers add up by Gloo, again and again, and split", "[cluster][H20][H27]") {
  Servers servers = real(4);
  const auto groups = servers.group();
  for (int i = 0; i < 100; ++i) {
    std::vector<Running> all;
    for (size_t r = 0; r < 4; ++r)
      all.push_back(start(groups[r], terms(Collective::all_reduce, 1000), static_cast<float>(r)));
    for (auto& a : all) {
      auto done = a.done.get();
      if (!done) FAIL(done.error().message());
      REQUIRE(a.first() == 6);
    }
  }
  std::vector<Joined> parts;
  for (auto& g : groups) parts.push_back(split(g, {0, 2}));
  std::vector<GroupPtr> part;
  for (auto& p : parts) part.push_back(*p.get());
  auto a = start(part[0], terms(Collective::all_reduce), 1), b = start(part[2], terms(Collective::all_reduce), 2);
  REQUIRE(a.done.get());
  REQUIRE(b.done.get());
  CHECK(a.first() == 3);
  auto to = start(groups[1], terms(Collective::send, 4, DType::float32, ReduceOp::sum, 3), 9);
  auto from = start(groups[3], terms(Collective::recv, 4, DType::float32, ReduceOp::sum, -1));
  REQUIRE(to.done.get());
  auto source = from.done.get();
  REQUIRE(source);
  CHECK(*source == 1);
  CHECK(from.first() == 9);
}

TEST_CASE("a mismatch leaves Gloo's connections as they were", "[cluster][T40]") {
  Servers servers = real(2);
  const auto groups = servers.group();
  for (int i = 0; i < 20; ++i) {
    const bool wrong = i % 2 == 0;
    auto a = start(groups[0], terms(Collective::all_reduce, 1 << 20)),
         b = start(groups[1], terms(Collective::all_reduce, wrong ? 1 << 21 : 1 << 20));
    for (auto* one : {&a, &b}) {
      auto done = one->done.get();
      CHECK(static_cast<bool>(done) == !wrong);
      if (wrong) CHECK(done.error().code() == Code::group_mismatch);
      CHECK(one->first() == (wrong ? 1 : 2));
    }
  }
}

TEST_CASE("a server that dies in mid all_reduce is named to the others within a second", "[cluster][T41]") {
  for (int round = 0; round < 5; ++round) {
    Servers servers = real(3);
    auto groups = servers.group();
    std::vector<Running> all;
    for (size_t r = 0; r < 3; ++r) all.push_back(start(groups[r], terms(Collective::all_reduce, 1 << 22)));
    for (size_t r = 0; r < 2; ++r) all.push_back(start(groups[r], terms(Collective::all_reduce, 1 << 22)));
    const auto gone = std::chrono::steady_clock::now();
    servers.all[2] = nullptr;
    for (size_t i : {3, 4}) {
      auto done = all[i].done.get();
      REQUIRE(!done);
      CHECK(done.error().code() == Code::unavailable);
      CHECK_THAT(done.error().message(), ContainsSubstring("rank 2 is gone"));
    }
    CHECK(seconds_since(gone) < 1);
    for (size_t i : {0, 1}) CHECK(all[i].done.wait_for(milliseconds(1000)) == std::future_status::ready);
  }
}

/// A server in a process of its own, of which this program's main() tells.
class Process {
 public:
  Process(const std::string& url, int rank, int size) {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::string words[] = {"/proc/self/exe", "member", url, std::to_string(rank), std::to_string(size)};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
    const int rc = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    out_ = out[0];
    if (rc != 0) throw std::runtime_error("no process");
  }
  ~Process() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(out_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void wait_until_joined() const {
    char line[7];
    for (size_t have = 0; have < sizeof line;) {
      const ssize_t n = ::read(out_, line + have, sizeof line - have);
      if (n <= 0) throw std::runtime_error("the other server has not joined");
      have += static_cast<size_t>(n);
    }
  }
  pid_t pid = -1;

 private:
  int out_ = -1;
};

/// Ranks 0 and 1 here, rank 2 in a process; all in mid all_reduce when `strike` meets that process.
void strike(int signal, milliseconds timeout, const std::function<void(const Error&, double seconds)>& check) {
  Servers servers = real(2);
  std::vector<Joined> joined;
  for (int r = 0; r < 2; ++r) joined.push_back(join(servers[r], servers.options(r, 3)));
  const Process victim(servers.url(), 2, 3);
  victim.wait_until_joined();
  std::vector<GroupPtr> groups;
  for (auto& j : joined) groups.push_back(*j.get());
  for (int i = 0; i < 2; ++i) {
    auto a = start(groups[0], terms(Collective::all_reduce, 1 << 22)),
         b = start(groups[1], terms(Collective::all_reduce, 1 << 22));
    REQUIRE(a.done.get());
    REQUIRE(b.done.get());
  }
  auto a = start(groups[0], terms(Collective::all_reduce, 1 << 22), 1, timeout),
       b = start(groups[1], terms(Collective::all_reduce, 1 << 22), 1, timeout);
  ::kill(victim.pid, signal);
  const auto struck = std::chrono::steady_clock::now();
  // The first may have been on its way already; then it is the next that fails.
  for (;;) {
    auto first = a.done.get(), second = b.done.get();
    for (const auto* one : {&first, &second}) {
      if (!*one) check(one->error(), seconds_since(struck));
    }
    if (!first || !second) return;  // what one has received in full the other has not
    a = start(groups[0], terms(Collective::all_reduce, 1 << 22), 1, timeout);
    b = start(groups[1], terms(Collective::all_reduce, 1 << 22), 1, timeout);
  }
}

TEST_CASE("a killed server is named to every survivor within a second, fifty times", "[cluster][T41][H36][long]") {
#ifdef GRADWIRE_TSAN
  const int rounds = 5;  // of ten seconds each
#else
  const int rounds = 50;
#endif
  for (int round = 0; round < rounds; ++round) {
    strike(SIGKILL, std::chrono::seconds(20), [](const Error& e, double seconds) {
      CHECK(e.code() == Code::unavailable);
      CHECK_THAT(e.message(), ContainsSubstring("rank 2 is gone"));
      CHECK(seconds < 1);
    });
  }
}

TEST_CASE("a stopped server costs the others their deadline, and no more", "[cluster][H36]") {
  strike(SIGSTOP, milliseconds(1000), [](const Error& e, double seconds) {
    CHECK(e.code() == Code::deadline_exceeded);
    CHECK(seconds < 3);
  });
}

/// One all_reduce of all ranks, begun by `run(rank, work)`; the seconds it takes.
double all_reduce(const std::vector<AreaPtr>& areas, int64_t count, const std::function<void(size_t, Work)>& run) {
  const auto begun = std::chrono::steady_clock::now();
  std::vector<Ran> all;
  for (size_t r = 0; r < areas.size(); ++r) {
    auto promise = std::make_shared<std::promise<Result<int>>>();
    all.push_back(promise->get_future());
    Work w;
    w.terms = terms(Collective::all_reduce, count), w.area = areas[r];
    w.deadline = begun + std::chrono::seconds(30);
    w.done = [promise](Result<int> got) { promise->set_value(std::move(got)); };
    run(r, std::move(w));
  }
  for (auto& a : all) REQUIRE(a.get());
  return seconds_since(begun);
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

TEST_CASE("what agreement costs", "[.measure]") {
  for (const size_t n : {2, 4}) {
    Servers servers = real(static_cast<int>(n));
    const auto groups = servers.group();
    std::vector<std::unique_ptr<DataPlane>> planes;  // the same without a group
    std::vector<std::string> blobs;
    for (size_t r = 0; r < n; ++r) {
      planes.push_back(make_gloo_plane({}));
      std::promise<std::string> blob;
      planes[r]->prepare(static_cast<int>(r), static_cast<int>(n), std::chrono::seconds(10),
                         [&](Result<std::string> b) { blob.set_value(*b); });
      blobs.push_back(blob.get_future().get());
    }
    std::vector<std::future<bool>> connected;
    for (auto& p : planes) {
      auto promise = std::make_shared<std::promise<bool>>();
      connected.push_back(promise->get_future());
      p->connect(blobs, std::string(32, 'k'), [promise](Result<void> r) { promise->set_value(static_cast<bool>(r)); });
    }
    for (auto& c : connected) REQUIRE(c.get());
    for (const int64_t count : {1024, 1 << 18, 1 << 24}) {
      std::vector<AreaPtr> agreed, alone;
      for (size_t r = 0; r < n; ++r) {
        agreed.push_back(groups[r]->area(static_cast<size_t>(count) * 4));
        alone.push_back(planes[r]->area(static_cast<size_t>(count) * 4));
      }
      std::vector<double> with, without;
      for (int i = 0; i < (count > (1 << 20) ? 15 : 300); ++i) {
        with.push_back(all_reduce(agreed, count, [&](size_t r, Work w) { groups[r]->start(std::move(w)); }));
        without.push_back(all_reduce(alone, count, [&](size_t r, Work w) { planes[r]->run(std::move(w)); }));
      }
      std::printf("%zu servers, %9ld bytes: %.3f ms, the data plane alone %.3f ms, ratio %.2f\n", n,
                  static_cast<long>(count * 4), 1e3 * median(with), 1e3 * median(without),
                  median(with) / median(without));
    }
  }
}

}  // namespace
}  // namespace gradwire::server::cluster
