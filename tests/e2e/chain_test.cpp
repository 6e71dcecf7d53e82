// The longest graph, through the wire.
#include <pthread.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "client/gradwire.h"

namespace {

#ifdef GRADWIRE_TSAN
constexpr rlim_t kStack = 2 << 20;  // its own frames are larger
#else
constexpr rlim_t kStack = 256 << 10;
#endif
constexpr int kAdditions = 1'000'000;

void* chain(void* outcome) {
  auto& said = *static_cast<std::string*>(outcome);
  try {
    auto client = gradwire::connect("local", {.server_args = {"--session-memory", "4294967296"}});
    {
      auto x = gradwire::ones({10}, {.requires_grad = true}), b = gradwire::full({10}, 0.5);
      auto y = x;
      for (int i = 0; i < kAdditions; ++i) y = y + b;
      auto sum = y.sum();
      sum.backward();
      if (y.to_vector<float>() != std::vector<float>(10, 500001.0f)) said += "the sum is wrong; ";
      if (x.grad().to_vector<float>() != std::vector<float>(10, 1.0f)) said += "the gradient is wrong; ";
    }
    // The session goes on after the chain has been freed.
    auto big = gradwire::zeros({1 << 20});
    if (big.sum().item<float>() != 0) said += "the session is not well; ";
  } catch (const gradwire::Error& e) {
    said += e.what();
  }
  return nullptr;
}

}  // namespace

TEST_CASE("A chain of a million additions goes through the wire and back on stacks of 256 KiB", "[e2e][T22]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_STACK, &before) == 0);
  const rlimit small{kStack, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_STACK, &small) == 0);  // the server and all its threads take it over
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, kStack);
  pthread_t thread;
  std::string said;
  REQUIRE(pthread_create(&thread, &attr, chain, &said) == 0);
  pthread_join(thread, nullptr);
  setrlimit(RLIMIT_STACK, &before);
  CHECK(said == "");
}
