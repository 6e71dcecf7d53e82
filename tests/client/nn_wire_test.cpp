// What models say to the server.
#include <catch2/catch_test_macros.hpp>

#include "client/gradwire.h"
#include "client/nn/nn.h"
#include "tests/client/fake.h"

using namespace gradwire;

TEST_CASE("Building, running and training a model ask nothing of the server", "[client][nn][batch]") {
  Fake fake;
  auto client = connect(fake.address(), {.timeout = std::chrono::seconds(20)});
  fake.hold();  // whatever waits fails
  nn::Sequential model(nn::Conv2d(1, 4, 3, {.padding = "same", .padding_mode = "circular"}), nn::BatchNorm2d(4),
                       nn::ReLU({.inplace = true}), nn::MaxPool2d(2), nn::ConvTranspose2d(4, 4, 2),
                       nn::InstanceNorm2d(4), nn::Dropout(), nn::GroupNorm(2, 4), nn::AdaptiveAvgPool2d(2),
                       nn::Flatten(), nn::LayerNorm(16), nn::Linear(16, 3), nn::LogSoftmax(1));
  const auto x = randn({2, 1, 8, 8}), y = zeros({2}, {.dtype = int64});
  for (int i = 0; i < 3; ++i) {
    const auto loss = nn::NLLLoss()(model(x), y);
    model.zero_grad();
    loss.backward();
  }
  model.eval();
  model(x);
  model.requires_grad_(false);
  const auto state = model.state_dict();
  CHECK(state.size() == 15);
  fake.let_go();
  client.session().sync();
  size_t calls = 0, fetches = 0;
  for (const auto& batch : fake.batches()) calls += batch.calls.size(), fetches += batch.fetches.size();
  CHECK(calls > 60);
  CHECK(fetches == 0);
}

TEST_CASE("Knowing many tensors costs one round trip", "[client][nn][batch]") {
  Fake fake;
  auto client = connect(fake.address(), {.timeout = std::chrono::seconds(20)});
  std::vector<Tensor> all;
  for (int i = 0; i < 200; ++i) all.push_back(tensor({1., 2.}));
  client.session().sync();
  const size_t before = fake.batches().size();
  CHECK(nn::TensorTraits<Tensor>::infos(all).size() == 200);
  size_t bytes = 0;
  nn::TensorTraits<Tensor>::read(all, [&](size_t, std::span<const std::byte> b) { bytes += b.size(); });
  CHECK(bytes == 1600);
  CHECK(fake.batches().size() - before < 20);
}
