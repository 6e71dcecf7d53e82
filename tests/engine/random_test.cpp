#include <catch2/catch_test_macros.hpp>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

template <class F> std::string message(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was thrown";
}

// Every random operator, with a generator.
using Draw = Tensor (*)(Engine&, const Tensor& g, int64_t n);
constexpr Draw kDraws[] = {
    [](Engine& e, const Tensor& g, int64_t n) { return gradwire::rand(e.cx, {n}, {.generator = g}); },
    [](Engine& e, const Tensor& g, int64_t n) { return randn(e.cx, {n}, {.generator = g}); },
    [](Engine& e, const Tensor& g, int64_t n) { return randint(e.cx, 1000, {n}, {.generator = g}); },
    [](Engine& e, const Tensor& g, int64_t n) { return randint(e.cx, -5, 1000, {n}, {.generator = g}); },
    [](Engine& e, const Tensor& g, int64_t n) { return randperm(e.cx, n, {.generator = g}); },
    [](Engine& e, const Tensor& g, int64_t n) { return normal(e.cx, 1.0, 2.0, {n}, {.generator = g}); },
    [](Engine& e, const Tensor& g, int64_t n) { return bernoulli(gradwire::full(e.cx, {n}, 0.5), g); },
    [](Engine& e, const Tensor& g, int64_t n) { return Tensor(gradwire::zeros(e.cx, {n}).normal_(0, 1, g)); },
    [](Engine& e, const Tensor& g, int64_t n) { return Tensor(gradwire::zeros(e.cx, {n}).uniform_(0, 1, g)); },
    [](Engine& e, const Tensor& g, int64_t n) { return Tensor(gradwire::zeros(e.cx, {n}).random_(g)); },
    [](Engine& e, const Tensor& g, int64_t n) { return Tensor(gradwire::zeros(e.cx, {n}).bernoulli_(0.5, g)); },
    [](Engine& e, const Tensor& g, int64_t n) { return Tensor(gradwire::zeros(e.cx, {n}).exponential_(1, g)); }};

}  // namespace

TEST_CASE("Generators of one seed give one stream, apart from the session's", "[engine][A40][I11][L19]") {
  Engine e;
  for (const Draw draw : kDraws) {
    const Tensor g = generator(e.cx, 5), h = generator(e.cx, 5), other = generator(e.cx, 6);
    const auto session = e.cx.generator.offset;
    const Values first = values(draw(e, g, 501)), second = values(draw(e, g, 501));
    CHECK(g.version() == 2);
    CHECK(e.cx.generator.offset == session);
    CHECK(values(draw(e, h, 501)) == first);
    CHECK(values(draw(e, h, 501)) == second);
    CHECK(values(g) == values(h));
    CHECK(first != second);
    CHECK(values(draw(e, other, 501)) != first);
    // The session's generator gives the same where it has the same seed.
    e.cx.generator = {5, 0};
    CHECK(values(draw(e, Tensor(), 501)) == first);
    CHECK(static_cast<double>(e.cx.generator.offset) == values(g)[1] / 2);
  }
}

