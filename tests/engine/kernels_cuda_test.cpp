#include <catch2/catch_test_macros.hpp>

#include <string>

#include "schema/error.h"
#include "tests/engine/arrays.h"

// What CUDA computes is what the CPU computes. Skipped where there is no device.

using namespace gradwire;
using namespace gradwire::engine;
using namespace gradwire::engine::test;

namespace {

#if GRADWIRE_CUDA
/// A device, and arrays that are copied to it for a launch and back after it.
class Device {
 public:
  Device() : backend_(make_cuda_backend(0)) {}

  View put(const Array& a) {
    View v = a.view();
    auto* p = static_cast<char*>(backend_->allocate(a.storage_bytes()));
    backend_->from_host(p, a.storage(), a.storage_bytes());
    held_.push_back({p, a.storage(), a.storage_bytes()});
    v.data = p + a.first();
    return v;
  }
  /// Everything back to the host.
  void get() {
    backend_->sync();
    for (const Held& h : held_) {
      backend_->to_host(h.host, h.device, h.bytes);
      backend_->free(h.device, h.bytes);
    }
    held_.clear();
  }
  void run(KernelFn cuda, std::vector<View> out, std::vector<View> in, const void* params = nullptr) {
    backend_->run(Kernel{nullptr, cuda}, {.stream = nullptr, .out = out, .in = in, .params = params});
  }
  Backend& backend() { return *backend_; }

 private:
  struct Held {
    char *device, *host;
    size_t bytes;
  };
  std::unique_ptr<Backend> backend_;
  std::vector<Held> held_;
};

Array copy_of(const Array& a) {
  Array b(a.dtype(), a.shape());
  for (int64_t i = 0; i < a.numel(); ++i) std::memcpy(b.at(i), a.at(i), static_cast<size_t>(size_of(a.dtype())));
  return b;
}
void compare(const Array& got, const Array& want, double relative) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < want.numel(); ++i) wrong += !near(got.real(i), want.real(i), relative);
  CHECK(wrong == 0);
}

/// The kernel on both back ends with the same inputs.
void both(Device& d, KernelFn cpu, KernelFn cuda, const Array& out, const std::vector<Array>& in, const void* params,
          double relative) {
  const Array want = copy_of(out);
  std::vector<View> host, device;
  for (const Array& a : in) host.push_back(a.view());
  launch(cpu, {want.view()}, host, params);
  const View to = d.put(out);
  for (const Array& a : in) device.push_back(d.put(a));
  d.run(cuda, {to}, device, params);
  d.get();
  compare(out, want, relative);
}
#endif

}  // namespace

TEST_CASE("a device that is not there is an error", "[kernels][cuda]") {
  CHECK_THROWS_AS(make_cuda_backend(cuda_device_count()), Error);
  CHECK_THROWS_AS(make_cuda_backend(-1), Error);
}

#if GRADWIRE_CUDA
TEST_CASE("every functor gives on CUDA what it gives on the CPU", "[kernels][cuda]") {
  if (cuda_device_count() == 0) SKIP("no CUDA device");
  Device d;
  std::mt19937 r(21);
  const Scalar alpha = 3;
  for (const char* op : {"neg", "exp", "log",       "relu",      "add",     "add_scaled", "sub",
                         "mul", "div", "div_floor", "div_trunc", "maximum", "minimum",    "eq",
                         "ne",  "lt",  "le",        "gt",        "ge",      "where",      "threshold_backward"}) {
    const Pointwise* p = find_pointwise(op);
    for (DType t : kAll) {
      CAPTURE(op, name(t));
      REQUIRE((p->cpu[static_cast<int>(t)] == nullptr) == (p->cuda[static_cast<int>(t)] == nullptr));
      if (!p->cuda[static_cast<int>(t)]) continue;
      const bool mask = std::string(op).size() == 2;
      for (Layout l : kLayouts) {
        const Sizes shape = {5, 40, 33};
        std::vector<Array> in;
        if (p->inputs == 3) in.push_back(Array(DType::boolean, shape, l).random(r));
        while (static_cast<int>(in.size()) < p->inputs) in.push_back(Array(t, shape, l).random(r));
        const Array out(mask ? DType::boolean : t, shape, kOutLayouts[r() % 4]), want = copy_of(out);
        std::vector<View> host = {want.view()}, device = {d.put(out)};
        for (const Array& a : in) host.push_back(a.view()), device.push_back(d.put(a));
        make_cpu_backend()->run(*p, t, host, &alpha);
        d.backend().run(*p, t, device, &alpha);
        d.get();
        compare(out, want, tolerance(t));
      }
    }
  }
}

