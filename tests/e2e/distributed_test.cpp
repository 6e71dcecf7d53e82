// torch.distributed's functions as programs on several clients write them, on one server whose cluster is pretended,
// and on a server each.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "client/distributed.h"
#include "client/gradwire.h"
#include "client/nn/nn.h"
#include "tests/e2e/cluster_rig.h"
#include "tests/server/rig.h"
#include "tests/server/rpc_rig.h"
#include "tests/support/fake_cluster.h"

namespace {

namespace dist = gradwire::distributed;
using gradwire::Tensor;
using Floats = std::vector<float>;

/// Programs on n clients, each of which gets its session and rank.
struct World {
  explicit World(bool pretended = true) : pretended(pretended) { rig.service.use(&cluster); }
  /// What the programs threw.
  std::vector<std::string> run(int n, const std::function<void(gradwire::Session&, int)>& program) {
    std::vector<std::string> said(static_cast<size_t>(n));
    std::vector<std::thread> threads;
    std::latch all_ended(n);
    std::deque<gradwire::e2e::Server> servers;
    for (int i = 0; !pretended && i < n; ++i) servers.emplace_back();
    const std::string meeting = pretended ? "tcp://fake:1" : "tcp://" + servers[0].peer();
    for (int i = 0; i < n; ++i) {
      threads.emplace_back([&, i] {
        gradwire::Client client;
        try {
          client = gradwire::connect(pretended ? rig.address() : servers[static_cast<size_t>(i)].unix_address());
          dist::init_process_group(
              client.session(),
              {.init_method = meeting, .world_size = n, .rank = i, .timeout = std::chrono::seconds(60)});
          program(client.session(), i);
          dist::barrier(client.session());
        } catch (const gradwire::Error& e) {
          said[static_cast<size_t>(i)] = e.what();
          client = {};  // the others need not wait for it
        }
        all_ended.arrive_and_wait();  // a rank leaves its group with its client
      });
    }
    for (auto& t : threads) t.join();
    for (auto& s : servers) s.signal(SIGTERM);
    for (auto& s : servers) CHECK(s.wait() == 0);
    return said;
  }
  const bool pretended;
  gradwire::server::cluster::FakeCluster cluster;
  gradwire::server::RpcRig rig;
};
std::string help() {
  std::FILE* out = ::popen((std::string(GRADWIRE_BIN) + "/gradwired --help").c_str(), "r");
  REQUIRE(out);
  std::string text;
  for (int c; (c = std::fgetc(out)) != EOF;) text += static_cast<char>(c);
  ::pclose(out);
  return text;
}
/// Both kinds of world, as far as this build's server has groups.
World a_world() {
  const bool pretended = GENERATE(true, false);
  if (!pretended && help().find("--peer") == std::string::npos) SKIP("this gradwired has no --peer");
  return World(pretended);
}
std::vector<std::string> fine(int n) { return std::vector<std::string>(static_cast<size_t>(n)); }

/// Catch2's checks are one thread's: what other threads find wrong, they throw.
void must(bool right, const std::string& what) {
  if (!right) throw gradwire::Error(gradwire::Code::internal, "wrong: " + what);
}
void must_be(const Tensor& t, const Floats& want, const std::string& what) {
  const Floats got = t.to_vector<float>();
  std::string list;
  for (const float f : got) list += " " + std::to_string(f);
  must(got == want, what + " gives" + list);
}

}  // namespace

TEST_CASE("Programs on four clients reduce, broadcast, gather and scatter",
          "[H19][H20][H21][H22][H23][H24][H25][H30]") {
  World w = a_world();
  CHECK(w.run(4, [](gradwire::Session& s, int rank) {
    must(dist::get_rank(s) == rank && dist::get_world_size(s) == 4, "the rank");
    const auto own = [&](double v) { return gradwire::full(s, {2}, v); };
    auto x = own(rank);
    dist::all_reduce(x);
    must_be(x, {6, 6}, "all_reduce");
    x = own(rank + 1);
    dist::all_reduce(x, dist::PRODUCT);
    must_be(x, {24, 24}, "the product");
    x = own(rank);
    dist::broadcast(x, 3);
    must_be(x, {3, 3}, "broadcast");
    x = own(rank + 1);
    dist::reduce(x, 0);
    must_be(x, rank == 0 ? Floats{10, 10} : Floats(2, static_cast<float>(rank + 1)), "reduce");
    x = own(rank);
    const auto all = dist::all_gather(x);
    must(all.size() == 4, "all_gather");
    must_be(all[2], {2, 2}, "all_gather");
    std::vector<Tensor> list{own(-1), own(-1), own(-1), own(-1)};
    dist::all_gather(list, x);
    must_be(list[3], {3, 3}, "all_gather into a list");
    x = own(10 * rank);
    dist::gather(x, rank == 1 ? list : std::vector<Tensor>{}, 1);
    if (rank == 1) must_be(list[2], {20, 20}, "gather");
    must(dist::gather(x, 2).size() == (rank == 2 ? 4u : 0u), "gather's list");
    dist::scatter(x, rank == 0 ? std::vector<Tensor>{own(0), own(1), own(4), own(9)} : std::vector<Tensor>{});
    must_be(x, Floats(2, static_cast<float>(rank * rank)), "scatter");
    dist::reduce_scatter(x, {own(1), own(2), own(3), own(4)});
    must_be(x, Floats(2, static_cast<float>(4 * (rank + 1))), "reduce_scatter");
    const auto odd = dist::new_group(s, {3, 1});
    x = own(rank);
    dist::all_reduce(x, dist::SUM, odd);
    must_be(x, rank % 2 ? Floats{4, 4} : Floats(2, static_cast<float>(rank)), "a group's all_reduce");
    must(dist::get_rank(s, odd) == (rank == 1 ? 0 : rank == 3 ? 1 : -1), "a group's rank");
  }) == fine(4));
}

