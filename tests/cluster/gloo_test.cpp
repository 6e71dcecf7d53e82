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

TEST_CASE("what agreement costs", "[.measure]") {
  for (const int n : {2, 4}) {
    Servers servers = real(n);
    const auto groups = servers.group();
    for (const int64_t count : {1024, 1 << 18, 1 << 24}) {
      const int times = count > (1 << 20) ? 10 : 200;
      std::vector<AreaPtr> areas;
      for (auto& g : groups) areas.push_back(g->area(static_cast<size_t>(count) * 4));
      std::vector<double> seconds;
      for (int i = 0; i < times; ++i) {
        const auto begun = std::chrono::steady_clock::now();
        std::vector<Ran> all;
        for (size_t r = 0; r < groups.size(); ++r) {
          auto promise = std::make_shared<std::promise<Result<int>>>();
          all.push_back(promise->get_future());
          Work w;
          w.terms = terms(Collective::all_reduce, count), w.area = areas[r];
          w.deadline = begun + std::chrono::seconds(30);
          w.done = [promise](Result<int> got) { promise->set_value(std::move(got)); };
          groups[r]->start(std::move(w));
        }
        for (auto& a : all) REQUIRE(a.get());
        seconds.push_back(seconds_since(begun));
      }
      std::sort(seconds.begin(), seconds.end());
      std::printf("%d servers, %9ld bytes: median %.3f ms\n", n, static_cast<long>(count * 4),
                  1e3 * seconds[seconds.size() / 2]);
    }
  }
}

}  // namespace
}  // namespace gradwire::server::cluster