TEST_CASE("every other kernel gives on CUDA what it gives on the CPU", "[kernels][cuda]") {
  if (cuda_device_count() == 0) SKIP("no CUDA device");
  Device d;
  std::mt19937 r(22);
  for (DType t : kAll) {
    for (Layout l : kLayouts) {
      CAPTURE(name(t), test::name(l));
      const double close = is_floating(t) ? 4 * tolerance(t) : 0;
      const Array x = Array(t, {6, 20, 17}, l).random(r), y = Array(t, {6, 17, 9}, l).random(r);
      for (DType to : kAll)
        both(d, cpu::convert, cuda::convert, Array(to, x.shape(), kOutLayouts[r() % 4]), {x}, nullptr, 0);
      const FillParams fill{Scalar(1)};
      both(d, cpu::fill, cuda::fill, Array(t, {7, 5}, kOutLayouts[r() % 4]), {}, &fill, 0);
      const SumParams sum;
      for (const Sizes& small : {Sizes{1, 1, 1}, Sizes{6, 1, 17}, Sizes{1, 20, 1}, Sizes{6, 20, 1}}) {
        both(d, cpu::sum, cuda::sum, Array(is_floating(t) ? t : DType::int64, small), {x}, &sum, close);
      }
      both(d, cpu::matmul, cuda::matmul, Array(t, {6, 20, 9}, kOutLayouts[r() % 4]), {x, y}, nullptr, close);
      const Array count(DType::int64, {});
      both(d, cpu::count_nonzero, cuda::count_nonzero, count, {x}, nullptr, 0);
      both(d, cpu::nonzero, cuda::nonzero, Array(DType::int64, {count.whole(0), 3}), {x}, nullptr, 0);
      // 50 picks of rows of 9
      Array offsets(DType::int64, {50});
      offsets.each([&](int64_t) { return static_cast<int64_t>(r() % 11) * 9; });
      const Array table = Array(t, {11, 9}).random(r), picks = offsets.seen({50, 9}, {1, 0});
      both(d, cpu::take, cuda::take, Array(t, {50, 9}), {table.seen({50, 9}, {0, 1}), picks}, nullptr, 0);
      for (bool accumulate : {false, true}) {
        const PutParams put{accumulate};
        const Array target = copy_of(table), want = copy_of(table), values = Array(t, {50, 9}, l).random(r);
        launch(cpu::put, {want.seen({50, 9}, {0, 1}).view()}, {picks.view(), values.view()}, &put);
        const View to = d.put(target.seen({50, 9}, {0, 1}));
        d.run(cuda::put, {to}, {d.put(picks), d.put(values)}, &put);
        d.get();
        compare(target, want, close);
      }
      if (!is_floating(t)) continue;
      both(d, cpu::log_softmax, cuda::log_softmax, Array(t, x.shape(), kOutLayouts[r() % 4]), {x}, nullptr, close);
      Array targets(DType::int64, {6, 17}), weight(t, {20});
      targets.each([&](int64_t) { return static_cast<int64_t>(r() % 20); });
      weight.each([](int64_t i) { return 0.5 * static_cast<double>(i); });
      targets.set(4, -100);
      const NllParams nll;
      both(d, cpu::nll_pick, cuda::nll_pick, Array(t, {6, 17}), {x, targets, weight}, &nll, close);
      const Array grad = Array(t, {6, 17}, l).random(r);
      both(d, cpu::nll_spread, cuda::nll_spread, Array(t, {6, 20, 17}), {grad, targets, weight}, &nll, close);
      const RandomParams random{123, 45};
      both(d, cpu::uniform, cuda::uniform, Array(t, {1001}), {}, &random, 0);
      both(d, cpu::normal, cuda::normal, Array(t, {1001}), {}, &random, close);
    }
  }
}

TEST_CASE("indexes out of bounds are errors on CUDA too", "[kernels][cuda]") {
  if (cuda_device_count() == 0) SKIP("no CUDA device");
  Device d;
  Array index(DType::int64, {4}), out(DType::int64, {4});
  index.each([](int64_t i) { return i; });
  const LinearIndexParams good{{4}, {7}, {0}}, bad{{3}, {7}, {2}};
  const View to = d.put(out), from = d.put(index);
  d.run(cuda::linear_index, {to}, {from}, &good);
  try {
    d.run(cuda::linear_index, {to}, {from}, &bad);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.message() == "index 3 is out of bounds for dimension 2 with size 3");
  }
  d.get();
  CHECK(out.whole(3) == 21);
}
#endif
