// Gradients that are averaged over ranks, seen from the engine: when they leave, and where they come back to.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <climits>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

/// Two ranks with one gradient: the sum is twice what this one sends, unless a test wants another. Nothing arrives
/// before it is asked for.
class Twins final : public Exchange {
 public:
  struct Sum final : Transfer {
    explicit Sum(Twins& t, size_t n) : twins(t), number(t.prepared++), room(n) { bytes = room, ++twins.living; }
    ~Sum() override { --twins.living; }
    bool done() const override { return true; }
    int result() override {
      if (twins.on_result) twins.on_result();
      if (number >= twins.fails_from) throw Error(Code::unavailable, "rank 1 is gone");
      if (!std::exchange(summed, true)) {
        auto* x = reinterpret_cast<double*>(room.data());
        for (size_t i = 0; i < room.size() / 8; ++i) x[i] *= twins.sum;
      }
      return -1;
    }
    Twins& twins;
    const int number;
    std::vector<std::byte> room;
    bool summed = false;
  };
  bool has(std::string_view) override { return true; }
  Group group(std::string_view) override { return {0, 2, nullptr}; }
  TransferPtr prepare(std::string_view, size_t bytes) override { return std::make_shared<Sum>(*this, bytes); }
  void start(const TransferPtr&, std::string_view, const Terms& t) override {
    counts.push_back(t.count), ops.push_back(t.op), parts.push_back(t.part);
    if (on_start) on_start();
  }
  TransferPtr join(std::string_view, const JoinCall&) override { return nullptr; }
  TransferPtr split(std::string_view, std::string_view, std::span<const int64_t>) override { return nullptr; }
  void leave(std::string_view, std::string_view) override {}

  std::function<void()> on_start, on_result;
  std::vector<int64_t> counts;
  std::vector<ReduceOp> ops;
  std::vector<uint64_t> parts;
  int living = 0;
  int prepared = 0;
  int fails_from = INT_MAX;  // the first transfer, of all that were prepared, that fails
  double sum = 2;            // in terms of what this rank sends
};

struct Rank : Engine {
  Twins twins;
  Rank() { cx.exchange = &twins; }
};

/// Nodes that ran before each bucket left, and in all.
std::pair<std::vector<int>, int> run(Rank& e, const Tensor& loss) {
  const Bound args[] = {loss};
  BackwardTask task(e.cx, find_op("backward")->id, args);
  int nodes = 0;
  std::vector<int> at;
  e.twins.on_start = [&] { at.push_back(nodes); };
  while (!task.step([](void* n) { return ++*static_cast<int*>(n), true; }, &nodes)) {}
  e.twins.on_start = nullptr;
  return {at, nodes};
}

}  // namespace

TEST_CASE("A gradient leaves as soon as it is whole, while older nodes have yet to run", "[H32][H33]") {
  Rank e;
  std::vector<Tensor> w;
  for (int i = 0; i < 4; ++i) w.push_back(e.leaf({2}, {1, 2}));
  Tensor y = e.doubles({2}, {1, 1});
  for (const Tensor& t : w) y = sin(sin(sin(y * t)));
  gradwire::ddp(w, {}, 16);
  const auto [at, nodes] = run(e, gradwire::sum(y));
  REQUIRE(at.size() == 4);
  CHECK(at[0] <= 6);
  for (size_t i = 1; i < 4; ++i) CHECK(at[i] - at[i - 1] == 4);
  CHECK(at[3] >= 15);
}

TEST_CASE("A parameter that is used twice leaves with both gradients, and one of inputs= alone with its own", "[H32]") {
  Rank e;
  const Tensor w = e.leaf({2}, {1, 2}), v = e.leaf({2}, {3, 4});
  gradwire::ddp({w, v}, {}, 16);
  const Tensor y = gradwire::sum(w * v * sin(w)) + gradwire::sum(w * 5.0);
  y.backward();
  for (size_t i = 0; i < 2; ++i) {
    const double a = i ? 2 : 1, b = i ? 4 : 3;
    CHECK(std::abs(values(grad_of(w))[i] - (b * std::sin(a) + a * b * std::cos(a) + 5)) < 1e-14);
    CHECK(std::abs(values(grad_of(v))[i] - a * std::sin(a)) < 1e-14);
  }
  const Tensor z = gradwire::sum(w * v);
  gradwire::zero_grad({w, v});
  z.backward({}, {}, false, {w});
  CHECK(values(grad_of(w)) == Values{3, 4});
}

