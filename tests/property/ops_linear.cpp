#include <cmath>

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

std::vector<Array> mm(const Args& a) {
  if (a.array(0).ndim() != 2 || a.array(1).ndim() != 2) throw Redraw{"no matrices"};
  return matmul(a);
}
std::vector<Array> bmm(const Args& a) {
  if (a.array(0).ndim() != 3 || a.array(1).ndim() != 3 || a.array(0).shape[0] != a.array(1).shape[0])
    throw Redraw{"no batches"};
  return matmul(a);
}

// x times the weight's transpose, and the bias, each rounded.
std::vector<Array> linear(const Args& a) {
  const Array &x = a.array(0), &w = a.array(1);
  if (w.ndim() != 2 || !is_floating(x.dtype)) throw Redraw{"no weights"};
  const Array y = product(x, ordered(w, {1, 0}));
  if (!a.has(2)) return {y};
  const Array& b = a.array(2);
  if (b.dtype != x.dtype || b.shape != Sizes{w.shape[0]}) throw Redraw{"another bias"};
  // Whether the bias is rounded on its own is open.
  const std::vector<Num> p = elements(y), q = elements(widened(b, y.shape));
  std::vector<Num> out;
  for (size_t i = 0; i < p.size(); ++i)
    out.push_back(real(y.dtype, p[i].v + q[i].v,
                       p[i].e + q[i].e + (p[i].e > 0 ? 2 * unit(y.dtype) * std::abs(p[i].v) : 0), p[i].d + q[i].d));
  return {fresh(y.dtype, y.shape, std::move(out))};
}

// The sum over all letters that the result has not, of products of elements.
std::vector<Array> einsum(const Args& a) {
  const std::vector<Array> all = a.arrays(1);
  const std::string text = a.words(0);
  const size_t arrow = text.find("->");
  std::vector<std::string> terms(1);
  for (const char c : text.substr(0, arrow)) c == ',' ? (void)terms.emplace_back() : terms.back().push_back(c);
  const std::string result = text.substr(arrow + 2);
  if (terms.size() != all.size()) throw Redraw{"another number of operands"};
  std::string letters = result;
  for (const std::string& t : terms) {
    for (const char c : t) {
      if (letters.find(c) == std::string::npos) letters += c;
    }
  }
  Sizes sizes(letters.size(), 1);
  for (size_t k = 0; k < all.size(); ++k) {
    if (all[k].dtype != all[0].dtype || all[k].shape.size() != terms[k].size()) throw Redraw{"other dims"};
    for (size_t d = 0; d < terms[k].size(); ++d) {
      int64_t& size = sizes[letters.find(terms[k][d])];
      if (size != 1 && all[k].shape[d] != size && all[k].shape[d] != 1) throw Redraw{"other sizes"};
      if (all[k].shape[d] != 1) size = all[k].shape[d];
    }
  }
  std::vector<std::vector<Num>> seen;  // each operand at all letters
  for (size_t k = 0; k < all.size(); ++k) {
    Array v = alias(all[k], sizes, Sizes(sizes.size(), 0), all[k].offset);
    for (size_t d = 0; d < terms[k].size(); ++d) {
      if (all[k].shape[d] != 1) v.strides[letters.find(terms[k][d])] += all[k].strides[d];
    }
    seen.push_back(elements(v));
  }
  Sizes summed, shape(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(result.size()));
  for (size_t d = result.size(); d < sizes.size(); ++d) summed.push_back(static_cast<int64_t>(d));
  Groups g = summed.empty() ? Groups{shape, {}} : groups(sizes, summed, false);
  if (summed.empty()) {
    for (size_t i = 0; i < seen[0].size(); ++i) g.members.push_back({i});
  }
  std::vector<Num> out;
  const std::vector<Num> ones(1, real(DType::float64, 1));
  for (const std::vector<size_t>& members : g.members) {
    std::vector<Num> p, q;
    for (const size_t i : members) p.push_back(seen[0][i]), q.push_back(seen.size() > 1 ? seen[1][i] : ones[0]);
    const Total s = dot(all[0].dtype, p, q);
    double size = 0;  // a sum of one operand on its own may come first
    for (size_t i = 0; i < p.size(); ++i) size += std::abs(p[i].v * q[i].v);
    out.push_back(real(all[0].dtype, s.v, s.e + 4 * static_cast<double>(p.size()) * unit(all[0].dtype) * size, s.d));
  }
  return {fresh(all[0].dtype, shape, std::move(out))};
}

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

