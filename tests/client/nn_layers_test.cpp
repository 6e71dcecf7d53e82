// Each layer on a server against the function that it stands for, and the values that features.md promises.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>
#include <algorithm>
#include <cmath>
#include <limits>

#include "client/nn/nn.h"
#include "tests/client/nn_server.h"

using namespace gradwire;
using Catch::Matchers::Approx;
using Catch::Matchers::Message;
using Floats32 = std::vector<float>;

namespace {

bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.to_vector<float>() == b.to_vector<float>();
}

}  // namespace

TEST_CASE_METHOD(NnFixture, "Convolution layers are the functions with the module's tensors", "[client][nn][E30]") {
  const auto x1 = randn({2, 4, 9}), x2 = randn({2, 4, 9, 8}), x3 = randn({2, 4, 5, 6, 7});
  nn::Conv1d c1(4, 6, 3, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2});
  CHECK(c1.weight().shape() == Shape{6, 2, 3});
  CHECK(equal(c1(x1), conv1d(x1, c1.weight(), c1.bias(), 2, 1, 2, 2)));
  nn::Conv2d c2(4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .bias = false});
  CHECK_FALSE(c2.bias().defined());
  CHECK(equal(c2(x2), conv2d(x2, c2.weight(), {}, {2, 1}, {1, 0})));
  nn::Conv3d c3(4, 2, 2);
  CHECK(equal(c3(x3), conv3d(x3, c3.weight(), c3.bias())));
  nn::ConvTranspose1d t1(4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1});
  CHECK(t1.weight().shape() == Shape{4, 6, 3});
  CHECK(equal(t1(x1), conv_transpose1d(x1, t1.weight(), t1.bias(), 2, 1, 1)));
  nn::ConvTranspose2d t2(4, 6, 3, {.groups = 2, .bias = false, .dilation = 2});
  CHECK(equal(t2(x2), conv_transpose2d(x2, t2.weight(), {}, 1, 0, 0, 2, 2)));
  nn::ConvTranspose3d t3(4, 2, 2, {.stride = 2});
  CHECK(equal(t3(x3), conv_transpose3d(x3, t3.weight(), t3.bias(), 2)));
  nn::Conv2d half(1, 1, 1, {.dtype = float64});
  CHECK(half.weight().dtype() == float64);
}

TEST_CASE_METHOD(NnFixture, "Stride and padding may stand in PyTorch's places", "[client][nn]") {
  CHECK(nn::Conv2d(3, 4, 3, 2).str() == "Conv2d(3, 4, kernel_size=(3, 3), stride=(2, 2))");
  CHECK(nn::Conv2d(3, 4, 3, 2, 1, {.bias = false}).str() ==
        "Conv2d(3, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)");
  CHECK(nn::ConvTranspose2d(3, 4, 4, 2, 1).str() ==
        "ConvTranspose2d(3, 4, kernel_size=(4, 4), stride=(2, 2), padding=(1, 1))");
  CHECK(nn::MaxPool2d(3, 2, 1).str() == "MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)");
  CHECK(nn::MaxPool2d(3, 2, 1, {.ceil_mode = true}).str() ==
        "MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=True)");
  CHECK(nn::AvgPool2d(3, 2).str() == "AvgPool2d(kernel_size=3, stride=2, padding=0)");
  CHECK(nn::AvgPool2d(3, 2, 1).str() == "AvgPool2d(kernel_size=3, stride=2, padding=1)");
  CHECK(nn::ReLU(true).str() == "ReLU(inplace=True)");
  const auto x = randn({2, 3, 7, 8});
  CHECK(equal(nn::MaxPool2d(3, 2, 1)(x), max_pool2d(x, 3, 2, 1)));
  CHECK(equal(nn::AvgPool2d(3, 2, 1, {.count_include_pad = false})(x), avg_pool2d(x, 3, 2, 1, false, false)));
  nn::ConvTranspose2d t(3, 4, 4, 2, 1, {.output_padding = 1});
  CHECK(equal(t(x), conv_transpose2d(x, t.weight(), t.bias(), 2, 1, 1)));
}

