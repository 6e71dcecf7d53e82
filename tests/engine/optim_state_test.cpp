// Groups, options, state and errors of optimisers. Where they lead: optim_test.cpp.
#include <catch2/catch_test_macros.hpp>

#include <cmath>

#include "engine/optimizer.h"
#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

using Make = Tensor (*)(const Tensor&);
constexpr Make kAll[] = {
    [](const Tensor& p) { return optim_SGD(p, {.lr = 0.1, .momentum = 0.9}); },
    [](const Tensor& p) { return optim_Adam(p, {.lr = 0.1, .amsgrad = true}); },
    [](const Tensor& p) { return optim_AdamW(p); },
    [](const Tensor& p) { return optim_Adamax(p); },
    [](const Tensor& p) { return optim_NAdam(p); },
    [](const Tensor& p) { return optim_RAdam(p); },
    [](const Tensor& p) { return optim_RMSprop(p, {.momentum = 0.5, .centered = true}); },
    [](const Tensor& p) { return optim_Adagrad(p, {.lr_decay = 0.1}); },
    [](const Tensor& p) { return optim_Adadelta(p); },
    [](const Tensor& p) { return optim_Rprop(p); },
    [](const Tensor& p) { return optim_ASGD(p, {.t0 = 2}); },
};

void step(const Tensor& optimizer, const Tensor& p) {
  optim_zero_grad(optimizer);
  sum(p * p).backward();
  optim_step(optimizer);
}

template <class F> Error error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return Error(Code::internal, "nothing was thrown");
}
template <class F> std::string message(F f) { return error_of(f).message(); }

}  // namespace

TEST_CASE("Saved in the middle and loaded into another optimiser, the rest goes on bit by bit", "[engine][F14]") {
  for (const Make make : kAll) {
    Engine e;
    const Tensor p = e.leaf({3}, {1, -2, 0.5});
    const Tensor optimizer = make(p);
    for (int k = 0; k < 4; ++k) step(optimizer, p);
    const std::vector<Tensor> state = optim_state(optimizer);
    const Values then = values(p);
    for (int k = 0; k < 4; ++k) step(optimizer, p);
    const Tensor q = e.leaf({3}, then);
    const Tensor again = make(q);
    step(again, q);  // which loading forgets
    {
      const GradMode off(e.cx, false);
      q.copy_(e.doubles({3}, then));  // the parameter is the caller's to put back
    }
    optim_load_state(again, state);
    CHECK(item(again).integer() == 4);
    for (int k = 0; k < 4; ++k) step(again, q);
    CHECK(values(q) == values(p));
  }
}

TEST_CASE("Loading state also brings its options back", "[engine][F14]") {
  Engine e;
  const Tensor p = e.leaf({1}, {1}), q = e.leaf({1}, {1});
  const Tensor optimizer = optim_SGD(p, {.lr = 0.1, .momentum = 0.5}), other = optim_SGD(q, {.lr = 0.7});
  step(optimizer, p), step(optimizer, p);
  const std::vector<Tensor> state = optim_state(optimizer);
  REQUIRE(state.size() == 3);
  CHECK(values(state[0]) == Values{1, 0.1, 0.5, 0, 0, 0, 0});
  CHECK(values(state[1]) == Values{2});
  CHECK(state[2].size(0) == 1);
  optim_load_state(other, state);
  CHECK(values(optim_state(other)[0]) == values(state[0]));
}

TEST_CASE("Groups have their own options, and set changes one group or all", "[engine][F12]") {
  Engine e;
  const Tensor a = e.leaf({1}, {1}), b = e.leaf({1}, {1}), c = e.leaf({1}, {1});
  const Tensor optimizer = optim_SGD(a, {.lr = 0.1});
  optim_add_param_group(optimizer, b, {.lr = 0.5});
  optim_add_param_group(optimizer, c);  // as the optimiser was made
  auto slide = [&] {
    optim_zero_grad(optimizer);
    sum(a + b + c).backward();
    optim_step(optimizer);
    return Values{values(a)[0], values(b)[0], values(c)[0]};
  };
  CHECK(slide() == Values{0.9, 0.5, 0.9});
  optim_set(optimizer, {.lr = 0.25, .group = 1});
  CHECK(slide() == Values{0.8, 0.25, 0.8});
  optim_set(optimizer, {.lr = 0});
  CHECK(slide() == Values{0.8, 0.25, 0.8});
}

TEST_CASE("Momentum that is set later begins with the gradient of its first step", "[engine][F1][F12]") {
  Engine e;
  const Tensor p = e.leaf({1}, {1});
  const Tensor optimizer = optim_SGD(p, {.lr = 0.1});
  auto slide = [&] {
    set_grad(p, e.doubles({1}, {1}));
    optim_step(optimizer);
    return values(p)[0];
  };
  slide();
  optim_set(optimizer, {.momentum = 0.5});
  const double at = slide();
  CHECK(std::abs(at - 0.8) < 1e-15);               // buffer = 1
  CHECK(std::abs(slide() - (at - 0.15)) < 1e-15);  // 0.5 * 1 + 1
}

