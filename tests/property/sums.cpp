#include "tests/property/sums.h"

#include <algorithm>
#include <cmath>

namespace gradwire::property {
namespace {

// The exponent of the last bit that is set.
int last_bit(double v) {
  int exponent;
  auto m = static_cast<int64_t>(std::ldexp(std::frexp(std::abs(v), &exponent), 53));
  while (m % 2 == 0) m /= 2, ++exponent;
  return exponent - 53;
}

// Bounds for terms that are added in any order in the type in which t computes.
struct Adder {
  explicit Adder(DType t) : t(t) {}
  DType t;
  double v = 0, size = 0;
  int last = 2000;
  int64_t n = 0;
  bool exact = true, finite = true;
  void add(double x) {
    v += x, ++n;
    if (!std::isfinite(x)) {
      finite = false;
    } else if (x != 0) {
      size += std::abs(x), last = std::min(last, last_bit(x));
    }
  }
  Total end(double e, double d) const {
    Total r;
    r.v = v, r.e = e, r.d = d;
    const int bits = t == DType::float64 ? 53 : 24;
    r.exact = !finite || (exact && e == 0 && size <= std::ldexp(1.0, last + bits));
    if (!r.exact) r.e += 2 * static_cast<double>(n + 1) * unit(t) * size;
    return r;
  }
};

}  // namespace

Groups groups(const Sizes& shape, const Sizes& dims, bool keepdim) {
  const auto n = static_cast<int64_t>(shape.size());
  std::vector<bool> gone(shape.size(), dims.empty());
  for (const int64_t d : dims) {
    const int64_t at = dim_of(d, n);
    if (n == 0) continue;
    if (gone[static_cast<size_t>(at)]) throw Redraw{"a dim twice"};
    gone[static_cast<size_t>(at)] = true;
  }
  Groups g;
  Array kept;  // a tensor of the kept sizes, seen at the full shape
  Sizes sizes;
  for (size_t d = 0; d < shape.size(); ++d) {
    sizes.push_back(gone[d] ? 1 : shape[d]);
    if (!gone[d] || keepdim) g.shape.push_back(sizes.back());
  }
  kept.shape = shape, kept.strides = dense_strides(sizes);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (gone[d]) kept.strides[d] = 0;
  }
  g.members.resize(static_cast<size_t>(count(sizes)));
  const std::vector<int64_t> to = places(kept);
  for (size_t i = 0; i < to.size(); ++i) g.members[static_cast<size_t>(to[i])].push_back(i);
  return g;
}

Total total(DType t, const std::vector<Num>& values) {
  Adder a(t);
  double e = 0, d = 0;
  for (const Num& n : values) a.add(n.v), e += n.e, d += n.d;
  return a.end(e, d);
}

Total dot(DType t, const std::vector<Num>& x, const std::vector<Num>& y) {
  Adder a(t);
  double e = 0, d = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double p = x[i].v * y[i].v;
    a.add(p);
    a.exact = a.exact && std::fma(x[i].v, y[i].v, -p) == 0;
    e += term(x[i].e, std::abs(y[i].v)) + term(y[i].e, std::abs(x[i].v)) + x[i].e * y[i].e;
    d += term(x[i].d, y[i].v) + term(y[i].d, x[i].v);
  }
  return a.end(e, d);
}

}  // namespace gradwire::property
