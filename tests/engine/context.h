#pragma once

#include <memory>
#include <vector>

#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/registry.h"
#include "tests/engine/loopback.h"

namespace gradwire::engine {

/// A CPU session's engine state for a test.
struct Engine {
  std::unique_ptr<Backend> backend = make_cpu_backend();
  Context cx;
  Loopback others;
  explicit Engine(Limits limits = {}) : cx(*backend, limits) { cx.exchange = &others; }

  template <class T> Tensor make(DType dtype, Shape shape, std::vector<T> values) {
    return from_bytes(cx, dtype, shape, std::as_bytes(std::span(values)));
  }
  Tensor doubles(Shape shape, std::vector<double> values) { return make(DType::float64, shape, std::move(values)); }
  Tensor leaf(Shape shape, std::vector<double> values) {
    Tensor t = doubles(shape, std::move(values));
    require_grad(t);
    return t;
  }
};

/// All elements in row-major order.
inline std::vector<double> values(const Tensor& t) {
  Context& cx = t.maker();
  const Tensor d = cx.contiguous(t, DType::float64);
  std::vector<double> out(static_cast<size_t>(d.numel()));
  if (!out.empty()) cx.backend.to_host(out.data(), d.data(), out.size() * sizeof(double));
  return out;
}

using Values = std::vector<double>;

}  // namespace gradwire::engine
