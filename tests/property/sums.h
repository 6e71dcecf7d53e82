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

/// f of the elements of each group.
template <class F> Array reduce(const Array& x, DType compute, DType result, const Groups& g, F f) {
  const std::vector<Num> all = elements(x, compute);
  std::vector<Num> out;
  for (const std::vector<size_t>& members : g.members) {
    std::vector<Num> some;
    for (const size_t i : members) some.push_back(all[i]);
    out.push_back(f(some));
  }
  return fresh(result, g.shape, std::move(out));
}

/// f of each line along the dim, which gives a line as long.
template <class F> Array along(const Array& x, int64_t dim, DType compute, DType result, F f) {
  const std::vector<Num> all = elements(x, compute);
  const Groups g = groups(x.shape, {dim}, false);
  std::vector<Num> out(all.size());
  for (const std::vector<size_t>& members : g.members) {
    std::vector<Num> line;
    for (const size_t i : members) line.push_back(all[i]);
    if (line.empty()) continue;
    const std::vector<Num> made = f(line);
    for (size_t k = 0; k < members.size(); ++k) out[members[k]] = made[k];
  }
  return fresh(result, x.shape, std::move(out));
}

struct Total {
  double v = 0, e = 0, d = 0;
  bool exact = true;  // no order of additions rounds
};
/// The sum in the type in which t computes.
Total total(DType t, const std::vector<Num>& values);
/// The product, wrapped where t is no floating dtype.
Num product_of(DType t, const std::vector<Num>& values);
/// The logarithm of the sum of exponentials.
Total log_sum_exp(DType t, const std::vector<Num>& values);
/// The sum of products.
Total dot(DType t, const std::vector<Num>& a, const std::vector<Num>& b);

}  // namespace gradwire::property
