#include "tests/property/draw.h"
#include "tests/property/sums.h"

// Products of matrices.

namespace gradwire::property {
namespace {

// The product of a row and a column.
Num inner(DType t, const std::vector<Num>& a, const std::vector<Num>& b) {
  if (is_floating(t)) {
    const Total s = dot(t, a, b);
    return real(t, s.v, s.e, s.d);
  }
  uint64_t sum = 0;
  bool some = false;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<uint64_t>(a[i].i) * static_cast<uint64_t>(b[i].i);
    some = some || (a[i].i && b[i].i);
  }
  return t == DType::boolean ? whole(t, some) : whole(t, static_cast<int64_t>(sum));
}

Array unsqueezed(const Array& a, size_t at) {
  Array v = a;
  v.shape.insert(v.shape.begin() + static_cast<std::ptrdiff_t>(at), 1);
  v.strides.insert(v.strides.begin() + static_cast<std::ptrdiff_t>(at), 0);
  return v;
}

Array product(Array a, Array b) {
  if (a.shape.empty() || b.shape.empty()) throw Redraw{"no dims"};
  if (a.dtype != b.dtype) throw Redraw{"two dtypes"};
  const bool row = a.shape.size() == 1, column = b.shape.size() == 1;
  if (row) a = unsqueezed(a, 0);
  if (column) b = unsqueezed(b, 1);
  const size_t da = a.shape.size(), db = b.shape.size();
  const int64_t m = a.shape[da - 2], k = a.shape[da - 1], n = b.shape[db - 1];
  if (b.shape[db - 2] != k) throw Redraw{"sizes that do not meet"};
  const Sizes batch = broadcast(Sizes(a.shape.begin(), a.shape.end() - 2), Sizes(b.shape.begin(), b.shape.end() - 2));
  const auto at = [&](const Array& x, int64_t rows, int64_t columns) {
    Sizes shape = batch;
    shape.push_back(rows), shape.push_back(columns);
    return elements(widened(x, shape));
  };
  const std::vector<Num> x = at(a, m, k), y = at(b, k, n);
  std::vector<Num> out;
  for (int64_t g = 0; g < count(batch); ++g) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        std::vector<Num> p, q;
        for (int64_t l = 0; l < k; ++l) {
          p.push_back(x[static_cast<size_t>((g * m + i) * k + l)]);
          q.push_back(y[static_cast<size_t>((g * k + l) * n + j)]);
        }
        out.push_back(inner(a.dtype, p, q));
      }
    }
  }
  Sizes shape = batch;
  if (!row) shape.push_back(m);
  if (!column) shape.push_back(n);
  return fresh(a.dtype, std::move(shape), std::move(out));
}

std::vector<Array> matmul(const Args& a) { return {product(a.array(0), a.array(1))}; }

// Something of x's dtype whose second last size (last for a vector) is k.
int factor(Draw& d, const Array& x, int64_t k, bool vector, bool batches) {
  const int found = d.pick([&](const Array& y) {
    if (y.dtype != x.dtype || y.shape.empty()) return false;
    return y.shape.size() == 1 ? vector && y.shape[0] == k : y.shape[y.shape.size() - 2] == k;
  });
  if (found >= 0 && d.dice.chance(85)) return found;
  Sizes shape{k};
  if (!vector || d.dice.chance(70)) shape.push_back(d.dice.between(1, 4));
  if (batches && shape.size() == 2 && d.dice.chance(30)) shape.insert(shape.begin(), d.dice.between(1, 2));
  return d.input(x.dtype, shape);
}

bool draw_matmul(Draw& d) {
  if (!d.array(0, [](const Array& a) { return !a.shape.empty(); })) return false;
  const Array x = d.at(0);
  d.set(1, Arg::of_var(factor(d, x, x.shape.back(), true, true)));
  return true;
}

constexpr Row kRows[] = {
    {.name = "matmul", .params = "self, other", .draw = draw_matmul, .eval = matmul, .saves = kReads, .weight = 4},
};

}  // namespace

constinit const std::span<const Row> kLinear = kRows;

}  // namespace gradwire::property
