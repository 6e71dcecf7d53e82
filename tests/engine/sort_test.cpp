#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "schema/ops.h"
#include "tests/engine/arrays.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

/// The places of a stable sort; NaN is the largest.
std::vector<int64_t> order_of(const Values& v, bool descending) {
  std::vector<int64_t> at(v.size());
  std::iota(at.begin(), at.end(), 0);
  const auto less = [](double a, double b) { return !std::isnan(a) && (std::isnan(b) || a < b); };
  std::stable_sort(at.begin(), at.end(), [&](int64_t i, int64_t j) {
    return descending ? less(v[static_cast<size_t>(j)], v[static_cast<size_t>(i)])
                      : less(v[static_cast<size_t>(i)], v[static_cast<size_t>(j)]);
  });
  return at;
}

}  // namespace

TEST_CASE("Sorting is stable for every dtype, any length and both directions", "[sort]") {
  Engine e;
  std::mt19937 random(3);
  for (int t = 0; t < kDTypes; ++t) {
    for (const int64_t n : {1, 2, 7, 100, 511, 512, 3000}) {
      const auto dtype = static_cast<DType>(t);
      Values v(static_cast<size_t>(n));
      for (double& x : v) {
        x = static_cast<double>(random() % 40) - 20;
        if (dtype == DType::uint8) x = std::abs(x);
        if (dtype == DType::boolean) x = x > 0;
        if (is_floating(dtype))
          x = random() % 10 == 0 ? kNaN : random() % 10 == 0 ? -kInf : random() % 9 ? x / 4 : -0.0;
      }
      const Tensor x = e.cx.contiguous(e.doubles({n}, v), dtype);
      for (const bool descending : {false, true}) {
        INFO(name(dtype) << ", " << n << (descending ? ", descending" : ""));
        const auto [sorted, places] = gradwire::sort(x, 0, descending);
        const std::vector<int64_t> want = order_of(v, descending);
        const Values got = values(places), s = values(sorted);
        bool same = true;
        for (size_t i = 0; i < want.size(); ++i) {
          const double w = v[static_cast<size_t>(want[i])];
          same = same && got[i] == static_cast<double>(want[i]) && (s[i] == w || (std::isnan(s[i]) && std::isnan(w)));
        }
        CHECK(same);
        const int64_t k = std::max<int64_t>(1, n / 5);
        const Values top = dtype == DType::boolean ? Values() : values(topk(x, k, 0, descending)[1]);
        CHECK(std::equal(top.begin(), top.end(), got.begin()));
      }
    }
  }
}

TEST_CASE("Large and small whole numbers sort as numbers", "[sort]") {
  Engine e;
  constexpr int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  const Tensor x = e.make<int64_t>(DType::int64, {4}, {high, low, -1, high - 1});
  CHECK(values(argsort(x)) == Values{1, 2, 3, 0});
  CHECK(values(argsort(e.make<int8_t>(DType::int8, {3}, {-128, 127, 0}), 0, true)) == Values{1, 2, 0});
}

TEST_CASE("The lower of two is the median, and NaN wins it", "[sort][X18][I8]") {
  Engine e;
  CHECK(values(median(e.doubles({4}, {3, 1, 2, 4}))) == Values{2});
  const auto [middle, at] = median(e.doubles({2, 4}, {3, 1, 2, 4, 1, kNaN, 2, kNaN}), 1);
  CHECK(values(middle)[0] == 2);
  CHECK(std::isnan(values(middle)[1]));
  CHECK(values(at) == Values{2, 1});
}

TEST_CASE("The mode is the most frequent, of several the smallest, at its last place", "[sort]") {
  Engine e;
  const auto [value, at] = mode(e.doubles({3, 6}, {1, 2, 2, 3, 3, 0, 3, 3, 2, 2, 1, 9, 1, 5, 5, 1, 5, 1}), 1);
  CHECK(values(value) == Values{2, 2, 1});
  CHECK(values(at) == Values{2, 3, 5});
}

TEST_CASE("Extremes of long rows and columns are those of a plain loop, with one thread and with two", "[reduce]") {
  std::mt19937 random(5);
  for (const bool columns : {false, true}) {
    for (int t = 0; t < kDTypes; ++t) {
      using namespace gradwire::engine::test;
      const auto dtype = static_cast<DType>(t);
      const Sizes shape = columns ? Sizes{70000, 3} : Sizes{3, 70000};
      Array in = Array(dtype, shape).random(random);
      const Sizes to = columns ? Sizes{1, 3} : Sizes{3, 1};
      for (const bool largest : {false, true}) {
        INFO(name(dtype) << (columns ? ", columns" : ", rows") << (largest ? ", largest" : ", smallest"));
        const ExtremeParams params{largest};
        std::vector<char> bytes[2];
        for (int threads = 1; threads <= 2; ++threads) {
          const Threads limit(threads);
          const Array best(dtype, to), place(DType::int64, to);
          launch(cpu::extreme, {best.view(), place.view()}, {in.view()}, &params);
          for (int64_t r = 0; r < 3; ++r) {
            double want = in.real(columns ? r : r * 70000);
            int64_t first = 0;
            for (int64_t i = 1; i < 70000; ++i) {
              const double x = in.real(columns ? i * 3 + r : r * 70000 + i);
              if (largest ? x > want : x < want) want = x, first = i;
            }
            CHECK(best.real(r) == want);
            CHECK(place.real(r) == static_cast<double>(first));
          }
          bytes[threads - 1] = best.bytes();
        }
        CHECK(bytes[0] == bytes[1]);
      }
    }
  }
}
