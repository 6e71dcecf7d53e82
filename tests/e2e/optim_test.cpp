// Optimisers on a server, by the SDK; the same text runs on the engine in this process.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "client/gradwire.h"
#include "engine/tensor.h"
#include "tests/engine/context.h"

namespace {

namespace optim = gradwire::optim;
using gradwire::Tensor;

// Ten steps with a schedule, of parameters in two groups; the bytes of both at the end.
template <class T, class Optimizer> void train(const T& w, const T& b, const T& x, Optimizer& opt) {
  opt.add_param_group({b}, {.lr = 0.02});
  optim::StepLR schedule(opt, 4, 0.5);
  for (int epoch = 0; epoch < 10; ++epoch) {
    opt.zero_grad();
    const T y = matmul(x, w) + b;
    (y * y).mean().backward();
    opt.step();
    schedule.step();
  }
}

std::vector<double> numbers(int n, double scale) {
  std::vector<double> v(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) v[static_cast<size_t>(i)] = scale * ((i * 7 + 3) % 11 - 5);
  return v;
}

}  // namespace

TEST_CASE("An optimiser and a schedule over the wire give the bits that they give in process",
          "[e2e][F1][F3][F12][F16][F18]") {
  auto client = gradwire::connect("local");
  const auto w0 = numbers(6, 0.1), b0 = numbers(2, 0.3), x0 = numbers(12, 0.2);
  for (const bool adam : {false, true}) {
    auto far_w = gradwire::from_span(w0, {3, 2}, {.requires_grad = true});
    auto far_b = gradwire::from_span(b0, {2}, {.requires_grad = true}), far_x = gradwire::from_span(x0, {4, 3});
    gradwire::engine::Engine e;
    const auto w = e.leaf({3, 2}, w0), b = e.leaf({2}, b0), x = e.doubles({4, 3}, x0);
    using T = gradwire::engine::Tensor;
    if (adam) {
      optim::Adam far({far_w}, {.lr = 0.1});
      optim::basic::Adam<T> near({w}, {.lr = 0.1});
      train(far_w, far_b, far_x, far), train(w, b, x, near);
    } else {
      optim::SGD far({far_w}, {.lr = 0.1, .momentum = 0.9});
      optim::basic::SGD<T> near({w}, {.lr = 0.1, .momentum = 0.9});
      train(far_w, far_b, far_x, far), train(w, b, x, near);
      CHECK(far.lr(0) == near.lr(0));
      CHECK(far.handle().template item<int64_t>() == 10);
    }
    CHECK(far_w.to_vector<double>() == gradwire::engine::values(w));
    CHECK(far_b.to_vector<double>() == gradwire::engine::values(b));
    CHECK(far_w.to_vector<double>() != w0);
  }
}

TEST_CASE("A client saves an optimiser in the middle and goes on from there", "[e2e][F14]") {
  auto client = gradwire::connect("local");
  auto p = gradwire::tensor({1., -2.}, {.requires_grad = true});
  optim::Adam opt({p}, {.lr = 0.1});
  auto step = [](optim::Optimizer& o, Tensor& q) {
    o.zero_grad();
    (q * q).sum().backward();
    o.step();
  };
  for (int k = 0; k < 3; ++k) step(opt, p);
  const auto state = opt.state_dict();
  REQUIRE(state.size() == 5);
  auto q = gradwire::tensor({0., 0.}, {.requires_grad = true});
  {
    gradwire::no_grad off;
    q.copy_(p);
  }
  optim::Adam other({q}, {.lr = 0.5});
  other.load_state_dict(state);
  CHECK(other.lr() == 0.1);
  for (int k = 0; k < 3; ++k) step(opt, p), step(other, q);
  CHECK(p.to_vector<float>() == q.to_vector<float>());
}

// PyTorch's numbers: SGD([{'params': [w], 'lr': .01}, {'params': [b], 'weight_decay': 0.},
// {'params': [c], 'momentum': 0.}], lr=.1, momentum=.9, weight_decay=.5), three steps.
TEST_CASE("Groups of parameters override the optimiser's options, the first one too", "[e2e][F12]") {
  auto client = gradwire::connect("local");
  const auto w = gradwire::tensor({1., -2.}, {.requires_grad = true}),
             b = gradwire::tensor({.5}, {.requires_grad = true}), c = gradwire::tensor({3.}, {.requires_grad = true});
  optim::SGD opt({{{w}, {.lr = .01}}, {{b}, {.weight_decay = 0}}, {{c}, {.momentum = 0}}},
                 {.lr = .1, .momentum = .9, .weight_decay = .5});
  CHECK(opt.groups() == 3);
  CHECK(opt.lr(0) == .01);
  CHECK(opt.lr(1) == .1);
  for (int k = 0; k < 3; ++k) {
    opt.zero_grad();
    ((w * w).sum() + (b * b).sum() + (c * c).sum()).backward();
    opt.step();
  }
  const auto got = gradwire::cat({w, b, c}).to_vector<double>();
  const std::vector<double> want{0.8627343773841858, -1.7254687547683716, 0.03099999949336052, 1.265625};
  for (size_t i = 0; i < 4; ++i) CHECK(std::abs(got.at(i) - want[i]) < 1e-6);
  CHECK_THROWS_AS(optim::Adagrad({{{w}, {.initial_accumulator_value = 1}}}), gradwire::BadArgument);
}

TEST_CASE("Mistakes with optimisers reach the client as errors of the operator", "[e2e][F2][F13]") {
  auto client = gradwire::connect("local");
  auto p = gradwire::tensor({1., -2.}, {.requires_grad = true});
  auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const gradwire::Error& e) {
      return e.op() + ": " + e.message();
    }
    return "";
  };
  auto sync = [&](auto f) {
    return message([&] {
      f();
      client.session().sync();
    });
  };
  CHECK(sync([&] { optim::SGD({p}, {}); }) ==
        "optim.SGD: parameter group didn't specify a value of required optimization parameter lr");
  CHECK(sync([&] { optim::SGD({}, {.lr = 0.1}); }) == "optim.SGD: optimizer got an empty parameter list");
  try {
    optim::SGD(std::vector<Tensor>{}, {.lr = 0.1});
    FAIL("an optimiser without parameters");
  } catch (const gradwire::Error& e) {
    CHECK(e.where().line == __LINE__ - 3);
  }
  CHECK(sync([&] { optim::SGD({p * 2}, {.lr = 0.1}); }) == "optim.SGD: can't optimize a non-leaf Tensor");
  CHECK(sync([&] { gradwire::optim_step(p); }) ==
        "optim.step: optim.step(): argument 'self' (position 1) must be Optimizer, not Tensor");
  optim::SGD opt({p}, {.lr = 0.1});
  CHECK(sync([&] { opt.handle() + 1; }) ==
        "add: add(): argument 'self' (position 1) must be Tensor or Number, not Optimizer");
  CHECK(sync([&] { opt.set({.lr = 0.5, .group = 3}); }) == "optim.set: group 3 is out of range: there is 1 of them");
  CHECK(sync([&] { opt.step(); }) == "");
}

TEST_CASE("LBFGS on this side moves parameters on the server", "[e2e][F10]") {
  auto client = gradwire::connect("local");
  auto p = gradwire::tensor({1., -2.}, {.requires_grad = true});
  optim::LBFGS opt({p});
  const double loss = opt.step([&] {
    opt.zero_grad();
    auto square = (p * p).sum();
    square.backward();
    return square;
  });
  CHECK(loss == 5);
  CHECK(std::abs(p.to_vector<double>()[0]) + std::abs(p.to_vector<double>()[1]) < 1e-6);
}
