#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "client/errors.h"
#include "client/optim/schedule.h"

using namespace gradwire::optim;
using Rates = std::vector<double>;

namespace {

/// Rates without an optimiser.
class Groups : public LearningRates {
 public:
  explicit Groups(Rates rates) {
    for (const double r : rates) add(r);
  }
  int sent = 0;

 private:
  void send(double, size_t) override { ++sent; }
};

bool close(const Rates& a, const Rates& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) < 1e-8)) return false;
  }
  return true;
}

// The rate of each epoch as a loop sees it, and by the closed form.
template <class S, class... A> Rates walk(size_t epochs, A... arguments) {
  Groups groups({0.05});
  S schedule(groups, arguments...);
  Rates seen, closed;
  for (size_t e = 0; e < epochs; ++e) {
    seen.push_back(groups.lr());
    closed.push_back(schedule.lr(static_cast<int64_t>(e)));
    CHECK(schedule.last_lr() == Rates{groups.lr()});
    CHECK(schedule.get_last_lr() == schedule.last_lr());
    schedule.step();
  }
  CHECK(seen == closed);
  return seen;
}

Rates plateau(double lr, PlateauOptions o, const Rates& metrics) {
  Groups groups({lr});
  ReduceLROnPlateau schedule(groups, o);
  Rates seen;
  for (const double m : metrics) {
    seen.push_back(groups.lr());
    schedule.step(m);
  }
  return seen;
}

template <class F> std::string message(F f) {
  try {
    f();
  } catch (const gradwire::BadArgument& e) {
    return e.message();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("Schedules give the rates that PyTorch's give", "[client][F16][F17][F18][F19][F20][F24]") {
  const LambdaLR::Factor fade = [](int64_t e) { return std::pow(0.95, static_cast<double>(e)); };
  CHECK(close(walk<LambdaLR>(4, fade), {.05, .0475, .045125, .04286875}));
  CHECK(close(walk<StepLR>(7, 3), {.05, .05, .05, .005, .005, .005, .0005}));
  CHECK(close(walk<MultiStepLR>(6, std::vector<int64_t>{2, 5}), {.05, .05, .005, .005, .005, .0005}));
  CHECK(close(walk<MultiStepLR>(6, std::vector<int64_t>{5, 2}), {.05, .05, .005, .005, .005, .0005}));
  CHECK(close(walk<ExponentialLR>(4, 0.9), {.05, .045, .0405, .03645}));
  CHECK(close(walk<CosineAnnealingLR>(5, 4, 0.01), {.05, .04414214, .03, .01585786, .01}));
}

TEST_CASE("Each group of parameters has its own base, and may have its own function", "[client][F12][F17]") {
  Groups groups({1, 2});
  LambdaLR schedule(groups, std::vector<LambdaLR::Factor>{[](int64_t) { return 0.5; },
                                                          [](int64_t e) { return 1.0 + static_cast<double>(e); }});
  schedule.step();
  CHECK(groups.lr(0) == 0.5);
  CHECK(groups.lr(1) == 4);
  CHECK(message([&] { LambdaLR(groups, std::vector<LambdaLR::Factor>{[](int64_t) { return 1.0; }}); }) ==
        "Expected 2 lr_lambdas, but got 1");
}

TEST_CASE("A rate that stays is not sent again", "[client][F18]") {
  Groups groups({1});
  StepLR schedule(groups, 3);
  for (int e = 0; e < 6; ++e) schedule.step();
  CHECK(groups.sent == 2);
}

TEST_CASE("A schedule is gone on with from a later epoch", "[client][F25]") {
  Groups groups({0.05});
  CHECK(message([&] { StepLR(groups, 3, 0.1, 2); }) ==
        "param 'initial_lr' is not specified in param_groups[0] when resuming an optimizer");
  groups.set_initial_lr(0.05, 0);
  const StepLR schedule(groups, 3, 0.1, 2);
  CHECK(schedule.last_epoch() == 3);
  CHECK(std::abs(groups.lr() - 0.005) < 1e-12);
}

TEST_CASE("ReduceLROnPlateau waits as PyTorch's does", "[client][F21][F22]") {
  CHECK(close(plateau(1, {.factor = 0.5, .patience = 2}, Rates(11, 1)), {1, 1, 1, 1, .5, .5, .5, .25, .25, .25, .125}));
  CHECK(close(plateau(1, {.factor = 0.5, .patience = 1, .cooldown = 2}, Rates(12, 1)),
              {1, 1, 1, .5, .5, .5, .5, .25, .25, .25, .25, .125}));
  CHECK(close(plateau(1, {.factor = 0.5, .patience = 0, .threshold = 0.1}, {1, .95, .8, .79, .7, .69}),
              {1, 1, .5, .5, .25, .25}));
  CHECK(close(plateau(1, {.patience = 0, .min_lr = 0.05}, Rates(5, 1)), {1, 1, .1, .05, .05}));
  CHECK(close(plateau(1, {.mode = "max", .factor = 0.5, .patience = 0, .threshold = 0.5, .threshold_mode = "abs"},
                      {1, 1.4, 1.6, 1.7, 2.2}),
              {1, 1, .5, .5, .25}));
}

TEST_CASE("A schedule that cannot be is refused in PyTorch's words", "[client][F23]") {
  Groups groups({1});
  CHECK(message([&] { ReduceLROnPlateau(groups, {.factor = 1}); }) == "Factor should be < 1.0.");
  CHECK(message([&] { ReduceLROnPlateau(groups, {.mode = "foo"}); }) == "mode foo is unknown!");
  CHECK(message([&] { ReduceLROnPlateau(groups, {.threshold_mode = "foo"}); }) == "threshold mode foo is unknown!");
  CHECK(message([&] { StepLR(groups, 0); }) == "StepLR: step_size must be at least 1, but is 0");
}
