#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <limits>

#include "schema/error.h"
#include "tests/engine/arrays.h"

using namespace gradwire;
using namespace gradwire::engine;
using namespace gradwire::engine::test;

namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(gradwire::name(e.code())) + ": " + e.message();
  }
  return "no error";
}

}  // namespace

TEST_CASE("linear_index wraps, multiplies by strides and adds", "[kernels]") {
  std::mt19937 r(11);
  for (Layout l : kLayouts) {
    for (const Sizes& shape : {Sizes{5, 7}, Sizes{}, Sizes{0, 3}, Sizes{300, 200}}) {
      Array a(DType::int64, shape, l), b(DType::int64, shape);
      a.each([&](int64_t) { return static_cast<int64_t>(r() % 20) - 10; });
      b.each([&](int64_t) { return static_cast<int64_t>(r() % 6) - 3; });
      const LinearIndexParams p{{10, 3}, {5, -1}, {0, 1}};
      for (int inputs = 1; inputs <= 2; ++inputs) {
        const Array out(DType::int64, shape, kOutLayouts[r() % 4]);
        std::vector<View> in = {a.view(), b.view()};
        in.resize(inputs);
        launch(cpu::linear_index, {out.view()}, in, &p);
        int64_t wrong = 0;
        for (int64_t i = 0; i < out.numel(); ++i) {
          const auto wrap = [](int64_t x, int64_t n) { return x < 0 ? x + n : x; };
          wrong += out.whole(i) != wrap(a.whole(i), 10) * 5 - (inputs == 2 ? wrap(b.whole(i), 3) : 0);
        }
        CAPTURE(test::name(l), shape, inputs);
        REQUIRE(wrong == 0);
      }
    }
  }
}

TEST_CASE("linear_index names the first index that is out of bounds, before it writes", "[kernels]") {
  Array a(DType::int64, {4}), b(DType::int64, {4}), out(DType::int64, {4});
  a.each([](int64_t i) { return i; }), b.each([](int64_t) { return -5; }), out.each([](int64_t) { return 9; });
  const LinearIndexParams p{{3, 5}, {1, 1}, {0, 2}};
  CHECK(message_of([&] {
          launch(cpu::linear_index, {out.view()}, {a.view(), b.view()}, &p);
        }) == "index_out_of_range: index 3 is out of bounds for dimension 0 with size 3");
  a.set(3, -3), b.set(2, -6);
  CHECK(message_of([&] {
          launch(cpu::linear_index, {out.view()}, {a.view(), b.view()}, &p);
        }) == "index_out_of_range: index -6 is out of bounds for dimension 2 with size 5");
  for (int64_t i = 0; i < 4; ++i) CHECK(out.whole(i) == 9);
  b.set(2, std::numeric_limits<int64_t>::min());
  CHECK(message_of([&] {
          launch(cpu::linear_index, {out.view()}, {a.view(), b.view()}, &p);
        }).find("-9223372036854775808") != std::string::npos);
}

TEST_CASE("take gathers scalars, rows and columns of every dtype", "[kernels]") {
  std::mt19937 r(12);
  for (DType t : kAll) {
    for (Layout l : kLayouts) {
      for (int64_t n : {0, 1, 37, 3000}) {
        const int64_t h = 21, w = 33;
        const Array x = Array(t, {h, w}, l).random(r);
        const View v = x.view();
        Array rows(DType::int64, {n});
        std::vector<int64_t> picks(n);
        rows.each([&](int64_t i) { return (picks[i] = static_cast<int64_t>(r() % h)) * v.strides[0]; });
        // x[picks]: [n, w]
        const Array out(t, {n, w}, kOutLayouts[r() % 4]);
        const Sizes shape = {n, w}, base = {0, v.strides[1]}, offsets = {1, 0};
        launch(cpu::take, {out.view()},
               {View{v.data, shape.data(), base.data(), 2, t}, rows.seen({n, w}, {1, 0}).view()});
        int64_t wrong = 0;
        for (int64_t i = 0; i < out.numel(); ++i) wrong += out.real(i) != x.real(picks[i / w] * w + i % w);
        CAPTURE(name(t), test::name(l), n);
        REQUIRE(wrong == 0);
        // x[picks, 5]: [n]
        const Array one(t, {n});
        const Sizes line = {n}, none = {0};
        launch(cpu::take, {one.view()}, {View{x.at(5), line.data(), none.data(), 1, t}, rows.view()});
        for (int64_t i = 0; i < n; ++i) wrong += one.real(i) != x.real(picks[i] * w + 5);
        REQUIRE(wrong == 0);
        REQUIRE((out.sound() && one.sound()));
      }
    }
  }
}