TEST_CASE_METHOD(NnFixture, "Padding may be same, valid, or follow a mode", "[client][nn]") {
  const auto x = randn({2, 3, 7, 8});
  nn::Conv2d same(3, 4, {3, 5}, {.padding = "same", .dilation = {1, 2}});
  CHECK(equal(same(x), conv2d(x, same.weight(), same.bias(), 1, {1, 4}, {1, 2})));
  nn::Conv2d even(3, 4, {2, 4}, {.padding = "same"});
  CHECK(even(x).shape() == Shape{2, 4, 7, 8});
  CHECK(equal(even(x), conv2d(pad(x, {1, 2, 0, 1}), even.weight(), even.bias())));
  nn::Conv2d valid(3, 4, 3, {.padding = "valid"});
  CHECK(valid(x).shape() == Shape{2, 4, 5, 6});
  for (const char* mode : {"reflect", "replicate", "circular"}) {
    nn::Conv2d c(3, 4, 3, {.padding = {1, 2}, .padding_mode = mode});
    CHECK(equal(c(x), conv2d(pad(x, {2, 2, 1, 1}, mode), c.weight(), c.bias())));
  }
  CHECK_THROWS_MATCHES(nn::Conv2d(3, 4, 3, {.padding = "sane"}), BadArgument,
                       Message("Invalid padding string 'sane', should be one of {'valid', 'same'}"));
  CHECK_THROWS_MATCHES(nn::Conv2d(3, 4, 3, {.stride = 2, .padding = "same"}), BadArgument,
                       Message("padding='same' is not supported for strided convolutions"));
  CHECK_THROWS_MATCHES(nn::Conv2d(3, 4, 3, {.padding_mode = "odd"}), BadArgument,
                       Message("padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, but got "
                               "padding_mode='odd'"));
  CHECK_THROWS_MATCHES(nn::Conv2d(3, 4, 3, {.groups = 2}), BadArgument,
                       Message("in_channels must be divisible by groups"));
  CHECK_THROWS_MATCHES(nn::Conv2d(2, 3, 3, {.groups = 2}), BadArgument,
                       Message("out_channels must be divisible by groups"));
  CHECK_THROWS_MATCHES(nn::Conv2d(2, 3, 3, {.groups = 0}), BadArgument, Message("groups must be a positive integer"));
  CHECK_THROWS_MATCHES(nn::Conv2d(2, 3, {1, 2, 3}), BadArgument,
                       Message("kernel_size must be one integer or 2, got 3"));
}

TEST_CASE_METHOD(NnFixture, "A layer's error names the line that called the layer", "[client][nn][E30]") {
  nn::Conv2d c(4, 2, 3);
  const uint32_t line = __LINE__ + 1;
  const auto y = c(randn({1, 3, 5, 5}));
  try {
    y.to_vector<float>();
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.where().line == line);
    CHECK(e.where().file.ends_with("nn_layers_test.cpp"));
    CHECK(e.message() ==
          "Given groups=1, weight of size [2, 4, 3, 3], expected input[1, 3, 5, 5] to have 4 channels, but got 3 "
          "channels instead");
  }
  nn::Sequential s(nn::Flatten(), nn::Linear(5, 2));
  const uint32_t outer = __LINE__ + 1;
  const auto z = s(randn({2, 3}));
  try {
    z.to_vector<float>();
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.where().line == outer);
  }
}

TEST_CASE_METHOD(NnFixture, "Dense layers, shapes and tables are the functions", "[client][nn]") {
  const auto x = randn({3, 4, 5});
  nn::Linear fc(5, 2), plain(5, 2, {.bias = false});
  CHECK(equal(fc(x), linear(x, fc.weight(), fc.bias())));
  CHECK(equal(plain(x), linear(x, plain.weight())));
  CHECK(nn::Flatten()(x).shape() == Shape{3, 20});
  CHECK(nn::Flatten({.start_dim = 0, .end_dim = 1})(x).shape() == Shape{12, 5});
  CHECK(equal(nn::Identity()(x), x));
  nn::Embedding table(10, 3);
  const auto places = randint(10, {2, 6});
  CHECK(table(places).shape() == Shape{2, 6, 3});
  CHECK(equal(table(places).view({12, 3}), table.weight().index_select(0, places.flatten())));
  table(tensor({1, 1, 4})).sum().backward();
  const auto g = table.weight().grad().sum({.dim = 1}).to_vector<float>();
  CHECK(g == Floats32{0, 6, 0, 0, 3, 0, 0, 0, 0, 0});
}

