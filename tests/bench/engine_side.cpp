// The engine in this process, without wire and server.

#include <cmath>
#include <memory>

#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/registry.h"
#include "tests/bench/side.h"

namespace {

using namespace gradwire;
using bench::Arguments;
using bench::Work;
using engine::Tensor;

struct Engine {
  std::unique_ptr<engine::Backend> backend = engine::make_cpu_backend();
  engine::Context cx{*backend, {}};

  Tensor make(const Shape& shape, int salt) {
    size_t n = 1;
    for (const int64_t d : shape) n *= static_cast<size_t>(d);
    const std::vector<float> v = bench::numbers(n, salt);
    return engine::from_bytes(cx, DType::float32, shape, std::as_bytes(std::span(v)));
  }
};

double total(const Tensor& t) { return engine::item(sum(t)).real(); }

Work chain(Engine& e, bool record, bool backward) {
  Tensor x = e.make({bench::kSmall}, 1), b = e.make({bench::kSmall}, 2);
  if (record) engine::require_grad(x);
  auto y = [&e, x, b, record] {
    engine::GradMode mode(e.cx, record);
    Tensor y = x;
    for (int i = 0; i < bench::kChain; ++i) y = y + b;
    return y;
  };
  if (!backward) return {[y] { y(); }, [y] { return total(y()); }};
  auto back = [&e, x, y] {
    engine::GradMode mode(e.cx, true);
    return grad(std::vector<Tensor>{y().sum()}, std::vector<Tensor>{x})[0];
  };
  return {[back] { back(); }, [back] { return total(back()); }};
}

template <class F> Work whole(F f) {
  return {[f] { f(); }, [f] { return total(f()); }};
}

}  // namespace

int main() {
  Engine e;
  e.cx.grad_mode = false;
  const Shape many{10'000'000};
  return bench::serve({
      {"chain", [&](const Arguments&) { return chain(e, false, false); }},
      {"chain_recorded", [&](const Arguments&) { return chain(e, true, false); }},
      {"chain_backward", [&](const Arguments&) { return chain(e, true, true); }},
      {"add", [&](const Arguments&) { return whole([a = e.make(many, 1), b = e.make(many, 2)] { return a + b; }); }},
      {"exp", [&](const Arguments&) { return whole([a = e.make(many, 1)] { return exp(a); }); }},
      {"broadcast",
       [&](const Arguments&) {
         return whole([a = e.make({4096, 1}, 1), b = e.make({1, 4096}, 2)] { return a + b; });
       }},
      {"matmul",
       [&](const Arguments& arguments) {
         const int64_t n = std::stoll(arguments.at(0));
         return whole([a = e.make({n, n}, 1), b = e.make({n, n}, 2)] { return matmul(a, b); });
       }},
  });
}
