// A second loss made of gradients: the 2-norm of a ResNet-18's parameter gradients, and the gradient of that norm,
// which goes through every layer's double backward. All on a server; this program never holds more than a few numbers.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "client/examples/arguments.h"
#include "client/examples/resnet.h"
#include "client/gradwire.h"

using namespace gradwire;

namespace {

constexpr const char* kHelp = R"(gradient_penalty: ResNet-18, the norm of its gradients, and the gradient of that norm.
  --server ADDRESS  host:port or unix:PATH; left out: starts a gradwired of its own
  --size N          images of N x N pixels (default: 64); 224 has 1000 classes, others 10
  --dtype NAME      float32 (default) or float64
  --steps N         repeats the computation, to time it (default: 1)
  --values FILE     writes scores, loss, norm and the sums of all gradients, one a line
)";

struct Options {
  std::string server = "local", values;
  DType dtype = DType::float32;
  int64_t size = 64;
  int steps = 1;
};

/// offset + scale * sin(frequency * i + phase) over the elements of a tensor, computed in float64.
Tensor wave(const Shape& shape, double scale, double phase, double frequency, double offset) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  const auto i = arange(0, count, {.dtype = DType::float64});
  return (sin(i * frequency + phase) * scale + offset).reshape(shape);
}

/// Values that every run has, whatever the library: those of tests/conformance/README.md.
void set_values(const ResNet18<Tensor>& model) {
  no_grad scope;
  int number = 0;
  for (auto& [name, p] : model.named_parameters()) {
    const Shape shape = p.shape();
    double scale = 0.05, offset = 0;
    if (shape.size() > 1) {
      int64_t fan_in = 1;
      for (size_t d = 1; d < shape.size(); ++d) fan_in *= shape[d];
      scale = std::sqrt(2. / static_cast<double>(fan_in));
    } else if (name.ends_with("weight")) {
      scale = 0.1, offset = 1;
    }
    copy_(p, wave(shape, scale, 1.3 * number++, 0.7, offset));
  }
}

struct Sums {
  std::string name;
  Future<double> sum, absolute;
};
Sums sums_of(const std::string& name, const Tensor& gradient) {
  no_grad scope;
  const Tensor g = gradient.to(DType::float64);
  return {name, g.sum().async_item<double>(), g.abs().sum().async_item<double>()};
}

int run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  auto client =
      connect(options.server, {.session = {.dtype = options.dtype, .seed = 1, .memory_limit = int64_t{4} << 30}});
  auto& session = client.session();

  ResNet18<Tensor> model(session, options.size == 224 ? 1000 : 10);
  set_values(model);
  const auto x = wave({2, 3, options.size, options.size}, 1, 0, 0.01, 0).to(options.dtype);
  const auto target = zeros({2}, {.dtype = DType::int64});
  const auto parameters = model.named_parameters();
  const auto tensors = model.parameters();

  Tensor scores, loss, norm;
  std::vector<Tensor> grads;
  double seconds = 0;
  for (int step = 0; step < options.steps; ++step) {
    model.zero_grad();
    session.sync();
    const auto start = Clock::now();
    scores = model(x);
    loss = nll_loss(log_softmax(scores, 1), target);
    grads = grad(loss, tensors, {.create_graph = true});
    std::vector<Tensor> squares;
    for (const auto& g : grads) squares.push_back((g * g).sum());
    norm = stack(squares).sum().sqrt();
    norm.backward();
    session.sync();
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }

  std::printf("loss %.9g, norm of the gradients %.9g\n", loss.item<double>(), norm.item<double>());
  int64_t peak = 0;
  for (const auto& s : client.sessions()) {
    if (s.id == session.id()) peak = s.peak_bytes;
  }
  std::printf("%.3f s a step, at most %.1f MiB of tensors on the server\n", seconds,
              static_cast<double>(peak) / (1 << 20));

  if (options.values.empty()) return 0;
  std::vector<Sums> first, second;
  for (size_t i = 0; i < parameters.size(); ++i) {
    first.push_back(sums_of(parameters[i].first, grads[i]));
    second.push_back(sums_of(parameters[i].first, parameters[i].second.grad()));
  }
  std::ofstream out(options.values);
  out.precision(17);
  out << "loss " << loss.item<double>() << "\ngrad_norm " << norm.item<double>() << "\n";
  for (const double score : scores.to_vector<double>()) out << "output " << score << "\n";
  for (size_t i = 0; i < first.size(); ++i) {
    out << "grad_sum:" << first[i].name << " " << first[i].sum.get() << "\n"
        << "grad_abs_sum:" << first[i].name << " " << first[i].absolute.get() << "\n"
        << "penalty_grad_sum:" << second[i].name << " " << second[i].sum.get() << "\n"
        << "penalty_grad_abs_sum:" << second[i].name << " " << second[i].absolute.get() << "\n";
  }
  if (!out.flush()) throw std::runtime_error("cannot write " + options.values);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  return run_example("gradient_penalty", kHelp, argc, argv,
                     {{"--server", [&](const std::string& v) { o.server = v; }},
                      {"--size", [&](const std::string& v) { o.size = count_of(v); }},
                      {"--steps", [&](const std::string& v) { o.steps = count_of(v); }},
                      {"--values", [&](const std::string& v) { o.values = v; }},
                      {"--dtype",
                       [&](const std::string& v) {
                         if (v != "float32" && v != "float64")
                           throw std::runtime_error("--dtype is float32 or float64");
                         o.dtype = v == "float32" ? DType::float32 : DType::float64;
                       }}},
                     [&] { return run(o); });
}
