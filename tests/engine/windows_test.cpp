#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "schema/ops.h"
#include "tests/engine/arrays.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

Tensor random(Engine& e, const Shape& shape, DType dtype, std::mt19937& r) {
  Values v(static_cast<size_t>(e.cx.empty(shape, dtype).numel()));
  for (double& x : v) x = static_cast<double>(static_cast<int>(r() % 33) - 16) / 16;
  return cast(e.doubles(shape, v), dtype);
}

/// The largest difference, where 1 is the largest of b.
double apart(const Tensor& a, const Tensor& b) {
  const Values x = values(a), y = values(b);
  REQUIRE(x.size() == y.size());
  double most = 0, scale = 1;
  for (const double v : y) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]) / scale);
  return most;
}

struct Windows {
  Shape x, w;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
};

/// Layouts in blocks of 16, what is left of them, few channels, depthwise, and windows that reach past the borders.
const Windows kWindows[] = {{{2, 16, 9, 9}, {32, 16, 3, 3}, {1}, {1}, {1}, 1},
                            {{1, 3, 15, 14}, {16, 3, 7, 7}, {2}, {3}, {1}, 1},
                            {{2, 17, 8, 7}, {33, 17, 1, 1}, {2}, {0}, {1}, 1},
                            {{3, 5, 6, 6}, {7, 5, 2, 3}, {1, 2}, {1, 0}, {2, 1}, 1},
                            {{2, 16, 7, 7}, {16, 1, 3, 3}, {1}, {1}, {1}, 16},
                            {{2, 6, 8, 8}, {12, 1, 3, 3}, {2}, {1}, {1}, 6},
                            {{2, 8, 5, 5}, {8, 4, 3, 3}, {1}, {2}, {1}, 2},
                            {{1, 1, 1, 1}, {4, 1, 3, 3}, {1}, {3}, {1}, 1},
                            {{2, 16, 20}, {32, 16, 5}, {3}, {2}, {1}, 1},
                            {{1, 4, 5, 6, 7}, {8, 4, 3, 2, 3}, {1, 2, 1}, {1}, {1}, 1},
                            {{2, 32, 4, 4, 4}, {16, 16, 2, 2, 2}, {2}, {0}, {1}, 2},
                            {{0, 3, 5, 5}, {2, 3, 3, 3}, {1}, {1}, {1}, 1},
                            // planes of no elements, which padding surrounds, and steps of which 32 bits lose count
                            {{2, 4, 0}, {8, 4, 3}, {1}, {3}, {1}, 1},
                            {{1, 8, 4, 0}, {8, 4, 1, 2}, {2}, {1, 2}, {1}, 2},
                            {{1, 16, 14}, {3, 16, 11}, {2147483647}, {1}, {1}, 1},
                            {{1, 16, 12, 12}, {8, 16, 7, 7}, {5, 2147483647}, {0}, {1}, 1}};

}  // namespace

TEST_CASE("Convolutions in float32 are those in float64, with their gradients, on one thread and on two", "[E30]") {
  Engine e;
  std::mt19937 r(1);
  for (const int threads : {1, 2}) {
    const test::Threads team(threads);
    for (const Windows& c : kWindows) {
      INFO(threads << " threads, input " << to_string(c.x) << ", weight " << to_string(c.w));
      const Tensor x = random(e, c.x, DType::float64, r), w = random(e, c.w, DType::float64, r);
      const Tensor y = conv_forward(x, w, c.stride, c.padding, c.dilation, c.groups);
      const Tensor g = random(e, Shape(y.shape()), DType::float64, r);
      const auto in32 = [](const Tensor& t) { return cast(t, DType::float32); };
      CHECK(apart(conv_forward(in32(x), in32(w), c.stride, c.padding, c.dilation, c.groups), y) < 1e-6);
      CHECK(apart(conv_input(in32(g), in32(w), c.x, c.stride, c.padding, c.dilation, c.groups),
                  conv_input(g, w, c.x, c.stride, c.padding, c.dilation, c.groups)) < 1e-6);
      CHECK(apart(conv_weight(in32(g), in32(x), c.w, c.stride, c.padding, c.dilation, c.groups),
                  conv_weight(g, x, c.w, c.stride, c.padding, c.dilation, c.groups)) < 1e-6);
    }
  }
}

TEST_CASE("More sizes of convolutions than are remembered all stay right", "[E30]") {
  Engine e;
  for (int round = 0; round < 2; ++round) {
    for (int64_t n = 1; n <= 300; ++n) {
      const Tensor y =
          conv1d(e.cx.full(Shape{1, 1, n + 2}, 1, DType::float32), e.cx.full(Shape{1, 1, 3}, 2, DType::float32));
      REQUIRE(values(y) == Values(static_cast<size_t>(n), 6));
    }
  }
}

