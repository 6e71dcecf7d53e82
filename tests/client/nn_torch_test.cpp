// PyTorch as the oracle: a model that it saves computes the same here, one that is saved here loads there, and what is
// printed is the same text. nn_torch.py is its side.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/nn/nn.h"
#include "tests/client/folder.h"
#include "tests/client/nn_server.h"

using namespace gradwire;

namespace {

struct Net : nn::Module {
  nn::Conv2d conv1{3, 8, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn1{8};
  nn::Sequential features{nn::ReLU(),
                          nn::MaxPool2d(2),
                          nn::Conv2d(8, 12, 3, {.stride = 2, .padding = 1, .groups = 2}),
                          nn::GroupNorm(3, 12),
                          nn::GELU(),
                          nn::ConvTranspose2d(12, 6, 3, {.stride = 2}),
                          nn::InstanceNorm2d(6, {.affine = true}),
                          nn::LeakyReLU(0.1),
                          nn::AdaptiveAvgPool2d({3, 2})};
  nn::LayerNorm norm{{6, 3, 2}};
  nn::Sequential head{nn::Flatten(), nn::Linear(36, 10), nn::LogSoftmax(1)};

  Net() : nn::Module("Net") {
    add_module("conv1", conv1);
    add_module("bn1", bn1);
    add_module("features", features);
    add_module("norm", norm);
    add_module("head", head);
  }
  Tensor operator()(const Tensor& x) const { return head(norm(features(bn1(conv1(x))))); }
};

struct Torch : NnFixture {
  Folder folder;
  Torch() {
    if (std::system("/usr/bin/python3 -c 'import torch' >/dev/null 2>&1") != 0) SKIP("there is no PyTorch here");
    REQUIRE(run("save") == 0);
  }
  int run(const char* what) const {
    return std::system(("/usr/bin/python3 -B " GRADWIRE_SOURCE "/tests/client/nn_torch.py " + std::string(what) + " " +
                        folder.path.string() + " 2>" + (folder / "stderr"))
                           .c_str());
  }
};

/// The largest difference, as a part of the largest value.
double distance(const Tensor& got, const Tensor& right) {
  REQUIRE(got.shape() == right.shape());
  const auto a = got.to_vector<double>(), b = right.to_vector<double>();
  double most = 0, scale = 1e-3;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::isnan(a[i]) ? 1e300 : std::fabs(a[i] - b[i]));
    scale = std::max(scale, std::fabs(b[i]));
  }
  return most / scale;
}

}  // namespace

TEST_CASE_METHOD(Torch, "A model saved by PyTorch computes the same here, and loads there again",
                 "[client][nn][E43][E31][E33]") {
  Net net;
  std::string keys;
  for (const auto& e : net.state_dict()) keys += e.first + "\n";
  CHECK(keys == content(folder / "keys"));
  net.load(folder / "model");
  net.save(folder / "saved");
  INFO(content(folder / "stderr"));
  CHECK(run("check") == 0);

  const auto values = load_file(folder / "values");
  const Tensor& x = values.at("x");
  net.eval();
  CHECK(distance(net(x.to(float32)), values.at("evaluated32")) < 3e-6);
  net.to(float64);
  CHECK(distance(net(x), values.at("evaluated")) < 1e-13);
  net.train();
  const auto loss = nn::NLLLoss()(net(x), values.at("target"));
  loss.backward();
  CHECK(distance(loss, values.at("loss")) < 1e-13);
  CHECK(distance(nn::utils::clip_grad_norm_(net.parameters(), 0.3), values.at("total norm")) < 1e-12);
  for (const auto& [name, p] : net.named_parameters()) {
    INFO(name);
    CHECK(distance(p.grad(), values.at("grad " + name)) < 1e-11);
  }
  for (const auto& [name, b] : net.named_buffers()) {
    INFO(name);
    CHECK(b.dtype() == values.at("after " + name).dtype());
    CHECK(distance(b, values.at("after " + name)) < 1e-13);
  }
}

