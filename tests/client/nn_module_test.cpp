// Modules: names, order, modes, states, hooks and how they print. The texts are PyTorch 1.13.1's.
#include "client/nn/module.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <sstream>

#include "client/nn/nn.h"
#include "tests/client/nn_server.h"

using namespace gradwire;
using Catch::Matchers::Message;
using Names = std::vector<std::string>;

namespace {

template <class Pairs> Names first(const Pairs& pairs) {
  Names names;
  for (const auto& p : pairs) names.push_back(p.first);
  return names;
}

struct Small : nn::Module {
  nn::Conv2d conv{1, 2, 3};
  nn::BatchNorm2d bn{2};
  nn::Linear fc{8, 3};
  Small() : nn::Module("Small") {
    add_module("conv", conv);
    add_module("bn", bn);
    add_module("fc", fc);
  }
  Tensor operator()(const Tensor& x) const {
    return call(x, [&](const Tensor& v) { return fc(flatten(relu(bn(conv(v))), 1)); });
  }
};

}  // namespace

TEST_CASE_METHOD(NnFixture, "Names without which a state dict would lose entries are refused",
                 "[client][nn][E39][E40]") {
  const nn::Module m;
  const auto one = ones({1});
  CHECK_THROWS_MATCHES(m.add_module("", m), BadArgument, Message("module name can't be empty string \"\""));
  CHECK_THROWS_MATCHES(m.add_module("a.b", m), BadArgument, Message("module name can't contain \".\", got: a.b"));
  CHECK_THROWS_MATCHES(m.register_parameter("a.b", one), BadArgument, Message("parameter name can't contain \".\""));
  CHECK_THROWS_MATCHES(m.register_parameter("", one), BadArgument,
                       Message("parameter name can't be empty string \"\""));
  CHECK_THROWS_MATCHES(m.register_buffer("a.b", one), BadArgument, Message("buffer name can't contain \".\""));
  CHECK_THROWS_MATCHES(m.register_buffer("", one), BadArgument, Message("buffer name can't be empty string \"\""));
  CHECK(m.state_dict().empty());
  CHECK_FALSE(one.requires_grad());
}

TEST_CASE_METHOD(NnFixture, "A name has one meaning, and the same kind may be replaced", "[client][nn][E41][E42]") {
  const nn::Module m, inner;
  CHECK_THROWS_MATCHES(m.add_module("forward", inner), BadArgument, Message("attribute 'forward' already exists"));
  CHECK_THROWS_MATCHES(m.register_buffer("training", {}), BadArgument, Message("attribute 'training' already exists"));
  m.register_parameter("x", ones({1}));
  CHECK_THROWS_MATCHES(m.register_buffer("x", ones({1})), BadArgument, Message("attribute 'x' already exists"));
  CHECK_THROWS_MATCHES(m.add_module("x", inner), BadArgument, Message("attribute 'x' already exists"));
  m.register_parameter("x", zeros({2}));
  CHECK(m.get_parameter("x").shape() == Shape{2});
  CHECK(m.get_parameter("x").requires_grad());
  m.add_module("y", inner);
  CHECK_THROWS_MATCHES(m.register_parameter("y", ones({1})), BadArgument, Message("attribute 'y' already exists"));
  m.register_parameter("none", {});
  CHECK(first(m.named_parameters()) == Names{"x"});
  const auto w = ones({1}, {.requires_grad = true});
  CHECK_THROWS_MATCHES(m.register_parameter("w", w * 2), BadArgument,
                       Message("Cannot assign non-leaf Tensor to parameter 'w'. Model parameters must be created "
                               "explicitly. To express 'w' as a function of another Tensor, compute the value in the "
                               "forward() method."));
  CHECK_THROWS_MATCHES(m.get_parameter("y.z"), BadArgument, Message("Module has no attribute `z`"));
  CHECK_THROWS_MATCHES(m.get_submodule("y.z"), BadArgument, Message("Module has no attribute `z`"));
  CHECK_THROWS_MATCHES(inner.add_module("m", m), BadArgument, Message("module 'm' contains the module it is added to"));
  CHECK_THROWS_AS(m.add_module("m", m), BadArgument);
}