TEST_CASE("put writes the last of several values, or adds them all up", "[kernels]") {
  std::mt19937 r(13);
  for (DType t : kAll) {
    for (Layout l : kOutLayouts) {
      for (bool accumulate : {false, true}) {
        for (const Sizes& size : {Sizes{9, 5, 40}, Sizes{7, 130, 400}, Sizes{3, 50, 3}}) {  // rows, picks, width
          for (int threads : {1, 2}) {
            const int64_t h = size[0], n = size[1], w = size[2];
            Array x = Array(t, {h, w}, l).random(r);
            const View v = x.view();
            std::vector<int64_t> picks(n);
            Array rows(DType::int64, {n});
            rows.each([&](int64_t i) { return (picks[i] = static_cast<int64_t>(r() % h)) * v.strides[0]; });
            const Array values = Array(t, {n, w}, kLayouts[r() % 5]).random(r);
            Array want(t, {h, w});
            want.each([&](int64_t i) { return x.real(i); });
            for (int64_t i = 0; i < n * w; ++i) {
              const int64_t at = picks[i / w] * w + i % w;
              if (!accumulate)
                want.set(at, values.real(i));
              else if (is_floating(t))
                want.set(at, want.real(at) + values.real(i));
              else if (t == DType::boolean)
                want.set(at, want.whole(at) | values.whole(i));
              else
                want.set(at, want.whole(at) + values.whole(i));
            }
            const Sizes shape = {n, w}, base = {0, v.strides[1]};
            const PutParams p{accumulate};
            const Threads team(threads);
            launch(cpu::put, {View{v.data, shape.data(), base.data(), 2, t}},
                   {rows.seen({n, w}, {1, 0}).view(), values.view()}, &p);
            int64_t wrong = 0;
            for (int64_t i = 0; i < h * w; ++i) wrong += x.real(i) != want.real(i);
            CAPTURE(name(t), test::name(l), accumulate, size, threads);
            REQUIRE(wrong == 0);
            REQUIRE(x.sound());
          }
        }
      }
    }
  }
}

TEST_CASE("put of scalars keeps row-major order whatever the target's strides", "[kernels]") {
  Array x(DType::float32, {4});
  x.each([](int64_t) { return 0; });
  // 3 x 2 picks, all of element 1; the values are transposed in memory
  Array picks(DType::int64, {3, 2}, Layout::transposed), values(DType::float32, {3, 2}, Layout::transposed);
  picks.each([](int64_t) { return 1; }), values.each([](int64_t i) { return i + 1; });
  const PutParams p{false};
  launch(cpu::put, {x.seen({3, 2}, {0, 0}).view()}, {picks.view(), values.view()}, &p);
  CHECK(x.real(1) == 6);
  const PutParams add{true};
  launch(cpu::put, {x.seen({3, 2}, {0, 0}).view()}, {picks.view(), values.view()}, &add);
  CHECK(x.real(1) == 27);
  CHECK(x.real(0) == 0);
}

TEST_CASE("nonzero lists coordinates in row-major order, and count_nonzero says how many", "[kernels]") {
  std::mt19937 r(14);
  for (DType t : kAll) {
    for (Layout l : kLayouts) {
      for (const Sizes& shape :
           {Sizes{5, 7, 3}, Sizes{400, 401}, Sizes{12}, Sizes{}, Sizes{3, 0, 2}, Sizes{1, 200000}}) {
        Array x(t, shape, l);
        const unsigned rare = r() % 2 ? 2 : 50;
        x.each([&](int64_t) { return r() % rare == 0 ? 1.0 : 0.0; });
        if (is_floating(t) && x.numel() > 0) x.set(0, r() % 2 ? std::numeric_limits<double>::quiet_NaN() : -0.0);
        std::vector<int64_t> want;
        for (int64_t i = 0; i < x.numel(); ++i) {
          if (x.real(i) != 0) want.push_back(i);
        }
        const Array count(DType::int64, {});
        launch(cpu::count_nonzero, {count.view()}, {x.view()});
        CAPTURE(name(t), test::name(l), shape);
        REQUIRE(count.whole(0) == static_cast<int64_t>(want.size()));
        const int64_t dims = static_cast<int64_t>(shape.size());
        const Array out(DType::int64, {count.whole(0), dims}, kOutLayouts[r() % 4]);
        launch(cpu::nonzero, {out.view()}, {x.view()});
        int64_t wrong = 0;
        for (size_t k = 0; dims > 0 && k < want.size(); ++k) {
          int64_t i = 0;
          for (int64_t d = 0; d < dims; ++d) i = i * shape[d] + out.whole(static_cast<int64_t>(k) * dims + d);
          wrong += i != want[k];
        }
        REQUIRE(wrong == 0);
        REQUIRE(out.sound());
      }
    }
  }
}

