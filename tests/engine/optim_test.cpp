// Where optimisers lead. State, groups and errors: optim_state_test.cpp.
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <string>

#include "engine/optimizer.h"
#include "schema/ops.h"
#include "tests/engine/arrays.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

using Params = const std::vector<Tensor>&;
struct Case {
  const char* what;
  Tensor (*make)(Params);
  Values want;
};
const Case kCases[] = {
#include "tests/engine/optim_values.h"
};

// The loss of optim_values.py.
Tensor loss(const Tensor& a, const Tensor& b, const Tensor& weights) {
  return sum(a * a) + sum(b * b * weights) + sum(a[{0}] * b);
}

Values both(const Tensor& a, const Tensor& b) {
  Values v = values(a), w = values(b);
  v.insert(v.end(), w.begin(), w.end());
  return v;
}

double distance(const Values& a, const Values& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    most = d <= most ? most : d;
  }
  return most;
}

struct Start {
  Tensor a, b, weights;
  explicit Start(Engine& e)
      : a(e.leaf({3}, {1, -2, 0.5})),
        b(e.leaf({2, 2}, {0.3, -0.7, 1.5, 2.0})),
        weights(e.doubles({2, 2}, {1, 0.5, 0.25, 2})) {}
  void step(const Tensor& optimizer) {
    optim_zero_grad(optimizer);
    loss(a, b, weights).backward();
    optim_step(optimizer);
  }
};

// NaN is like NaN: halves may have less variance than none.
std::string first_difference(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i])))
      return "element " + std::to_string(i) + " is " + std::to_string(a[i]) + ", not " + std::to_string(b[i]);
  }
  return "";
}

}  // namespace

TEST_CASE("Ten steps of every optimiser lead where PyTorch's do", "[engine][F1][F3][F4][F5][F6][F7][F8][F9]") {
  for (const Case& c : kCases) {
    INFO(c.what);
    Engine e;
    Start s(e);
    const std::vector<Tensor> params = {s.a, s.b};
    const Tensor optimizer = c.make(params);
    for (int k = 0; k < 10; ++k) s.step(optimizer);
    CHECK(distance(both(s.a, s.b), c.want) < 1e-10);
    CHECK(item(optimizer).integer() == 10);
    CHECK(s.a.version() == 10);
    CHECK(s.a.is_leaf());
  }
}

TEST_CASE("optim.NAdam follows its formula", "[engine]") {
  Engine e;
  const Tensor p = e.leaf({1}, {1});
  const Tensor optimizer = optim_NAdam(p, {.lr = 0.1});
  double x = 1, m = 0, v = 0, product = 1;
  for (int t = 1; t <= 10; ++t) {
    optim_zero_grad(optimizer);
    sum(p * p).backward();
    optim_step(optimizer);
    const double g = 2 * x;
    auto momentum = [](int at) { return 0.9 * (1 - 0.5 * std::pow(0.96, at * 0.004)); };
    const double mu = momentum(t), next = momentum(t + 1);
    product *= mu;
    m = 0.9 * m + 0.1 * g, v = 0.999 * v + 0.001 * g * g;
    const double by = std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8;
    x -= 0.1 * ((1 - mu) / (1 - product) * g + next / (1 - product * next) * m) / by;
    CHECK(std::abs(values(p)[0] - x) < 1e-12);
  }
}

