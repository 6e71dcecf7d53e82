#include "tests/property/pointwise.h"

#include <algorithm>
#include <cmath>

namespace gradwire::property {

DType promoted(std::initializer_list<Side> sides) {
  bool seen = false;
  DType result = DType::boolean;
  for (int rank = 0; rank < 3; ++rank) {
    bool here = false;
    DType lower = DType::boolean;
    for (const Side& s : sides) {
      if (s.rank() != rank) continue;
      lower = here ? promote(lower, s.dtype()) : s.dtype();
      here = true;
    }
    if (!here) continue;
    if (!seen)
      result = lower;
    else if (category(lower) > category(result))
      result = promote(result, lower);
    seen = true;
  }
  return result;
}

Num sum_of(DType t, const Num& a, const Num& b) {
  if (t == DType::boolean) return whole(t, a.i | b.i);
  if (!is_floating(t)) return whole(t, static_cast<int64_t>(static_cast<uint64_t>(a.i) + static_cast<uint64_t>(b.i)));
  return real(t, a.v + b.v, a.e + b.e, a.d + b.d);
}

Num negative(DType t, const Num& a) {
  if (!is_floating(t)) return whole(t, static_cast<int64_t>(0 - static_cast<uint64_t>(a.i)));
  return real(t, -a.v, a.e, -a.d);
}

Num product(DType t, const Num& a, const Num& b) {
  if (!is_floating(t)) return whole(t, static_cast<int64_t>(static_cast<uint64_t>(a.i) * static_cast<uint64_t>(b.i)));
  return real(t, a.v * b.v, term(b.e, std::abs(a.v)) + term(a.e, std::abs(b.v)) + a.e * b.e,
              term(b.d, a.v) + term(a.d, b.v));
}

Num quotient(DType t, const Num& a, const Num& b) {
  double e = 0;
  if (b.v == 0 && a.v != 0 && !std::isnan(a.v)) throw Redraw{"the sign of a zero"};  // which sums do not promise
  if (a.e > 0 || b.e > 0) {
    const double least = std::abs(b.v) - b.e;
    if (least <= 0) throw Redraw{"division by what may be zero"};
    e = (a.e + std::abs(a.v / b.v) * b.e) / least;
  }
  return real(t, a.v / b.v, e, term(a.d, 1 / b.v) - term(b.d, a.v / b.v / b.v));
}

Num larger(DType t, const Num& a, const Num& b, bool least) {
  if (!is_floating(t)) return whole(t, least ? std::min(a.i, b.i) : std::max(a.i, b.i));
  if (std::isnan(a.v)) return a;
  if (std::isnan(b.v)) return b;
  Num n = (a.v < b.v) == least ? a : b;
  const double e = a.e + b.e;
  if (a.v == b.v) n.d = (a.d + b.d) / 2;
  if (e > 0 && std::abs(a.v - b.v) <= 2 * e) {
    if (a.d != b.d) throw Redraw{"a kink"};
    n.e = std::max(a.e, b.e);
  }
  return n;
}

int64_t divided(const Num& a, const Num& b, DType t, bool floor) {
  if (b.i == 0) throw Redraw{"integer division by zero"};
  if (b.i == -1) return negative(t, a).i;
  const int64_t q = a.i / b.i;
  return q - (floor && a.i % b.i != 0 && (a.i < 0) != (b.i < 0));
}

bool nonzero(const Array& a, double least) {
  const std::vector<Num> all = elements(a);
  return std::all_of(all.begin(), all.end(),
                     [&](const Num& n) { return is_floating(a.dtype) ? std::abs(n.v) - n.e >= least : n.i != 0; });
}

bool within(const Array& a, double low, double high) {
  const std::vector<Num> all = elements(a);
  return !is_floating(a.dtype) || std::all_of(all.begin(), all.end(), [&](const Num& n) {
    return !std::isfinite(n.v) || (n.v - n.e >= low && n.v + n.e <= high);
  });
}
bool finite(const Array& a) {
  const std::vector<Num> all = elements(a);
  return !is_floating(a.dtype) || std::all_of(all.begin(), all.end(), [](const Num& n) { return std::isfinite(n.v); });
}

}  // namespace gradwire::property
