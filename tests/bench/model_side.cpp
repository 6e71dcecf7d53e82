// Whole training steps, the same text in this process and through the SDK: model_side [ADDRESS of a server that runs].

#include <cmath>

#include "client/examples/digits_net.h"
#include "client/examples/resnet.h"
#include "client/gradwire.h"
#include "client/optim/optim.h"
#include "engine/apply.h"
#include "engine/autograd.h"
#include "tests/bench/side.h"
#include "tests/support/in_process.h"

namespace {

using namespace gradwire;
using bench::Arguments;
using bench::Work;

double number(const Tensor& t) { return t.item<double>(); }
double number(const engine::Tensor& t) { return engine::item(t).real(); }
void wait(Session& s) { s.sync(); }
void wait(engine::Context&) {}

/// scale * sin(frequency * i): what torch_models.py has too, whatever the library's own initialisation.
template <class T, class M> T wave(M& m, const Shape& shape, double scale, double frequency = 0.7) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  const T i = arange(m, 0, count, {.dtype = DType::float64});
  return to((sin(i * frequency) * scale).reshape(shape), DType::float32);
}

template <class T, class M> void set_values(M& m, const nn::basic::Module<T>& model) {
  for (auto& [name, p] : model.named_parameters()) {
    const Shape shape = p.shape();
    double scale = 0.05;
    if (shape.size() > 1) {
      int64_t fan_in = 1;
      for (size_t d = 1; d < shape.size(); ++d) fan_in *= shape[d];
      scale = std::sqrt(2. / static_cast<double>(fan_in));
    } else if (name.find("bn") != std::string::npos && name.ends_with("weight")) {
      continue;  // ones
    }
    copy_(p.detach(), wave<T>(m, shape, scale));
  }
}

template <class T> T norm_of(const T& loss, const std::vector<T>& parameters) {
  std::vector<T> squares;
  for (const T& g : grad(loss, parameters, {.create_graph = true})) squares.push_back((g * g).sum());
  return stack(squares).sum().sqrt();
}

/// A step returns its loss; `wanted` rounds of it are one round of the work.
template <class M, class F> Work steps(M& m, int count, F step) {
  auto round = [step, count, &m] {
    for (int i = 1; i < count; ++i) step();
    return number(step());
  };
  return {[round, &m] { round(), wait(m); }, round};
}

template <class T, class M> Work train(M& m, auto model, T x, T target, double lr, bool penalty, int count = 1) {
  auto optimizer = std::make_shared<optim::basic::SGD<T>>(optim::basic::SGD<T>(model.parameters(), {.lr = lr}));
  return steps(m, count, [=] {
    optimizer->zero_grad();
    const T loss = nll_loss(log_softmax(model(x), 1), target);
    if (!penalty) {
      loss.backward();
    } else {
      norm_of(loss, model.parameters()).backward();
    }
    optimizer->step();
    return loss.detach();
  });
}

template <class T, class M> Work mlp(M& m, bool penalty) {
  namespace nn = nn::basic;
  nn::Sequential<T> model(nn::Linear<T>(m, 784, 512), nn::ReLU<T>(), nn::Linear<T>(m, 512, 512), nn::ReLU<T>(),
                          nn::Linear<T>(m, 512, 10));
  set_values(m, model);
  return train<T>(m, model, wave<T>(m, {128, 784}, 1, 0.01), arange(m, 128).remainder(10), penalty ? 1e-4 : 0.01,
                  penalty);
}

template <class T, class M> Work resnet(M& m, bool penalty) {
  ResNet18<T> model(m, 1000);
  set_values(m, model);
  return train<T>(m, model, wave<T>(m, {2, 3, 224, 224}, 1, 0.01), zeros(m, {2}, {.dtype = DType::int64}),
                  penalty ? 1e-7 : 1e-4, penalty);
}

/// Ten steps of train_digits at a batch of 128, and its loss.
template <class T, class M> Work digits(M& m) {
  DigitsNet<T> model(m);
  set_values(m, model);
  const T images = wave<T>(m, {1280, 1, 8, 8}, 0.5, 0.03), labels = arange(m, 1280).remainder(10);
  auto optimizer = std::make_shared<optim::basic::Adam<T>>(optim::basic::Adam<T>(model.parameters(), {.lr = 1e-3}));
  return steps(m, 10, [=, at = std::make_shared<int64_t>(0)] {
    const T chosen = arange(images.maker(), *at * 128, *at * 128 + 128);
    *at = (*at + 1) % 10;
    optimizer->zero_grad();
    const T loss = cross_entropy(model(images[chosen]), labels[chosen]);
    loss.backward();
    optimizer->step();
    return loss.detach();
  });
}

template <class T, class M> int serve(M& m) {
  return bench::serve({
      {"mlp", [&](const Arguments&) { return mlp<T>(m, false); }},
      {"mlp_double", [&](const Arguments&) { return mlp<T>(m, true); }},
      {"resnet", [&](const Arguments&) { return resnet<T>(m, false); }},
      {"resnet_penalty", [&](const Arguments&) { return resnet<T>(m, true); }},
      {"digits", [&](const Arguments&) { return digits<T>(m); }},
  });
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 2) return std::fprintf(stderr, "usage: model_side [ADDRESS]\n"), 2;
  if (argc == 2) {
    const auto client = connect(argv[1], {.session = {.memory_limit = int64_t{4} << 30}});
    return serve<Tensor>(client.session());
  }
  const auto backend = engine::make_cpu_backend();
  engine::Context cx{*backend, {}};
  return serve<engine::Tensor>(cx);
} catch (const std::exception& e) {
  std::printf("error %s\n", e.what());
  return 1;
}
