#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <functional>
#include <limits>

#include "engine/cpu/rows.h"
#include "tests/engine/arrays.h"

using namespace gradwire;
using namespace gradwire::engine;
using namespace gradwire::engine::test;

namespace {

/// The bytes that a kernel gives with one thread and with two.
template <class F> void same_with_two_threads(F bytes) {
  std::vector<char> one, two;
  {
    const Threads threads(1);
    one = bytes();
  }
  {
    const Threads threads(2);
    two = bytes();
  }
  CHECK(one == two);
}

}  // namespace

TEST_CASE("halves round to nearest, ties to even, for every bit pattern", "[kernels]") {
  std::vector<cpu::float16> h(65536), back(65536);
  std::vector<cpu::bfloat16> b(65536), back_b(65536);
  std::vector<float> f(65536), g(65536);
  for (int i = 0; i < 65536; ++i) h[i].bits = b[i].bits = static_cast<uint16_t>(i);
  cpu::to_float(h.data(), f.data(), 65536);
  cpu::from_float(f.data(), back.data(), 65536);
  cpu::to_float(b.data(), g.data(), 65536);
  cpu::from_float(g.data(), back_b.data(), 65536);
  for (int i = 0; i < 65536; ++i) {
    CAPTURE(i);
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    const double sign = i & 0x8000 ? -1 : 1;
    const bool nan = exponent == 31 && fraction, nan_b = (i & 0x7F80) == 0x7F80 && (i & 0x7F);
    if (nan)
      REQUIRE((std::isnan(f[i]) && (back[i].bits & 0x7E00) == 0x7E00));
    else if (exponent == 31)
      REQUIRE(f[i] == sign * INFINITY);
    else
      REQUIRE(f[i] == sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24)));
    REQUIRE(std::bit_cast<uint32_t>(cpu::to_float(h[i])) == std::bit_cast<uint32_t>(f[i]));
    REQUIRE(std::bit_cast<uint32_t>(g[i]) == static_cast<uint32_t>(i) << 16);
    if (nan_b) REQUIRE(std::isnan(g[i]));
    if (!nan) REQUIRE(back[i].bits == i);
    if (!nan_b) REQUIRE(back_b[i].bits == i);
  }
  // between neighbours: the middle goes to the even one, a hair to either side to the nearer
  for (int i = 0; i < 0x7C00; ++i) {
    const double low = cpu::to_float(cpu::float16{static_cast<uint16_t>(i)});
    const double high = i == 0x7BFF ? 65536 : cpu::to_float(cpu::float16{static_cast<uint16_t>(i + 1)});
    const auto middle = static_cast<float>((low + high) / 2);
    const float below = std::nextafter(middle, 0.0f), above = std::nextafter(middle, INFINITY);
    const float in[] = {middle, below, above, -middle, -below, -above, middle, below, above,
                        middle, below, above, middle,  below,  above,  middle, below, above};
    cpu::float16 out[18];
    cpu::from_float(in, out, 18);
    for (int k = 0; k < 18; ++k) {
      const int want = (k % 3 == 0 ? i + (i & 1) : k % 3 == 1 ? i : i + 1) | (k >= 3 && k < 6 ? 0x8000 : 0);
      CAPTURE(i, k, in[k]);
      REQUIRE(out[k].bits == want);
      REQUIRE(cpu::to_float16(in[k]).bits == want);
    }
  }
  for (uint32_t i = 0; i < 0x7F80; ++i) {
    const float in[] = {std::bit_cast<float>(i << 16 | 0x8000), std::bit_cast<float>(i << 16 | 0x7FFF),
                        std::bit_cast<float>(i << 16 | 0x8001)};
    float many[18];
    for (int k = 0; k < 18; ++k) many[k] = in[k % 3];
    cpu::bfloat16 out[18];
    cpu::from_float(many, out, 18);
    for (int k = 0; k < 18; ++k) {
      CAPTURE(i, k);
      const uint32_t want = k % 3 == 0 ? i + (i & 1) : k % 3 == 1 ? i : i + 1;
      REQUIRE(out[k].bits == want);
      REQUIRE(cpu::to_bfloat16(many[k]).bits == want);
    }
  }
}

