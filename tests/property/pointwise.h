#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tests/property/program.h"

// What elementwise operators have in common: operands, promotion, broadcasting.

namespace gradwire::property {

/// An operand: a tensor or a number.
class Side {
 public:
  Side(const Args& a, size_t i) {
    if (a.is_array(i))
      array_ = a.array(i);
    else
      scalar_ = a.scalar(i);
  }
  explicit Side(Array a) : array_(std::move(a)) {}
  bool is_array() const { return array_.valid(); }
  const Array& array() const { return array_; }
  DType dtype() const {
    if (is_array()) return array_.dtype;
    return scalar_.kind == Category::boolean   ? DType::boolean
           : scalar_.kind == Category::integer ? DType::int64
                                               : DType::float32;
  }
  Sizes shape() const { return array_.shape; }
  /// 0: tensors with dims, 1: without, 2: numbers.
  int rank() const { return !is_array() ? 2 : array_.shape.empty() ? 1 : 0; }
  /// Its elements at a larger shape, converted.
  std::vector<Num> at(const Sizes& shape, DType t) const {
    if (!is_array()) return std::vector<Num>(static_cast<size_t>(count(shape)), number(scalar_, t));
    return elements(widened(array_, shape), t);
  }

 private:
  Array array_;
  Scalar scalar_;
};

// Formulas of numbers in dtype t.
Num sum_of(DType t, const Num& a, const Num& b);
Num negative(DType t, const Num& a);
Num product(DType t, const Num& a, const Num& b);
Num quotient(DType t, const Num& a, const Num& b);
/// The larger, or with `least` the smaller; NaN wins, and equal ones share the derivative.
Num larger(DType t, const Num& a, const Num& b, bool least);
/// Integers, rounded towards zero or down.
int64_t divided(const Num& a, const Num& b, DType t, bool floor);

// What may be drawn as an argument.
inline bool numbers(const Array& a) { return a.dtype != DType::boolean; }
/// All elements are surely at least so far from zero.
bool nonzero(const Array& a, double least);
/// All finite floating elements surely lie between.
bool within(const Array& a, double low, double high);
bool finite(const Array& a);

/// Tensors with dims decide; those without, then numbers, only where their category is higher.
DType promoted(std::initializer_list<Side> sides);

template <class F> std::vector<Array> binary(const Side& a, const Side& b, DType compute, DType result, F f) {
  const Sizes shape = broadcast(a.shape(), b.shape());
  const std::vector<Num> x = a.at(shape, compute), y = b.at(shape, compute);
  std::vector<Num> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(f(x[i], y[i]));
  return {fresh(result, shape, std::move(out))};
}

template <class F> std::vector<Array> unary(const Array& x, DType compute, DType result, F f) {
  std::vector<Num> out;
  for (const Num& n : elements(x, compute)) out.push_back(f(n));
  return {fresh(result, x.shape, std::move(out))};
}

// f(value) with derivative slope(value, f(value)); what f's result may be off by for x's bound is at most `steep` times
// that bound. Two ulps are promised of what is no correctly rounded operation; four are allowed.
template <class F, class S> std::vector<Array> smooth(const Array& x, F f, S slope, double ulps = 4) {
  const DType t = is_floating(x.dtype) ? x.dtype : DType::float32;
  return unary(x, t, t, [&](const Num& n) {
    const double y = f(n.v);
    if (!std::isfinite(y)) {
      if (n.e > 0) throw Redraw{"a bound around an infinity"};
      return real(t, y);
    }
    // The slope at the far ends of the bound, where it is steepest for what is drawn here.
    double steep = 0;
    if (n.e > 0) {
      for (const double at : {n.v - n.e, n.v, n.v + n.e}) steep = std::max(steep, std::abs(slope(at, f(at))));
      if (!std::isfinite(steep)) throw Redraw{"an infinite slope"};
    }
    const double own = ulps * 2 * unit(t) * std::abs(y);
    const double d = n.d == 0 ? 0 : n.d * slope(n.v, y);
    return real(t, y, term(n.e, 1.01 * steep) + own, d);
  });
}

}  // namespace gradwire::property
