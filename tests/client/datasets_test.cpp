// Data sets, samplers and the loader, with the tensors on a server of their own. PyTorch 1.13.1 gave the values of
// what has no draw in it (list(DistributedSampler(range(10), 4, r, shuffle=False)) and so on), and the texts.

#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "client/gradwire.h"

using namespace gradwire;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;
using Ids = std::vector<int64_t>;

namespace {

/// One server for all of these; each test has a session of its own.
Client& server() {
  ::setenv("GRADWIRED", GRADWIRE_BIN "/gradwired", 1);
  static Client client = connect("local", {.connect_timeout = std::chrono::seconds(60)});
  return client;
}

struct OnServer {
  Session session = server().open();
  OnServer() { set_default_session(session); }
};

Ids count_to(int64_t n) {
  Ids v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), int64_t{0});
  return v;
}

Dataset<1> numbers(int64_t from, int64_t to) { return TensorDataset(arange(from, to)); }

/// The items of all batches in their order.
template <class Loader> Ids all_of(Loader&& loader) {
  Ids out;
  for (auto [x] : loader)
    for (const int64_t v : x.template to_vector<int64_t>()) out.push_back(v);
  return out;
}

const Ids kOrder{4, 1, 7, 5, 3, 9, 0, 8, 6, 2};

std::vector<Ids> dealt(std::span<const int64_t> order, int64_t replicas, ShardRule rule, bool drop_last = false) {
  std::vector<Ids> out;
  for (int64_t r = 0; r < replicas; ++r) out.push_back(shard(order, replicas, r, rule, drop_last));
  return out;
}

}  // namespace

TEST_CASE_METHOD(OnServer, "Data sets follow one another, also empty ones", "[datasets][G1]") {
  ConcatDataset all({numbers(0, 5), numbers(0, 0), numbers(5, 10)});
  CHECK(all.size() == 10);
  CHECK(all.cumulative_sizes() == Ids{5, 5, 10});
  for (int64_t i = 0; i < 10; ++i) CHECK(all[i][0].item<int64_t>() == i);
  CHECK(all_of(DataLoader(all, {.batch_size = 4})) == count_to(10));
}

TEST_CASE_METHOD(OnServer, "A negative index counts from the end, and one beyond either end is refused",
                 "[datasets][G2]") {
  const ConcatDataset all({numbers(0, 5), numbers(5, 10)});
  CHECK(all[-1][0].item<int64_t>() == 9);
  CHECK(all[-10][0].item<int64_t>() == 0);
  CHECK_THROWS_MATCHES(all[-11], IndexOutOfRange,
                       MessageMatches(StartsWith("absolute value of index should not exceed dataset length")));
  CHECK_THROWS_MATCHES(all[10], IndexOutOfRange, Message("index 10 is out of bounds for dimension 0 with size 10"));
  CHECK_THROWS_MATCHES(ConcatDataset<1>(std::vector<Dataset<1>>{}), BadArgument,
                       Message("datasets should not be an empty iterable"));
  try {
    all[10];
    FAIL("an index out of range is an error");
  } catch (const Error& e) {
    CHECK(e.where().line == __LINE__ - 3);
    CHECK_THAT(e.where().file, Catch::Matchers::EndsWith("datasets_test.cpp"));
  }
}

TEST_CASE_METHOD(OnServer, "The sum of two data sets has the items of both", "[datasets][G3]") {
  const auto sum = numbers(0, 3) + numbers(3, 7);
  CHECK(sum.size() == 7);
  CHECK(all_of(DataLoader(sum, {.batch_size = 7})) == count_to(7));
  CHECK((sum + sum).cumulative_sizes() == Ids{7, 14});
}

TEST_CASE_METHOD(OnServer, "A batch across several data sets keeps its order", "[datasets][G1]") {
  const auto all = Subset(numbers(0, 5), {4, 0, 2}) + numbers(5, 10) + numbers(10, 12);  // 4 0 2 5 6 7 8 9 10 11
  const auto batch = [&](const Ids& ids) { return all.batch(ids)[0].to_vector<int64_t>(); };
  CHECK(batch({9, 0, 3, 2, 8, 0}) == Ids{11, 4, 5, 2, 10, 4});
  CHECK(batch({2, 3}) == Ids{2, 5});
  CHECK(batch({-1, -10}) == Ids{11, 4});
  CHECK(all.batch(Ids{})[0].shape() == Shape{0});
  CHECK(Subset(all, {-1, 1})[1][0].item<int64_t>() == 0);
}

