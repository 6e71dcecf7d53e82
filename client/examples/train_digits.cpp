// Trains a classifier of handwritten digits on a server: two layers, plain stochastic gradient descent. One epoch is
// a few messages, however many steps it has: nothing here waits for the server but the loss at its end.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <numeric>
#include <random>
#include <sstream>

#include "client/examples/svg.h"
#include "client/gradwire.h"

using namespace gradwire;

namespace {

constexpr const char* kHelp = R"(train_digits: trains a classifier of handwritten digits on a Gradwire server.
  --server ADDRESS  host:port or unix:PATH; left out: starts a gradwired of its own
  --data FILE       64 pixels and the digit a line (default: the examples' digits.csv)
  --epochs N        passes over the training images (default: 30)
  --svg FILE        draws the loss of each epoch
  --at-least P      exit status 1 if less than P percent of the test images are recognised
)";

struct Options {
  std::string server = "local", data = DIGITS_CSV, svg;
  int epochs = 30;
  double at_least = 0;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help") {
      std::cout << kHelp;
      std::exit(0);
    }
    if (i + 1 == argc) throw std::runtime_error(name + " needs a value; see --help");
    const std::string value = argv[++i];
    if (name == "--server")
      o.server = value;
    else if (name == "--data")
      o.data = value;
    else if (name == "--svg")
      o.svg = value;
    else if (name == "--epochs")
      o.epochs = std::max(1, std::stoi(value));
    else if (name == "--at-least")
      o.at_least = std::stod(value);
    else
      throw std::runtime_error("unknown option " + name + "; see --help");
  }
  return o;
}

struct Digits {
  std::vector<float> pixels;  // 64 an image, 0 to 1
  std::vector<int64_t> labels;
  int64_t count() const { return static_cast<int64_t>(labels.size()); }
};

Digits read(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file);
  Digits d;
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    for (std::string n; std::getline(numbers, n, ',');) d.pixels.push_back(std::stof(n) / 16);
    d.labels.push_back(static_cast<int64_t>(d.pixels.back() * 16));
    d.pixels.pop_back();
    if (d.pixels.size() != 64 * d.labels.size()) throw std::runtime_error("a line of " + file + " has not 65 numbers");
  }
  return d;
}

/// 64 pixels -> 64 hidden -> the logarithm of the probability of each digit.
struct Model {
  Tensor w1 = (randn({64, 64}) * 0.18).requires_grad_(), b1 = zeros({64}, {.requires_grad = true});
  Tensor w2 = (randn({64, 10}) * 0.18).requires_grad_(), b2 = zeros({10}, {.requires_grad = true});

  Tensor operator()(const Tensor& x) const { return log_softmax(matmul(relu(matmul(x, w1) + b1), w2) + b2, 1); }
  std::vector<Tensor> parameters() const { return {w1, b1, w2, b2}; }
};

void show_progress(int epoch, int epochs, float loss) {
  const int done = 40 * (epoch + 1) / epochs;
  std::fprintf(stderr, "\r[%s%s] epoch %d of %d, loss %.4f ", std::string(static_cast<size_t>(done), '#').c_str(),
               std::string(static_cast<size_t>(40 - done), '.').c_str(), epoch + 1, epochs, static_cast<double>(loss));
  if (epoch + 1 == epochs) std::fprintf(stderr, "\n");
}

int run(const Options& options) {
  const Digits digits = read(options.data);
  auto client = connect(options.server, {.session = {.seed = 1}});

  const int64_t train = digits.count() * 5 / 6, batch = 50;
  const auto images = from_span(digits.pixels, {digits.count(), 64});
  const auto labels = from_span(digits.labels);
  Model model;
  std::vector<int64_t> order(static_cast<size_t>(train));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 shuffle(1);
  std::vector<float> curve;

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), shuffle);
    auto total = zeros({});
    for (int64_t i = 0; i + batch <= train; i += batch) {
      const auto chosen =
          from_span(std::span(order).subspan(static_cast<size_t>(i), static_cast<size_t>(batch)), {batch});
      const auto loss = nll_loss(model(images[chosen]), labels[chosen]);
      loss.backward();
      no_grad scope;
      total += loss;
      for (auto& p : model.parameters()) p -= 0.2 * p.grad();
      zero_grad(model.parameters());
    }
    curve.push_back(total.item<float>() / static_cast<float>(train / batch));
    if (::isatty(2)) show_progress(epoch, options.epochs, curve.back());
  }

  no_grad scope;
  const auto scores = model(images[Slice{.start = train}]).to_vector<float>();
  int64_t right = 0;
  for (int64_t i = train; i < digits.count(); ++i) {
    const auto first = scores.begin() + (i - train) * 10;
    right += std::max_element(first, first + 10) - first == digits.labels[static_cast<size_t>(i)];
  }
  const double percent = 100. * static_cast<double>(right) / static_cast<double>(digits.count() - train);
  std::printf("loss %.4f -> %.4f in %d epochs; %.1f %% of %lld unseen digits recognised\n",
              static_cast<double>(curve.front()), static_cast<double>(curve.back()), options.epochs, percent,
              static_cast<long long>(digits.count() - train));
  if (!options.svg.empty()) {
    if (!write_curve(options.svg, "Digits: loss on the training images", "epoch", curve))
      throw std::runtime_error("cannot write " + options.svg);
    std::printf("loss curve: %s\n", options.svg.c_str());
  }
  return percent >= options.at_least ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const Error& e) {
    std::cerr << "train_digits: " << name(e.code()) << ": " << e.what();
    if (e.where().line) std::cerr << " (" << e.where().file << ":" << e.where().line << ")";
    std::cerr << "\n";
  } catch (const std::exception& e) {
    std::cerr << "train_digits: " << e.what() << "\n";
  }
  return 2;
}