bool draw_mm(Draw& d) {
  if (!d.array(0, [](const Array& a) { return a.shape.size() == 2; })) return false;
  const Array x = d.at(0);
  const int v =
      d.pick([&](const Array& y) { return y.dtype == x.dtype && y.shape.size() == 2 && y.shape[0] == x.shape[1]; });
  d.set(1, Arg::of_var(v >= 0 ? v : d.input(x.dtype, {x.shape[1], d.dice.between(1, 4)})));
  return true;
}
bool draw_bmm(Draw& d) {
  if (!d.array(0, [](const Array& a) { return a.shape.size() == 3; })) return false;
  const Array x = d.at(0);
  const int v = d.pick([&](const Array& y) {
    return y.dtype == x.dtype && y.shape.size() == 3 && y.shape[0] == x.shape[0] && y.shape[1] == x.shape[2];
  });
  d.set(1, Arg::of_var(v >= 0 ? v : d.input(x.dtype, {x.shape[0], x.shape[2], d.dice.between(1, 3)})));
  return true;
}
bool draw_linear(Draw& d) {
  if (!d.array(0, [](const Array& a) {
        return (a.dtype == DType::float32 || a.dtype == DType::float64) && a.shape.size() >= 2;
      }))
    return false;
  const Array x = d.at(0);
  const int v =
      d.pick([&](const Array& y) { return y.dtype == x.dtype && y.shape.size() == 2 && y.shape[1] == x.shape.back(); });
  d.set(1, Arg::of_var(v >= 0 ? v : d.input(x.dtype, {d.dice.between(1, 4), x.shape.back()})));
  if (d.dice.chance(60)) {
    const Sizes bias{d.at(1).shape[0]};
    const int b = d.pick([&](const Array& y) { return y.dtype == x.dtype && y.shape == bias; });
    d.set(2, Arg::of_var(b >= 0 ? b : d.input(x.dtype, bias)));
  }
  return true;
}
bool draw_einsum(Draw& d) {
  struct Form {
    const char* equation;
    Sizes first, second;  // letters as numbers
  };
  static const std::vector<Form> forms = {{"ij,jk->ik", {0, 1}, {1, 2}}, {"bij,bjk->bik", {3, 0, 1}, {3, 1, 2}},
                                          {"i,j->ij", {0}, {1}},         {"ij,ij->", {0, 1}, {0, 1}},
                                          {"ij->j", {0, 1}, {}},         {"ij->i", {0, 1}, {}},
                                          {"ijk->ik", {0, 1, 2}, {}},    {"ij,j->i", {0, 1}, {1}},
                                          {"i,i->", {0}, {0}},           {"ij,kj->ik", {0, 1}, {2, 1}},
                                          {"ji,jk->ik", {1, 0}, {1, 2}}, {"ij,ij->ij", {0, 1}, {0, 1}}};
  const Form& f = d.dice.one_of(forms);
  if (!d.array(1, [&](const Array& a) {
        return (a.dtype == DType::float32 || a.dtype == DType::float64) && a.shape.size() == f.first.size() &&
               count(a.shape) > 0 && count(a.shape) <= 60;
      }))
    return false;
  const Array x = d.at(1);
  Sizes all{d.args[1].list[0]};
  if (!f.second.empty()) {
    Sizes sizes(4, 0), want;
    for (int64_t& s : sizes) s = d.dice.between(1, 4);
    for (size_t k = 0; k < f.first.size(); ++k) sizes[static_cast<size_t>(f.first[k])] = x.shape[k];
    for (const int64_t letter : f.second) want.push_back(sizes[static_cast<size_t>(letter)]);
    const int v = d.pick([&](const Array& y) { return y.dtype == x.dtype && y.shape == want; });
    all.push_back(v >= 0 ? v : d.input(x.dtype, want));
  }
  d.set(0, Arg::of(f.equation));
  d.set(1, Arg::of_vars(all));
  return true;
}

constexpr Row kRows[] = {
    {.name = "matmul", .params = "self, other", .draw = draw_matmul, .eval = matmul, .saves = kReads, .weight = 4},
    {.name = "mm", .params = "self, mat2", .draw = draw_mm, .eval = mm, .saves = kReads},
    {.name = "bmm", .params = "self, mat2", .draw = draw_bmm, .eval = bmm, .saves = kReads},
    {.name = "linear", .params = "input, weight, bias", .draw = draw_linear, .eval = linear, .saves = kReads},
    {.name = "einsum", .params = "equation, operands", .draw = draw_einsum, .eval = einsum, .saves = kReads},
};

}  // namespace

constinit const std::span<const Row> kLinear = kRows;

}  // namespace gradwire::property
