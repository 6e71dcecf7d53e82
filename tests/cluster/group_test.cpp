#include "server/cluster/group.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/cluster/rig.h"

namespace gradwire::server::cluster {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

TEST_CASE("four servers agree on collectives and add up their ranks", "[cluster][H3][H20]") {
  Servers servers(4);
  const auto groups = servers.group();
  for (int r = 0; r < 4; ++r) {
    CHECK(groups[static_cast<size_t>(r)]->rank() == r);
    CHECK(groups[static_cast<size_t>(r)]->size() == 4);
    CHECK(groups[static_cast<size_t>(r)]->epoch() == 1);
  }
  // Many in flight: they stay in order.
  std::vector<Running> all;
  for (int i = 0; i < 50; ++i) {
    for (int r = 0; r < 4; ++r)
      all.push_back(
          start(groups[static_cast<size_t>(r)], terms(Collective::all_reduce), static_cast<float>(r * (i + 1))));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    auto done = all[i].done.get();
    REQUIRE(done);
    CHECK(all[i].first() == 6.0f * static_cast<float>(i / 4 + 1));
  }
}

TEST_CASE("several ranks live on one server, in several groups", "[cluster][H3]") {
  Servers servers(2);
  std::vector<Joined> joined;
  for (const std::string name : {"a", "b"}) {
    for (int r = 0; r < 4; ++r) {
      auto o = servers.options(r, 4);
      o.group_name = name;
      joined.push_back(join(servers[r / 2], o));
    }
  }
  std::vector<GroupPtr> groups;
  for (auto& j : joined) groups.push_back(*j.get());
  std::vector<Running> all;
  for (size_t i = 0; i < groups.size(); ++i)
    all.push_back(start(groups[i], terms(Collective::all_reduce), i < 4 ? 1.f : 2.f));
  for (size_t i = 0; i < all.size(); ++i) {
    REQUIRE(all[i].done.get());
    CHECK(all[i].first() == (i < 4 ? 4.f : 8.f));
  }
}

TEST_CASE("a mismatch is told to all ranks, moves no byte, and the group goes on", "[cluster][T40][H29]") {
  Servers servers(3);
  const auto groups = servers.group();
  std::vector<Running> all;
  for (size_t r = 0; r < 3; ++r) all.push_back(start(groups[r], terms(Collective::all_reduce, r == 1 ? 5 : 4), 3));
  for (auto& a : all) {
    auto done = a.done.get();
    REQUIRE(!done);
    CHECK(done.error().code() == Code::group_mismatch);
    CHECK(done.error().message() ==
          "all_reduce: tensors are not equal in size or data type: ranks 0, 2 have float32 of 4 elements, rank 1 has "
          "float32 of 5 elements");
    CHECK(a.first() == 3);
  }
  CHECK(servers.faults->runs == 0);
  all.clear();
  for (size_t r = 0; r < 3; ++r) all.push_back(start(groups[r], terms(Collective::all_reduce)));
  for (auto& a : all) {
    REQUIRE(a.done.get());
    CHECK(a.first() == 3);
  }
}

TEST_CASE("messages go from rank to rank, with and without a named source", "[cluster][H15][H16]") {
  Servers servers(3);
  const auto groups = servers.group();
  auto any = start(groups[0], terms(Collective::recv, 4, DType::float32, ReduceOp::sum, -1));
  auto sent = start(groups[2], terms(Collective::send, 4, DType::float32, ReduceOp::sum, 0), 7);
  auto got = any.done.get();
  REQUIRE(got);
  CHECK(*got == 2);
  CHECK(any.first() == 7);
  REQUIRE(sent.done.get());
  // Collectives between do not mind.
  auto to = start(groups[1], terms(Collective::send, 4, DType::float32, ReduceOp::sum, 2), 9);
  std::vector<Running> all;
  for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce)));
  for (auto& a : all) REQUIRE(a.done.get());
  auto from = start(groups[2], terms(Collective::recv, 4, DType::float32, ReduceOp::sum, 1));
  REQUIRE(from.done.get());
  REQUIRE(to.done.get());
  CHECK(from.first() == 9);
  // Of another size, it fails on both sides, and the next one is fine.
  auto four = start(groups[0], terms(Collective::send, 4, DType::float32, ReduceOp::sum, 1));
  auto five = start(groups[1], terms(Collective::recv, 5, DType::float32, ReduceOp::sum, 0));
  for (auto* one : {&four, &five}) {
    auto done = one->done.get();
    REQUIRE(!done);
    CHECK_THAT(done.error().message(), StartsWith("tensor sizes do not match: "));
  }
}

