// What happens to everybody when a helper dies, stops, does not know the key or never comes.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "server/cluster/plane/fd.h"
#include "tests/data_plane/ranks.h"

namespace gradwire::server::cluster::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Terms kReduce{Collective::all_reduce, ReduceOp::sum, DType::float32, 1 << 20, -1};
const Bytes kIn(size_t{4} << 20);

template <class R> Error error_of(Answer<R>& answer) {
  auto result = answer.get();
  REQUIRE_FALSE(result);
  return result.error();
}

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

size_t mapped_areas() {
  std::ifstream maps("/proc/self/maps");
  size_t n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("gradwire-area") != std::string::npos;
  return n;
}

/// A program that is no helper, as a script in a folder of its own.
struct Script {
  explicit Script(const std::string& text) {
    char name[] = "/tmp/gradwire-plane-XXXXXX";
    REQUIRE(::mkdtemp(name));
    folder = name;
    std::ofstream(path()) << "#!/bin/sh\n" << text;
    REQUIRE(::chmod(path().c_str(), 0700) == 0);
  }
  ~Script() { std::filesystem::remove_all(folder); }
  std::string path() const { return folder + "/helper"; }
  std::string folder;
};

Error error_of_preparing(const std::string& helper, milliseconds timeout) {
  DataPlaneOptions o;
  o.helper = helper;
  const auto plane = make_gloo_plane(o);
  Answer<std::string> address;
  plane->prepare(0, 2, timeout, address.done());
  return error_of(address);
}

TEST_CASE("A killed helper is an error for all ranks within a second", "[T41]") {
  Ranks g(3);
  // The third rank has not come: the others wait for it.
  auto first = g.start(0, kReduce, g.area(0, kIn)), second = g.start(1, kReduce, g.area(1, kIn));
  auto own = g.start(2, {Collective::recv, {}, DType::float32, 1, 0}, g.area(2, Bytes(4)), uint64_t{1});
  auto after = g.start(0, {Collective::barrier, {}, DType::float32, 0, -1}, nullptr);
  const auto begin = Clock::now();
  ::kill(g.ranks[2].helper, SIGKILL);
  for (Answer<int>* a : {&first, &second, &own, &after}) CHECK(error_of(*a).code() == Code::unavailable);
  CHECK(Clock::now() - begin < 1s);
  auto late = g.start(1, kReduce, g.area(1, kIn));
  CHECK(error_of(late).code() == Code::unavailable);
}

TEST_CASE("Helpers killed in the middle of an all_reduce leave no rank waiting", "[T41]") {
  for (int round = 0; round < 20; ++round) {
    Ranks g(3);
    std::vector<Answer<int>> answers;
    const int victim = round % 3;
    for (int i = 0; i < 5; ++i) {
      for (int r = 0; r < 3; ++r) answers.push_back(g.start(r, kReduce, g.area(r, kIn)));
    }
    // One more, which cannot end well even if the others are over when the signal comes.
    for (int r = 0; r < 3; ++r) {
      if (r != victim) answers.push_back(g.start(r, kReduce, g.area(r, kIn)));
    }
    for (int i = 0; i < round % 5; ++i) answers[static_cast<size_t>(i)].future.wait();
    ::kill(g.ranks[static_cast<size_t>(victim)].helper, SIGKILL);
    const auto begin = Clock::now();
    int failed = 0;
    for (auto& a : answers) {
      auto result = a.get();
      if (result) continue;
      ++failed;
      CHECK(result.error().code() == Code::unavailable);
    }
    CHECK(failed >= 2);
    CHECK(Clock::now() - begin < 1s);
  }
}