TEST_CASE("convert goes from every dtype to every dtype, whatever the layout", "[kernels]") {
  std::mt19937 r(4);
  for (DType from : kAll) {
    for (DType to : kAll) {
      for (Layout l : kLayouts) {
        for (const Sizes& shape : {Sizes{5, 7, 3}, Sizes{40, 65}, Sizes{}, Sizes{0, 3}, Sizes{2, 1100}}) {
          const Array in = Array(from, shape, l).random(r), out(to, shape, kOutLayouts[r() % 4]);
          launch(cpu::convert, {out.view()}, {in.view()});
          int64_t wrong = 0;
          for (int64_t i = 0; i < out.numel(); ++i) {
            const double x = in.real(i);
            const double want = to == DType::boolean ? x != 0
                                : is_floating(to)    ? x
                                : to == DType::uint8
                                    ? static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(x)))
                                    : std::trunc(x);
            wrong += out.real(i) != want;
          }
          CAPTURE(name(from), name(to), test::name(l), shape);
          REQUIRE(wrong == 0);
          REQUIRE(out.sound());
        }
      }
    }
  }
}

TEST_CASE("what does not fit into a whole number wraps, NaN and infinities give 0", "[kernels]") {
  const auto check = [](DType from, double x, DType to, int64_t want) {
    Array in(from, {19}), out(to, {19});
    in.each([&](int64_t) { return x; });
    launch(cpu::convert, {out.view()}, {in.view()});
    CAPTURE(name(from), x, name(to));
    for (int64_t i = 0; i < 19; ++i) CHECK(out.whole(i) == want);
  };
  for (DType from : {DType::float32, DType::float64}) {
    check(from, 300, DType::uint8, 44);
    check(from, -1, DType::uint8, 255);
    check(from, -1.9, DType::int32, -1);
    check(from, 0x1p31, DType::int32, -0x80000000LL);
    check(from, 0x1p40, DType::int32, 0);
    check(from, 0x1p62, DType::int64, int64_t{1} << 62);
    check(from, 0x1p63, DType::int64, std::numeric_limits<int64_t>::min());
    check(from, -0x1p63, DType::int64, std::numeric_limits<int64_t>::min());
    check(from, 0x1p64 + 0x1p43, DType::int64, int64_t{1} << 43);
    check(from, -(0x1p64 + 0x1p43), DType::int64, -(int64_t{1} << 43));
    for (DType to : {DType::uint8, DType::int8, DType::int16, DType::int32, DType::int64}) {
      for (double x : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity()}) {
        check(from, x, to, 0);
      }
    }
    check(from, std::numeric_limits<double>::quiet_NaN(), DType::boolean, 1);
    check(from, 1e-30, DType::boolean, 1);
  }
  check(DType::float16, INFINITY, DType::int16, 0);
  check(DType::int64, 256, DType::uint8, 0);
  check(DType::int64, 256, DType::boolean, 1);
  check(DType::int32, -1, DType::int64, -1);
}

TEST_CASE("a large transposed copy is right and the same on two threads", "[kernels]") {
  for (DType t : {DType::uint8, DType::float16, DType::float32, DType::float64}) {
    Array in(t, {301, 517});
    in.each([](int64_t i) { return i % 100; });
    const Array out(t, {517, 301});
    same_with_two_threads([&] {
      launch(cpu::convert, {out.view()}, {in.swapped(0, 1).view()});
      return out.bytes();
    });
    int64_t wrong = 0;
    for (int64_t i = 0; i < out.numel(); ++i) wrong += out.real(i) != (i % 301 * 517 + i / 301) % 100;
    CHECK(wrong == 0);
    CHECK(out.sound());
  }
}