TEST_CASE("messages to oneself or to no rank fail at once", "[cluster][H18]") {
  Servers servers(2);
  const auto groups = servers.group();
  const auto fails = [&](Collective what, int root) {
    auto r = start(groups[0], terms(what, 4, DType::float32, ReduceOp::sum, root)).done.get();
    return r ? std::string() : r.error().message();
  };
  CHECK(fails(Collective::send, 0) == "cannot send tensor to process with same rank");
  CHECK(fails(Collective::recv, 0) == "cannot receive tensor from process with same rank");
  CHECK(fails(Collective::send, 2) == "send: rank(2) is not member of group: its ranks are [0, 1]");
  CHECK(fails(Collective::send, -1) == "send: rank(-1) is not member of group: its ranks are [0, 1]");
}

TEST_CASE("an area that is too small for the terms is refused", "[cluster][H19]") {
  Servers servers(1);
  const auto groups = servers.group();
  std::promise<Result<int>> promise;
  Work w;
  w.terms = terms(Collective::all_gather, int64_t{1} << 61), w.area = groups[0]->area(64);
  w.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  w.done = [&](Result<int> r) { promise.set_value(std::move(r)); };
  groups[0]->start(std::move(w));
  auto r = promise.get_future().get();
  REQUIRE(!r);
  CHECK(r.error().code() == Code::bad_argument);
}

TEST_CASE("a group is split by its sorted ranks, with a data plane of its own", "[cluster][H27]") {
  Servers servers(4);
  const auto groups = servers.group();
  std::vector<Joined> parts;
  for (auto& g : groups) parts.push_back(split(g, {3, 1}));
  std::vector<GroupPtr> part;
  for (auto& p : parts) {
    auto r = p.get();
    REQUIRE(r);
    part.push_back(*r);
  }
  CHECK(!part[0]);
  CHECK(!part[2]);
  REQUIRE(part[1]);
  REQUIRE(part[3]);
  CHECK(part[1]->rank() == 0);
  CHECK(part[3]->rank() == 1);
  auto a = start(part[1], terms(Collective::all_reduce), 1), b = start(part[3], terms(Collective::all_reduce), 3);
  REQUIRE(a.done.get());
  REQUIRE(b.done.get());
  CHECK(a.first() == 4);
  std::vector<Running> all;
  for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce)));
  for (auto& r : all) REQUIRE(r.done.get());
  CHECK(all[0].first() == 4);
  // A part of a part, over the same links.
  auto one = split(part[1], {1}), other = split(part[3], {1});
  auto none = one.get(), some = other.get();
  REQUIRE(some);
  CHECK(!*none);
  CHECK((*some)->size() == 1);
  for (auto& g : groups) parts.push_back(split(g, {}));
  for (size_t i = 4; i < 8; ++i) CHECK(parts[i].get().error().message() == "cannot create empty group");
}

TEST_CASE("the parts of a group outlive it", "[cluster][H27]") {
  Servers servers(3);
  auto groups = servers.group();
  std::vector<Joined> parts;
  for (auto& g : groups) parts.push_back(split(g, {1, 2}));
  std::vector<GroupPtr> part;
  for (auto& p : parts) part.push_back(*p.get());
  groups.clear();
  auto a = start(part[1], terms(Collective::all_reduce)), b = start(part[2], terms(Collective::all_reduce));
  REQUIRE(a.done.get());
  REQUIRE(b.done.get());
  CHECK(b.first() == 2);
}

TEST_CASE("when a server is gone, every survivor learns within a second which rank it was", "[cluster][T41][H36]") {
  const int victim = GENERATE(0, 1, 3);
  Servers servers(4);
  auto groups = servers.group();
  std::vector<Running> all;
  for (int r = 0; r < 4; ++r) {
    if (r != victim) all.push_back(start(groups[static_cast<size_t>(r)], terms(Collective::all_reduce), 5));
  }
  const auto gone = std::chrono::steady_clock::now();
  servers.all[static_cast<size_t>(victim)] = nullptr;
  for (auto& a : all) {
    auto done = a.done.get();
    REQUIRE(!done);
    CHECK(done.error().code() == Code::unavailable);
    CHECK_THAT(done.error().message(),
               StartsWith("all_reduce: ") && ContainsSubstring("rank " + std::to_string(victim)));
    CHECK(a.first() == 5);
  }
  CHECK(seconds_since(gone) < 1);
  // For good: later calls say the same.
  auto later = groups[victim == 1 ? 2 : 1];
  CHECK_THROWS_AS(later->area(16), Error);
  std::promise<Result<int>> promise;
  Work w;
  w.terms = terms(Collective::barrier), w.deadline = gone + std::chrono::seconds(20);
  w.done = [&](Result<int> r) { promise.set_value(std::move(r)); };
  later->start(std::move(w));
  auto r = promise.get_future().get();
  REQUIRE(!r);
  CHECK(r.error().code() == Code::unavailable);
  CHECK_THAT(r.error().message(), StartsWith("barrier: the group is broken: "));
}