TEST_CASE("A parameter without a gradient is skipped, and what is kept is made at its first step", "[engine][F14]") {
  Engine e;
  const Tensor a = e.leaf({1000}, Values(1000, 1)), b = e.leaf({1000}, Values(1000, 1));
  const Tensor optimizer = optim_Adam(std::vector<Tensor>{a, b});
  const int64_t before = e.cx.bytes_used();
  sum(a).backward();
  optim_step(optimizer);
  CHECK(b.version() == 0);
  CHECK(e.cx.bytes_used() - before > 3 * 8000);  // its gradient and two moments
  CHECK(e.cx.bytes_used() - before < 4 * 8000);
  const std::vector<Tensor> state = optim_state(optimizer);
  CHECK(values(state[1]) == Values{1});
  CHECK(values(state[5]) == Values{0});
  CHECK(state[6].numel() == 0);
}

TEST_CASE("zero_grad drops gradients, or sets them to zero", "[engine][F14]") {
  Engine e;
  const Tensor p = e.leaf({1}, {1});
  const Tensor optimizer = optim_SGD(p, {.lr = 0.1});
  sum(p).backward();
  optim_zero_grad(optimizer, false);
  CHECK(values(grad_of(p)) == Values{0});
  optim_zero_grad(optimizer);
  CHECK(!grad_of(p));
}

TEST_CASE("A step leaves gradients as they are, and backward sees that it has written", "[engine][F15][D31]") {
  Engine e;
  const Tensor p = e.leaf({1}, {2});
  const Tensor optimizer = optim_SGD(p, {.lr = 0.1, .weight_decay = 0.5});
  const Tensor y = sum(p * p);
  y.backward({}, true);
  const Tensor g = grad_of(p);
  optim_step(optimizer);
  CHECK(values(g) == Values{4});
  CHECK(error_of([&] { y.backward(); }).code() == Code::inplace_modified);
}

TEST_CASE("An optimiser keeps its parameters, and they go with it", "[engine]") {
  Engine e;
  const int64_t before = e.cx.bytes_used();
  {
    Tensor p = e.leaf({100}, Values(100, 1));
    Tensor optimizer = optim_Adam(p, {.lr = 0.1});
    sum(p * p).backward();
    p = Tensor();
    optim_step(optimizer);
    CHECK(values(optim_state(optimizer)[2])[0] != 0);
    // A gradient that leads back to the optimiser's own parameter.
    const Tensor q = e.leaf({1}, {1});
    optim_add_param_group(optimizer, q);
    sum(q * q).backward({}, {}, true);
    optim_zero_grad(optimizer);
  }
  CHECK(e.cx.bytes_used() == before);
  CHECK(e.cx.nodes() == 0);
}

TEST_CASE("A chain of optimisers that hold each other ends without recursion", "[engine][T22]") {
  Engine e;
  {
    Tensor optimizer;
    for (int k = 0; k < 100'000; ++k) {
      const Tensor p = e.leaf({1}, {1});
      if (optimizer) {  // the gradient's history keeps the optimiser before, as an input
        const Tensor g = mul(e.leaf({1}, {1}), optimizer);
        set_grad(p, g);
      }
      optimizer = optim_SGD(p, {.lr = 0.1});
    }
  }
  CHECK(e.cx.nodes() == 0);
}