TEST_CASE_METHOD(NnFixture, "Tensors and modules are listed in PyTorch's order, each once", "[client][nn][E40]") {
  Small net;
  CHECK(first(net.named_parameters()) ==
        Names{"conv.weight", "conv.bias", "bn.weight", "bn.bias", "fc.weight", "fc.bias"});
  CHECK(first(net.named_buffers()) == Names{"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"});
  CHECK(first(net.state_dict()) == Names{"conv.weight", "conv.bias", "bn.weight", "bn.bias", "bn.running_mean",
                                         "bn.running_var", "bn.num_batches_tracked", "fc.weight", "fc.bias"});
  CHECK(first(net.named_modules()) == Names{"", "conv", "bn", "fc"});
  CHECK(first(net.named_children()) == Names{"conv", "bn", "fc"});
  CHECK(net.state_dict().at("bn.num_batches_tracked").dtype() == int64);

  nn::Module twice;
  twice.add_module("a", net.fc);
  twice.add_module("b", net.fc);
  CHECK(first(twice.named_parameters()) == Names{"a.weight", "a.bias"});
  CHECK(first(twice.state_dict()) == Names{"a.weight", "a.bias", "b.weight", "b.bias"});
  CHECK(first(twice.named_modules()) == Names{"", "a"});
  twice.register_buffer("hidden", ones({1}), false);
  CHECK_FALSE(twice.state_dict().contains("hidden"));
  CHECK(twice.buffers().size() == 1);
}

TEST_CASE_METHOD(NnFixture, "A copy of a module is the same module", "[client][nn]") {
  Small net;
  const nn::Module handle = net;
  handle.eval();
  CHECK_FALSE(net.bn.is_training());
  net.train();
  CHECK(handle.is_training());
  CHECK(handle.get_submodule("bn").is(net.bn));
  Names order;
  net.apply([&](const nn::Module& m) { order.push_back(m.kind()); });
  CHECK(order == Names{"Conv2d", "BatchNorm2d", "Linear", "Small"});
}

TEST_CASE_METHOD(NnFixture, "Gradients are dropped or zeroed, and parameters frozen", "[client][nn]") {
  Small net;
  net(randn({4, 1, 4, 4})).sum().backward();
  CHECK(net.fc.weight().has_grad());
  net.zero_grad(false);
  CHECK(net.fc.bias().grad().to_vector<float>() == std::vector<float>(3, 0));
  net.zero_grad();
  CHECK_FALSE(net.fc.weight().has_grad());
  net.requires_grad_(false);
  CHECK_FALSE(net.conv.weight().requires_grad());
  CHECK_FALSE(net(randn({4, 1, 4, 4})).requires_grad());
}

TEST_CASE_METHOD(NnFixture, "A module changes its dtype in place, with its gradients, and integers stay",
                 "[client][nn][A14][E44]") {
  Small net;
  net.conv.bias().requires_grad_(false);
  net(randn({4, 1, 4, 4})).sum().backward();
  const auto before = net.fc.weight().to_vector<double>(), gradient = net.fc.weight().grad().to_vector<double>();
  const nn::Module& same = net.to(float64);
  CHECK(same.is(net));
  CHECK(net.fc.weight().dtype() == float64);
  CHECK(net.fc.weight().to_vector<double>() == before);
  CHECK(net.fc.weight().grad().dtype() == float64);
  CHECK(net.fc.weight().grad().to_vector<double>() == gradient);
  CHECK(net.fc.weight().is_leaf());
  CHECK(net.fc.weight().requires_grad());
  CHECK_FALSE(net.conv.bias().requires_grad());
  CHECK(net.bn.running_mean().dtype() == float64);
  CHECK(net.bn.num_batches_tracked().dtype() == int64);
  CHECK(net(randn({2, 1, 4, 4}, {.dtype = float64})).dtype() == float64);
  const void* id = net.fc.weight().id();
  net.to("cpu", float64);
  CHECK(net.fc.weight().id() == id);
  nn::Module tied;
  tied.register_parameter("a", ones({2}));
  tied.add_module("again", nn::Module());
  tied.get_submodule("again").register_parameter("b", tied.get_parameter("a"));
  CHECK(tied.to(float64).parameters().size() == 1);
  CHECK(tied.get_parameter("a").id() == tied.get_parameter("again.b").id());
  CHECK(tied.get_parameter("again.b").dtype() == float64);
  CHECK_THROWS_MATCHES(net.to(int64), BadArgument,
                       Message("nn.Module.to only accepts floating point or complex dtypes, but got desired "
                               "dtype=torch.int64"));
}

