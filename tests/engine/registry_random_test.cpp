#include <catch2/catch_test_macros.hpp>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <cmath>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
using Draw = Tensor (*)(Engine&, int64_t, DType);
constexpr Draw kDraws[] = {[](Engine& e, int64_t n, DType t) { return gradwire::rand(e.cx, {n}, t); },
                           [](Engine& e, int64_t n, DType t) { return gradwire::randn(e.cx, {n}, t); }};

}  // namespace

TEST_CASE("One seed gives the same bits in every session, another seed others", "[registry][A40][I10]") {
  for (const Draw draw : kDraws) {
    for (const DType t : kFloats) {
      INFO(name(t));
      Engine a, b, c;
      gradwire::manual_seed(a.cx, 7), gradwire::manual_seed(b.cx, 7), gradwire::manual_seed(c.cx, 8);
      const Values first = values(draw(a, 1001, t)), second = values(draw(a, 1001, t));
      CHECK(values(draw(b, 1001, t)) == first);
      CHECK(values(draw(b, 1001, t)) == second);
      CHECK(first != second);
      CHECK(values(draw(c, 1001, t)) != first);
      gradwire::manual_seed(a.cx, 7);
      CHECK(values(draw(a, 1001, t)) == first);
    }
  }
}

TEST_CASE("Only shapes decide what comes next", "[registry][A40]") {
  for (const DType t : kFloats) {
    const int64_t per = t == DType::float64 ? 2 : 4;
    for (const int64_t n : {0, 1, 3, 4, 5, 1000}) {
      Engine a, b;
      gradwire::rand(a.cx, {n}, t), gradwire::randn(b.cx, {n}, t);
      CHECK(a.cx.generator.offset == static_cast<uint64_t>((n + per - 1) / per));
      CHECK(b.cx.generator.offset == a.cx.generator.offset);
      CHECK(values(gradwire::rand(a.cx, {5})) == values(gradwire::rand(b.cx, {5})));
    }
  }
}

#ifdef _OPENMP
TEST_CASE("The number of threads changes no bit of any draw", "[registry][A40]") {
  const int before = omp_get_max_threads();
  for (const Draw draw : kDraws) {
    for (const DType t : kFloats) {
      Engine e;
      std::vector<Values> seen;
      for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        gradwire::manual_seed(e.cx, 5);
        seen.push_back(values(draw(e, 300'001, t)));
      }
      CHECK(seen[1] == seen[0]);
      CHECK(seen[2] == seen[0]);
    }
  }
  omp_set_num_threads(before);
}
#endif

TEST_CASE("Draws have the range, mean and spread they should", "[registry][A40]") {
  Engine e;
  for (const DType t : kFloats) {
    INFO(name(t));
    for (const bool normal : {false, true}) {
      const Values v = values(kDraws[normal](e, 200'000, t));
      double mean = 0, square = 0, least = v[0], most = v[0];
      for (const double x : v) mean += x, square += x * x, least = std::min(least, x), most = std::max(most, x);
      mean /= static_cast<double>(v.size());
      const double variance = square / static_cast<double>(v.size()) - mean * mean;
      CHECK(std::abs(mean - (normal ? 0 : 0.5)) < 0.01);
      CHECK(std::abs(variance - (normal ? 1 : 1 / 12.0)) < (normal ? 0.02 : 0.002));
      if (!normal) CHECK((least >= 0 && most < 1));
      if (normal) CHECK((least < -3.5 && most > 3.5 && most < 9));
    }
  }
}

TEST_CASE("Whole numbers are not drawn by rand, and the device must be this one", "[registry][A40][A10]") {
  Engine e;
  for (const char* op : {"rand", "randn"}) {
    const Arguments a(e.cx, *find_op(op), "(2); dtype='int64'");
    try {
      a.run(e.cx);
      FAIL();
    } catch (const Error& err) {
      CHECK(err.code() == Code::dtype_mismatch);
      CHECK(err.op() == op);
      CHECK(e.cx.generator.offset == 0);
    }
  }
}
