// The SDK's LBFGS, over the engine in this process. The values are torch 1.13's.
#include <catch2/catch_test_macros.hpp>

#include <cmath>

#include "client/optim/lbfgs.h"
#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;
using optim::basic::LBFGS;
using optim::basic::LBFGSOptions;

namespace {

// Steps into the valley of (1 - x)^2 + 10 (y - x^2)^2 + (z - y)^2.
struct Valley {
  Engine e;
  Tensor a = e.leaf({2}, {-1.5, 2}), b = e.leaf({}, {0.5});
  Values losses;

  Values descend(int steps, LBFGSOptions o) {
    LBFGS<Tensor> optimizer({a, b}, o);
    for (int k = 0; k < steps; ++k) {
      losses.push_back(optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor x = a[{0}], y = a[{1}], u = 1 - x, v = y - x * x, w = b - y;
        const Tensor loss = u * u + 10 * v * v + w * w;
        loss.backward();
        return loss;
      }));
    }
    Values end = values(a);
    end.push_back(values(b)[0]);
    return end;
  }
};

void check_near(const Values& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << " is " << got[i] << ", not " << want[i]);
    CHECK(std::abs(got[i] - want[i]) < 1e-10);
  }
}

}  // namespace

TEST_CASE("LBFGS goes the way that PyTorch's goes", "[engine][F10]") {
  check_near(Valley().descend(1, {.lr = 0.1, .max_iter = 4}),
             {-1.3932326525648702, 1.9789600810617716, 0.5363039697334505});
  Valley forgetful;
  check_near(forgetful.descend(3, {.lr = 0.1, .max_iter = 5, .history_size = 3}),
             {-0.7550596508560729, 0.5411506959184766, 0.6487582477065358});
  check_near(forgetful.losses, {9.125, 7.581032921978686, 4.91682551907587});
  Valley whole;
  check_near(whole.descend(6, {}), {0.9999981303576109, 0.9999960318237708, 1.0000050204105062});
  CHECK(whole.losses[5] == whole.losses[2]);  // there is nothing left to do
}

TEST_CASE("LBFGS solves a parabola in one step", "[engine][F10]") {
  Engine e;
  const Tensor p = e.leaf({2}, {1, -2});
  LBFGS<Tensor> optimizer({p});
  const double loss = optimizer.step([&] {
    optimizer.zero_grad();
    const Tensor square = sum(p * p);
    square.backward();
    return square;
  });
  CHECK(loss == 5);
  CHECK(std::abs(values(p)[0]) < 1e-15);
  CHECK(std::abs(values(p)[1]) < 1e-15);
  CHECK(p.version() > 0);
}

TEST_CASE("LBFGS takes one group of parameters, and some", "[engine][F10][F13]") {
  Engine e;
  const Tensor p = e.leaf({1}, {1});
  LBFGS<Tensor> optimizer({p});
  auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& err) {
      return err.message();
    }
    return "";
  };
  CHECK(message([&] { optimizer.add_param_group({p}); }) ==
        "LBFGS doesn't support per-parameter options (parameter groups)");
  CHECK(message([&] { LBFGS<Tensor>(std::vector<Tensor>()); }) == "optimizer got an empty parameter list");
}