TEST_CASE_METHOD(NnFixture, "Loading names what is missing, unexpected and of another size, and changes nothing",
                 "[client][nn][E43]") {
  Small net;
  const auto before = net.fc.bias().to_vector<float>();
  nn::StateDict<Tensor> dict;
  dict.set("fc.weight", ones({3, 8}));
  dict.set("fc.bias", ones({4}));
  dict.set("bn.odd", ones({1}));
  dict.set("odd", ones({1}));
  dict.set("conv.weight.deep", ones({1}));
  dict.set("bn.bias", ones({2}));
  dict.set("bn.weight", ones({2}));
  dict.set("bn.running_mean", ones({2}));
  dict.set("bn.running_var", ones({2}));
  CHECK_THROWS_MATCHES(
      net.load_state_dict(dict), BadArgument,
      Message("Error(s) in loading state_dict for Small:\n\tMissing key(s) in state_dict: \"conv.weight\", "
              "\"conv.bias\". \n\tUnexpected key(s) in state_dict: \"odd\", \"conv.weight.deep\", \"bn.odd\". \n\t"
              "size mismatch for fc.bias: copying a param with shape torch.Size([4]) from checkpoint, the shape in "
              "current model is torch.Size([3])."));
  CHECK(net.fc.bias().to_vector<float>() == before);
  dict.set("fc.bias", ones({3}, {.dtype = float64}));
  const auto odd = net.load_state_dict(dict, false);
  CHECK(odd.missing_keys == Names{"conv.weight", "conv.bias"});
  CHECK(odd.unexpected_keys == Names{"odd", "conv.weight.deep", "bn.odd"});
  CHECK(net.fc.bias().to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(net.fc.bias().dtype() == float32);
  CHECK(net.fc.bias().is_leaf());
}

TEST_CASE_METHOD(NnFixture, "Files of old without num_batches_tracked load, and it becomes 0", "[client][nn][E43]") {
  nn::BatchNorm2d a(2), b(2);
  a(randn({4, 2, 3, 3}));
  CHECK(a.num_batches_tracked().item<int64_t>() == 1);
  nn::StateDict<Tensor> dict;
  for (const auto& [name, t] : b.state_dict())
    if (name != "num_batches_tracked") dict.set(name, t);
  a.load_state_dict(dict);
  CHECK(a.num_batches_tracked().item<int64_t>() == 0);
  CHECK(a.running_mean().to_vector<float>() == std::vector<float>{0, 0});
}

TEST_CASE_METHOD(NnFixture, "Hooks run before and after, in order, until they are removed", "[client][nn][E1]") {
  nn::Linear fc(1, 1);
  nn::init::ones_(fc.weight());
  nn::init::zeros_(fc.bias());
  const auto x = full({1, 1}, 3.);
  std::string order;
  auto pre =
      fc.register_forward_pre_hook([&](const nn::Module& m, const Tensor&) { order += "pre " + m.kind() + " "; });
  auto post = fc.register_forward_hook([&](const nn::Module&, const Tensor&, const Tensor&) { order += "post "; });
  CHECK(fc(x).item<float>() == 3);
  CHECK(order == "pre Linear post ");
  pre.remove();
  pre.remove();
  fc(x);
  CHECK(order == "pre Linear post post ");
  post.remove();
  auto doubled = fc.register_forward_pre_hook([](const nn::Module&, const Tensor& v) { return v * 2; });
  auto plus = fc.register_forward_hook([](const nn::Module&, const Tensor& in, const Tensor& out) { return in + out; });
  CHECK(fc(x).item<float>() == 12);
  doubled.remove();
  CHECK(fc(x).item<float>() == 6);
  plus.remove();

  Small net;
  int calls = 0;
  auto handle = net.register_forward_pre_hook([&](const nn::Module&, const Tensor&) { ++calls; });
  net(randn({2, 1, 4, 4}));
  CHECK(calls == 1);
  {
    nn::Linear gone(1, 1);
    pre = gone.register_forward_pre_hook([](const nn::Module&, const Tensor&) {});
  }
  pre.remove();
  nn::HookHandle().remove();
}

TEST_CASE_METHOD(NnFixture, "A module prints as Python prints it", "[client][nn]") {
  std::ostringstream out;
  out << Small();
  CHECK(out.str() == R"(Small(
  (conv): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
  (bn): BatchNorm2d(2, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
  (fc): Linear(in_features=8, out_features=3, bias=True)
))");
  CHECK(Small().summary() == R"(Small
  conv (Conv2d)     weight [2, 1, 3, 3], bias [2]  20
  bn (BatchNorm2d)  weight [2], bias [2]            4
  fc (Linear)       weight [3, 8], bias [3]        27
Parameters: 51 (51 trainable); buffers: 5; bytes: 228
)");
  CHECK(nn::Linear(1000, 4, {.bias = false}).summary() ==
        "Linear\n  (Linear)  weight [4, 1000]  4,000\nParameters: 4,000 (4,000 trainable); buffers: 0; bytes: "
        "16,000\n");
}

TEST_CASE_METHOD(NnFixture, "A model may be as deep as memory allows", "[client][nn]") {
  constexpr int kDepth = 300000;
  {
    nn::Module root;
    nn::Module inner = root;
    for (int i = 0; i < kDepth; ++i) {
      nn::Module next;
      inner.add_module("m", next);
      inner = next;
    }
    inner = nn::Module();
    CHECK(root.eval().modules().size() == kDepth + 1);
    CHECK(root.parameters().empty());
    int seen = 0;
    root.apply([&](const nn::Module& m) { seen += !m.is_training(); });
    CHECK(seen == kDepth + 1);
  }
  nn::Module wide;
  for (int i = 0; i < 40; ++i) {  // 2^40 paths
    nn::Module outer;
    outer.add_module("a", wide);
    outer.add_module("b", wide);
    wide = outer;
  }
  CHECK(wide.modules().size() == 41);
  CHECK_THROWS_MATCHES(wide.state_dict(), BadArgument, Message("a model has at most 1000000 modules"));
}

TEST_CASE_METHOD(NnFixture, "A list of modules has their parameters, and its owner calls them", "[client][nn]") {
  struct Net : nn::Module {
    nn::ModuleList<nn::Linear> layers{nn::Linear(3, 3), nn::Linear(3, 3)};
    Net() : nn::Module("Net") { add_module("layers", layers); }
    Tensor operator()(Tensor x) const {
      for (const nn::Linear& layer : layers) x = relu(layer(x));
      return x;
    }
  };
  const Net net;
  net.layers.append(nn::Linear(3, 2, {.bias = false}));
  CHECK(first(net.named_parameters()) ==
        Names{"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "layers.2.weight"});
  CHECK(net.layers.size() == 3);
  CHECK(net(ones({5, 3})).shape() == Shape{5, 2});
  CHECK(net.layers[-1].is(net.layers[2]));
  const auto same = net.layers;  // a second handle
  same.append(nn::Linear(2, 2));
  CHECK(net.layers.size() == 4);
  CHECK_THROWS_MATCHES(net.layers[4], IndexOutOfRange, Message("index 4 is out of range"));
  CHECK_THROWS_MATCHES(net.layers[-5], IndexOutOfRange, Message("index -5 is out of range"));
  CHECK(nn::ModuleList<nn::Linear>{}.str() == "ModuleList()");
  CHECK(nn::ModuleList{nn::Linear(3, 2)}.str() ==
        "ModuleList(\n  (0): Linear(in_features=3, out_features=2, bias=True)\n)");
}