TEST_CASE("An average stays in the memory in which it came while its gradient lives", "[H32][T24]") {
  constexpr int64_t kMany = 10'000;  // small ones are copied
  Rank e;
  Values numbers(kMany);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  const Tensor w = e.leaf({kMany}, numbers), b = e.leaf({}, {1});
  gradwire::ddp({w, b});
  const auto backward = [&] { gradwire::sum(w * w + b).backward(); };
  const auto at = [](const Tensor& t, size_t i) { return values(t)[i]; };
  backward();
  CHECK(e.twins.living == 1);
  CHECK(at(grad_of(w), 9'999) == 19'998);
  CHECK(values(grad_of(b)) == Values{kMany});
  CHECK(reinterpret_cast<uintptr_t>(grad_of(w).data()) % 16 == 0);

  // What somebody reads elsewhere does not change with it, and keeps it.
  std::optional<Snapshot> seen = snapshot(grad_of(w));
  gradwire::mul_(grad_of(w), 2.0);
  CHECK(static_cast<const double*>(seen->data)[3] == 6);
  CHECK(at(grad_of(w), 3) == 12);
  const uint32_t version = grad_of(w).version();
  backward();  // 12 + 6
  CHECK(at(grad_of(w), 3) == 18);
  CHECK(grad_of(w).version() > version);
  CHECK(e.twins.living == 2);
  gradwire::zero_grad({w, b}, true);
  CHECK(e.twins.living == 1);
  CHECK(static_cast<const double*>(seen->data)[3] == 6);
  seen.reset();
  CHECK(e.twins.living == 0);
}

TEST_CASE("What several models send has one order, whichever a backward comes to first", "[H32]") {
  // The model that was attached last goes first, and a parameter that is not used holds nothing up.
  for (const bool reversed : {false, true}) {
    CAPTURE(reversed);
    Rank e;
    const Tensor a = e.leaf({2}, {1, 2}), unused = e.leaf({3}, {1, 2, 3}), b = e.leaf({4}, {1, 2, 3, 4});
    gradwire::ddp({a, unused}, {}, 8);
    gradwire::ddp({b}, {}, 8);
    const Tensor first = gradwire::sum(sin(reversed ? b : a)), second = gradwire::sum(sin(reversed ? a : b));
    const auto [at, nodes] = run(e, second + first);
    CHECK(e.twins.counts == std::vector<int64_t>{4, 3, 2});
    CHECK(e.twins.parts[0] >> 16 != e.twins.parts[1] >> 16);
    CHECK(e.twins.parts[1] >> 16 == e.twins.parts[2] >> 16);
    CHECK((e.twins.parts[2] & 0xffff) == 1);
    CHECK(at[0] < nodes);
    CHECK(values(grad_of(unused)) == Values{0, 0, 0});
  }
}

TEST_CASE("A view of a gradient sees its average", "[H32][A35]") {
  Rank e;
  const Tensor w = e.leaf({2}, {1, 2});
  gradwire::sum(w * w).backward();
  const Tensor grad = grad_of(w), second = gradwire::narrow(grad, 0, 1, 1);
  gradwire::ddp({w});
  gradwire::sum(w * w * w).backward();
  CHECK(values(grad) == Values{5, 16});
  CHECK(values(second) == Values{16});
  CHECK(e.twins.living == 0);
}

TEST_CASE("Gradients stay as they were computed where the average fails", "[H36]") {
  // Of two buckets the first or only the second fails; small averages are copied, large ones stay where they came.
  for (const int works : {0, 1}) {
    for (const int64_t n : {2, 10'000}) {
      CAPTURE(works, n);
      const auto all = [&](double x) { return Values(static_cast<size_t>(n), x); };
      Rank e;
      const Tensor w = e.leaf({n}, all(2)), v = e.leaf({n}, all(3));
      gradwire::ddp({w, v}, {}, 16);
      e.twins.sum = 10;  // a mean of five times what is this rank's own
      e.twins.fails_from = works;
      CHECK_THROWS_AS(gradwire::sum(w * v).backward(), Error);
      CHECK(e.twins.prepared == 2);
      CHECK(values(grad_of(w)) == all(3));
      CHECK(values(grad_of(v)) == all(2));
      CHECK(e.twins.living == 0);  // nothing is left of it
      e.twins.fails_from = INT_MAX;
      gradwire::zero_grad({w, v});
      gradwire::sum(w * v).backward();
      CHECK(values(grad_of(w)) == all(15));
      CHECK(values(grad_of(v)) == all(10));
    }
  }
}

TEST_CASE("Small parameters travel with a large one, as PyTorch has it", "[H32]") {
  Rank e;
  std::vector<Tensor> all;
  for (const int64_t n : {100, 1, 100, 1, 100, 1}) all.push_back(e.leaf({n}, Values(static_cast<size_t>(n), 1)));
  gradwire::ddp(all, {}, 800);
  Tensor sum = e.doubles({}, {0});
  for (const Tensor& t : all) sum = sum + gradwire::sum(t);
  sum.backward();
  // From the last to the first: 1 and, at the next multiple of 64 bytes, 100.
  CHECK(e.twins.counts == std::vector<int64_t>(3, 108));
}

TEST_CASE("What gradients stay in is on the session's account, as a whole, and where there is no room they are copied",
          "[H32][T24]") {
  Rank e;
  const Tensor w = e.leaf({10'000}, Values(10'000, 1)), b = e.leaf({10}, Values(10, 1));
  gradwire::ddp({w, b});
  const auto backward = [&] {
    gradwire::zero_grad({w, b}, true);
    (gradwire::sum(w * w) + gradwire::sum(b)).backward();
    e.cx.pool.collect();
  };
  gradwire::zero_grad({w, b}, true);
  const int64_t before = e.cx.pool.used();
  backward();
  CHECK(e.twins.living == 1);
  CHECK(e.cx.pool.used() - before >= 80'000);
  CHECK(e.cx.pool.used() - before < 100'000);
  // A small one keeps nothing but itself.
  const Tensor small = grad_of(b);
  gradwire::zero_grad({w, b}, true);
  e.cx.pool.collect();
  CHECK(e.twins.living == 0);
  CHECK(e.cx.pool.used() - before < 2'000);
  CHECK(values(small) == Values(10, 1));

  backward();
  const Tensor kept = grad_of(w);
  const int64_t most = e.cx.pool.limit() - e.cx.pool.used() - 200'000;
  e.cx.pool.charge(static_cast<size_t>(most));
  gradwire::zero_grad({w, b}, true);
  gradwire::sum(w * 3.0).backward();  // two of 80,000 bytes and, for a while, a third
  CHECK(values(grad_of(w)) == Values(10'000, 3));
  CHECK(values(kept) == Values(10'000, 2));
  CHECK(e.twins.living == 1);
  e.cx.pool.uncharge(static_cast<size_t>(most));
}

TEST_CASE("Floats are divided before they are added up, halves after", "[H32]") {
  for (const DType t : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    Rank e;
    const Tensor w = e.cx.full(Shape{3}, 1.0, t);
    require_grad(w);
    gradwire::ddp({w});
    gradwire::sum(w * 2.0).backward();
    const bool half = t == DType::float16 || t == DType::bfloat16;
    CHECK(e.twins.ops == std::vector<ReduceOp>{half ? ReduceOp::avg : ReduceOp::sum});
    if (t == DType::float64) CHECK(values(grad_of(w)) == Values(3, 2));
  }
}

TEST_CASE("Averages are written for all models of a backward or for none, though memory is full", "[H32][H36][T24]") {
  constexpr int64_t kMany = 10'000;
  const auto all = [](double x) { return Values(size_t{kMany}, x); };
  Rank e;
  e.twins.sum = 10;  // a mean of five times what is this rank's own
  int64_t full = 0;
  e.twins.on_result = [&] {
    const int64_t left = e.cx.pool.limit() - e.cx.pool.used();
    e.cx.pool.charge(static_cast<size_t>(left)), full += left;
  };
  const auto with_room = [&] { e.cx.pool.uncharge(static_cast<size_t>(std::exchange(full, 0))); };
  SECTION("where one of them has no place for zeros") {
    const bool first = GENERATE(false, true);
    const Tensor a = e.leaf({kMany}, all(2)), b = e.leaf({kMany}, all(3)), unused = e.leaf({kMany}, all(1));
    const std::vector<Tensor> whole{a}, part{b, unused};
    gradwire::ddp(first ? whole : part);
    gradwire::ddp(first ? part : whole);
    CHECK_THROWS_AS(gradwire::sum(a * b).backward(), Error);
    with_room();
    CHECK(values(grad_of(a)) == all(3));
    CHECK(values(grad_of(b)) == all(2));
    CHECK(!grad_of(unused));
  }
  SECTION("and a gradient that lies in strides needs no other place") {
    const Tensor a = e.leaf({2}, {1, 2}), b = e.leaf({kMany / 4, 4}, all(1));
    gradwire::set_grad(b, gradwire::zeros(e.cx, {4, kMany / 4}, {.dtype = DType::float64}).t());
    gradwire::ddp({a, b});
    gradwire::sum(a * gradwire::sum(b)).backward();
    with_room();
    CHECK(values(grad_of(a)) == Values(2, 5. * kMany));
    CHECK(values(grad_of(b)) == all(15));
    CHECK(!grad_of(b)->contiguous);
  }
}