TEST_CASE_METHOD(OnServer, "A batch is a copy, an item a view", "[datasets]") {
  const auto x = arange(4);
  const TensorDataset set(x);
  set.batch(Ids{1})[0] += 100;
  CHECK(x.to_vector<int64_t>() == Ids{0, 1, 2, 3});
  set[2][0].fill_(7);
  CHECK(x.to_vector<int64_t>() == Ids{0, 1, 7, 3});
}

namespace {
std::optional<World> third_of_four() { return World{4, 2}; }
std::optional<World> no_group() { return std::nullopt; }
}  // namespace

TEST_CASE("A distributed sampler asks the process group who it is", "[datasets][G4]") {
  const auto text =
      Message("Default process group has not been initialized, please make sure to call init_process_group.");
  CHECK_THROWS_MATCHES(DistributedSampler(10), BadArgument, text);
  CHECK_THROWS_MATCHES(DistributedSampler(10, {.num_replicas = 2}), BadArgument, text);
  set_default_world(no_group);
  CHECK_THROWS_MATCHES(DistributedSampler(10, {.rank = 0}), BadArgument, text);
  set_default_world(third_of_four);
  CHECK(DistributedSampler(10, {.shuffle = false}).indices() == Ids{2, 6, 0});
  CHECK(DistributedSampler(10, {.rank = 3, .shuffle = false}).indices() == Ids{3, 7, 1});
  set_default_world(nullptr);
  CHECK(DistributedSampler(10, {.num_replicas = 4, .rank = 2, .shuffle = false}).indices() == Ids{2, 6, 0});
}

TEST_CASE_METHOD(OnServer, "A rank's loader gives its own part of the data", "[datasets][G4][G11][G13]") {
  const auto all = numbers(0, 6) + numbers(6, 10);
  Ids seen;
  for (int64_t r = 0; r < 2; ++r) {
    DistributedSampler sampler(all, {.num_replicas = 2, .rank = r, .seed = 5});
    DataLoader loader(all, {.batch_size = 2, .sampler = &sampler, .num_workers = 2, .pin_memory = true});
    CHECK(loader.size() == 3);
    const Ids part = all_of(loader);
    CHECK(part == sampler.indices());
    seen.insert(seen.end(), part.begin(), part.end());
  }
  std::ranges::sort(seen);
  CHECK(seen == count_to(10));
}

TEST_CASE("The block rule gives each rank a piece of the order", "[datasets][G5][X16]") {
  CHECK(dealt(kOrder, 4, ShardRule::block) == std::vector<Ids>{{4, 1, 7}, {5, 3, 9}, {0, 8, 6}, {2, 4, 1}});
  CHECK(dealt(kOrder, 4, ShardRule::block, true) == std::vector<Ids>{{4, 1}, {7, 5}, {3, 9}, {0, 8}});
  CHECK(dealt(Ids{8, 9}, 5, ShardRule::block) == std::vector<Ids>{{8}, {9}, {8}, {9}, {8}});
}

