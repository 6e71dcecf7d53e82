#include <catch2/catch_test_macros.hpp>

#include <cmath>

#include "engine/optimizer.h"
#include "schema/ops.h"
#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;

// Skipped where there is no device.
TEST_CASE("Steps on CUDA lead where they lead on the CPU", "[engine][cuda][F1][F3]") {
  if (cuda_device_count() == 0) SKIP("no CUDA device");
  const auto cpu = make_cpu_backend(), cuda = make_cuda_backend(0);
  for (const DType t : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    for (const char* name : {"optim.SGD", "optim.Adam", "optim.AdamW", "optim.Adamax", "optim.NAdam", "optim.RAdam",
                             "optim.RMSprop", "optim.Adagrad", "optim.Adadelta", "optim.Rprop", "optim.ASGD"}) {
      INFO(name << ", " << gradwire::name(t));
      Values end[2];
      for (const bool device : {false, true}) {
        Context cx(device ? *cuda : *cpu, {});
        Values start(1003), slope(1003);
        for (size_t k = 0; k < start.size(); ++k)
          start[k] = std::sin(static_cast<double>(k)), slope[k] = std::cos(3 * static_cast<double>(k));
        auto make = [&](const Values& v) {
          return cx.contiguous(from_bytes(cx, DType::float64, Shape{1003}, std::as_bytes(std::span(v))), t);
        };
        const Tensor p = make(start);
        set_grad(p, make(slope));
        const Bound args[] = {Bound(std::span<const Tensor>(&p, 1)), Bound(Scalar(0.1))};
        const Tensor optimizer = call(cx, find_op(name)->id, args).at[0];
        for (int k = 0; k < 8; ++k) optim_step(optimizer);
        CHECK(item(optimizer).integer() == 8);
        end[device] = values(p);
      }
      const double eps = t == DType::float64 ? 1e-14 : t == DType::float32 ? 1e-6 : t == DType::float16 ? 1e-2 : 1e-1;
      for (size_t k = 0; k < end[0].size(); ++k) REQUIRE(std::abs(end[0][k] - end[1][k]) <= eps);
    }
  }
}
