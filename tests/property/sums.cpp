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

Num product_of(DType t, const std::vector<Num>& values) {
  if (!is_floating(t)) {
    uint64_t p = 1;
    for (const Num& n : values) p *= static_cast<uint64_t>(n.i);
    return whole(t, static_cast<int64_t>(p));
  }
  double p = 1, far = 1, d = 0;  // far: where every factor is as large as its bound lets it be
  bool exact = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const Num& n = values[i];
    exact = exact && n.e == 0 && std::fma(p, n.v, -p * n.v) == 0;
    p *= n.v, far *= std::abs(n.v) + n.e;
    if (n.d == 0) continue;
    double others = 1;
    for (size_t j = 0; j < values.size(); ++j) others *= i == j ? 1 : values[j].v;
    d += n.d * others;
  }
  if (!std::isfinite(p)) return real(t, p, std::isfinite(far) && far != std::abs(p) ? far : 0);
  // The odd part of a product's factors is a factor of its odd part: what fits at the end fits on the way.
  const int bits = t == DType::float64 ? 53 : 24;
  if (exact && p != 0 && std::abs(p) >= std::ldexp(1.0, last_bit(p) + bits)) exact = false;
  const double own = exact ? 0 : 2 * static_cast<double>(values.size()) * unit(t) * far;
  return real(t, p, far - std::abs(p) + own, d);
}

Total log_sum_exp(DType t, const std::vector<Num>& values) {
  double top = -HUGE_VAL, most = 0, sum = 0;
  for (const Num& n : values) {
    if (!std::isfinite(n.v)) throw Redraw{"infinities under a logarithm"};
    top = std::max(top, n.v), most = std::max(most, n.e);
  }
  for (const Num& n : values) sum += std::exp(n.v - top);
  Total r;
  for (const Num& n : values) r.d += term(n.d, std::exp(n.v - top) / sum);
  r.v = top + std::log(sum), r.exact = false;
  r.e = most + 8 * unit(t) * (static_cast<double>(values.size()) + std::abs(top) + std::log(sum));
  return r;
}

}  // namespace gradwire::property