TEST_CASE("What a convolution works in is the session's memory, and comes back", "[E30]") {
  Engine e({.bytes = 4 << 20});
  const Tensor x = e.cx.full(Shape{1, 16, 120, 120}, 1, DType::float32),
               w = e.cx.full(Shape{16, 16, 3, 3}, 1, DType::float32);
  const int64_t before = e.cx.bytes_used();
  for (const DType t : {DType::float32, DType::float64}) {
    INFO(name(t));
    try {
      const Tensor y = conv2d(cast(x, t), cast(w, t), {}, 1, 1);
      CHECK(false);
    } catch (const Error& error) {
      CHECK(error.code() == Code::memory_limit);
    }
    CHECK(e.cx.bytes_used() == before);
  }
  Engine roomy({.bytes = 16 << 20});
  const Tensor y = conv2d(roomy.cx.full(Shape{1, 16, 120, 120}, 1, DType::float32),
                          roomy.cx.full(Shape{16, 16, 3, 3}, 1, DType::float32), {}, 1, 1);
  CHECK(values(y)[121] == 144);
  CHECK(roomy.cx.bytes_used() < 2 << 20);  // the result alone
}

TEST_CASE("padding by name keeps the size, with the odd zero behind", "[E30]") {
  Engine e;
  const Tensor x = e.doubles({1, 1, 4}, {1, 2, 3, 4}), w = e.doubles({1, 1, 2}, {1, 10});
  CHECK(values(conv1d(x, w, {}, 1, "same")) == Values{21, 32, 43, 4});
  CHECK(values(conv1d(x, w, {}, 1, "valid")) == Values{21, 32, 43});
  CHECK_THROWS_AS(conv1d(x, w, {}, 2, "same"), Error);
  CHECK_THROWS_AS(conv1d(x, w, {}, 1, "full"), Error);
}

TEST_CASE("Normalisation keeps its digits where the mean is far from zero, whatever the shape", "[E30]") {
  Engine e;
  std::mt19937 r(2);
  for (const Shape& shape : {Shape{4, 3, 40}, Shape{64, 3}, Shape{5, 2, 3, 5}, Shape{20, 300, 2}, Shape{2, 1, 5000}}) {
    INFO(to_string(shape));
    const Tensor x = random(e, shape, DType::float64, r) + 4096;  // the numbers are exact in float32
    const Tensor y = batch_norm(x, {}, {}, {}, {}, true),
                 narrow = batch_norm(cast(x, DType::float32), {}, {}, {}, {}, true);
    CHECK(apart(batch_norm(x - 4096, {}, {}, {}, {}, true), y) < 1e-10);
    CHECK(apart(narrow, y) < 1e-3);
    const auto [of, mean, var] = channel_norm(cast(x, DType::float32));
    const auto [of64, mean64, var64] = channel_norm(x);
    CHECK(apart(mean, mean64) < 1e-12);
    CHECK(apart(var, var64) < 1e-9);
  }
}

TEST_CASE("Normalisation gives the same bits on one thread and on two", "[E30]") {
  Engine e;
  std::mt19937 r(3);
  for (const Shape& shape : {Shape{4, 7, 3000}, Shape{900, 70}, Shape{300, 33, 7}}) {
    const Tensor x = random(e, shape, DType::float32, r), g = random(e, shape, DType::float32, r);
    const auto all = [&] {
      const auto [y, mean, var] = channel_norm(x);
      const auto [dx, sums] = channel_norm_backward(g, x);
      return std::array{values(y), values(mean), values(var), values(dx), values(sums)};
    };
    const auto one = [&] {
      const test::Threads t(1);
      return all();
    }();
    const auto two = [&] {
      const test::Threads t(2);
      return all();
    }();
    CHECK(one == two);
  }
}

TEST_CASE("A graph keeps the input of a normalisation and nothing else of its size", "[E30]") {
  Engine e;
  const Tensor x = e.cx.full(Shape{8, 4, 64, 64}, 1, DType::float32);
  require_grad(x);
  const int64_t before = e.cx.bytes_used(), size = x.numel() * 4;
  const Tensor y = batch_norm(x, {}, {}, {}, {}, true);
  CHECK(e.cx.bytes_used() - before < size * 5 / 4 + 8192);  // y alone
}

