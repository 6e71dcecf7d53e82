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
  engine::Context cx{*backend, {.bytes = int64_t{4} << 30}};

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

// An operator along the last dim, by name.
Work along(Engine& e, std::string_view name, const Shape& shape) {
  const engine::OpRow* row = engine::find_op(name);
  if (!row) throw std::invalid_argument("no operator " + std::string(name));
  return whole([&e, id = row->id, a = e.make(shape, 1)] {
    const engine::Bound args[] = {engine::Bound(a), engine::Bound(Scalar(-1))};
    return engine::call(e.cx, id, args).at[0];
  });
}

// All rows of a table once, far from their order.
Work gather(Engine& e, int64_t rows, int64_t columns) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) order[static_cast<size_t>(i)] = i * 7919 % rows;
  const Tensor at = engine::from_bytes(e.cx, DType::int64, Shape{rows}, std::as_bytes(std::span(order)));
  return whole([at, a = e.make({rows, columns}, 1)] { return index(a, {at}); });
}

// What a layer does: f of leaves, and with "backward" the gradients of all of them too.
template <class F> Work layer(Engine& e, const std::vector<Tensor>& leaves, bool backward, F f) {
  if (!backward) return whole(f);
  for (const Tensor& t : leaves) engine::require_grad(t);
  const Tensor seed = e.make(Shape(f().shape()), 5);
  auto back = [&e, leaves, seed, f] {
    const engine::GradMode mode(e.cx, true);
    return grad(f(), leaves, std::vector<Tensor>{seed});
  };
  return {[back] { back(); },
          [back] {
            double all = 0;
            for (const Tensor& t : back()) all += total(t);
            return all;
          }};
}

// conv2d WAY BATCH IN OUT KERNEL STRIDE PADDING SIZE
Work conv(Engine& e, const Arguments& a) {
  const auto n = [&](size_t i) { return std::stoll(a.at(i)); };
  const Tensor x = e.make({n(1), n(2), n(7), n(7)}, 1), w = e.make({n(3), n(2), n(4), n(4)}, 2);
  return layer(e, {x, w}, a.at(0) == "backward",
               [x, w, stride = n(5), padding = n(6)] { return conv2d(x, w, {}, stride, padding); });
}

// batch_norm WAY MODE
Work norm(Engine& e, const Arguments& a) {
  const Tensor x = e.make({16, 64, 112, 112}, 1), w = e.make({64}, 2), b = e.make({64}, 3);
  const Tensor mean = e.make({64}, 4), var = abs(e.make({64}, 5)) + 1;
  return layer(e, {x, w, b}, a.at(0) == "backward", [x, w, b, mean, var, training = a.at(1) == "train"] {
    return batch_norm(x, mean, var, w, b, training);
  });
}

Work pool(Engine& e, const Arguments& a) {
  const Tensor x = e.make({16, 64, 112, 112}, 1);
  return layer(e, {x}, a.at(0) == "backward", [x] { return max_pool2d(x, 3, 2, 1); });
}

// Steps of an optimiser over the parameters of a ResNet-18: 11.7 million in 62 tensors.
Work optimise(Engine& e, const std::string& name) {
  std::vector<int64_t> sizes = {9408, 64, 64};
  int64_t from = 64;
  for (const int64_t to : {64, 128, 256, 512}) {
    for (int block = 0; block < 2; ++block) {
      for (const int64_t n : {from * to * 9, to, to, to * to * 9, to, to}) sizes.push_back(n);
      if (from != to) sizes.insert(sizes.end(), {from * to, to, to});
      from = to;
    }
  }
  sizes.insert(sizes.end(), {512'000, 1000});
  std::vector<Tensor> params;
  for (size_t k = 0; k < sizes.size(); ++k) {
    params.push_back(e.make({sizes[k]}, static_cast<int>(k)));
    set_grad(params.back(), e.make({sizes[k]}, static_cast<int>(k) + 1));
  }
  const Tensor optimizer =
      name == "Adam" ? optim_Adam(params, {.lr = 1e-6}) : optim_SGD(params, {.lr = 1e-6, .momentum = 0.9});
  return {[optimizer] { optim_step(optimizer); },
          [optimizer, params] {
            optim_step(optimizer);
            double sum = 0;
            for (const Tensor& p : params) sum += total(p);
            return sum;
          }};
}

}  // namespace

int main() {
  Engine e;
  e.cx.grad_mode = false;
  const auto of = [&e](Work (*make)(Engine&, const Arguments&)) {
    return [&e, make](const Arguments& a) { return make(e, a); };
  };
  const Shape many{10'000'000}, table{10'000, 1'000};
  return bench::serve({
      {"conv2d", of(conv)},
      {"batch_norm", of(norm)},
      {"max_pool2d", of(pool)},
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
      {"sum",
       [&](const Arguments& arguments) {
         const Tensor a = e.make(table, 1);
         if (arguments.at(0) == "all") return whole([a] { return sum(a); });
         return whole([a, dim = std::stoll(arguments.at(0))] { return sum(a, dim); });
       }},
      {"softmax",
       [&](const Arguments&) {
         return along(e, "softmax", {1024, 1000});
       }},
      {"cumsum", [&](const Arguments&) { return along(e, "cumsum", table); }},
      {"index_rows", [&](const Arguments&) { return gather(e, 100'000, 64); }},
      {"index_mask",
       [&](const Arguments&) {
         const Tensor a = e.make(many, 1);
         return whole([a, mask = gt(a, 0)] { return index(a, {mask}); });
       }},
      {"optim", [&](const Arguments& arguments) { return optimise(e, arguments.at(0)); }},
      {"einsum_batch",
       [&](const Arguments&) {
         return whole([a = e.make({64, 128, 128}, 1), b = e.make({64, 128, 128}, 2)] {
           return einsum("bij,bjk->bik", {a, b});
         });
       }},
      {"einsum_chain",
       [&](const Arguments&) {
         return whole([a = e.make({512, 64}, 1), b = e.make({64, 64, 64}, 2), c = e.make({512, 64}, 3)] {
           return einsum("bn,anm,bm->ba", {a, b, c});
         });
       }},
  });
}