TEST_CASE("a collective that is moving fails when a server dies, within a second", "[cluster][T41]") {
  Servers servers(3);
  servers.faults->hang = true;
  auto groups = servers.group();
  std::vector<Running> all;
  for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce)));
  for (;;) {
    const std::lock_guard lock(servers.faults->mutex);
    if (servers.faults->runs == 3) break;
  }
  const auto gone = std::chrono::steady_clock::now();
  servers.all[2] = nullptr;
  for (size_t r : {0, 1}) {
    auto done = all[r].done.get();
    REQUIRE(!done);
    CHECK(done.error().code() == Code::unavailable);
    CHECK_THAT(done.error().message(), ContainsSubstring("rank 2 is gone"));
  }
  CHECK(seconds_since(gone) < 1);
  all[2].done.get();
  groups.clear();
}

TEST_CASE("who lets go of its group is named as the one that left", "[cluster][H36]") {
  Servers servers(3);
  auto groups = servers.group();
  auto waiting = start(groups[0], terms(Collective::barrier)), also = start(groups[1], terms(Collective::barrier));
  groups[2] = nullptr;
  for (auto* w : {&waiting, &also}) {
    auto done = w->done.get();
    REQUIRE(!done);
    CHECK(done.error().message() == "barrier: rank 2 has left the group");
  }
}

TEST_CASE("a rank that leaves after the last collective takes nothing from the others", "[cluster][H36]") {
  for (int round = 0; round < 20; ++round) {
    Servers servers(3);
    auto groups = servers.group();
    std::vector<Running> all;
    for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce)));
    const size_t first = static_cast<size_t>(round % 3);
    REQUIRE(all[first].done.get());
    groups[first] = nullptr;
    for (size_t r = 0; r < 3; ++r) {
      if (r != first) REQUIRE(all[r].done.get());
    }
  }
}

TEST_CASE("a collective that some ranks never call fails at its deadline on all that did", "[cluster][H36]") {
  Servers servers(3);
  auto groups = servers.group();
  auto a = start(groups[0], terms(Collective::all_reduce), 1, milliseconds(1500));
  auto b = start(groups[2], terms(Collective::all_reduce), 1, milliseconds(20000));
  for (auto* w : {&a, &b}) {
    auto done = w->done.get();
    REQUIRE(!done);
    CHECK(done.error().code() == Code::deadline_exceeded);
    CHECK_THAT(done.error().message(), StartsWith("all_reduce: rank 1 did not call it within "));
  }
  CHECK(seconds_since(a.begun) < 5);
  auto late = [&] {
    try {
      groups[1]->area(16);
      return std::string();
    } catch (const Error& e) {
      return e.message();
    }
  };
  while (late().empty()) std::this_thread::yield();  // its server learns it with the others
  CHECK_THAT(late(), ContainsSubstring("rank 1 did not call it"));
}

TEST_CASE("a data plane that swallows a collective fails at the deadline, and is ended", "[cluster][H36]") {
  Servers servers(2);
  servers.faults->hang = true;
  auto groups = servers.group();
  std::vector<Running> all;
  for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce), 1, milliseconds(100)));
  for (auto& a : all) {
    auto done = a.done.get();
    REQUIRE(!done);
    CHECK(done.error().code() == Code::deadline_exceeded);
  }
  const std::lock_guard lock(servers.faults->mutex);
  CHECK(servers.faults->planes <= 1);  // the other is on its way
}

TEST_CASE("a data plane that fails is named by its rank, and breaks the group for all", "[cluster][H36]") {
  Servers servers(2);
  servers.faults->run.emplace(1, Error(Code::unavailable, "the helper has died"));
  auto groups = servers.group();
  std::vector<Running> all;
  for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce)));
  for (auto& a : all) {
    auto done = a.done.get();
    REQUIRE(!done);
    CHECK(done.error().code() == Code::unavailable);
    CHECK(done.error().message() == "all_reduce: rank 1: the helper has died");
  }
  CHECK(seconds_since(all[0].begun) < 1.5);
}