TEST_CASE("A refused draw leaves its generator as it was", "[engine][A41][I11]") {
  Engine e;
  const Tensor g = generator(e.cx, 5);
  const auto refuse = [&](auto f, const std::string& text) {
    CHECK(message(f) == text);
    CHECK(values(g) == Values{5, 0});
    CHECK(g.version() == 0);
  };
  refuse([&] { randint(e.cx, 5, 5, {3}, {.generator = g}); },
         "random_ expects 'from' to be less than 'to', but got from=5 >= to=5");
  refuse([&] { randint(e.cx, 300, {3}, {.dtype = DType::uint8, .generator = g}); },
         "to - 1 is out of bounds for unsigned char");
  refuse([&] { normal(e.cx, 0.0, -1.0, {3}, {.generator = g}); }, "normal expects std >= 0.0, but found std -1");
  refuse([&] { gradwire::ones(e.cx, {2}).uniform_(3, 2, g); },
         "uniform_ expects to return a [from, to) range, but found from=3 > to=2");
  refuse([&] { gradwire::rand(e.cx, {-1}, {.generator = g}); },
         "Trying to create tensor with negative dimension -1: [-1]");
  refuse([&] { bernoulli(gradwire::full(e.cx, {2}, 2.0), g); },
         "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  const std::string kind = "expected a generator, which `generator` makes: an int64 tensor of shape [2]";
  CHECK(message([&] { gradwire::rand(e.cx, {1}, {.generator = gradwire::zeros(e.cx, {2})}); }) == kind);
  CHECK(message([&] { gradwire::rand(e.cx, {1}, {.generator = gradwire::zeros(e.cx, {3}, DType::int64)}); }) == kind);
}

TEST_CASE("Whole numbers fill their range evenly, in every dtype", "[engine][A41]") {
  Engine e;
  for (int k = 0; k < kDTypes; ++k) {
    const auto t = static_cast<DType>(k);
    INFO(name(t));
    const int64_t low = t == DType::boolean || t == DType::uint8 ? 0 : -1, high = t == DType::boolean ? 2 : 3;
    const Tensor drawn = randint(e.cx, low, high, {40'000}, t);
    CHECK(drawn.dtype() == t);
    std::vector<int> seen(static_cast<size_t>(high - low));
    for (const double v : values(drawn)) {
      REQUIRE((v >= static_cast<double>(low) && v < static_cast<double>(high)));
      ++seen[static_cast<size_t>(v - static_cast<double>(low))];
    }
    for (const int n : seen) CHECK(std::abs(n - 40'000.0 / static_cast<double>(high - low)) < 600);
  }
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  const Values wide = values(randint(e.cx, least, most, {1000}));
  CHECK(*std::min_element(wide.begin(), wide.end()) < -0.9 * 0x1p63);
  CHECK(*std::max_element(wide.begin(), wide.end()) > 0.9 * 0x1p63);
  for (const double v : values(gradwire::zeros(e.cx, {100}, DType::int8).random_())) CHECK((v >= 0 && v <= 127));
}

TEST_CASE("A permutation has each number once, and its first place is any", "[engine][A42]") {
  Engine e;
  for (const int64_t n : {0, 1, 2, 1000, 100'000}) {
    Values v = values(randperm(e.cx, n));
    if (n >= 1000) CHECK(!std::is_sorted(v.begin(), v.end()));
    std::sort(v.begin(), v.end());
    for (int64_t i = 0; i < n; ++i) REQUIRE(v[static_cast<size_t>(i)] == static_cast<double>(i));
  }
  std::vector<int> first(5);
  for (int round = 0; round < 2000; ++round) ++first[static_cast<size_t>(values(randperm(e.cx, 5))[0])];
  for (const int n : first) CHECK(std::abs(n - 400) < 90);
  CHECK(randperm(e.cx, 5, DType::float32).dtype() == DType::float32);
  CHECK(message([&] { randperm(e.cx, -1); }) == "Trying to create tensor with negative dimension -1: [-1]");
}

#ifdef _OPENMP
TEST_CASE("The number of threads changes no bit of any random operator", "[engine][A40]") {
  const int before = omp_get_max_threads();
  for (const Draw draw : kDraws) {
    Engine e;
    std::vector<Values> seen;
    for (const int threads : {1, 3}) {
      omp_set_num_threads(threads);
      seen.push_back(values(draw(e, generator(e.cx, 9), 100'003)));
    }
    CHECK(seen[1] == seen[0]);
  }
  omp_set_num_threads(before);
}
#endif

TEST_CASE("In-place draws count as writes and have no gradient; what they replace gets zeros", "[engine][A34][A35]") {
  Engine e;
  const Tensor a = e.leaf({3}, {1, 2, 3}), b = a * 2;
  normal_(b);
  CHECK(b.version() == 1);
  CHECK(values(gradwire::grad<Tensor>({sum(b)}, {a})[0]) == Values{0, 0, 0});
  CHECK(message([&] { uniform_(a); }) == "a leaf Variable that requires grad is being used in an in-place operation.");
  const Tensor p = e.leaf({2}, {0, 1}), coin = bernoulli(p);
  CHECK(values(coin) == Values{0, 1});
  CHECK(values(gradwire::grad<Tensor>({sum(coin)}, {p})[0]) == Values{0, 0});
  const Tensor m = e.leaf({2}, {5, 6}), z = normal(m, 0.0);
  CHECK(values(z) == Values{5, 6});
  CHECK(values(gradwire::grad<Tensor>({sum(z)}, {m})[0]) == Values{0, 0});
}

TEST_CASE("Draws have the mean and spread they are asked for", "[engine][A40][A34]") {
  Engine e;
  const auto moments = [&](const Tensor& t) {
    double mean = 0, square = 0;
    const Values v = values(t);
    for (const double x : v) mean += x, square += x * x;
    mean /= static_cast<double>(v.size());
    return std::pair(mean, square / static_cast<double>(v.size()) - mean * mean);
  };
  const auto [mean, variance] = moments(normal(e.cx, 3.0, 2.0, {100'000}));
  CHECK((std::abs(mean - 3) < 0.05 && std::abs(variance - 4) < 0.1));
  const auto [middle, spread] = moments(gradwire::zeros(e.cx, {100'000}).uniform_(-1, 3));
  CHECK((std::abs(middle - 1) < 0.02 && std::abs(spread - 16.0 / 12) < 0.02));
  const auto [rate, rest] = moments(gradwire::zeros(e.cx, {100'000}).exponential_(2));
  CHECK((std::abs(rate - 0.5) < 0.01 && std::abs(rest - 0.25) < 0.01));
  CHECK(std::abs(moments(bernoulli(gradwire::zeros(e.cx, {100'000}), 0.3)).first - 0.3) < 0.01);
}