TEST_CASE("nll_pick and nll_spread are each other's transposes", "[kernels]") {
  std::mt19937 r(15);
  for (DType t : kFloats) {
    for (Layout l : kLayouts) {
      for (bool weighted : {false, true}) {
        const int64_t n = 6, c = 4, d = 5;
        const Array input = Array(t, {n, c, d}, l).random(r), grad = Array(t, {n, d}, l).random(r);
        Array target(DType::int64, {n, d}, l == Layout::expanded ? Layout::contiguous : l), weight(t, {c});
        target.each([&](int64_t) { return static_cast<int64_t>(r() % 5) - (r() % 4 == 0 ? 0 : 1); });
        target.each([&](int64_t) { return static_cast<int64_t>(r() % c); });
        target.set(3, -100), target.set(17, -100);
        weight.each([&](int64_t i) { return weighted ? 0.5 * static_cast<double>(i + 1) : 1.0; });
        const Array w = weighted ? weight : weight.seen({c}, {0});
        const NllParams p;
        const Array out(t, {n, d}, kOutLayouts[r() % 4]), spread(t, {n, c, d}, kOutLayouts[r() % 4]);
        launch(cpu::nll_pick, {out.view()}, {input.view(), target.view(), w.view()}, &p);
        launch(cpu::nll_spread, {spread.view()}, {grad.view(), target.view(), w.view()}, &p);
        for (int64_t i = 0; i < n * d; ++i) {
          const int64_t k = target.whole(i);
          const double factor = k < 0 ? 0 : weighted ? -0.5 * static_cast<double>(k + 1) : -1;
          const double picked = k < 0 ? 0 : factor * input.real((i / d * c + k) * d + i % d);
          CAPTURE(name(t), test::name(l), weighted, i, k);
          REQUIRE(near(out.real(i), picked, tolerance(t)));
          for (int64_t q = 0; q < c; ++q) {
            REQUIRE(near(spread.real((i / d * c + q) * d + i % d), q == k ? factor * grad.real(i) : 0, tolerance(t)));
          }
        }
      }
    }
  }
}

TEST_CASE("a target outside the classes is an error before anything is written", "[kernels]") {
  Array input(DType::float32, {2, 2, 1}), target(DType::int64, {2, 1}), weight(DType::float32, {2}),
      out(DType::float32, {2, 1});
  target.set(0, 0), target.set(1, 2), out.each([](int64_t) { return 9; });
  const NllParams p;
  CHECK(message_of([&] {
          launch(cpu::nll_pick, {out.view()}, {input.view(), target.view(), weight.view()}, &p);
        }) == "index_out_of_range: Target 2 is out of bounds.");
  CHECK(message_of([&] {
          launch(cpu::nll_spread, {input.view()}, {out.view(), target.view(), weight.view()}, &p);
        }) == "index_out_of_range: Target 2 is out of bounds.");
  target.set(1, -1);
  CHECK(message_of([&] {
          launch(cpu::nll_pick, {out.view()}, {input.view(), target.view(), weight.view()}, &p);
        }) == "index_out_of_range: Target -1 is out of bounds.");
  CHECK(out.real(0) == 9);
}

TEST_CASE("log_softmax is right for every floating dtype and layout", "[kernels]") {
  std::mt19937 r(16);
  for (DType t : kFloats) {
    for (Layout l : kLayouts) {
      for (const Sizes& shape :
           {Sizes{3, 5}, Sizes{2, 3, 100}, Sizes{4, 2, 3001}, Sizes{7}, Sizes{5, 1}, Sizes{0, 3}, Sizes{3, 0}}) {
        const Array x = Array(t, shape, l).random(r), out(t, shape, kOutLayouts[r() % 4]);
        launch(cpu::log_softmax, {out.view()}, {x.view()});
        const int64_t n = shape.back();
        CAPTURE(name(t), test::name(l), shape);
        for (int64_t i = 0; i < out.numel() && n > 0; i += n) {
          double top = -INFINITY, sum = 0;
          for (int64_t k = 0; k < n; ++k) top = std::max(top, x.real(i + k));
          for (int64_t k = 0; k < n; ++k) sum += std::exp(x.real(i + k) - top);
          for (int64_t k = 0; k < n; ++k)
            REQUIRE(near(out.real(i + k), x.real(i + k) - top - std::log(sum), tolerance(t)));
        }
        REQUIRE(out.sound());
      }
    }
  }
}

TEST_CASE("log_softmax of NaN and infinities is PyTorch's", "[kernels]") {
  for (DType t : kFloats) {
    for (int64_t n : {3, 100}) {
      Array x(t, {4, n}), out(t, {4, n});
      x.each([](int64_t) { return 1; });
      x.set(1, std::numeric_limits<double>::quiet_NaN());
      for (int64_t k = 0; k < n; ++k) x.set(n + k, -INFINITY);
      x.set(2 * n + 1, INFINITY);
      for (int64_t k = 1; k < n; ++k) x.set(3 * n + k, -INFINITY);
      launch(cpu::log_softmax, {out.view()}, {x.view()});
      CAPTURE(name(t), n);
      for (int64_t k = 0; k < n; ++k) {
        CHECK(std::isnan(out.real(k)));
        CHECK(std::isnan(out.real(n + k)));
        if (k == 1)
          CHECK(std::isnan(out.real(2 * n + k)));
        else
          CHECK((std::isnan(out.real(2 * n + k)) || out.real(2 * n + k) == -INFINITY));
        CHECK(out.real(3 * n + k) == (k == 0 ? 0 : -INFINITY));
      }
    }
  }
}