TEST_CASE_METHOD(Torch, "Modules and load errors print as PyTorch prints them", "[client][nn][E43]") {
  Net net;
  CHECK(net.str() == content(folder / "net"));
  const nn::Module layers[] = {
      nn::Linear(3, 4),
      nn::Linear(3, 4, {.bias = false}),
      nn::Conv1d(2, 4, 3),
      nn::Conv2d(2, 4, {3, 5}, {.stride = 2, .padding = {1, 2}}),
      nn::Conv3d(2, 4, 3, {.dilation = 2, .groups = 2, .bias = false}),
      nn::Conv2d(2, 4, 3, {.padding = "same", .padding_mode = "reflect"}),
      nn::ConvTranspose1d(2, 4, 3),
      nn::ConvTranspose2d(2, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1, .dilation = 2}),
      nn::ConvTranspose3d(2, 4, 3, {.groups = 2, .bias = false}),
      nn::BatchNorm1d(5),
      nn::BatchNorm2d(5, {.eps = 1e-3, .momentum = std::nullopt}),
      nn::BatchNorm3d(5, {.momentum = 0.01, .affine = false, .track_running_stats = false}),
      nn::InstanceNorm1d(5),
      nn::InstanceNorm2d(5, {.affine = true}),
      nn::InstanceNorm3d(5, {.track_running_stats = true}),
      nn::LayerNorm(5),
      nn::LayerNorm({5, 6}, {.eps = 1e-12, .elementwise_affine = false}),
      nn::GroupNorm(2, 4),
      nn::GroupNorm(2, 4, {.affine = false}),
      nn::ReLU(),
      nn::ReLU({.inplace = true}),
      nn::LeakyReLU(),
      nn::LeakyReLU(0.25),
      nn::GELU(),
      nn::GELU("tanh"),
      nn::SiLU(),
      nn::Sigmoid(),
      nn::Tanh(),
      nn::Softplus(),
      nn::Softplus(0.5, 10),
      nn::Softmax(),
      nn::Softmax(-1),
      nn::Softmin(0),
      nn::LogSoftmax(1),
      nn::Dropout(),
      nn::Dropout({.p = 0.1, .inplace = true}),
      nn::MaxPool1d(2),
      nn::MaxPool2d({2, 3}, {.padding = 1}),
      nn::MaxPool3d(3, {.stride = {1, 2, 3}, .dilation = 2, .ceil_mode = true}),
      nn::AvgPool1d(3),
      nn::AvgPool2d({3, 2}, {.stride = 1}),
      nn::AvgPool3d(2, {.padding = 1}),
      nn::AdaptiveAvgPool1d(4),
      nn::AdaptiveAvgPool2d({3, 2}),
      nn::AdaptiveAvgPool3d(2),
      nn::Flatten(),
      nn::Flatten({.start_dim = 0, .end_dim = 2}),
      nn::Identity(),
      nn::Embedding(10, 3),
      nn::Sequential(),
      nn::MSELoss(),
      nn::CrossEntropyLoss(),
      nn::NLLLoss(),
      nn::L1Loss(),
      nn::SmoothL1Loss(),
      nn::HuberLoss(),
      nn::KLDivLoss(),
      nn::BCELoss(),
      nn::BCEWithLogitsLoss(),
      nn::ConstantPad1d(2, 3.5),
      nn::ConstantPad2d({1, 2, 3, 4}, 0),
      nn::ConstantPad3d(1, -1),
      nn::ZeroPad2d({1, 1, 2, 0}),
      nn::ReflectionPad1d(2),
      nn::ReflectionPad2d(1),
      nn::ReplicationPad1d({2, 1}),
      nn::ReplicationPad2d(3),
      nn::ReplicationPad3d(1)};
  std::istringstream expected(content(folder / "layers"));
  for (const auto& layer : layers) {
    std::string line;
    REQUIRE(std::getline(expected, line));
    CHECK(layer.str() == line);
  }
  std::string more;
  CHECK_FALSE(std::getline(expected, more));

  nn::StateDict<Tensor> state;
  for (const auto& [name, t] : net.state_dict())
    if (name != "bn1.weight" && name != "head.1.bias") state.set(name, t);
  for (const char* name : {"odd", "bn1.odd", "features.2.odd"}) state.set(name, ones({1}));
  state.set("norm.bias", ones({6, 3, 3}));
  state.set("conv1.weight", ones({2}));
  try {
    net.load_state_dict(state);
    FAIL("nothing was thrown");
  } catch (const BadArgument& e) {
    CHECK(e.message() == content(folder / "error"));
  }
}
