#include <catch2/catch_test_macros.hpp>

#include <Random123/philox.h>

#include <algorithm>
#include <cmath>

#include "hwy/targets.h"
#include "tests/engine/arrays.h"

using namespace gradwire;
using namespace gradwire::engine;
using namespace gradwire::engine::test;

TEST_CASE("uniform draws are the known words of Philox 4x32-10", "[kernels][random]") {
  // Random123's known answers: counter 0, key 0, and counter 1 of key 0 by way of the offset
  const uint32_t first[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const RandomParams p{0, 0};
  const Array f(DType::float32, {6}), d(DType::float64, {3}), h(DType::float16, {4}), b(DType::bfloat16, {4});
  launch(cpu::uniform, {f.view()}, {}, &p);
  launch(cpu::uniform, {d.view()}, {}, &p);
  launch(cpu::uniform, {h.view()}, {}, &p);
  launch(cpu::uniform, {b.view()}, {}, &p);
  for (int64_t k = 0; k < 4; ++k) {
    CHECK(f.real(k) == std::ldexp(first[k] >> 8, -24));
    CHECK(h.real(k) == std::ldexp(first[k] >> 21, -11));
    CHECK(b.real(k) == std::ldexp(first[k] >> 24, -8));
  }
  for (int64_t k = 0; k < 2; ++k) {
    const uint64_t both = first[2 * k] | uint64_t{first[2 * k + 1]} << 32;
    CHECK(d.real(k) == std::ldexp(static_cast<double>(both >> 11), -53));
  }
  const RandomParams next{0, 1};
  const Array g(DType::float32, {2});
  launch(cpu::uniform, {g.view()}, {}, &next);
  CHECK(g.real(0) == f.real(4));
  CHECK(g.real(1) == f.real(5));
  // all bits of the seed and of the offset count
  const RandomParams high_seed{uint64_t{1} << 40, 0}, high_offset{0, uint64_t{1} << 40};
  for (const RandomParams& q : {high_seed, high_offset}) {
    launch(cpu::uniform, {g.view()}, {}, &q);
    CHECK(g.real(0) != f.real(0));
  }
}

TEST_CASE("long draws are Random123's words in order on every target", "[kernels][random]") {
  const int64_t n = 10'001;
  const RandomParams p{0x123456789ABCDEF0, 0xFFFFFF00};
  const auto word = [&](int64_t i) {
    const uint64_t c = p.offset + static_cast<uint64_t>(i / 4);
    const r123::Philox4x32::ctr_type counter = {{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0, 0}};
    const r123::Philox4x32::key_type key = {{static_cast<uint32_t>(p.seed), static_cast<uint32_t>(p.seed >> 32)}};
    return r123::Philox4x32()(counter, key)[i % 4];
  };
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    CAPTURE(target);
    const Array f(DType::float32, {n}), d(DType::float64, {n}), g(DType::float32, {n});
    launch(cpu::uniform, {f.view()}, {}, &p);
    launch(cpu::uniform, {d.view()}, {}, &p);
    launch(cpu::normal, {g.view()}, {}, &p);
    int64_t wrong = 0;
    double worst = 0;
    for (int64_t i = 0; i < n; ++i) {
      wrong += f.real(i) != std::ldexp(word(i) >> 8, -24);
      const uint64_t both = word(2 * i) | uint64_t{word(2 * i + 1)} << 32;
      wrong += d.real(i) != std::ldexp(static_cast<double>(both >> 11), -53);
      const double u = std::ldexp((word(i / 2 * 2) >> 8) + 1.0, -24), v = std::ldexp(word(i / 2 * 2 + 1) >> 8, -24);
      const double turn = 2 * std::acos(-1.0) * v;
      const double want = std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(turn) : std::cos(turn));
      worst = std::max(worst, std::abs(g.real(i) - want) / (1e-12 + std::abs(want)));
    }
    CHECK(wrong == 0);
    CHECK(worst < 4 * 0x1p-23);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST_CASE("draws have the moments of their distribution in every dtype, and never reach 1", "[kernels][random]") {
  for (DType t : kFloats) {
    const int64_t n = 1'000'003;
    const Array x(t, {n});
    for (bool normal : {false, true}) {
      const RandomParams p{42, 7};
      launch(normal ? cpu::normal : cpu::uniform, {x.view()}, {}, &p);
      double sum = 0, squares = 0, cubes = 0, low = 1e9, high = -1e9;
      for (int64_t i = 0; i < n; ++i) {
        const double v = x.real(i);
        sum += v, squares += v * v, cubes += v * v * v, low = std::min(low, v), high = std::max(high, v);
      }
      CAPTURE(name(t), normal);
      const double mean = sum / n;
      if (normal) {
        CHECK(std::abs(mean) < 0.005);
        CHECK(std::abs(squares / n - 1) < 0.01);
        CHECK(std::abs(cubes / n) < 0.02);
        CHECK((high < 8 && low > -8 && high > 4 && low < -4));
      } else {
        CHECK((low >= 0 && high < 1));
        CHECK(std::abs(mean - 0.5) < (t == DType::bfloat16 ? 0.003 : 0.001));
        CHECK(std::abs(squares / n - 1.0 / 3) < (t == DType::bfloat16 ? 0.003 : 0.001));
      }
      CHECK(x.sound());
    }
  }
}

TEST_CASE("the same seed gives the same bits on one thread and on two", "[kernels][random]") {
  const Array x(DType::float32, {200001});
  const RandomParams p{1, 2};
  for (KernelFn kernel : {cpu::uniform, cpu::normal}) {
    std::vector<char> one;
    {
      const Threads threads(1);
      launch(kernel, {x.view()}, {}, &p);
      one = x.bytes();
    }
    const Threads threads(2);
    launch(kernel, {x.view()}, {}, &p);
    CHECK(one == x.bytes());
  }
}
