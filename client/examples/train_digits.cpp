// Trains a convolutional net on handwritten digits, on a server: batch norm, Adam, a falling learning rate. The images
// go there once; an epoch is a few messages, however many steps it has, and what comes back is two numbers.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "client/examples/arguments.h"
#include "client/examples/digits.h"
#include "client/examples/digits_net.h"
#include "client/examples/svg.h"
#include "client/gradwire.h"
#include "client/optim/optim.h"

using namespace gradwire;

namespace {

constexpr const char* kHelp = R"(train_digits: trains a classifier of handwritten digits on a Gradwire server.
  --server ADDRESS  host:port or unix:PATH; left out: starts a gradwired of its own
  --data FILE       64 pixels and the digit a line (default: the examples' digits.csv); every fifth line is a test
  --epochs N        passes over the training images (default: 20)
  --seed N          of weights and order (default: 1)
  --seeds N         trains with the seeds 1 to N, and tells the median and the worst
  --svg FILE        draws loss and accuracy of each epoch
  --weights FILE    writes the trained weights as safetensors
  --at-least P      exit status 1 if a run recognises less than P percent of the test images
  --median P        exit status 1 if the median of the runs is less
)";

struct Options {
  std::string server = "local", data = DIGITS_CSV, svg, weights;
  int epochs = 20, seed = 1, seeds = 0;
  double at_least = 0, median = 0;
};

void show_progress(int seed, int epoch, int epochs, float loss, float accuracy) {
  const int done = 40 * (epoch + 1) / epochs;
  std::fprintf(stderr, "\r[%s%s] seed %d, epoch %d of %d: loss %.4f, %.2f %% ",
               std::string(static_cast<size_t>(done), '#').c_str(),
               std::string(static_cast<size_t>(40 - done), '.').c_str(), seed, epoch + 1, epochs,
               static_cast<double>(loss), static_cast<double>(accuracy));
  if (epoch + 1 == epochs) std::fprintf(stderr, "\n");
}

/// Trains one net and returns the percentage of test images that it recognises.
double train(const Client& client, const Digits& digits, const Options& options, int seed) {
  auto session = client.open({.seed = static_cast<uint64_t>(seed)});
  set_default_session(session);
  const DigitsPart train(digits, false), test(digits, true);
  constexpr int64_t kBatch = 64;

  DigitsNet<Tensor> model(session);
  optim::Adam optimizer(model.parameters(), {.lr = 0.004});
  optim::CosineAnnealingLR schedule(optimizer, options.epochs);
  std::vector<float> losses, accuracies;
  const auto start = std::chrono::steady_clock::now();

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const auto order = randperm(train.count);
    auto total = zeros({});
    int64_t steps = 0;
    for (int64_t i = 0; i < train.count; i += kBatch, ++steps) {
      const auto chosen = order[Slice{i, std::min(i + kBatch, train.count)}];
      optimizer.zero_grad();
      const auto loss = cross_entropy(model(train.images[chosen]), train.labels[chosen]);
      loss.backward();
      optimizer.step();
      total += loss.detach();
    }
    schedule.step();

    no_grad scope;
    model.eval();
    const auto right = (model(test.images).argmax(1) == test.labels).to(DType::float32).mean() * 100;
    model.train();
    losses.push_back(total.item<float>() / static_cast<float>(steps));
    accuracies.push_back(right.item<float>());
    if (::isatty(2)) show_progress(seed, epoch, options.epochs, losses.back(), accuracies.back());
  }

  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("loss %.4f -> %.4f in %d epochs, %.1f s; %.2f %% of %lld unseen digits recognised (seed %d)\n",
              static_cast<double>(losses.front()), static_cast<double>(losses.back()), options.epochs, seconds,
              static_cast<double>(accuracies.back()), static_cast<long long>(test.count), seed);
  if (!options.svg.empty()) {
    if (!write_curves(options.svg, "Digits", "epoch",
                      {{"loss on the training images", losses}, {"% of the test images recognised", accuracies}}))
      throw std::runtime_error("cannot write " + options.svg);
    std::printf("curves: %s\n", options.svg.c_str());
  }
  if (!options.weights.empty()) {
    model.save(options.weights);
    std::printf("weights: %s\n", options.weights.c_str());
  }
  std::fflush(stdout);
  return static_cast<double>(accuracies.back());
}

int run(const Options& options) {
  const Digits digits = read_digits(options.data);
  const auto client = connect(options.server);
  std::vector<double> results;
  if (options.seeds == 0) results.push_back(train(client, digits, options, options.seed));
  for (int seed = 1; seed <= options.seeds; ++seed) results.push_back(train(client, digits, options, seed));
  std::sort(results.begin(), results.end());
  const double worst = results.front(), median = results[results.size() / 2];
  if (options.seeds) std::printf("median %.2f %%, worst %.2f %% of %d seeds\n", median, worst, options.seeds);
  return worst >= options.at_least && median >= options.median ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  return run_example("train_digits", kHelp, argc, argv,
                     {{"--server", [&](const std::string& v) { o.server = v; }},
                      {"--data", [&](const std::string& v) { o.data = v; }},
                      {"--svg", [&](const std::string& v) { o.svg = v; }},
                      {"--weights", [&](const std::string& v) { o.weights = v; }},
                      {"--epochs", [&](const std::string& v) { o.epochs = count_of(v); }},
                      {"--seed", [&](const std::string& v) { o.seed = count_of(v); }},
                      {"--seeds", [&](const std::string& v) { o.seeds = count_of(v); }},
                      {"--at-least", [&](const std::string& v) { o.at_least = std::stod(v); }},
                      {"--median", [&](const std::string& v) { o.median = std::stod(v); }}},
                     [&] { return run(o); });
}
