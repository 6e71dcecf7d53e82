// Initial values: bounds and moments are those of PyTorch's formulas.
#include "client/nn/init.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cmath>

#include "client/nn/nn.h"
#include "tests/client/nn_server.h"

using namespace gradwire;
using Catch::Approx;
using Catch::Matchers::Message;
using Floats32 = std::vector<float>;

namespace {

struct Moments {
  double least, most, mean, deviation;
};
Moments moments(const Tensor& t) {
  const auto v = t.to_vector<double>();
  double sum = 0, squares = 0;
  for (const double d : v) sum += d, squares += d * d;
  const double n = static_cast<double>(v.size()), mean = sum / n;
  const auto [low, high] = std::minmax_element(v.begin(), v.end());
  return {*low, *high, mean, std::sqrt(squares / n - mean * mean)};
}

/// That t is uniform in +-bound, as far as 20,000 values tell.
void check_uniform(const Tensor& t, double bound) {
  const Moments m = moments(t);
  CHECK(m.least >= -bound);
  CHECK(m.most <= bound);
  CHECK(m.most > .99 * bound);
  CHECK(m.least < -.99 * bound);
  CHECK(m.deviation == Approx(bound / std::sqrt(3.)).epsilon(.03));
}

}  // namespace

TEST_CASE_METHOD(NnFixture, "Gains are those of PyTorch's table", "[client][nn][E38]") {
  CHECK(nn::init::calculate_gain("relu") == Approx(std::sqrt(2.)));
  CHECK(nn::init::calculate_gain("tanh") == Approx(5. / 3));
  CHECK(nn::init::calculate_gain("leaky_relu", .2) == Approx(1.38675));
  CHECK(nn::init::calculate_gain("leaky_relu") == Approx(1.4141428570000715));
  CHECK(nn::init::calculate_gain("selu") == .75);
  CHECK(nn::init::calculate_gain("conv2d") == 1);
  CHECK_THROWS_MATCHES(nn::init::calculate_gain("odd"), BadArgument, Message("Unsupported nonlinearity odd"));
}

TEST_CASE_METHOD(NnFixture, "Layers begin with PyTorch's distributions", "[client][nn][E38]") {
  nn::Linear fc(100, 200);
  check_uniform(fc.weight(), .1);
  const Moments b = moments(fc.bias());
  CHECK(b.most <= .1);
  CHECK(b.least >= -.1);
  CHECK(b.deviation == Approx(.1 / std::sqrt(3.)).epsilon(.15));
  nn::Conv2d conv(16, 160, 3, {.groups = 2});
  check_uniform(conv.weight(), 1 / std::sqrt(72.));
  CHECK(moments(conv.bias()).most <= 1 / std::sqrt(72.));
  nn::ConvTranspose2d back(64, 40, 3, {.groups = 2});  // its fan counts dim 1, as PyTorch's
  check_uniform(back.weight(), 1 / std::sqrt(180.));
  CHECK(moments(nn::Embedding(200, 100).weight()).deviation == Approx(1).epsilon(.03));
  nn::BatchNorm2d bn(3);
  CHECK(bn.weight().to_vector<float>() == Floats32{1, 1, 1});
  CHECK(bn.bias().to_vector<float>() == Floats32{0, 0, 0});
  CHECK(bn.running_var().to_vector<float>() == Floats32{1, 1, 1});
  CHECK(nn::Linear(0, 3).bias().to_vector<float>() == Floats32{0, 0, 0});
  CHECK(nn::init::kaiming_normal_(zeros({0, 3})).numel() == 0);
  CHECK(fc.weight().requires_grad());
  CHECK(fc.weight().is_leaf());
  CHECK_FALSE(bn.running_mean().requires_grad());
}