TEST_CASE_METHOD(NnFixture, "Activations are the functions", "[client][nn]") {
  const auto x = randn({3, 4});
  CHECK(equal(nn::ReLU()(x), relu(x)));
  CHECK(equal(nn::LeakyReLU(0.2)(x), leaky_relu(x, 0.2)));
  CHECK(equal(nn::GELU()(x), gelu(x)));
  CHECK(equal(nn::GELU("tanh")(x), gelu(x, "tanh")));
  CHECK(equal(nn::SiLU()(x), silu(x)));
  CHECK(equal(nn::Sigmoid()(x), sigmoid(x)));
  CHECK(equal(nn::Tanh()(x), tanh(x)));
  CHECK(equal(nn::Softplus(2, 1)(x), softplus(x, 2, 1)));
  CHECK(equal(nn::Softmax(1)(x), softmax(x, 1)));
  CHECK(equal(nn::Softmin(1)(x), softmin(x, 1)));
  CHECK(equal(nn::LogSoftmax(0)(x), log_softmax(x, 0)));
  const auto y = x.clone();
  const auto z = nn::ReLU({.inplace = true})(y);
  CHECK(z.id() == y.id());
  CHECK(equal(y, relu(x)));
}

TEST_CASE_METHOD(NnFixture, "Pools are the functions", "[client][nn][E30]") {
  const auto x1 = randn({2, 3, 9}), x2 = randn({2, 3, 9, 8}), x3 = randn({2, 3, 5, 6, 7});
  CHECK(equal(nn::MaxPool1d(2)(x1), max_pool1d(x1, 2)));
  CHECK(equal(nn::MaxPool2d(3, {.stride = 2, .padding = 1, .ceil_mode = true})(x2), max_pool2d(x2, 3, 2, 1, 1, true)));
  CHECK(equal(nn::MaxPool3d({2, 3, 2}, {.dilation = 2})(x3), max_pool3d(x3, {2, 3, 2}, {2, 3, 2}, 0, 2)));
  CHECK(equal(nn::AvgPool1d(2)(x1), avg_pool1d(x1, 2)));
  CHECK(equal(nn::AvgPool2d({3, 2}, {.stride = 1, .padding = 1, .count_include_pad = false, .divisor_override = 3})(x2),
              avg_pool2d(x2, {3, 2}, 1, 1, false, false, 3)));
  CHECK(equal(nn::AvgPool3d(2)(x3), avg_pool3d(x3, 2)));
  CHECK(equal(nn::AdaptiveAvgPool1d(4)(x1), adaptive_avg_pool1d(x1, 4)));
  CHECK(equal(nn::AdaptiveAvgPool2d({3, 2})(x2), adaptive_avg_pool2d(x2, {3, 2})));
  CHECK(equal(nn::AdaptiveAvgPool3d(2)(x3), adaptive_avg_pool3d(x3, 2)));
}

TEST_CASE_METHOD(NnFixture, "Borders are the function's", "[client][nn][E35]") {
  const auto x1 = randn({2, 3, 9}), x2 = randn({2, 3, 9, 8}), x3 = randn({2, 3, 5, 6, 7});
  CHECK(equal(nn::ConstantPad1d(2, 3.5)(x1), pad(x1, {2, 2}, "constant", 3.5)));
  CHECK(equal(nn::ConstantPad2d({1, 0, 2, 3}, -1)(x2), pad(x2, {1, 0, 2, 3}, "constant", -1)));
  CHECK(equal(nn::ZeroPad2d(1)(x2), pad(x2, {1, 1, 1, 1})));
  CHECK(equal(nn::ReflectionPad1d({2, 1})(x1), pad(x1, {2, 1}, "reflect")));
  CHECK(equal(nn::ReflectionPad2d(2)(x2), pad(x2, {2, 2, 2, 2}, "reflect")));
  CHECK(equal(nn::ReplicationPad3d(1)(x3), pad(x3, {1, 1, 1, 1, 1, 1}, "replicate")));
  CHECK_THROWS_MATCHES(nn::ZeroPad2d({1, 2, 3}), BadArgument, Message("padding must be one integer or 4, got 3"));
}

