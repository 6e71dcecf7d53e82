#pragma once

#include <vector>

#include "tests/property/array.h"

// Adding up, in any order.

namespace gradwire::property {

/// For each place that is kept the elements of a's that come together there, by their row-major numbers.
struct Groups {
  Sizes shape;  // of what is kept
  std::vector<std::vector<size_t>> members;
};
/// No dims means all.
Groups groups(const Sizes& shape, const Sizes& dims, bool keepdim);

struct Total {
  double v = 0, e = 0, d = 0;
  bool exact = true;  // no order of additions rounds
};
/// The sum in the type in which t computes.
Total total(DType t, const std::vector<Num>& values);
/// The sum of products.
Total dot(DType t, const std::vector<Num>& a, const std::vector<Num>& b);

}  // namespace gradwire::property