TEST_CASE("The strided rule gives each rank every R-th of the order", "[datasets][G6][X16]") {
  CHECK(dealt(kOrder, 4, ShardRule::strided) == std::vector<Ids>{{4, 3, 6}, {1, 9, 2}, {7, 0, 4}, {5, 8, 1}});
  CHECK(dealt(count_to(10), 4, ShardRule::strided) == std::vector<Ids>{{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}});
  CHECK(dealt(count_to(10), 4, ShardRule::strided, true) == std::vector<Ids>{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(dealt(count_to(2), 5, ShardRule::strided) == std::vector<Ids>{{0}, {1}, {0}, {1}, {0}});
  CHECK(dealt(count_to(2), 5, ShardRule::strided, true) == std::vector<Ids>(5));
  CHECK(dealt({}, 3, ShardRule::strided) == std::vector<Ids>(3));
}

TEST_CASE("Ranks have equal parts that together are the whole, by either rule", "[datasets][G5][G6][G7]") {
  for (const ShardRule rule : {ShardRule::block, ShardRule::strided})
    for (int64_t n = 0; n <= 12; ++n)
      for (int64_t replicas = 1; replicas <= 7; ++replicas)
        for (const bool drop : {false, true}) {
          std::multiset<int64_t> all;
          const int64_t each = drop ? n / replicas : (n + replicas - 1) / replicas;
          for (int64_t r = 0; r < replicas; ++r) {
            DistributedSampler s(n, {.num_replicas = replicas, .rank = r, .drop_last = drop, .rule = rule});
            const Ids part = s.indices();
            REQUIRE(s.size() == each);
            REQUIRE(static_cast<int64_t>(part.size()) == each);
            all.insert(part.begin(), part.end());
          }
          // No item is dealt twice more often than another.
          size_t least = all.size(), most = 0;
          for (int64_t i = 0; i < n; ++i) least = std::min(least, all.count(i)), most = std::max(most, all.count(i));
          if (n) REQUIRE(most - least <= 1);
          if (!drop && n) REQUIRE(least >= 1);
        }
}

TEST_CASE("The length of a distributed sampler is the same on all ranks", "[datasets][G7]") {
  for (int64_t r = 0; r < 4; ++r) CHECK(DistributedSampler(10, {.num_replicas = 4, .rank = r}).size() == 3);
  CHECK(DistributedSampler(10, {.num_replicas = 4, .rank = 0, .drop_last = true}).size() == 2);
}

TEST_CASE("set_epoch gives each epoch its own order, the same on all ranks", "[datasets][G8]") {
  const auto order = [](uint64_t epoch, uint64_t seed = 0) {
    Ids whole(12);
    for (int64_t r = 0; r < 3; ++r) {
      DistributedSampler s(12, {.num_replicas = 3, .rank = r, .seed = seed});
      s.set_epoch(epoch);
      const Ids part = s.indices();
      CHECK(part == s.indices());  // alike until the epoch is set
      for (size_t k = 0; k < part.size(); ++k) whole[static_cast<size_t>(r) + 3 * k] = part[k];
    }
    return whole;
  };
  CHECK(order(0) == permutation(12, 0));
  CHECK(order(1) == permutation(12, 1));
  CHECK(order(1, 41) == permutation(12, 42));
  CHECK(order(0) != order(1));
}

TEST_CASE("A rank that is none is refused", "[datasets][G9]") {
  CHECK_THROWS_MATCHES(DistributedSampler(10, {.num_replicas = 4, .rank = 4}), BadArgument,
                       Message("Invalid rank 4, rank should be in the interval [0, 3]"));
  CHECK_THROWS_MATCHES(DistributedSampler(10, {.num_replicas = 4, .rank = -1}), BadArgument,
                       Message("Invalid rank -1, rank should be in the interval [0, 3]"));
  CHECK_THROWS_MATCHES(shard(kOrder, 0, 0), BadArgument,
                       Message("Invalid rank 0, rank should be in the interval [0, -1]"));
}

TEST_CASE("A permutation is the same everywhere, by the generator that the standard fixes", "[datasets][G8]") {
  // Computed by another program from the rule in the header: MT19937-64 in Python, whose 10,000th number from 5489 is
  // 9981545732273789042.
  CHECK(permutation(10, 0) == Ids{7, 2, 0, 8, 3, 9, 6, 1, 5, 4});
  CHECK(permutation(10, 42) == Ids{1, 7, 9, 0, 3, 8, 4, 2, 5, 6});
  CHECK(permutation(1, 3) == Ids{0});
  CHECK(permutation(0, 3).empty());
  CHECK_THROWS_AS(permutation(-1, 3), BadArgument);
}

TEST_CASE("Samplers go through the data in order or at random", "[datasets][G10]") {
  CHECK(SequentialSampler(4).indices() == Ids{0, 1, 2, 3});
  RandomSampler random(50, 7), again(50, 7);
  const Ids first = random.indices(), second = random.indices();
  CHECK(first == permutation(50, 7));
  CHECK(first == again.indices());
  CHECK(second == again.indices());
  CHECK(first != second);
  CHECK(std::set(second.begin(), second.end()).size() == 50);
  SubsetRandomSampler subset({5, 1, 9, 7}, 1);
  CHECK(subset.size() == 4);
  for (int pass = 0; pass < 3; ++pass) {
    Ids drawn = subset.indices();
    std::ranges::sort(drawn);
    CHECK(drawn == Ids{1, 5, 7, 9});
  }
  CHECK_THROWS_MATCHES(RandomSampler(0), BadArgument,
                       Message("num_samples should be a positive integer value, but got num_samples=0"));
}

TEST_CASE("Every order of a few items is drawn equally often", "[datasets][G10]") {
  std::map<Ids, int> times;
  for (uint64_t seed = 0; seed < 24'000; ++seed) ++times[permutation(4, seed)];
  CHECK(times.size() == 24);
  double chi = 0;
  for (const auto& [order, n] : times) chi += (n - 1000.) * (n - 1000.) / 1000.;
  CHECK(chi < 49.7);  // 23 degrees of freedom: 0.1 % of fair ones are above
}

TEST_CASE("Weighted draws come by their weights", "[datasets][G10]") {
  WeightedRandomSampler weighted({0, 1, 0, 3, 0}, 40'000, true, 11);
  std::map<int64_t, int> times;
  for (const int64_t i : weighted.indices()) ++times[i];
  CHECK(times.size() == 2);
  CHECK(std::abs(times[3] - 30'000) < 400);  // 4.6 standard deviations
  WeightedRandomSampler once({5, 1, 0, 3}, 3, false, 2);
  std::map<int64_t, int> at_first;
  for (int k = 0; k < 9'000; ++k) {
    const Ids drawn = once.indices();
    ++at_first[drawn[0]];
    REQUIRE(std::set(drawn.begin(), drawn.end()) == std::set<int64_t>{0, 1, 3});
  }
  CHECK(std::abs(at_first[0] - 5'000) < 220);
  CHECK(std::abs(at_first[3] - 3'000) < 210);
  CHECK(WeightedRandomSampler({1, 0}, 2, false).indices() == Ids{0, 1});
}

TEST_CASE("Weights that cannot be drawn from are refused in PyTorch's words", "[datasets][G10]") {
  const auto refused = [](std::vector<double> weights, int64_t n, bool replacement, const char* text) {
    CHECK_THROWS_MATCHES(WeightedRandomSampler(weights, n, replacement), BadArgument, Message(text));
  };
  refused({1}, 0, true, "num_samples should be a positive integer value, but got num_samples=0");
  refused({}, 1, true, "invalid multinomial distribution (sum of probabilities <= 0)");
  refused({0, 0}, 1, true, "invalid multinomial distribution (sum of probabilities <= 0)");
  refused({-1, 1}, 1, true, "invalid multinomial distribution (encountering probability entry < 0)");
  refused({NAN, 1}, 1, true, "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  refused({1, 1}, 3, false, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
}

TEST_CASE("Ten items by three are batches of 3, 3, 3 and 1", "[datasets][G10]") {
  SequentialSampler ten(10);
  BatchSampler batches(ten, 3, false), whole(ten, 3, true);
  CHECK(batches.size() == 4);
  CHECK(batches.batches() == std::vector<Ids>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}});
  CHECK(whole.size() == 3);
  CHECK(whole.batches() == std::vector<Ids>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}});
  CHECK(BatchSampler(ten, 20, true).batches().empty());
  CHECK_THROWS_MATCHES(BatchSampler(ten, 0, false), BadArgument,
                       Message("batch_size should be a positive integer value, but got batch_size=0"));
}

TEST_CASE_METHOD(OnServer, "A loader's batches are rows of all tensors together", "[datasets][G11]") {
  const std::vector<float> pixels{0, 0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4.5f};
  TensorDataset set(from_span(pixels, {5, 2}), Ids{0, 1, 2, 3, 4});
  DataLoader loader(set, {.batch_size = 2, .shuffle = true, .seed = 9});
  CHECK(loader.size() == 3);
  std::vector<Ids> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    Ids seen;
    std::vector<Shape> shapes;
    for (auto [x, y] : loader) {
      shapes.push_back(x.shape());
      CHECK((x.select(1, 0) == y).all().item<bool>());
      CHECK((x.select(1, 1) == y + 0.5).all().item<bool>());
      for (const int64_t i : y.to_vector<int64_t>()) seen.push_back(i);
    }
    CHECK(shapes == std::vector<Shape>{{2, 2}, {2, 2}, {1, 2}});
    epochs.push_back(seen);
    std::ranges::sort(seen);
    CHECK(seen == count_to(5));
  }
  CHECK(epochs[0] == permutation(5, 9));
  CHECK(epochs[0] != epochs[1]);
  CHECK(std::ranges::distance(DataLoader(set, {.batch_size = 2, .drop_last = true})) == 2);
  for (auto [x] : DataLoader(TensorDataset(zeros({0, 3})))) FAIL("no items, no batches: " << x);
}

TEST_CASE_METHOD(OnServer, "A batch of many thousand indexes arrives whole", "[datasets][G11]") {
  const TensorDataset set(arange(30'000));
  CHECK(all_of(DataLoader(set, {.batch_size = 20'000, .shuffle = true, .seed = 3})) == permutation(30'000, 3));
}

TEST_CASE_METHOD(OnServer, "A gradient reaches the data set through its batches", "[datasets][G11]") {
  const auto x = zeros({4}, {.requires_grad = true});
  for (auto [part] : DataLoader(TensorDataset(x), {.batch_size = 3})) (part * 2).sum().backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{2, 2, 2, 2});
}

TEST_CASE_METHOD(OnServer, "A loader's options are checked in PyTorch's words", "[datasets][G11]") {
  const auto set = numbers(0, 4);
  SequentialSampler sampler(set);
  CHECK_THROWS_MATCHES(DataLoader(set, {.batch_size = 0}), BadArgument,
                       Message("batch_size should be a positive integer value, but got batch_size=0"));
  CHECK_THROWS_MATCHES(DataLoader(set, {.shuffle = true, .sampler = &sampler}), BadArgument,
                       Message("sampler option is mutually exclusive with shuffle"));
  CHECK_THROWS_MATCHES(
      DataLoader(set, {.num_workers = -1}), BadArgument,
      Message("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."));
  SequentialSampler other(6);
  CHECK_THROWS_MATCHES(all_of(DataLoader(set, {.batch_size = 6, .sampler = &other})), IndexOutOfRange,
                       Message("index 4 is out of bounds for dimension 0 with size 4"));
}

TEST_CASE_METHOD(OnServer, "Tensors of one data set have as many rows as each other", "[datasets][G12]") {
  const TensorDataset set(arange(3), zeros({3, 2}));
  CHECK(set.size() == 3);
  CHECK(set[1][0].item<int64_t>() == 1);
  CHECK(set[1][1].shape() == Shape{2});
  CHECK_THROWS_MATCHES(TensorDataset(zeros({3}), zeros({4})), ShapeMismatch, Message("Size mismatch between tensors"));
  CHECK_THROWS_AS(TensorDataset(tensor(3)), IndexOutOfRange);
}

TEST_CASE_METHOD(OnServer, "Subsets and random splits are parts of a data set", "[datasets][G12]") {
  const auto set = numbers(0, 10);
  CHECK(all_of(DataLoader(Subset(set, {8, 1, -1}), {.batch_size = 2})) == Ids{8, 1, 9});
  CHECK_THROWS_MATCHES(Subset(set, {12}), IndexOutOfRange,
                       Message("index 12 is out of bounds for dimension 0 with size 10"));
  auto [train, test] = random_split(set, {7, 3}, 4);
  CHECK(train.size() == 7);
  CHECK(test.size() == 3);
  CHECK(all_of(DataLoader(train + test)) == permutation(10, 4));
  CHECK(random_split(set, std::vector<int64_t>{10, 0})[1].size() == 0);
  const auto text = Message("Sum of input lengths does not equal the length of the input dataset!");
  CHECK_THROWS_MATCHES(random_split(set, {3, 4}), BadArgument, text);
  CHECK_THROWS_MATCHES(random_split(set, {-3, 13}), BadArgument, text);
  CHECK_THROWS_MATCHES(random_split(set, {INT64_MAX, INT64_MAX}), BadArgument, text);
}

TEST_CASE("A data set made without tensors has no items", "[datasets]") {
  const Dataset<2> none;
  CHECK(none.size() == 0);
  CHECK((none + none).size() == 0);
  CHECK(Subset(none, {}).size() == 0);
  CHECK_THROWS_AS(none[0], IndexOutOfRange);
  CHECK_THROWS_AS(Subset(none, {0}), IndexOutOfRange);
}