TEST_CASE("A stopped helper ends at the deadline, and what else is pending with it", "[T41]") {
  Ranks g(2);
  ::kill(g.ranks[1].helper, SIGSTOP);
  const auto begin = Clock::now();
  auto first = g.start(0, kReduce, g.area(0, kIn), 300ms), second = g.start(1, kReduce, g.area(1, kIn), 300ms);
  auto later = g.start(1, kReduce, g.area(1, kIn), 20000ms);
  CHECK(error_of(first).code() == Code::deadline_exceeded);
  CHECK(error_of(second).code() == Code::deadline_exceeded);
  CHECK(error_of(later).code() == Code::unavailable);
  CHECK(Clock::now() - begin >= 300ms);
  CHECK(Clock::now() - begin < 1300ms);
}

TEST_CASE("A rank that never comes is named when the time is over", "[data_plane]") {
  Ranks g(3, {}, false, 3000ms);  // for the start of a helper too
  Answer<void> first, second;
  const auto begin = Clock::now();
  g.ranks[0].plane->connect(g.addresses(), kKey, first.done());
  g.ranks[1].plane->connect(g.addresses(), kKey, second.done());
  for (auto* a : {&first, &second}) {
    const Error e = error_of(*a);
    CHECK(e.code() == Code::deadline_exceeded);
    CHECK(e.message() == "data plane: no connection with rank 2 in time");
  }
  CHECK(Clock::now() - begin >= 3000ms);
  CHECK(Clock::now() - begin < 8000ms);
}

TEST_CASE("A rank with another key is refused by both ends", "[T39]") {
  Ranks g(2, {}, false, 3000ms);  // for the start of a helper too
  Answer<void> first, second;
  g.ranks[0].plane->connect(g.addresses(), kKey, first.done());
  g.ranks[1].plane->connect(g.addresses(), std::string(32, 'x'), second.done());
  const Error e = error_of(second);
  CHECK(e.code() == Code::unavailable);
  CHECK(e.message() == "data plane: rank 0 does not know this group's key");
  const Error other = error_of(first);
  CHECK(other.code() == Code::deadline_exceeded);
  CHECK(other.message().find("did not know the key") != std::string::npos);
}

TEST_CASE("A helper that does not start, ends, talks nonsense or says nothing is an error in time", "[data_plane]") {
  CHECK(error_of_preparing("/nonexistent/helper", 5000ms).code() == Code::unavailable);
  CHECK(error_of_preparing("/bin/false", 5000ms).code() == Code::unavailable);
  CHECK(error_of_preparing(Script("echo nonsense >&3; exec sleep 60").path(), 5000ms).code() == Code::unavailable);
  const Script silent("exec sleep 60");
  CHECK(error_of_preparing(silent.path(), 200ms).code() == Code::deadline_exceeded);
}

TEST_CASE("Arguments are refused before anything moves, and harm nothing", "[H18][H26][H29]") {
  Ranks g(2);
  const auto refused = [&](Terms t, AreaPtr area, std::optional<uint64_t> tag = {}) {
    auto answer = tag ? g.start(0, t, std::move(area), *tag) : g.start(0, t, std::move(area));
    const Error e = error_of(answer);
    CHECK(e.code() == Code::bad_argument);
    return e.message();
  };
  const AreaPtr small = g.area(0, Bytes(8)), foreign = g.area(1, Bytes(64));
  const DType f = DType::float32;
  CHECK(refused({Collective::all_reduce, ReduceOp::band, f, 2, -1}, small) ==
        "all_reduce: BAND, BOR and BXOR take whole numbers or bool, not float32");
  refused({Collective::all_reduce, ReduceOp::avg, DType::boolean, 2, -1}, small);
  refused({Collective::all_reduce, static_cast<ReduceOp>(99), f, 2, -1}, small);
  refused({static_cast<Collective>(99), ReduceOp::sum, f, 2, -1}, small);
  refused({Collective::all_reduce, ReduceOp::sum, static_cast<DType>(99), 2, -1}, small);
  refused({Collective::all_reduce, ReduceOp::sum, f, 3, -1}, small);
  refused({Collective::all_reduce, ReduceOp::sum, f, -1, -1}, small);
  refused({Collective::all_reduce, ReduceOp::sum, f, INT64_MAX / 4, -1}, small);
  refused({Collective::all_reduce, ReduceOp::sum, f, 2, -1}, foreign);
  refused({Collective::all_reduce, ReduceOp::sum, f, 2, -1}, nullptr);
  refused({Collective::broadcast, {}, f, 2, 2}, small);
  refused({Collective::send, {}, f, 2, 1}, small);
  CHECK(refused({Collective::send, {}, f, 2, 0}, small, 1) == "cannot send tensor to process with same rank");
  CHECK(refused({Collective::recv, {}, f, 2, 0}, small, 1) == "cannot receive tensor from process with same rank");
  Answer<std::string> again;
  g.ranks[0].plane->prepare(0, 2, 1000ms, again.done());
  CHECK(error_of(again).code() == Code::bad_argument);
  g.run({Collective::all_reduce, ReduceOp::sum, f, 2, -1}, {Bytes(8), Bytes(8)});
}