TEST_CASE_METHOD(NnFixture, "Weight norm trains length and direction apart", "[client][nn][E7][E8]") {
  nn::Linear fc(2, 1, {.bias = false});
  {
    no_grad scope;
    fc.weight().copy_(tensor({{3., 4.}}));
  }
  nn::utils::weight_norm(fc);
  CHECK(fc.get_parameter("weight_g").shape() == Shape{1, 1});
  CHECK(fc.get_parameter("weight_g").item<float>() == 5);
  std::string names;
  for (const auto& e : fc.state_dict()) names += e.first + " ";
  CHECK(names == "weight_g weight_v ");
  nn::init::constant_(fc.get_parameter("weight_g"), 10);
  const auto y = fc(ones({1, 2}));
  CHECK(y.item<float>() == 14);
  y.backward();
  // w = g v / |v|, y = w1 + w2: dy/dg = (3 + 4) / 5; dy/dv = g / |v| (1 - v (v1 + v2) / |v|^2)
  CHECK_THAT(fc.get_parameter("weight_g").grad().to_vector<float>(), Approx(Floats32{1.4f}));
  CHECK_THAT(fc.get_parameter("weight_v").grad().to_vector<float>(), Approx(Floats32{.32f, -.24f}));
  CHECK_THROWS_MATCHES(nn::utils::weight_norm(fc), BadArgument,
                       Message("Cannot register two weight_norm hooks on the same parameter weight"));
  nn::utils::remove_weight_norm(fc);
  CHECK_THAT(fc.weight().to_vector<float>(), Approx(Floats32{6, 8}));
  CHECK(fc.weight().is_leaf());
  CHECK(fc.weight().requires_grad());
  CHECK(fc.state_dict().size() == 1);
  CHECK_THAT(fc(ones({1, 2})).to_vector<float>(), Approx(Floats32{14}));
  CHECK_THROWS_MATCHES(
      nn::utils::remove_weight_norm(fc), BadArgument,
      Message("weight_norm of 'weight' not found in Linear(in_features=2, out_features=1, bias=False)"));

  nn::Linear wide(20, 40);
  const auto x = randn({3, 20});
  const auto before = wide(x).to_vector<double>();
  nn::utils::weight_norm(wide);
  CHECK(wide.get_parameter("weight_g").shape() == Shape{40, 1});
  CHECK(wide.get_parameter("weight_v").shape() == Shape{40, 20});
  CHECK_THAT(wide(x).to_vector<double>(), Approx(before).margin(1e-5));
  wide.to(float64);
  CHECK_THAT(wide(x.to(float64)).to_vector<double>(), Approx(before).margin(1e-5));
  nn::Conv2d conv(2, 3, 3);
  nn::utils::weight_norm(conv, "weight", std::nullopt);
  CHECK(conv.get_parameter("weight_g").shape().empty());
  nn::utils::weight_norm(conv, "bias");
  CHECK(conv(randn({1, 2, 5, 5})).shape() == Shape{1, 3, 3, 3});
}

TEST_CASE_METHOD(NnFixture, "Normalisation layers are the functions", "[client][nn][E36]") {
  const auto x = randn({4, 6, 5, 5});
  nn::LayerNorm ln({5, 5}), bare({5, 5}, {.elementwise_affine = false});
  CHECK(equal(ln(x), layer_norm(x, {5, 5}, ln.weight(), ln.bias())));
  CHECK(bare.state_dict().empty());
  CHECK(equal(bare(x), layer_norm(x, {5, 5})));
  nn::GroupNorm gn(3, 6);
  nn::init::normal_(gn.weight());
  CHECK(equal(gn(x), group_norm(x, 3, gn.weight(), gn.bias())));
  CHECK_THROWS_MATCHES(nn::GroupNorm(4, 6), BadArgument, Message("num_channels must be divisible by num_groups"));
  nn::InstanceNorm2d in(6), tracking(6, {.affine = true, .track_running_stats = true});
  CHECK(in.state_dict().empty());
  CHECK(equal(in(x), instance_norm(x)));
  tracking(x);
  CHECK(tracking.num_batches_tracked().item<int64_t>() == 0);  // PyTorch does not count here
  tracking.eval();
  CHECK(equal(tracking(x), instance_norm(x, tracking.running_mean(), tracking.running_var(), tracking.weight(),
                                         tracking.bias(), false)));
  CHECK(nn::InstanceNorm1d(2)(randn({2, 2, 8})).shape() == Shape{2, 2, 8});
  CHECK(nn::InstanceNorm3d(2)(randn({2, 2, 3, 3, 3})).dim() == 5);
}