TEST_CASE("Programs send to each other, and requests let them send first", "[H15][H16][H17]") {
  World w = a_world();
  CHECK(w.run(2, [](gradwire::Session& s, int rank) {
    const int other = 1 - rank;
    auto x = gradwire::full(s, {3}, 1.0 * rank), y = gradwire::zeros(s, {3});
    auto sent = dist::isend(x, other);
    auto got = dist::irecv(y, other);
    got.wait();
    sent.wait();
    must(got.is_completed() && sent.is_completed() && got.source_rank() == other, "the requests");
    must_be(y, Floats(3, static_cast<float>(other)), "irecv");
    if (rank == 0) {
      dist::send(gradwire::tensor(s, {1., 2., 3.}), 1);
    } else {
      must(dist::recv(y) == 0, "the sender");
      must_be(y, {1, 2, 3}, "recv");
    }
  }) == fine(2));
}

TEST_CASE("A program's mistakes with groups are PyTorch's errors, on its own line", "[H2][H4][H18][H22][H23]") {
  World w;
  const auto said = w.run(2, [](gradwire::Session& s, int rank) {
    const auto error = [&](const std::function<void()>& f) {
      try {
        f();
        s.sync();
      } catch (const gradwire::Error& e) {
        must(e.where().file.ends_with("distributed_test.cpp"), "the line of: " + std::string(e.what()));
        return std::string(e.what());
      }
      return std::string("nothing");
    };
    const auto x = gradwire::zeros(s, {2});
    const auto is = [&](const std::string& got, const std::string& want) { must(got == want, got); };
    is(error([&] { dist::send(x, rank); }), "cannot send tensor to process with same rank");
    is(error([&] { dist::recv(x, rank); }), "cannot receive tensor from process with same rank");
    is(error([&] { dist::all_gather({x}, x); }), "allGather: number of output tensors and group size does not match");
    const auto unequal = "allGather: tensors are not equal in size or data type";
    is(error([&] { dist::all_gather({x, gradwire::zeros(s, {3})}, x); }), unequal);
    is(error([&] { dist::all_gather({x, gradwire::zeros(s, {2}, {.dtype = gradwire::int64})}, x); }), unequal);
    is(error([&] {
         dist::all_gather({gradwire::zeros(s, {2}), gradwire::zeros(s, {2})}, gradwire::ones(s, {1}));
       }),
       unequal);
    is(error([&] {
         dist::gather(x, {x, gradwire::zeros(s, {1})}, rank);
       }),
       "gather: tensors are not equal in size or data type");
    is(error([&] { dist::gather(x, {}, rank); }), "gather_list is a required argument in gather destination");
    is(error([&] { dist::gather(x, {x}, 1 - rank); }), "non-empty gather_list can be given only to gather destination");
    is(error([&] { dist::scatter(x, {}, rank); }), "scatter_list is a required argument in scatter source");
    is(error([&] { dist::init_process_group(s, {.init_method = "tcp://fake:1", .world_size = 2, .rank = rank}); }),
       "trying to initialize the default process group twice!");
    is(error([&] { dist::new_group(s, {}); }), "cannot create empty group");
  });
  CHECK(said == fine(2));
  auto client = gradwire::connect(w.rig.address());
  gradwire::set_default_session(client.session());
  CHECK(!dist::is_initialized());
  CHECK_THROWS_WITH(dist::get_rank(),
                    "Default process group has not been initialized, please make sure to call init_process_group.");
}

