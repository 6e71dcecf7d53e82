#pragma once

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

}  // namespace gradwire::property