TEST_CASE_METHOD(NnFixture, "Batch norm uses the batch in training and what it has seen after", "[client][nn][E31]") {
  nn::BatchNorm1d bn(1, {.dtype = float64});
  const auto x = tensor({{1.}, {3.}}, {.dtype = float64});
  CHECK_THAT(bn(x).to_vector<double>(), Approx(std::vector<double>{-1, 1}).margin(1e-5));
  CHECK_THAT(bn.running_mean().to_vector<double>(), Approx(std::vector<double>{.2}));
  CHECK_THAT(bn.running_var().to_vector<double>(), Approx(std::vector<double>{1.1}));
  CHECK(bn.num_batches_tracked().item<int64_t>() == 1);
  bn.eval();
  const double scale = 1 / std::sqrt(1.1 + 1e-5);
  CHECK_THAT(bn(x).to_vector<double>(), Approx(std::vector<double>{.8 * scale, 2.8 * scale}));
  CHECK(bn.num_batches_tracked().item<int64_t>() == 1);
  bn.train();
  const auto y = bn(ones({1, 1}, {.dtype = float64}));
  CHECK_THROWS_MATCHES(
      y.to_vector<double>(), Error,
      Message("Expected more than 1 value per channel when training, got input size torch.Size([1, 1])"));

  nn::BatchNorm2d average(1, {.momentum = std::nullopt});
  average(full({2, 1, 2, 2}, 2.));
  average(full({2, 1, 2, 2}, 4.));
  CHECK(average.running_mean().to_vector<float>() == Floats32{3});
  CHECK(average.num_batches_tracked().item<int64_t>() == 2);
  nn::BatchNorm3d forgetful(2, {.affine = false, .track_running_stats = false});
  CHECK(forgetful.state_dict().empty());
  const auto v = randn({2, 2, 2, 2, 2});
  forgetful.eval();
  CHECK(equal(forgetful(v), batch_norm(v, {}, {}, {}, {}, true)));
}

TEST_CASE_METHOD(NnFixture, "Dropout draws from the session in training only", "[client][nn][E32]") {
  const nn::Dropout drop(0.25);
  const auto x = ones({4000});
  manual_seed(5);
  const auto y = drop(x).to_vector<float>();
  manual_seed(5);
  CHECK(drop(x).to_vector<float>() == y);
  const auto zeros_in = std::count(y.begin(), y.end(), 0.f);
  CHECK(zeros_in > 850);
  CHECK(zeros_in < 1150);
  CHECK(std::count(y.begin(), y.end(), 1.f / .75f) == 4000 - zeros_in);
  CHECK(nn::Dropout(1.)(x).sum().item<float>() == 0);
  drop.eval();
  CHECK(drop(x).to_vector<float>() == Floats32(4000, 1));
  CHECK_THROWS_MATCHES(nn::Dropout(1.2), BadArgument,
                       Message("dropout probability has to be between 0 and 1, but got 1.2"));
}

TEST_CASE_METHOD(NnFixture, "Losses are the functions", "[client][nn]") {
  const auto x = randn({4, 3}), y = rand({4, 3}), w = tensor({1., 2., .5});
  const auto classes = tensor({0, 2, 1, 2});
  CHECK(equal(nn::MSELoss()(x, y), mse_loss(x, y)));
  CHECK(equal(nn::MSELoss({.reduction = "none"})(x, y), mse_loss(x, y, "none")));
  CHECK(equal(nn::L1Loss({.reduction = "sum"})(x, y), l1_loss(x, y, "sum")));
  CHECK(equal(nn::SmoothL1Loss({.beta = .5})(x, y), smooth_l1_loss(x, y, "mean", .5)));
  CHECK(equal(nn::HuberLoss({.delta = .5})(x, y), huber_loss(x, y, "mean", .5)));
  CHECK(equal(nn::KLDivLoss({.reduction = "batchmean"})(x, y), kl_div(x, y, "batchmean")));
  const auto p = log_softmax(x, 1);
  CHECK(equal(nn::NLLLoss()(p, classes), nll_loss(p, classes)));
  CHECK(equal(nn::NLLLoss({.weight = w, .ignore_index = 2})(p, classes), nll_loss(p, classes, w, {}, 2)));
  nn::CrossEntropyLoss ce({.weight = w, .label_smoothing = .1});
  CHECK(equal(ce(x, classes), cross_entropy(x, classes, w, {}, -100, {}, "mean", .1)));
  CHECK(ce.state_dict().contains("weight"));
  const auto q = sigmoid(x);
  CHECK(equal(nn::BCELoss()(q, y), binary_cross_entropy(q, y)));
  CHECK(equal(nn::BCEWithLogitsLoss({.pos_weight = w})(x, y), binary_cross_entropy_with_logits(x, y, {}, "mean", w)));
}