TEST_CASE("Three steps down p^2 in float32 pass the points of the reference",
          "[engine][F1][F3][F4][F5][F6][F7][F8][F9]") {
  struct Path {
    Tensor (*make)(const Tensor&);
    int element;
    Values at;
  };
  const Path paths[] = {
      {[](const Tensor& p) { return optim_SGD(p, {.lr = 0.1}); }, 0, {.8, .64, .512}},
      {[](const Tensor& p) { return optim_SGD(p, {.lr = 0.1}); }, 1, {-1.6, -1.28, -1.024}},
      {[](const Tensor& p) { return optim_SGD(p, {.lr = 0.1, .momentum = 0.9}); }, 0, {.8, .46, .062}},
      {[](const Tensor& p) { return optim_SGD(p, {.lr = 0.1, .momentum = 0.9, .dampening = 0.5}); },
       0,
       {.8, .54, .252}},
      {[](const Tensor& p) { return optim_SGD(p, {.lr = 0.1, .momentum = 0.9, .nesterov = true}); },
       0,
       {.62, .2224, -.108352}},
      {[](const Tensor& p) { return optim_SGD(p, {.lr = 0.1, .weight_decay = 0.1}); }, 0, {.79, .6241, .493039}},
      {[](const Tensor& p) { return optim_Adam(p, {.lr = 0.1}); }, 0, {.9, .800412, .701586}},
      {[](const Tensor& p) { return optim_Adamax(p, {.lr = 0.1}); }, 0, {.9, .805168, .715499}},
      {[](const Tensor& p) { return optim_Adagrad(p, {.lr = 0.1}); }, 0, {.9, .833104, .780456}},
      {[](const Tensor& p) { return optim_Adagrad(p, {.lr = 0.1, .lr_decay = 0.1}); }, 0, {.9, .839185, .795081}},
      {[](const Tensor& p) { return optim_Adadelta(p); }, 0, {.996838, .993598, .990309}},
      {[](const Tensor& p) { return optim_RMSprop(p, {.lr = 0.1}); }, 1, {-1, -.550987, -.309687}},
      {[](const Tensor& p) { return optim_RMSprop(p, {.lr = 0.1, .momentum = 0.9}); }, 1, {-1, .349013, 1.407542}},
      {[](const Tensor& p) { return optim_RMSprop(p, {.lr = 0.1, .centered = true}); },
       1,
       {-.994962, -.543705, -.302341}},
      {[](const Tensor& p) { return optim_Rprop(p, {.lr = 0.1}); }, 0, {.9, .78, .636}},
      {[](const Tensor& p) { return optim_ASGD(p, {.lr = 0.1}); }, 0, {.79999, .639985, .511984}},
  };
  int number = 0;
  for (const Path& path : paths) {
    INFO("path " << number++);
    Engine e;
    const Tensor p = e.make(DType::float32, {2}, std::vector<float>{1, -2});
    require_grad(p);
    const Tensor optimizer = path.make(p);
    for (const double want : path.at) {
      optim_zero_grad(optimizer);
      sum(p * p).backward();
      optim_step(optimizer);
      CHECK(std::abs(values(p)[static_cast<size_t>(path.element)] - want) < 2e-6);
    }
  }
}

TEST_CASE("Layout, alignment, the number of elements and of threads change no bit", "[engine][F14]") {
  for (const Case& c : kCases) {
    INFO(c.what);
    Engine e;
    const int64_t n = 70'003;  // several pieces, and a tail
    Values start(static_cast<size_t>(n)), slope(start.size());
    for (size_t k = 0; k < start.size(); ++k)
      start[k] = std::sin(static_cast<double>(k)), slope[k] = std::cos(3 * static_cast<double>(k));
    for (const DType t : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
      auto run = [&](const Tensor& p, int threads) {
        const test::Threads team(threads);
        const Tensor optimizer = c.make({p});
        for (int k = 0; k < 3; ++k) {
          set_grad(p, e.cx.contiguous(e.doubles(Shape(p.shape()), slope), t));
          optim_step(optimizer);
        }
        return values(p);
      };
      const Tensor source = e.cx.contiguous(e.doubles({n}, start), t);
      const Values whole = run(copy_of(e.cx, source), 1);
      CHECK(first_difference(run(copy_of(e.cx, source), 2), whole) == "");
      // Every third element of something larger.
      const Tensor room = e.cx.full(Shape{3 * n + 1}, 7, t);
      const Tensor apart = e.cx.alias(room, Shape{n}, Shape{3}, 1);
      e.cx.copy(apart, source);
      CHECK(first_difference(run(apart, 2), whole) == "");
      CHECK(values(room)[0] == 7);
      CHECK(values(room)[2] == 7);
    }
  }
}

TEST_CASE("Halves take the step that float32 takes, rounded", "[engine][F1][F3]") {
  for (const DType t : {DType::float16, DType::bfloat16}) {
    Engine e;
    const Tensor p = e.cx.contiguous(e.doubles({2}, {1, -2}), t), wide = e.cx.contiguous(p, DType::float32);
    const Tensor one = optim_SGD(p, {.lr = 0.1}), other = optim_SGD(wide, {.lr = 0.1});
    set_grad(p, e.cx.full(Shape{2}, 0.3, t)), set_grad(wide, e.cx.contiguous(grad_of(p), DType::float32));
    optim_step(one), optim_step(other);
    CHECK(p.dtype() == t);
    CHECK(values(p) == values(e.cx.contiguous(wide, t)));
  }
}

TEST_CASE("An empty and a 0-dim parameter take steps", "[engine][F14]") {
  Engine e;
  const Tensor none = e.leaf({0, 3}, {}), one = e.leaf({}, {1});
  const Tensor optimizer = optim_Adam(std::vector<Tensor>{none, one}, {.lr = 0.1});
  (sum(none) + one * one).backward();
  optim_step(optimizer);
  CHECK(std::abs(values(one)[0] - 0.9) < 1e-7);
  CHECK(none.version() == 1);
}