TEST_CASE("a data plane that fails is named once, however much was under way", "[cluster][H36]") {
  Servers servers(2);
  servers.faults->run.emplace(1, Error(Code::unavailable, "the helper has died"));
  auto groups = servers.group();
  std::vector<Running> all;
  for (int i = 0; i < 20; ++i) {
    for (auto& g : groups) all.push_back(start(g, terms(Collective::all_reduce)));
  }
  for (auto& a : all) {
    auto done = a.done.get();
    REQUIRE(!done);
    CHECK(done.error().message() == "all_reduce: rank 1: the helper has died");
  }
}

TEST_CASE("what a data plane cannot do fails, and ends nothing", "[cluster][H26]") {
  Servers servers(2);
  for (int r : {0, 1}) servers.faults->run.emplace(r, Error(Code::not_implemented, "no bitwise operations"));
  auto groups = servers.group();
  auto a = start(groups[0], terms(Collective::all_reduce)), b = start(groups[1], terms(Collective::all_reduce));
  for (auto* one : {&a, &b}) CHECK(one->done.get().error().message() == "all_reduce: no bitwise operations");
  {
    const std::lock_guard lock(servers.faults->mutex);
    servers.faults->run.clear();
  }
  a = start(groups[0], terms(Collective::all_reduce)), b = start(groups[1], terms(Collective::all_reduce));
  CHECK(a.done.get());
  CHECK(b.done.get());
}

TEST_CASE("a message that nobody answers fails alone", "[cluster][H16]") {
  Servers servers(2);
  auto groups = servers.group();
  auto r = start(groups[0], terms(Collective::recv, 4, DType::float32, ReduceOp::sum, 1), 1, milliseconds(60));
  auto done = r.done.get();
  REQUIRE(!done);
  CHECK_THAT(done.error().message(), StartsWith("recv: rank 1 has not called send within "));
  auto a = start(groups[0], terms(Collective::barrier)), b = start(groups[1], terms(Collective::barrier));
  CHECK(a.done.get());
  CHECK(b.done.get());
}

TEST_CASE("a loop that was held up past a deadline and its grace hears the verdict first", "[cluster][H16]") {
  Servers servers(2);
  auto groups = servers.group();
  const int late = GENERATE(0, 1);  // the coordinator's server, and the other one
  auto r = start(groups[static_cast<size_t>(late)], terms(Collective::recv, 4, DType::float32, ReduceOp::sum, 1 - late),
                 1, milliseconds(60));
  Work slow;
  slow.area = groups[static_cast<size_t>(late)]->area(4 * sizeof(float));  // as large as the other rank's
  slow.terms = terms(Collective::barrier), slow.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  slow.done = [](const Result<int>&) { std::this_thread::sleep_for(milliseconds(400)); };  // on the loop
  groups[static_cast<size_t>(late)]->start(std::move(slow));
  auto other = start(groups[static_cast<size_t>(1 - late)], terms(Collective::barrier));
  CHECK(other.done.get());
  auto done = r.done.get();
  REQUIRE(!done);
  CHECK_THAT(done.error().message(), ContainsSubstring(" has not called send within "));
  auto a = start(groups[0], terms(Collective::barrier)), b = start(groups[1], terms(Collective::barrier));
  CHECK(a.done.get());
  CHECK(b.done.get());
}

TEST_CASE("groups and areas may outlive their server", "[cluster][H36]") {
  std::vector<GroupPtr> groups;
  AreaPtr area;
  Ran waiting;
  {
    Servers servers(2);
    groups = servers.group();
    area = groups[0]->area(64);
    waiting = start(groups[0], terms(Collective::barrier)).done;
  }
  auto done = waiting.get();
  REQUIRE(!done);
  CHECK(done.error().code() == Code::unavailable);
  CHECK(area->bytes.size() == 64);
  std::promise<Result<int>> promise;
  Work w;
  w.done = [&](Result<int> r) { promise.set_value(std::move(r)); };
  groups[0]->start(std::move(w));
  auto late = promise.get_future().get();
  REQUIRE(!late);
  CHECK(late.error().code() == Code::unavailable);
  CHECK(!split(groups[1], {0}).get());
  CHECK_THROWS_AS(groups[0]->area(8), Error);
}

}  // namespace
}  // namespace gradwire::server::cluster
