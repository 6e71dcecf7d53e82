#include "tests/engine/registry_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>

#include "engine/apply.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {

std::vector<std::string_view> samples_of(const OpRow& row) {
  std::vector<std::string_view> samples(row.def->samples.begin(), row.def->samples.end());
  // A number on the left has no in-place form.
  if (row.inplace)
    std::erase_if(samples, [](std::string_view s) { return s[0] == '-' || (s[0] >= '0' && s[0] <= '9'); });
  return samples;
}

std::string difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double rtol, double atol) {
  if (got.size() != want.size()) return std::to_string(got.size()) + " results, not " + std::to_string(want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor &g = got[i], &w = want[i];
    const std::string which = "result " + std::to_string(i) + ": ";
    if (static_cast<bool>(g) != static_cast<bool>(w)) return which + (g ? "is there" : "is missing");
    if (!g) continue;
    if (g.dtype() != w.dtype()) return which + name(g.dtype()) + ", not " + name(w.dtype());
    if (!std::ranges::equal(g.shape(), w.shape()))
      return which + "shape " + to_string(g.shape()) + ", not " + to_string(w.shape());
    const Values a = values(g), b = values(w);
    for (size_t k = 0; k < a.size(); ++k) {
      const bool same = a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k])) ||
                        std::abs(a[k] - b[k]) <= atol + rtol * std::abs(b[k]);
      if (!same)
        return which + "element " + std::to_string(k) + " is " + std::to_string(a[k]) + ", not " + std::to_string(b[k]);
    }
  }
  return {};
}

Tensor laid_out(const Tensor& t, Layout layout) {
  if (layout == Layout::contiguous || t.ndim() == 0) return copied(t);
  Shape room(t.shape()), strides(t.shape().size(), 0);
  int64_t offset = 0;
  if (layout == Layout::transposed) {
    int64_t n = 1;
    for (size_t d = 0; d < room.size(); ++d) strides[d] = n, n *= std::max<int64_t>(room[d], 1);
  } else {
    for (int64_t& s : room) s = 2 * s + 1;
    strides = contiguous_strides(room);
    for (size_t d = 0; d < room.size(); ++d) offset += t.numel() ? strides[d] : 0, strides[d] *= 2;
  }
  const Tensor base = t.maker().full(room, 77, t.dtype());
  const Tensor view = t.maker().alias(base, t.shape(), strides, offset);
  t.maker().copy(view, t);
  return view;
}

Tensor leaf_like(const Tensor& t) {
  Tensor leaf = copy_of(t.maker(), t);
  require_grad(leaf);
  return leaf;
}

bool has_gradient(const OpRow& row) { return row.def->vjp || row.def->compose; }