TEST_CASE("What cannot be optimised is refused in PyTorch's words", "[engine][F2][F13][F14]") {
  Engine e;
  const Tensor p = e.leaf({2}, {1, 2}), q = e.leaf({2}, {1, 2});
  CHECK(message([&] { optim_SGD(p); }) ==
        "parameter group didn't specify a value of required optimization parameter lr");
  CHECK(message([&] { optim_SGD(p, -1); }) == "Invalid learning rate: -1");
  CHECK(message([&] { optim_SGD(p, {.lr = 0.1, .momentum = -0.5}); }) == "Invalid momentum value: -0.5");
  CHECK(message([&] { optim_SGD(p, {.lr = 0.1, .weight_decay = -0.5}); }) == "Invalid weight_decay value: -0.5");
  CHECK(message([&] { optim_SGD(p, {.lr = 0.1, .nesterov = true}); }) ==
        "Nesterov momentum requires a momentum and zero dampening");
  CHECK(message([&] { optim_Adam(p, {.betas = {1.0, 0.9}}); }) == "Invalid beta parameter at index 0: 1.0");
  CHECK(message([&] { optim_Adam(p, {.betas = {0.5, -0.9}}); }) == "Invalid beta parameter at index 1: -0.9");
  CHECK(message([&] { optim_Adam(p, {.eps = -1}); }) == "Invalid epsilon value: -1");
  CHECK(message([&] { optim_RMSprop(p, {.alpha = -1}); }) == "Invalid alpha value: -1");
  CHECK(message([&] { optim_Adadelta(p, {.rho = 1.5}); }) == "Invalid rho value: 1.5");
  CHECK(message([&] { optim_Rprop(p, {.etas = {1.5, 1.2}}); }) == "Invalid eta values: 1.5, 1.2");
  CHECK(message([&] { optim_Adagrad(p, {.initial_accumulator_value = -1}); }) ==
        "Invalid initial_accumulator_value value: -1");
  CHECK(message([&] { optim_SGD(p * 2, 0.1); }) == "can't optimize a non-leaf Tensor");
  CHECK(message([&] {
          optim_SGD(std::vector<Tensor>{p, p}, 0.1);
        }) == "optimizer contains a parameter group with duplicate parameters");
  CHECK(error_of([&] { optim_SGD(p, -1); }).op() == "optim.SGD");
  const Tensor optimizer = optim_SGD(p, 0.1);
  CHECK(message([&] { optim_add_param_group(optimizer, p); }) ==
        "some parameters appear in more than one parameter group");
  CHECK(message([&] { optim_set(optimizer, {.betas = {0.5, 0.5}}); }) == "optim.SGD has no option 'betas'");
  CHECK(message([&] { optim_set(optimizer, {.nesterov = true}); }) ==
        "Nesterov momentum requires a momentum and zero dampening");
  CHECK(message([&] { optim_set(optimizer, {.lr = 0.5, .group = 1}); }) ==
        "group 1 is out of range: there is 1 of them");
  CHECK(message([&] { optim_step(p); }) == "expected an Optimizer, which optim.SGD and the like make");
  const std::vector<Tensor> nobody;
  const Bound args[] = {Bound(std::span<const Tensor>(nobody)), Bound(Scalar(0.1))};
  CHECK(message([&] { call(e.cx, op::optim_SGD, args); }) == "optimizer got an empty parameter list");
  optim_add_param_group(optimizer, q);
  const std::vector<Tensor> two = optim_state(optimizer);
  const Tensor single = optim_SGD(e.leaf({2}, {1, 2}), 0.1);
  CHECK(message([&] { optim_load_state(single, two); }) ==
        "loaded state dict has a different number of parameter groups");
  const Tensor pair = optim_SGD(std::vector<Tensor>{e.leaf({2}, {1, 2}), e.leaf({2}, {1, 2})}, 0.1);
  CHECK(message([&] { optim_load_state(single, optim_state(pair)); }) ==
        "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
  CHECK(message([&] {
          optim_load_state(single, std::vector<Tensor>{p});
        }).starts_with("the state is not one that optim.SGD gave: "));
}

TEST_CASE("A step that fails changes nothing", "[engine][T21]") {
  Engine e({.bytes = 1 << 20});
  const Tensor small = e.leaf({10}, Values(10, 1)), large = e.leaf({30'000}, Values(30'000, 1));
  const Tensor optimizer = optim_Adam(std::vector<Tensor>{small, large}, {.lr = 0.1});
  set_grad(small, e.cx.full(Shape{10}, 1, DType::float64));
  set_grad(large, e.cx.full(Shape{30'000}, 1, DType::float64));
  const int64_t before = e.cx.bytes_used();
  const Error err = error_of([&] { optim_step(optimizer); });  // there is room for one moment of two
  CHECK(err.code() == Code::memory_limit);
  CHECK(err.op() == "optim.step");
  CHECK(e.cx.bytes_used() == before);
  CHECK(small.version() == 0);
  CHECK(values(small) == Values(10, 1));
  CHECK(item(optimizer).integer() == 0);
}

TEST_CASE("Parameters that others hold the bytes of are copied before they move", "[engine][A31]") {
  Engine e;
  const Tensor p = e.leaf({600}, Values(600, 1));
  const Tensor optimizer = optim_SGD(p, {.lr = 0.5});
  const Snapshot held = snapshot(p);
  set_grad(p, e.cx.full(Shape{600}, 1, DType::float64));
  optim_step(optimizer);
  CHECK(static_cast<const double*>(held.data)[0] == 1);
  CHECK(values(p)[0] == 0.5);
}

TEST_CASE("An optimiser is no tensor for other operators, and a tensor no optimiser", "[engine][F13]") {
  Engine e;
  const Tensor p = e.leaf({2}, {1, 2}), optimizer = optim_SGD(p, 0.1);
  auto refusal = [](OpId id, std::vector<Bound> args) { return message([&] { check(id, args); }); };
  CHECK(refusal(op::add, {Bound(p), Bound(optimizer)}) ==
        "add(): argument 'other' (position 2) must be Tensor or Number, not Optimizer");
  CHECK(refusal(op::neg, {Bound(optimizer)}) == "neg(): argument 'self' (position 1) must be Tensor, not Optimizer");
  const std::vector<Tensor> list = {p, optimizer};
  CHECK(refusal(op::cat, {Bound(std::span<const Tensor>(list))}) ==
        "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not tuple with an Optimizer");
  CHECK(refusal(op::optim_step, {Bound(p)}) ==
        "optim.step(): argument 'self' (position 1) must be Optimizer, not Tensor");
  // A copy of what stands for it is a plain tensor.
  CHECK(!optimizer_of(gradwire::clone(optimizer)));
  CHECK(!optimizer_of(detach(optimizer)));
}