TEST_CASE("max_pool finds the first of the largest, in rows of any length", "[E30]") {
  Engine e;
  std::mt19937 r(4);
  for (const DType t : {DType::float32, DType::float64}) {
    for (const int64_t width : {5, 64, 300, 700}) {
      for (const int64_t stride : {1, 2, 3}) {
        INFO(name(t) << ", width " << width << ", stride " << stride);
        const Tensor x = random(e, {2, 6, width}, t, r);
        const auto [y, at] = max_pool2d_with_indices(x, 3, stride, 1);
        const Values v = values(x), most = values(y), places = values(at);
        size_t i = 0;
        for (int64_t c = 0; c < 2; ++c) {
          for (int64_t row = 0; row < y.size(1); ++row) {
            for (int64_t column = 0; column < y.size(2); ++column, ++i) {
              double best = -INFINITY, place = -1;
              for (int64_t a = row * stride - 1; a < row * stride + 2; ++a) {
                for (int64_t b = column * stride - 1; b < column * stride + 2; ++b) {
                  if (a < 0 || a >= 6 || b < 0 || b >= width) continue;
                  const double now = v[static_cast<size_t>((c * 6 + a) * width + b)];
                  if (now > best) best = now, place = static_cast<double>(a * width + b);
                }
              }
              REQUIRE(most[i] == best);
              REQUIRE(places[i] == place);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("max_pool gives NaN where there is one, and a place inside where all is minus infinity", "[E30]") {
  Engine e;
  const double nan = std::nan(""), low = -INFINITY;
  const Tensor x = e.doubles({1, 1, 8}, {1, nan, 2, nan, low, low, low, low});
  const auto [y, at] = max_pool1d_with_indices(x, 2);
  const Values v = values(y);
  CHECK((std::isnan(v[0]) && std::isnan(v[1]) && v[2] == low && v[3] == low));
  CHECK(values(at) == Values{1, 3, 4, 6});
}

TEST_CASE("A place outside of its plane is refused", "[E30]") {
  Engine e;
  const Tensor v = e.doubles({1, 2}, {1, 2});
  for (const int64_t bad : {int64_t{-1}, int64_t{3}}) {
    const Tensor at = e.make<int64_t>(DType::int64, {1, 2}, {0, bad});
    CHECK_THROWS_AS(put_places(v, at, 3), Error);
    CHECK_THROWS_AS(take_places(e.doubles({1, 3}, {1, 2, 3}), at), Error);
  }
}

TEST_CASE("Neighbours of places that no number holds are elements of the input", "[E19]") {
  Engine e;
  const Tensor x = e.doubles({3}, {1, 2, 3});
  for (const double scale : {1e300, 1e39, 1e30, 0.0}) {
    for (const char* mode : {"nearest", "nearest-exact", "linear", "cubic"}) {
      INFO(mode << ", " << scale);
      for (const double v : values(resample(x, 0, 4, mode, std::vector<int64_t>{}, scale)))
        CHECK((v >= 0 && v <= 4));  // cubic ones overshoot
    }
  }
  CHECK(values(resample(x, 0, 3, "nearest", std::vector<int64_t>{}, 1e300)) == Values{1, 3, 3});
}

TEST_CASE("Groups of no channels are counted without overflow", "[E30]") {
  Engine e;
  const Tensor none = e.cx.empty(Shape{257, 0, 2}, DType::float32);
  CHECK_THROWS_AS(group_norm(none, std::numeric_limits<int64_t>::max()), Error);
  CHECK(group_norm(none, 5).numel() == 0);
}

TEST_CASE("Upsampling gives PyTorch's values, and says what is missing", "[E19][E20]") {
  Engine e;
  const Tensor x = e.doubles({1, 1, 2, 2}, {1, 2, 3, 4});
  CHECK(values(upsample(x, {}, 2.0)) == Values{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4});
  const Values aligned = values(upsample(x, {}, 2.0, "bilinear", true));
  const Values free = values(upsample(x, {}, 2.0, "bilinear", false));
  const double third = 1.0 / 3;
  for (size_t i = 0; i < 4; ++i) CHECK(std::abs(aligned[i] - (1 + third * static_cast<double>(i))) < 1e-15);
  CHECK(Values(free.begin(), free.begin() + 4) == Values{1, 1.25, 1.75, 2});
  // torch 1.13: F.interpolate(x, scale_factor=2, mode='bicubic')[0, 0, 0]
  const double cubic[] = {0.68359375, 1.015625, 1.5625, 1.89453125};
  const Values by_cubes = values(interpolate(x, {}, 2.0, "bicubic"));
  for (size_t i = 0; i < 4; ++i) CHECK(std::abs(by_cubes[i] - cubic[i]) < 1e-15);
  CHECK(values(interpolate(e.doubles({1, 1, 2}, {1, 2}), {}, 1.3, "linear")) == Values{1, 2});  // as many: a copy
  const auto said = [&](auto f) {
    try {
      f();
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK(said([&] { upsample(x); }) == "either size or scale_factor should be defined");
  CHECK(said([&] { upsample(x, 4, 2.0); }) == "only one of size or scale_factor should be defined");
  CHECK(said([&] { upsample(x, 4, {}, "trilinear"); }) == "Got 4D input, but trilinear mode needs 5D input");
}
