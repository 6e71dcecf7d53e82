// One text of a model, on an engine in this process and on a server: the same bytes.
#ifdef _OPENMP
#include <omp.h>
#endif

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "client/gradwire.h"
#include "client/nn/nn.h"
#include "engine/backend.h"
#include "tests/support/in_process.h"

using namespace gradwire;

namespace {

template <class T> struct Block : nn::basic::Module<T> {
  nn::basic::Conv2d<T> conv1, conv2;
  nn::basic::BatchNorm2d<T> bn1, bn2;
  nn::basic::Sequential<T> downsample;

  Block(nn::MakerOf<T>& m, int64_t in, int64_t out, int64_t stride)
      : nn::basic::Module<T>("Block"),
        conv1(m, in, out, 3, {.stride = stride, .padding = 1, .bias = false}),
        conv2(m, out, out, 3, {.padding = 1, .bias = false}),
        bn1(m, out),
        bn2(m, out) {
    this->add_module("conv1", conv1);
    this->add_module("bn1", bn1);
    this->add_module("conv2", conv2);
    this->add_module("bn2", bn2);
    if (stride != 1) {
      downsample.append(nn::basic::Conv2d<T>(m, in, out, 1, {.stride = stride, .bias = false}));
      downsample.append(nn::basic::BatchNorm2d<T>(m, out));
      this->add_module("downsample", downsample);
    }
  }
  T operator()(const T& x) const {
    const T y = bn2(conv2(relu(bn1(conv1(x)))));
    return relu(y + (downsample.size() ? downsample(x) : x));
  }
};

/// A residual net with all kinds of layers in it.
template <class T> struct Net : nn::basic::Module<T> {
  nn::basic::Conv2d<T> conv1;
  nn::basic::Sequential<T> stem, layers;
  nn::basic::GroupNorm<T> gn;
  nn::basic::AdaptiveAvgPool2d<T> pool;
  nn::basic::Dropout<T> dropout;
  nn::basic::Linear<T> fc;

  explicit Net(nn::MakerOf<T>& m = nn::default_maker<T>())
      : nn::basic::Module<T>("Net"),
        conv1(m, 3, 8, 5, {.stride = 2, .padding = 2, .bias = false}),
        stem(nn::basic::BatchNorm2d<T>(m, 8), nn::basic::ReLU<T>(),
             nn::basic::MaxPool2d<T>(3, {.stride = 2, .padding = 1})),
        layers(Block<T>(m, 8, 8, 1), Block<T>(m, 8, 16, 2)),
        gn(m, 4, 16),
        pool(1),
        dropout(0.25),
        fc(m, 16, 10) {
    this->add_module("conv1", conv1);
    this->add_module("stem", stem);
    this->add_module("layers", layers);
    this->add_module("gn", gn);
    this->add_module("pool", pool);
    this->add_module("dropout", dropout);
    this->add_module("fc", fc);
  }
  T operator()(const T& x) const { return fc(dropout(flatten(pool(gn(layers(stem(conv1(x))))), 1))); }
};

struct Bytes {
  std::string name;
  std::vector<std::byte> bytes;
  bool operator==(const Bytes&) const = default;
};

template <class T> void take(std::vector<Bytes>& to, const std::string& name, const std::vector<T>& tensors) {
  nn::TensorTraits<T>::read(tensors, [&](size_t i, std::span<const std::byte> b) {
    to.push_back({name + " " + std::to_string(i), {b.begin(), b.end()}});
  });
}

/// Three steps of training and an evaluation: outputs, gradients, the clipped norm, parameters and running statistics.
template <class T> std::vector<Bytes> run(nn::MakerOf<T>& maker) {
  manual_seed(maker, 11);
  std::vector<Bytes> seen;
  Net<T> net(maker);
  std::vector<std::string> names;
  for (const auto& e : net.state_dict()) names.push_back(e.first);
  for (const auto& n : names) seen.push_back({n, {}});
  take<T>(seen, "initial", net.parameters());
  const T images = randn(maker, {6, 3, 32, 32}), labels = randint(maker, 10, {6});
  const nn::basic::CrossEntropyLoss<T> loss_of;
  for (int step = 0; step < 3; ++step) {
    const T scores = net(images);
    const T loss = loss_of(scores, labels);
    net.zero_grad();
    loss.backward();
    const T norm = nn::utils::clip_grad_norm_(net.parameters(), 0.5);
    take<T>(seen, "step " + std::to_string(step), {scores, loss, norm});
    const std::vector<T> grads = nn::TensorTraits<T>::grads(net.parameters());
    take<T>(seen, "gradients", grads);
    typename nn::TensorTraits<T>::NoGrad scope(maker);
    const std::vector<T> all = net.parameters();
    for (size_t i = 0; i < all.size(); ++i) all[i].sub_(grads[i] * 0.1);
  }
  take<T>(seen, "buffers", net.buffers());
  net.eval();
  take<T>(seen, "evaluated", {net(images)});
  net.to(DType::float64);
  take<T>(seen, "in float64", {net(images.to(DType::float64))});
  return seen;
}

TEST_CASE("A model computes the same bytes in this process and on a server", "[e2e][nn][E45][E46]") {
  auto client = connect("local", {.server_args = {"--threads", "2"}});
  const auto remote = run<Tensor>(client.session());

#ifdef _OPENMP
  omp_set_num_threads(2);
#endif
  const auto backend = engine::make_cpu_backend();
  engine::Context cx(*backend, {});
  const auto local = run<engine::Tensor>(cx);

  REQUIRE(remote.size() == local.size());
  for (size_t i = 0; i < remote.size(); ++i) {
    INFO(local[i].name);
    CHECK(remote[i].name == local[i].name);
    CHECK(remote[i].bytes == local[i].bytes);
  }
  CHECK(remote[0].name == "conv1.weight");
  CHECK(remote.size() == 157);
}

}  // namespace