namespace {

constexpr double kEps = 1e-6, kAbsolute = 1e-5, kRelative = 1e-3;

// The drawn floating inputs, without those that the row refuses to differentiate.
std::vector<size_t> differentiable(Context& cx, const Arguments& sample) {
  std::vector<size_t> where;
  for (size_t i = 0; i < sample.tensors.size(); ++i) {
    if (sample.places[i].how != 'f' && sample.places[i].how != 'p') continue;
    Arguments a = sample;
    a.tensors[i] = leaf_like(a.tensors[i]);
    try {
      a.run(cx);
      where.push_back(i);
    } catch (const Error& e) {
      if (e.code() != Code::not_differentiable) throw;
    }
  }
  return where;
}

// Weights of a result: no two alike, none zero.
Tensor weights(const Tensor& like, int salt) {
  Values v(static_cast<size_t>(like.numel()));
  for (size_t k = 0; k < v.size(); ++k)
    v[k] = 0.3 + 0.17 * static_cast<double>((k * 7 + static_cast<size_t>(salt) * 5 + 3) % 11);
  return from_bytes(like.maker(), like.dtype(), like.shape(), std::as_bytes(std::span(v)));
}

double dot(const Tensor& a, const Tensor& b) {
  const Values x = values(a), y = values(b);
  double sum = 0;
  for (size_t k = 0; k < x.size(); ++k) sum += x[k] * y[k];
  return sum;
}

// What the row `grad` answers; gradients that do not exist stay empty.
std::vector<Tensor> gradients(Context& cx, const std::vector<Tensor>& of, const std::vector<Tensor>& inputs,
                              const std::vector<Tensor>& weights, bool create_graph) {
  if (of.empty() || inputs.empty()) return std::vector<Tensor>(inputs.size());
  static const OpId id = find_op("grad")->id;
  const Bound args[] = {Bound(std::span(of)), Bound(std::span(inputs)),    Bound(std::span(weights)),
                        Bound(Scalar(true)),  Bound(Scalar(create_graph)), Bound(Scalar(true))};
  return call(cx, id, args).list;
}

// Those results that carry gradients, and their weights.
struct Weighted {
  std::vector<Tensor> results, weights;
};
bool carries(const Tensor& t) { return t && is_floating(t.dtype()); }

// df(x)/dx by central differences, an element at a time; `at` is put back.
std::string compare(const std::vector<Tensor*>& at, const std::vector<Tensor>& analytic, const char* what,
                    const std::function<double()>& f) {
  for (size_t i = 0; i < at.size(); ++i) {
    const Tensor original = *at[i];
    Context& cx = original.maker();
    const Values x = values(original);
    const Values a = analytic[i] ? values(analytic[i]) : Values(x.size(), 0);
    std::string fault;
    if (analytic[i] && !std::ranges::equal(analytic[i].shape(), original.shape()))
      fault = "shape " + to_string(analytic[i].shape()) + " for an input of " + to_string(original.shape());
    if (analytic[i] && analytic[i].dtype() != original.dtype()) fault = "dtype differs";
    for (size_t k = 0; k < x.size() && fault.empty(); ++k) {
      double side[2];
      for (int s = 0; s < 2; ++s) {
        Values moved = x;
        moved[k] += s ? kEps : -kEps;
        *at[i] = from_bytes(cx, original.dtype(), original.shape(), std::as_bytes(std::span(moved)));
        side[s] = f();
      }
      const double numeric = (side[1] - side[0]) / (2 * kEps);
      if (!(std::abs(a[k] - numeric) <= kAbsolute + kRelative * std::abs(numeric)))
        fault = "element " + std::to_string(k) + " is " + std::to_string(a[k]) + ", differences give " +
                std::to_string(numeric);
    }
    *at[i] = original;
    if (!fault.empty()) return std::string(what) + " " + std::to_string(i) + ": " + fault;
  }
  return {};
}

std::string first_fault(Context& cx, const Arguments& sample) {
  const std::vector<size_t> where = differentiable(cx, sample);
  // All inputs at once, then with each alone requiring grad.
  std::vector<Tensor> together;
  for (size_t only = 0; only <= where.size(); ++only) {
    Arguments a = sample;
    std::vector<Tensor> leaves;
    for (size_t n = 0; n < where.size(); ++n) {
      if (only != 0 && only != n + 1) continue;
      leaves.push_back(a.tensors[where[n]] = leaf_like(a.tensors[where[n]]));
    }
    Weighted y;
    int place = 0;  // of a result, which decides its weights
    for (const Tensor& t : flat(a.run(cx))) {
      if (!carries(t)) continue;
      ++place;
      if (t.requires_grad()) y.results.push_back(t), y.weights.push_back(weights(t, place));
    }
    const std::vector<Tensor> analytic = gradients(cx, y.results, leaves, y.weights, false);
    if (only != 0) {
      const std::string fault = difference({analytic[0]}, {together[only - 1]}, 0, 0);
      if (!fault.empty()) return "input " + std::to_string(where[only - 1]) + " alone requiring grad: " + fault;
      continue;
    }
    together = analytic;
    for (size_t n = 0; n < leaves.size() && leaves.size() > 1; ++n) {
      const std::string fault =
          difference(gradients(cx, y.results, {leaves[n]}, y.weights, false), {analytic[n]}, 0, 0);
      if (!fault.empty()) return "input " + std::to_string(where[n]) + " alone asked for: " + fault;
    }
    Arguments b = sample;
    std::vector<Tensor*> at;
    for (const size_t i : where) at.push_back(&b.tensors[i]);
    const std::string fault = compare(at, analytic, "gradient of input", [&] {
      double sum = 0;
      int salt = 0;
      for (const Tensor& t : flat(b.run(cx))) {
        if (carries(t)) sum += dot(t, weights(t, ++salt));
      }
      return sum;
    });
    if (!fault.empty()) return fault;
  }
  return {};
}

std::string second_fault(Context& cx, const Arguments& sample) {
  // One function of the inputs x and the gradients w of the results: all first gradients.
  const std::vector<size_t> where = differentiable(cx, sample);
  if (where.empty()) return {};
  Arguments a = sample;
  std::vector<Tensor> w;
  {
    int salt = 0;
    for (const Tensor& t : flat(a.run(cx))) {
      if (carries(t)) w.push_back(weights(t, ++salt));
    }
  }
  // The first gradients as a function; with a graph when they are to be differentiated.
  auto firsts = [&](std::vector<Tensor>& x, std::vector<Tensor>& dy, bool create) {
    Arguments b = a;
    for (size_t n = 0; n < where.size(); ++n) {
      x.push_back(leaf_like(a.tensors[where[n]]));
      b.tensors[where[n]] = x.back();
    }
    std::vector<Tensor> y, used;
    size_t k = 0;
    for (const Tensor& t : flat(b.run(cx))) {
      if (!carries(t)) continue;
      const Tensor d = create ? leaf_like(w[k]) : w[k];
      dy.push_back(d), ++k;
      if (t.requires_grad()) y.push_back(t), used.push_back(d);
    }
    return gradients(cx, y, x, used, create);
  };
  std::vector<Tensor> x, dy;
  const std::vector<Tensor> g = firsts(x, dy, true);
  Weighted top;
  for (size_t n = 0; n < g.size(); ++n) {
    if (g[n] && g[n].requires_grad())
      top.results.push_back(g[n]), top.weights.push_back(weights(g[n], static_cast<int>(n) + 20));
  }
  std::vector<Tensor> all = x;
  all.insert(all.end(), dy.begin(), dy.end());
  const std::vector<Tensor> analytic = gradients(cx, top.results, all, top.weights, false);
  std::vector<Tensor*> at;
  for (const size_t i : where) at.push_back(&a.tensors[i]);
  for (Tensor& t : w) at.push_back(&t);
  return compare(at, analytic, "second gradient of", [&] {
    std::vector<Tensor> px, pw;
    const std::vector<Tensor> p = firsts(px, pw, false);
    double sum = 0;
    for (size_t n = 0; n < p.size(); ++n) {
      if (p[n]) sum += dot(p[n], weights(p[n], static_cast<int>(n) + 20));
    }
    return sum;
  });
}

template <class F> std::string caught(F f) {
  try {
    return f();
  } catch (const Error& e) {
    return e.op() + " throws " + name(e.code()) + ": " + e.message();
  }
}

}  // namespace

