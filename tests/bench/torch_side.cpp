// libtorch in this process: the peer that a C++ program has today.

#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <iterator>

#include "tests/bench/side.h"

namespace {

using bench::Arguments;
using bench::Work;

at::Tensor make(at::IntArrayRef shape, int salt) {
  size_t n = 1;
  for (const int64_t d : shape) n *= static_cast<size_t>(d);
  auto v = bench::numbers(n, salt);
  return torch::from_blob(v.data(), shape, torch::kFloat32).clone();
}

Work chain(bool record, bool backward) {
  const auto x = make({bench::kSmall}, 1).set_requires_grad(record), b = make({bench::kSmall}, 2);
  auto y = [x, b, record] {
    at::AutoGradMode mode(record);
    auto y = x;
    for (int i = 0; i < bench::kChain; ++i) y = y + b;
    return y;
  };
  if (!backward) return {[y] { y(); }, [y] { return y().sum().item<double>(); }};
  auto back = [x, y] { return torch::autograd::grad({y().sum()}, {x})[0]; };
  return {[back] { back(); }, [back] { return back().sum().item<double>(); }};
}

}  // namespace

int main() {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  at::set_num_threads(threads ? std::atoi(threads) : 1);
  return bench::serve({
      {"chain", [](const Arguments&) { return chain(false, false); }},
      {"chain_recorded", [](const Arguments&) { return chain(true, false); }},
      {"chain_backward", [](const Arguments&) { return chain(true, true); }},
  });
}