TEST_CASE("fill writes one value of any category", "[kernels]") {
  for (DType t : kAll) {
    for (Layout l : kOutLayouts) {
      for (const Sizes& shape : {Sizes{5, 7, 3}, Sizes{300, 333}, Sizes{}, Sizes{0}}) {
        const Array out(t, shape, l);
        for (const Scalar& s : {Scalar(true), Scalar(1), Scalar(1.0)}) {
          const FillParams p{s};
          launch(cpu::fill, {out.view()}, {}, &p);
          int64_t wrong = 0;
          for (int64_t i = 0; i < out.numel(); ++i) wrong += out.real(i) != 1;
          REQUIRE(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("sum adds over any dims of any layout and dtype", "[kernels]") {
  std::mt19937 r(5);
  for (DType t : kAll) {
    for (Layout l : kLayouts) {
      for (const Sizes& shape :
           {Sizes{4, 7, 9}, Sizes{3, 1, 5}, Sizes{2, 300, 3}, Sizes{3, 2, 2500}, Sizes{1, 1200, 40}, Sizes{3, 0, 2}}) {
        const Array in = Array(t, shape, l).random(r);
        for (int dims = 0; dims < 8; ++dims) {
          Sizes small = shape;
          for (int d = 0; d < 3; ++d) {
            if (dims >> d & 1) small[d] = 1;
          }
          const Array out(is_floating(t) ? t : DType::int64, small, kOutLayouts[r() % 4]);
          const double scale = is_floating(t) && r() % 2 ? 0.5 : 1;
          std::vector<double> want(out.numel()), size(out.numel());
          for (int64_t i = 0; i < in.numel(); ++i) {
            const int64_t at[] = {i / shape[2] / shape[1], i / shape[2] % shape[1], i % shape[2]};
            int64_t o = 0;
            for (int d = 0; d < 3; ++d) o = o * small[d] + (small[d] == 1 ? 0 : at[d]);
            want[o] += in.real(i) * scale, size[o] += std::abs(in.real(i));
          }
          const SumParams p{scale};
          launch(cpu::sum, {out.view()}, {in.view()}, &p);
          CAPTURE(name(t), test::name(l), shape, small, scale);
          for (int64_t i = 0; i < out.numel(); ++i) {
            const double relative = t == DType::float64 || !is_floating(t) ? 1e-14
                                    : t == DType::float32                  ? 3e-7
                                                                           : tolerance(t);
            REQUIRE(std::abs(out.real(i) - want[i]) <= relative * (size[i] + 1));
          }
          REQUIRE(out.sound());
        }
      }
    }
  }
}

TEST_CASE("the error of a long float32 sum does not grow with its length", "[kernels]") {
  const int64_t n = 10'000'000;
  Array in(DType::float32, {n});
  in.each([](int64_t i) { return 0.1 + 1e-3 * static_cast<double>(i % 13); });
  double want = 0;
  for (int64_t i = 0; i < n; ++i) want += in.real(i);
  const SumParams p;
  const Array out(DType::float32, {1});
  launch(cpu::sum, {out.view()}, {in.view()}, &p);
  CHECK(std::abs(out.real(0) / want - 1) < 3e-7);
  const Array one(DType::float32, {1, 10});
  launch(cpu::sum, {one.view()}, {in.seen({n / 10, 10}, {10, 1}).view()}, &p);
  double all = 0;
  for (int64_t i = 0; i < 10; ++i) all += one.real(i);
  CHECK(std::abs(all / want - 1) < 3e-7);
  // NaN and infinity go through
  in.set(n / 2, INFINITY);
  launch(cpu::sum, {out.view()}, {in.view()}, &p);
  CHECK(out.real(0) == INFINITY);
  in.set(n / 3, -INFINITY);
  launch(cpu::sum, {out.view()}, {in.view()}, &p);
  CHECK(std::isnan(out.real(0)));
}

TEST_CASE("sums have the same bits on one thread and on two", "[kernels]") {
  std::mt19937 r(6);
  Array in(DType::float32, {1500, 700});
  in.each([&](int64_t) { return std::uniform_real_distribution<double>(-1, 1)(r); });
  for (const Sizes& small : {Sizes{1, 1}, Sizes{1500, 1}, Sizes{1, 700}}) {
    const Array out(DType::float32, small);
    for (const Array& x : {in, in.swapped(0, 1).seen({1500, 700}, {1, 1500})}) {
      same_with_two_threads([&] {
        const SumParams p;
        launch(cpu::sum, {out.view()}, {x.view()}, &p);
        return out.bytes();
      });
    }
  }
}

TEST_CASE("whole sums wrap at 2^64", "[kernels]") {
  Array in(DType::int64, {2000});
  in.each([](int64_t) { return int64_t{1} << 60; });
  const Array out(DType::int64, {1});
  const SumParams p;
  launch(cpu::sum, {out.view()}, {in.view()}, &p);
  CHECK(out.whole(0) == static_cast<int64_t>(2000ull << 60));
}

TEST_CASE("matmul multiplies every dtype in every layout", "[kernels]") {
  std::mt19937 r(7);
  for (DType t : kAll) {
    for (Layout la : kLayouts) {
      for (Layout lb : kLayouts) {
        for (const Sizes& s : {Sizes{3, 4, 5}, Sizes{1, 7, 9}, Sizes{8, 6, 1}, Sizes{1, 5, 1}, Sizes{17, 33, 9},
                               Sizes{5, 1, 6}, Sizes{3, 0, 4}, Sizes{0, 3, 2}}) {
          for (int batch = 0; batch < 3; ++batch) {  // none, 3 x 3, 3 x 1
            const int64_t m = s[0], k = s[1], n = s[2];
            Array a(t, batch ? Sizes{3, m, k} : Sizes{m, k}, la), b(t, batch == 1 ? Sizes{3, k, n} : Sizes{k, n}, lb);
            a.random(r), b.random(r);
            Array out(t, batch ? Sizes{3, m, n} : Sizes{m, n}, kOutLayouts[r() % 4]);
            out.each([&](int64_t) { return is_floating(t) ? std::numeric_limits<double>::quiet_NaN() : 77; });
            View vb = b.view();
            const Sizes wide = {3, k, n};
            Sizes strides = {0, 0, 0};
            if (batch == 2) {
              strides[1] = vb.strides[0], strides[2] = vb.strides[1];
              vb.shape = wide.data(), vb.strides = strides.data(), vb.ndim = 3;
            }
            launch(cpu::matmul, {out.view()}, {a.view(), vb});
            CAPTURE(name(t), test::name(la), test::name(lb), s, batch);
            for (int64_t i = 0; i < out.numel(); ++i) {
              const int64_t q = i / (m * n), row = i / n % m, column = i % n;
              double sum = 0;
              for (int64_t p = 0; p < k; ++p) {
                sum += a.real((q * m + row) * k + p) * b.real(((batch == 1 ? q : 0) * k + p) * n + column);
              }
              Array want(t, {1});
              want.set(0, is_floating(t) ? sum : sum);
              if (!is_floating(t)) want.set(0, static_cast<int64_t>(sum));
              REQUIRE(near(out.real(i), want.real(0), tolerance(t)));
            }
            REQUIRE(out.sound());
          }
        }
      }
    }
  }
}

TEST_CASE("products larger than a panel are right, and the same on two threads", "[kernels]") {
  for (DType t : {DType::float32, DType::bfloat16}) {
    for (bool odd : {false, true}) {  // a layout that BLAS cannot read
      Array a(t, {70, 2500}, odd ? Layout::sliced : Layout::contiguous),
          b(t, {2500, 60}, odd ? Layout::sliced : Layout::transposed);
      a.each([](int64_t i) { return i % 5 - 2; }), b.each([](int64_t i) { return i % 3 - 1; });
      const Array out(t, {70, 60});
      same_with_two_threads([&] {
        launch(cpu::matmul, {out.view()}, {a.view(), b.view()});
        return out.bytes();
      });
      for (int64_t i = 0; i < out.numel(); i += 7) {
        double sum = 0;
        for (int64_t p = 0; p < 2500; ++p) sum += a.real(i / 60 * 2500 + p) * b.real(p * 60 + i % 60);
        REQUIRE(near(out.real(i), sum, tolerance(t)));
      }
    }
  }
}

TEST_CASE("an expanded operand larger than memory costs no memory", "[kernels]") {
  Array one(DType::float32, {1});
  one.set(0, 0.5);
  const Array out(DType::float32, {1, 2});
  const int64_t k = 3'000'000;
  launch(cpu::matmul, {out.view()}, {one.seen({1, k}, {0, 0}).view(), one.seen({k, 2}, {0, 0}).view()});
  CHECK(out.real(0) == 0.25 * k);
  CHECK(out.real(1) == 0.25 * k);
  const SumParams p;
  const Array total(DType::float32, {1});
  launch(cpu::sum, {total.view()}, {one.seen({int64_t{1} << 26}, {0}).view()}, &p);
  CHECK(total.real(0) == 0x1p25);
}