std::string first_gradient_fault(Context& cx, const Arguments& a) {
  return caught([&] { return first_fault(cx, a); });
}
std::string second_gradient_fault(Context& cx, const Arguments& a) {
  return caught([&] { return second_fault(cx, a); });
}

namespace {
std::string any_fault(Context& cx, const OpRow& row, std::string (*check)(Context&, const Arguments&)) {
  for (const std::string_view text : samples_of(row)) {
    const std::string fault = check(cx, Arguments(cx, row, text));
    if (!fault.empty()) return "'" + std::string(text) + "': " + fault;
  }
  return {};
}
}  // namespace

std::string first_gradient_fault(Context& cx, const OpRow& row) { return any_fault(cx, row, first_gradient_fault); }
std::string second_gradient_fault(Context& cx, const OpRow& row) { return any_fault(cx, row, second_gradient_fault); }

std::vector<bool> recorded_by(Context& cx, const OpRow& row) {
  std::vector<bool> seen(catalogue().size(), false);
  for (const std::string_view text : samples_of(row)) {
    Arguments a(cx, row, text);
    for (const size_t i : differentiable(cx, a)) a.tensors[i] = leaf_like(a.tensors[i]);
    const std::vector<Tensor> results = flat(a.run(cx));
    std::vector<Node*> stack;
    std::unordered_set<Node*> met;
    for (const Tensor& t : results) {
      if (t && t->node) stack.push_back(t->node);
    }
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      if (n->is_leaf() || !met.insert(n).second) continue;
      seen[n->op] = true;
      for (int k = 0; k < n->edge_count; ++k) {
        if (Node* to = n->edges()[k].node()) stack.push_back(to);
      }
    }
  }
  return seen;
}

// ---- rows that are changed ----

namespace {
Grads (*true_vjp)(const Vjp&) = nullptr;
int broken = 0;

Grads wrong_vjp(const Vjp& g) {
  Grads d = true_vjp(g);
  auto spoil = [](Tensor& t) {
    if (t && t.numel() > 0) t = t + 1, ++ChangedRow::breaks;
  };
  if (!d.list.empty()) {
    for (Tensor& t : d.list) spoil(t);
  } else {
    spoil(d.at[broken]);
  }
  return d;
}
}  // namespace

int ChangedRow::breaks = 0;

ChangedRow::ChangedRow(const OpRow& row) : def(*row.def), original_(row.def) {
  // The rows are elements of a vector that is not const itself.
  for (const OpRow& r : catalogue()) {
    if (r.def == original_) rows_.push_back(const_cast<OpRow*>(&r));
  }
}

void ChangedRow::set(const OpDef* d) {
  for (OpRow* r : rows_) {
    r->def = d;
    std::fill(std::begin(r->save_in), std::end(r->save_in), static_cast<int8_t>(-1));
    std::fill(std::begin(r->save_out), std::end(r->save_out), static_cast<int8_t>(-1));
    for (int k = 0; k < d->saves.count; ++k) {
      const Save& s = d->saves.at[k];
      (s.is_out ? r->save_out : r->save_in)[s.index] = static_cast<int8_t>(k);
    }
  }
}

void ChangedRow::apply() { set(&def); }

void ChangedRow::break_vjp(int gradient) {
  true_vjp = original_->vjp, broken = gradient, breaks = 0;
  def.vjp = wrong_vjp;
  apply();
}

ChangedRow::~ChangedRow() { set(original_); }

}  // namespace gradwire::engine