TEST_CASE("Areas are bounded, reused, and outlive their plane", "[data_plane]") {
  DataPlaneOptions o;
  o.memory = 1 << 20;
  auto plane = make_gloo_plane(o);
  const auto refused = [&](size_t bytes) {
    try {
      plane->area(bytes);
      return false;
    } catch (const Error& e) {
      return e.code() == Code::memory_limit;
    }
  };
  for (const size_t bytes : {(size_t{1} << 20) + 1, size_t{1} << 62, SIZE_MAX}) {
    CHECK(refused(bytes));
  }
  AreaPtr half = plane->area(500'000);
  CHECK(half->bytes.size() == 500'000);
  CHECK(refused(600'000));
  const auto* place = half->bytes.data();
  half = nullptr;
  half = plane->area(490'000);
  CHECK(half->bytes.data() == place);
  half = nullptr;
  AreaPtr whole = plane->area(1 << 20);  // what was kept gives way
  plane = nullptr;
  std::memset(whole->bytes.data(), 1, whole->bytes.size());
  CHECK(make_gloo_plane({})->area(0)->bytes.empty());
}

TEST_CASE("What planes keep of their areas is bounded for all of them together", "[data_plane]") {
  const size_t before = mapped_areas();
  std::vector<std::unique_ptr<DataPlane>> planes;
  for (int i = 0; i < 3; ++i) {
    planes.push_back(make_gloo_plane({}));
    planes.back()->area(size_t{640} << 20);  // and lets go of it
  }
  CHECK(mapped_areas() - before == 1);
  planes.clear();
}

TEST_CASE("Areas of many sizes pass through a helper, and those given up leave it", "[data_plane]") {
  DataPlaneOptions o;
  o.memory = 2 << 20;
  Ranks g(2, o);
  for (int64_t count = 1; count < 400'000; count = count * 5 / 3 + 1) {
    Bytes in(static_cast<size_t>(count) * 4);
    for (int64_t i = 0; i < count; ++i) std::memcpy(&in[static_cast<size_t>(i) * 4], &i, 4);
    Bytes twice = in;
    for (int64_t i = 0; i < count; ++i) {
      const auto two = static_cast<int32_t>(2 * i);
      std::memcpy(&twice[static_cast<size_t>(i) * 4], &two, 4);
    }
    CHECK(g.run({Collective::all_reduce, ReduceOp::sum, DType::int32, count, -1}, {in, in})[1] == twice);
  }
  for (const Rank& r : g.ranks) {
    std::ifstream maps("/proc/" + std::to_string(r.helper) + "/maps");
    size_t n = 0;
    for (std::string line; std::getline(maps, line);) n += line.find("gradwire-area") != std::string::npos;
    CHECK(n > 0);
    CHECK(n <= 18);
  }
}

TEST_CASE("A plane's end kills its helper, answers what is pending, and leaves nothing behind", "[data_plane]") {
  const auto processes = children();
  const auto round = [] {
    Ranks g(2);
    g.run({Collective::broadcast, {}, DType::uint8, 100, 0}, {Bytes(100), Bytes(100)});
    auto waits = g.start(0, kReduce, g.area(0, kIn));
    g.ranks[0].plane = nullptr;
    CHECK(error_of(waits).code() == Code::unavailable);
  };
  { Ranks g(1); }
  REQUIRE(only_children(processes));
  const size_t descriptors = open_descriptors(), areas = mapped_areas();
  round();
  CHECK(only_children(processes));
  CHECK(open_descriptors() == descriptors);
  CHECK(mapped_areas() == areas);
}

TEST_CASE("A killed server takes its helper with it", "[T41]") {
  int out[2];
  REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
  const plane::Fd said(out[0]);
  plane::Fd says(out[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, says.get(), 1);
  std::string name = "/proc/self/exe", order = "doomed-server";
  char* const arguments[] = {name.data(), order.data(), nullptr};
  pid_t server = -1;
  const int failed = ::posix_spawn(&server, name.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(failed == 0);
  says = plane::Fd();
  char address[64] = {};
  CHECK(::read(said.get(), address, sizeof address - 1) > 0);
  CHECK(std::string(address).find("127.0.0.1:") == 0);
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  // The helper has the pipe too: its end is the pipe's.
  pollfd p{said.get(), POLLIN, 0};
  REQUIRE(::poll(&p, 1, 5000) == 1);
  CHECK(::read(said.get(), address, sizeof address) == 0);
}

TEST_CASE("Ranks that disagree get errors by the next call, and what they only sent stays as it was", "[T40]") {
  const Terms terms[] = {{Collective::all_reduce, ReduceOp::sum, DType::float32, 1000, -1},
                         {Collective::all_reduce, ReduceOp::sum, DType::float32, 2000, -1},
                         {Collective::all_reduce, ReduceOp::sum, DType::float64, 1000, -1},
                         {Collective::all_reduce, ReduceOp::max, DType::float64, 1000, -1},
                         {Collective::all_gather, ReduceOp::sum, DType::float32, 1000, -1},
                         {Collective::broadcast, ReduceOp::sum, DType::float32, 1000, 0},
                         {Collective::broadcast, ReduceOp::sum, DType::float32, 1000, 1},
                         {Collective::reduce, ReduceOp::sum, DType::float32, 1000, 0}};
  for (size_t i = 0; i < std::size(terms); ++i) {
    const size_t j = (i + 1) % std::size(terms);
    CAPTURE(i, j);
    Ranks g(2);
    const Bytes in[] = {Bytes(16000, std::byte{0x3e}), Bytes(16000, std::byte{0x41})};
    const AreaPtr areas[] = {g.area(0, in[0]), g.area(1, in[1])};
    Answer<int> calls[] = {g.start(0, terms[i], areas[0], 200ms), g.start(1, terms[j], areas[1], 200ms)};
    // Who only sends is done with it, and finds out by what comes next.
    auto next = g.start(0, terms[0], g.area(0, Bytes(16000)), 200ms);
    auto last = g.start(1, terms[0], g.area(1, Bytes(16000)), 200ms);
    for (int r = 0; r < 2; ++r) {
      const auto at = static_cast<size_t>(r);
      if (!calls[at].get()) continue;
      const Terms& t = terms[r ? j : i];
      CHECK((t.what == Collective::broadcast ? t.root == r : t.what == Collective::reduce && t.root != r));
      CHECK(std::equal(in[at].begin(), in[at].end(), areas[at]->bytes.begin()));
    }
    CHECK_FALSE(next.get());
    CHECK_FALSE(last.get());
  }
}

TEST_CASE("A plane may end inside its own answer", "[data_plane]") {
  auto plane = make_gloo_plane({});
  DataPlane* raw = plane.get();
  Answer<std::string> address;
  raw->prepare(0, 1, 10000ms, [&plane, done = address.done()](Result<std::string> r) mutable {
    plane = nullptr;
    done(std::move(r));
  });
  CHECK(address.get());
  CHECK_FALSE(plane);
}

}  // namespace
}  // namespace gradwire::server::cluster::test