TEST_CASE_METHOD(NnFixture, "A sequence runs its layers in order", "[client][nn]") {
  nn::Linear a(4, 3), b(3, 2);
  nn::Sequential s(
      a, [](const Tensor& v) { return v * 2; }, nn::ReLU());
  s.append(nn::Sequential(b));
  const auto x = randn({5, 4});
  CHECK(equal(s(x), b(relu(a(x) * 2))));
  CHECK(s.size() == 4);
  CHECK(s[0].is(a));
  std::vector<std::string> names;
  for (const auto& e : s.state_dict()) names.push_back(e.first);
  CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "3.0.weight", "3.0.bias"});
  CHECK_THROWS_MATCHES(s[4], IndexOutOfRange, Message("index 4 is out of range"));
  nn::Sequential named(session);
  named.add_module("first", a);
  named.add_module("last", nn::ReLU());
  CHECK(equal(named(x), relu(a(x))));
  named.add_module("last", nn::Tanh());
  CHECK(named.size() == 2);
  CHECK(equal(named(x), tanh(a(x))));
  CHECK(named.state_dict().contains("first.weight"));
  const nn::Sequential same = s, other(same, nn::ReLU());
  CHECK(same.is(s));
  CHECK(other.size() == 2);
}

TEST_CASE_METHOD(NnFixture, "Gradients are clipped as PyTorch clips them", "[client][nn][E33][E34]") {
  const auto a = zeros({2}, {.requires_grad = true}), b = zeros({1}, {.requires_grad = true}),
             c = zeros({1}, {.requires_grad = true});
  const std::vector<Tensor> all{a, b, c};
  const auto fresh = [&](double x, double y) { a.set_grad(tensor({x, 0.})), b.set_grad(tensor({y})); };
  fresh(3, 4);
  CHECK(nn::utils::clip_grad_norm_(all, 10.).item<float>() == 5);
  CHECK(a.grad().to_vector<float>() == Floats32{3, 0});
  CHECK(nn::utils::clip_grad_norm_(all, 1.).item<float>() == 5);
  CHECK_THAT(a.grad().to_vector<float>(), Approx(Floats32{.6f, 0}));
  CHECK_THAT(b.grad().to_vector<float>(), Approx(Floats32{.8f}));
  CHECK_FALSE(c.has_grad());
  fresh(3, -4);
  CHECK(nn::utils::clip_grad_norm_(all, 2., std::numeric_limits<double>::infinity()).item<float>() == 4);
  CHECK_THAT(a.grad().to_vector<float>(), Approx(Floats32{1.5f, 0}));
  CHECK_THAT(b.grad().to_vector<float>(), Approx(Floats32{-2}));
  fresh(3, -4);
  nn::utils::clip_grad_value_(all, 2.5);
  CHECK(a.grad().to_vector<float>() == Floats32{2.5f, 0});
  CHECK(b.grad().to_vector<float>() == Floats32{-2.5f});
  CHECK(nn::utils::clip_grad_norm_(std::vector<Tensor>{c}, 1.).item<float>() == 0);
  fresh(std::numeric_limits<double>::infinity(), 0);
  CHECK_THROWS_AS(nn::utils::clip_grad_norm_(all, 1., 2, true), BadArgument);

  nn::Linear fc(3, 2);
  const auto flat = nn::utils::parameters_to_vector(fc.parameters());
  CHECK(flat.numel() == 8);
  nn::utils::vector_to_parameters(flat * 2, fc.parameters());
  CHECK(equal(nn::utils::parameters_to_vector(fc.parameters()), flat * 2));
  CHECK(fc.weight().is_leaf());
}
