// Trains one net on several servers: each computes the gradients of its part of every batch, the servers average them,
// and all make the same step. As many ranks as there are, the result is that of one server with the whole batch.
//
//   gradwire launch --servers A,B train_digits_ddp
#include <cstdio>
#include <cstdlib>

#include "client/distributed.h"
#include "client/examples/arguments.h"
#include "client/examples/digits.h"
#include "client/gradwire.h"
#include "client/nn/nn.h"

using namespace gradwire;
namespace dist = gradwire::distributed;

namespace {

constexpr const char* kHelp =
    R"(train_digits_ddp: data-parallel training, started by `gradwire launch`; alone: on one server.
  --data FILE     64 pixels and the digit a line (default: the examples' digits.csv)
  --epochs N      passes over the training images (default: 4)
  --batch N       images of a batch, of all ranks together (default: 128)
  --weights FILE  rank 0 writes the trained weights as safetensors
)";

struct Options {
  std::string data = DIGITS_CSV, weights;
  int epochs = 4;
  int64_t batch = 128;
};

/// Without batch norm, which would compute with the statistics of a rank's part.
class Net : public nn::Module {
 public:
  Net() : nn::Module("Net") {
    add_module("conv1", conv1_);
    add_module("conv2", conv2_);
    add_module("fc", fc_);
  }
  Tensor operator()(const Tensor& x) const {
    return fc_(flatten(max_pool2d(relu(conv2_(max_pool2d(relu(conv1_(x)), 2))), 2), 1));
  }

 private:
  nn::Conv2d conv1_{1, 16, 3, {.padding = 1}}, conv2_{16, 32, 3, {.padding = 1}};
  nn::Linear fc_{32 * 2 * 2, 10};
};

int run(const Options& options) {
  // float64 shows that nothing but rounding differs from one server.
  const auto client = connect("", {.session = {.dtype = float64, .seed = 1}});
  int64_t rank = 0, world = 1;
  if (std::getenv("WORLD_SIZE")) {
    dist::init_process_group();
    rank = dist::get_rank(), world = dist::get_world_size();
  }
  if (options.batch % world) throw std::runtime_error("the ranks cannot share a batch equally");

  const Digits digits = read_digits(options.data);
  const DigitsPart train(digits, false), test(digits, true);
  DistributedSampler sampler(train.count, {.num_replicas = world, .rank = rank, .drop_last = true});
  DataLoader loader(TensorDataset(train.images.to(float64), train.labels),
                    {.batch_size = options.batch / world, .sampler = &sampler, .drop_last = true});

  Net net;
  std::optional<dist::DistributedDataParallel<Net>> parallel;
  if (world > 1) parallel.emplace(net);
  optim::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(static_cast<uint64_t>(epoch));
    auto total = zeros({});
    for (const auto& [images, labels] : loader) {
      optimizer.zero_grad();
      const auto loss = cross_entropy(parallel ? (*parallel)(images) : net(images), labels);
      loss.backward();
      optimizer.step();
      total += loss.detach();
    }
    no_grad scope;
    total /= static_cast<double>(loader.size() * world);
    if (world > 1) dist::all_reduce(total);
    const auto right = (net(test.images.to(float64)).argmax(1) == test.labels).to(float64).mean() * 100;
    if (rank == 0)
      std::printf("epoch %d: loss %.6f, %.2f %% of the unseen digits recognised\n", epoch + 1, total.item<double>(),
                  right.item<double>());
  }
  if (rank == 0 && !options.weights.empty()) net.save(options.weights);
  if (world > 1) dist::barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  return run_example("train_digits_ddp", kHelp, argc, argv,
                     {{"--data", [&](const std::string& v) { o.data = v; }},
                      {"--weights", [&](const std::string& v) { o.weights = v; }},
                      {"--epochs", [&](const std::string& v) { o.epochs = count_of(v); }},
                      {"--batch", [&](const std::string& v) { o.batch = count_of(v); }}},
                     [&] { return run(o); });
}