TEST_CASE("env:// reads the client's environment, not the server's", "[H8]") {
  World w;
  ::setenv("MASTER_ADDR", "10.1.1.20", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  ::setenv("WORLD_SIZE", "1", 1);
  ::unsetenv("RANK");
  auto client = gradwire::connect(w.rig.address());
  dist::init_process_group(client.session(), {.world_size = 1, .rank = 0});
  const auto seen = w.cluster->environments().back();
  REQUIRE(seen.size() == 3);
  CHECK(seen[0] == std::pair<std::string, std::string>("MASTER_ADDR", "10.1.1.20"));
  CHECK(seen[2] == std::pair<std::string, std::string>("WORLD_SIZE", "1"));
}

TEST_CASE("A distributed sampler takes the rank of the default session's group", "[G4][H2]") {
  World w = a_world();
  CHECK(w.run(2, [](gradwire::Session& s, int rank) {
    if (rank == 1) {
      gradwire::set_default_session(s);
      const gradwire::DistributedSampler sampler(10);
      must(sampler.num_replicas() == 2 && sampler.rank() == 1, "the sampler's place");
    }
    dist::barrier(s);
    if (rank == 1) {
      auto other = gradwire::connect("local");
      gradwire::set_default_session(other.session());
      std::string said;
      try {
        gradwire::DistributedSampler(10);
      } catch (const gradwire::Error& e) {
        said = e.what();
      }
      must(said.starts_with("Default process group has not been initialized"), "a session without a group: " + said);
    }
  }) == fine(2));
}

TEST_CASE("The backend may stand in front", "[H2][H33]") {
  gradwire::server::cluster::FakeCluster cluster;
  gradwire::server::RpcRig rig;
  rig.service.use(&cluster);
  auto client = gradwire::connect(rig.address());
  gradwire::set_default_session(client.session());
  dist::init_process_group("gloo", {.init_method = "tcp://fake:2", .world_size = 1, .rank = 0});
  CHECK(dist::get_world_size() == 1);
  const gradwire::nn::Sequential net(gradwire::nn::Linear(2, 1), gradwire::nn::Dropout());
  const gradwire::nn::DistributedDataParallel ddp(net);
  CHECK(ddp.parameters().size() == 2);
  ddp.eval();
  CHECK_FALSE(net.is_training());
  ddp.train();
  CHECK(net[1].is_training());
  ddp(gradwire::ones({1, 2})).sum().backward();
  ddp.zero_grad();
  CHECK_FALSE(ddp.parameters()[0].has_grad());
}

TEST_CASE("Two ranks train as one would on the whole batch", "[H32][H33][H35]") {
  World w = a_world();
  struct Line {
    Tensor weight, bias, steps;
    std::vector<Tensor> parameters() const { return {weight, bias}; }
    std::vector<Tensor> buffers() const { return {steps}; }
    Tensor operator()(const Tensor& x) const { return gradwire::matmul(x, weight) + bias; }
  };
  const std::vector<double> xs{0.1, -0.3, 0.7, 0.2, -0.5, 0.4, 0.9, -0.1}, ys{1, -1, 0.5, 2};
  const auto make = [](gradwire::Session& s, double start) {
    return Line{gradwire::full(s, {2, 1}, start, {.dtype = gradwire::float64}).requires_grad_(),
                gradwire::zeros(s, {1}, {.dtype = gradwire::float64}).requires_grad_(), gradwire::full(s, {1}, start)};
  };
  const auto train = [](auto& forward, const Line& net, const Tensor& x, const Tensor& y) {
    for (int i = 0; i < 20; ++i) {
      auto d = forward(x) - y;
      gradwire::mean(d * d).backward();
      const gradwire::no_grad off;
      for (auto& p : net.parameters()) {
        p.sub_(p.grad(), 0.1);
        gradwire::zero_grad({p});
      }
    }
    return net.weight.template to_vector<double>();
  };
  auto client = gradwire::connect(w.rig.address());  // of the one rank
  const auto part = [&](gradwire::Session& s, size_t first, size_t n) {
    const std::vector<double> x(xs.begin() + static_cast<long>(2 * first),
                                xs.begin() + static_cast<long>(2 * (first + n))),
        y(ys.begin() + static_cast<long>(first), ys.begin() + static_cast<long>(first + n));
    return std::pair(gradwire::from_span(s, x, {static_cast<int64_t>(n), 2}),
                     gradwire::from_span(s, y, {static_cast<int64_t>(n), 1}));
  };
  Line whole = make(client.session(), 0.5);
  const auto [x, y] = part(client.session(), 0, 4);
  const std::vector<double> want = train(whole, whole, x, y);
  std::vector<double> got[2];
  CHECK(w.run(2, [&](gradwire::Session& s, int rank) {
    Line net = make(s, 0.5 + rank);  // rank 0's counts
    gradwire::nn::DistributedDataParallel ddp(net);
    const auto [px, py] = part(s, static_cast<size_t>(2 * rank), 2);
    got[rank] = train(ddp, net, px, py);
    must_be(net.steps, {0.5}, "a buffer");
    {
      const auto off = ddp.no_sync();
      gradwire::sum(ddp(px)).backward();
    }
    must(net.bias.grad().to_vector<double>()[0] == 2, "a gradient of one's own");
  }) == fine(2));
  CHECK(got[0] == got[1]);
  REQUIRE(got[0].size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(std::abs(got[0][i] - want[i]) < 1e-12);
}
