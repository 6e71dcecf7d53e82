#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "engine/kernels.h"
#include "schema/ops.h"
#include "tests/engine/arrays.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

Values scanned(ScanOp op, const Values& x, const Values& a, bool lag) {
  Values out;
  double s = op == ScanOp::product ? 1 : 0;
  for (size_t i = 0; i < x.size(); ++i) {
    s = op == ScanOp::sum ? s + x[i] : op == ScanOp::product ? s * x[i] : i == 0 ? x[0] : x[i] + a[i - lag] * s;
    out.push_back(s);
  }
  return out;
}

}  // namespace

TEST_CASE("Scans along rows, columns and backwards are those of a plain loop", "[scan][kernels]") {
  using namespace gradwire::engine::test;
  std::mt19937 random(4);
  const auto small = [&](int64_t) { return 0.5 + static_cast<double>(random() % 64) / 64; };
  constexpr int64_t rows = 37, n = 300;
  Array x(DType::float64, {rows, n}), a(DType::float64, {rows, n});
  x.each(small), a.each(small);
  for (const ScanOp op : {ScanOp::sum, ScanOp::product, ScanOp::linear}) {
    for (const bool lag : {false, true}) {
      const ScanParams params{op, lag};
      for (const bool across : {false, true}) {  // rows are neighbours
        INFO(static_cast<int>(op) << (lag ? ", lag" : "") << (across ? ", across" : ""));
        // Of the transposed arrays the last dim is the one with the larger stride.
        const Array in = across ? x.swapped(0, 1) : x, with = across ? a.swapped(0, 1) : a;
        const Array out(DType::float64, {rows, n}), to = across ? out.swapped(0, 1) : out;
        const int64_t many = across ? n : rows, length = across ? rows : n;
        if (op == ScanOp::linear)
          launch(cpu::scan, {to.view()}, {in.view(), with.view()}, &params);
        else
          launch(cpu::scan, {to.view()}, {in.view()}, &params);
        int64_t wrong = 0;
        for (int64_t r = 0; r < many; ++r) {
          Values row, factors;
          for (int64_t i = 0; i < length; ++i) {
            row.push_back(in.real(r * length + i)), factors.push_back(with.real(r * length + i));
          }
          const Values want = scanned(op, row, factors, lag);
          for (int64_t i = 0; i < length; ++i)
            wrong += !near(to.real(r * length + i), want[static_cast<size_t>(i)], 1e-12);
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("A running sum of float32 keeps its digits", "[scan]") {
  Engine e;
  const Tensor x = full(e.cx, {1 << 20}, 0.1, {.dtype = DType::float32});
  const Values s = values(cumsum(x, 0));
  CHECK(std::abs(s.back() / (static_cast<double>(0.1f) * (1 << 20)) - 1) < 1e-7);
}

TEST_CASE("Running extremes stand at the last of equal ones, and NaN stays", "[scan]") {
  Engine e;
  const double nan = std::nan("");
  const auto [best, at] = cummax(e.doubles({6}, {1, 3, 3, nan, 2, nan}), 0);
  CHECK(values(at) == Values{0, 1, 2, 3, 3, 5});
  CHECK(values(best)[2] == 3);
  CHECK(std::isnan(values(best)[4]));
  CHECK(values(cummin(e.make<int32_t>(DType::int32, {3}, {2, 1, 1}), 0)[1]) == Values{0, 1, 2});
}

TEST_CASE("Scans refuse bool as a result, and give it as whole numbers", "[scan][A23]") {
  Engine e;
  const Tensor b = e.cx.full(Shape{3}, true, DType::boolean);
  CHECK(values(cumsum(b, 0)) == Values{1, 2, 3});
  try {
    cumsum(b, 0, DType::boolean);
    FAIL("no error");
  } catch (const Error& err) {
    CHECK(err.message() == "\"cumsum_out_cpu\" not implemented for 'Bool'");
  }
}