TEST_CASE_METHOD(NnFixture, "Values are drawn into parameters without history", "[client][nn][E38]") {
  const auto t = zeros({200, 100}, {.requires_grad = true}), k = zeros({40, 20, 5, 5});
  check_uniform(nn::init::uniform_(t, -3, 3), 3);
  CHECK(t.is_leaf());
  CHECK(moments(nn::init::normal_(t, 2, .5)).mean == Approx(2).margin(.02));
  check_uniform(nn::init::xavier_uniform_(t, 2), 2 * std::sqrt(6. / 300));
  CHECK(moments(nn::init::xavier_normal_(k)).deviation == Approx(std::sqrt(2. / 1500)).epsilon(.03));
  check_uniform(nn::init::kaiming_uniform_(t), std::sqrt(3.) * std::sqrt(2.) / 10);
  check_uniform(nn::init::kaiming_uniform_(t, {.a = 2, .mode = "fan_out"}), std::sqrt(3. * .4 / 200));
  CHECK(moments(nn::init::kaiming_normal_(k, {.mode = "fan_out", .nonlinearity = "relu"})).deviation ==
        Approx(std::sqrt(2. / 1000)).epsilon(.03));
  const auto bad = zeros({3});
  CHECK_THROWS_MATCHES(nn::init::xavier_normal_(bad), BadArgument,
                       Message("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"));
  CHECK_THROWS_MATCHES(nn::init::kaiming_normal_(k, {.mode = "odd"}), BadArgument,
                       Message("Mode odd not supported, please use one of ['fan_in', 'fan_out']"));
  CHECK(nn::init::constant_(bad, 3).to_vector<float>() == Floats32{3, 3, 3});
  CHECK(nn::init::ones_(bad).to_vector<float>() == Floats32{1, 1, 1});
  CHECK(nn::init::zeros_(bad).to_vector<float>() == Floats32{0, 0, 0});
}

TEST_CASE_METHOD(NnFixture, "A truncated normal has the moments of one", "[client][nn][E38]") {
  const auto t = zeros({200, 200});
  const Moments m = moments(nn::init::trunc_normal_(t, 1, 2, -1, 5));  // one and two deviations from the mean
  // Of a standard normal between -1 and 2: mean and deviation by its density and distribution function.
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979); };
  const double mass = (std::erf(2 / std::sqrt(2.)) - std::erf(-1 / std::sqrt(2.))) / 2;
  const double mean = (density(-1) - density(2)) / mass;
  const double variance = 1 + (-density(-1) - 2 * density(2)) / mass - mean * mean;
  CHECK(m.least >= -1);
  CHECK(m.most <= 5);
  CHECK(m.mean == Approx(1 + 2 * mean).margin(.03));
  CHECK(m.deviation == Approx(2 * std::sqrt(variance)).epsilon(.02));
  const Moments wide = moments(nn::init::trunc_normal_(t, 0, 1, -8, 8));
  CHECK(wide.deviation == Approx(1).epsilon(.02));
  CHECK(wide.most > 3.5);
}

TEST_CASE_METHOD(NnFixture, "Orthogonal, identity and sparse values", "[client][nn][E38]") {
  for (const Shape& s : {Shape{20, 60}, Shape{60, 20}, Shape{16, 4, 3, 3}}) {
    auto t = zeros(s, {.dtype = float64, .requires_grad = true});
    nn::init::orthogonal_(t, 2);
    auto m = t.detach().flatten(1);
    if (s[0] > s[1] && s.size() == 2) m = m.t();
    const auto off = matmul(m, m.t()) - eye(m.size(0), {.dtype = float64}) * 4;
    CHECK(off.abs().max().item<double>() < 1e-12);
  }
  const auto e = zeros({2, 3});
  CHECK(nn::init::eye_(e).to_vector<float>() == Floats32{1, 0, 0, 0, 1, 0});
  const auto d = ones({4, 2, 3, 3}), x = randn({1, 2, 5, 5});
  nn::init::dirac_(d, 2);
  CHECK(d.sum().item<float>() == 4);
  const auto y = conv2d(x, d, {}, 1, 1);
  CHECK(y[{0, 0}].to_vector<float>() == x[{0, 0}].to_vector<float>());
  CHECK(y[{0, 3}].to_vector<float>() == x[{0, 1}].to_vector<float>());
  const auto s = ones({10, 50});
  nn::init::sparse_(s, .25);
  CHECK((s == 0).sum({.dim = 0}).to_vector<int64_t>() == std::vector<int64_t>(50, 3));
  CHECK_THROWS_MATCHES(nn::init::eye_(x), BadArgument, Message("Only tensors with 2 dimensions are supported"));
  CHECK_THROWS_MATCHES(nn::init::dirac_(e), BadArgument,
                       Message("Only tensors with 3, 4, or 5 dimensions are supported"));
}
