// Sums and products over some dims, or all, and what is made of them.
#include <cmath>
#include <limits>

#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

/// x over the dims of parameters `dim` and `keepdim` of a call.
struct Reduction {
  rule::Reduced to;
  Reduction(const Tensor& x, const Bound& dims, bool keepdim) : to(rule::reduced(x.shape(), dims, keepdim)) {}
  Tensor room(Context& cx, DType t) const { return cx.empty(to.kept, t); }
  /// t of the kept shape, without the reduced dims where they go.
  Tensor done(Context& cx, const Tensor& t) const {
    return std::ranges::equal(std::span<const int64_t>(to.dropped), t.shape())
               ? t
               : cx.alias(t, to.dropped, contiguous_strides(to.dropped), 0);
  }
  /// How many elements make one.
  double count(const Tensor& x) const {
    return static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, checked_numel(to.kept)));
  }
};

Tensor sum_of(Context& cx, const Tensor& x, const Reduction& r, DType result, double scale) {
  const Tensor sum = r.room(cx, is_floating(result) ? result : DType::int64);
  const SumParams params{scale};
  launch(cx, GW_KERNEL(sum), {sum.view()}, {x.view()}, &params);
  return r.done(cx, cx.contiguous(sum, result));
}

// What adds up, or is multiplied, in which dtype: integers and bool in int64.
Tensor in_result(const Call& c, const Tensor& x, DType result) {
  const bool cast = is_floating(result) ? x.dtype() != result : is_floating(x.dtype());
  return cast ? c.cx.contiguous(x, result) : x;
}
DType widened(const Call& c, int i) {
  const DType t = c.tensor(0).dtype();
  return c.dtype(i, is_floating(t) ? t : DType::int64);
}

const Bound kAll{};
Bound dims_of(const Vjp& g, int i) { return g.given(i) ? Bound(g.ints(i)) : kAll; }

// The gradient of a reduction's result, at the shape of its input.
Tensor spread(const Vjp& g, const Tensor& d) {
  return expand(rule::unreduced(d, g.shape(0), dims_of(g, 1)), Ints(g.shape(0)));
}

// ---- products ----

Tensor product(const Call& c, const Bound& dims, bool keepdim, DType result) {
  const Tensor x = in_result(c, c.tensor(0), result);
  const Reduction r(x, dims, keepdim);
  const Tensor all = r.room(c.cx, is_floating(result) ? result : DType::int64);
  launch(c.cx, GW_KERNEL(prod), {all.view()}, {x.view()});
  return r.done(c.cx, c.cx.contiguous(all, result));
}

// Of each element the product of all others along dim, times d (whose size there is 1): what stands before it times
// what stands behind it, so that zeros are right, to any order.
Tensor others(const Tensor& x, const Tensor& d, int dim) {
  const int64_t n = x.size(dim);
  if (n == 0) return expand(d, Ints(x.shape())) * x;
  std::vector<IndexItem<Tensor>> last(static_cast<size_t>(dim), Slice{});
  last.push_back(Slice{n - 1, n});
  const Tensor before = rule::shifted(cumprod(x, dim), dim, 1);
  return before * linear_scan(x, index_backward(d, Ints(x.shape()), last), dim, true);
}

// ---- variances ----

Tensor variance(const Call& c, const Bound& dims, double correction, bool keepdim, bool root) {
  const Tensor& x = c.tensor(0);
  if (!is_floating(x.dtype()))
    throw Error(Code::dtype_mismatch, "std and var only support floating point and complex dtypes");
  const Reduction r(x, dims, keepdim);
  if (x.numel() == 0) return c.cx.full(r.to.dropped, kNaN, x.dtype());
  const Tensor w = rule::wide(c.cx, x);
  const double n = r.count(w);
  const Tensor mean = sum_of(c.cx, w, Reduction(x, dims, true), w.dtype(), 1 / n);
  const Tensor off = w - mean;
  if (root) {  // the 2-norm of what is off, of which the root is taken with the sum
    const Tensor length = r.room(c.cx, w.dtype());
    const NormParams two{2};
    launch(c.cx, GW_KERNEL(norm), {length.view()}, {off.view()}, &two);
    return r.done(c.cx, c.cx.contiguous(length * (1 / std::sqrt(std::max(n - correction, 0.0))), x.dtype()));
  }
  const Tensor sum = sum_of(c.cx, off * off, r, w.dtype(), 1);
  return c.cx.contiguous(sum / std::max(n - correction, 0.0), x.dtype());
}

Tensor variance_vjp(const Vjp& g, Tensor d, const Bound& dims, double correction, bool root) {
  const Tensor& x = g.in(0);
  if (root) d = where(eq(g.out(), 0), 0, d / (g.out() * 2));
  const Tensor mean = dims.kind == ArgKind::none ? gradwire::mean(x) : gradwire::mean(x, Ints(g.ints(1)), true);
  const double n = Reduction(x, dims, true).count(x);
  return rule::unreduced(d, g.shape(0), dims) * (2 / (n - correction)) * (x - mean);
}

double correction_of(const Call& c) { return c.has(4) ? c.scalar(4).real() : c.flag(2) ? 1 : 0; }
double correction_of(const Vjp& g) { return g.given(4) ? g.scalar(4).real() : g.flag(2) ? 1 : 0; }

// ---- norms ----

double power_of(const Call& c) {
  if (!c.has(1)) return 2;
  const Bound& p = c.args[1];
  if (p.kind == ArgKind::boolean) throw Error(Code::bad_argument, "norm expects p to be an integer or a float");
  return p.scalar().real();
}

Tensor norm_of(const Call& c, double p) {
  const Tensor& given = c.tensor(0);
  const DType t = c.dtype(4, given.dtype());
  if (!is_floating(t)) {
    throw Error(Code::dtype_mismatch,
                std::string("norm(): input dtype should be either floating point or complex. Got ") + row(t).torch +
                    " instead.");
  }
  const Tensor x = c.cx.contiguous(given, t);
  const Reduction r(x, c.args[2], c.flag(3));
  if (x.numel() == 0) return c.cx.full(r.to.dropped, 0, t);
  const Tensor out = r.room(c.cx, t);
  if (std::isinf(p)) {
    const ExtremeParams params{p > 0};
    launch(c.cx, GW_KERNEL(extreme), {out.view()}, {abs(x).view()}, &params);
  } else {
    const NormParams params{p};
    launch(c.cx, GW_KERNEL(norm), {out.view()}, {x.view()}, &params);
  }
  return r.done(c.cx, out);
}

Grads norm_vjp(const Vjp& g, double p) {
  const Bound dims = dims_of(g, 2);
  const Tensor d = rule::unreduced(g.dout(), g.shape(0), dims), n = rule::unreduced(g.out(), g.shape(0), dims);
  const Tensor x = rule::as(g.in(0), n.dtype());
  if (p == 0) return {};
  if (p == 1) return {{sign(x) * d}};
  if (p == 2) return {{d * where(eq(n, 0), 0, x / n)}};
  if (std::isinf(p)) {
    const Tensor a = abs(x), mask = cast(add(eq(a, n), ne(a, a)), n.dtype());
    const Tensor share = dims.kind == ArgKind::none ? sum(mask) : sum(mask, Ints(g.ints(2)), true);
    return {{sign(x) * ((d / share) * mask)}};
  }
  const Tensor a = abs(x);
  if (p < 1) return {{where(eq(x, 0), 0, sign(x) * pow(a, p - 1)) * d * pow(n, 1 - p)}};
  const Tensor scaled = p < 2 ? sign(x) * pow(a, p - 1) : x * pow(a, p - 2);
  return {{scaled * where(eq(n, 0), 0, d / pow(n, p - 1))}};
}

// ---- questions ----

// Bool, but uint8 for uint8.
Results asked(const Call& c, bool all) {
  const Tensor& x = c.tensor(0);
  const Reduction r(x, c.args[1], c.flag(2));
  const DType t = x.dtype() == DType::uint8 ? DType::uint8 : DType::boolean;
  if (x.numel() == 0) return c.cx.full(r.to.dropped, all, t);
  const Tensor out = r.room(c.cx, DType::boolean);
  const ExtremeParams params{!all};
  launch(c.cx, GW_KERNEL(extreme), {out.view()}, {c.cx.contiguous(x, DType::boolean).view()}, &params);
  return r.done(c.cx, c.cx.contiguous(out, t));
}

constexpr OpDef kRows[] = {
    {
        .sig = "sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
        .doc = "The sum over the dims given, or over all. Integers and bool add up in int64; the sum of nothing is 0.",
        .compute = [](const Call& c) -> Results {
          const DType result = widened(c, 3);
          const Tensor x = in_result(c, c.tensor(0), result);
          return sum_of(c.cx, x, Reduction(x, c.args[1], c.flag(2)), result, 1);
        },
        .vjp = [](const Vjp& g) -> Grads { return {{spread(g, g.dout())}}; },
        .examples = {{"[[1., 2.], [3., 4.]]", "10."},
                     {"[[1., 2.], [3., 4.]]; (1)", "[3., 7.]"},
                     {"[True, True]", "2"},
                     {"[[1, 2]]; 1; keepdim=True", "[[3]]"}},
        .samples = {"f(2, 3)", "f(2, 3); (0)", "f(2, 3); (-1); True", "f(2, 3, 2); (0, 2)", "f()", "f(0, 3); (0)"},
    },
    {
        .sig = "mean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
        .doc = "The mean over the dims given, or over all; of nothing NaN. Integers need a floating dtype.",
        .compute = [](const Call& c) -> Results {
          const DType result = c.dtype(3, c.tensor(0).dtype());
          if (!is_floating(result)) {
            throw Error(Code::dtype_mismatch,
                        std::string("mean(): could not infer output dtype. ") + (c.has(3) ? "Optional" : "Input") +
                            " dtype must be either a floating point or complex dtype. Got: " + row(result).torch);
          }
          const Tensor x = c.cx.contiguous(c.tensor(0), result);
          const Reduction r(x, c.args[1], c.flag(2));
          if (x.numel() == 0) return c.cx.full(r.to.dropped, kNaN, result);
          return sum_of(c.cx, x, r, result, 1 / r.count(x));
        },
        .vjp = [](const Vjp& g) -> Grads {
          int64_t all = 1, left = 1;
          for (const int64_t s : g.shape(0)) all *= s;
          for (const int64_t s : g.out_shape()) left *= s;
          if (all == 0) return {{spread(g, g.dout())}};
          return {{spread(g, g.dout() / (static_cast<double>(all) / static_cast<double>(std::max<int64_t>(1, left))))}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "2.5"}, {"[[1., 2.], [3., 4.]]; (0)", "[2., 3.]"}},
        .samples = {"f(2, 3)", "f(2, 3); (0)", "f(2, 3); (-1); True", "f(2, 3, 2); (0, 2)", "f()"},
    },
    {
        .sig = "nansum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
        .doc = "The sum over the dims given, or over all, with NaN counted as 0.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          return sum(is_floating(x.dtype()) ? where(ne(x, x), 0, x) : x,
                     c.has(1) ? OptionalInts(c.ints(1)) : OptionalInts(), c.flag(2),
                     c.has(3) ? std::optional(c.dtype(3, DType::float32)) : std::nullopt);
        },
        .examples = {{"[1., nan, 2.]", "3."}},
        .samples = {"f(2, 3)", "f(2, 3); (0); True", "f(0)"},
    },
    {
        .sig = "prod(Tensor self, *, dtype? dtype=None) -> Tensor",
        .doc = "The product of all elements; of nothing 1. Integers and bool multiply in int64.",
        .compute = [](const Call& c) -> Results { return product(c, kAll, false, widened(c, 1)); },
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads {
          if (g.shape(0).empty()) return {{g.dout()}};
          const Tensor x = reshape(rule::as(g.in(0), g.dout().dtype()), {-1});
          return {{reshape(others(x, reshape(g.dout(), {1}), 0), Ints(g.shape(0)))}};
        },
        .examples = {{"[2., 3., 4.]", "24."}, {"[[True, False]]", "0"}},
        .samples = {"f(2, 3)", "f()", "f(0, 3)", "f(1)"},
    },
    {
        .sig = "prod.dim(Tensor self, int dim, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
        .doc = "The product over one dim; of nothing 1. Integers and bool multiply in int64.",
        .compute = [](const Call& c) -> Results { return product(c, c.args[1], c.flag(2), widened(c, 3)); },
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor x = rule::as(g.in(0), g.dout().dtype());
          if (x.ndim() == 0) return {{g.dout()}};
          const int dim = wrap_dim(g.integer(1), x.ndim());
          return {{others(x, rule::unreduced(g.dout(), g.shape(0), Bound(g.ints(1))), dim)}};
        },
        .examples = {{"[[2., 3.], [4., 5.]]; 0", "[8., 15.]"}, {"[[2, 3]]; 1; keepdim=True", "[[6]]"}},
        .samples = {"f(2, 3); 0", "f(2, 3); -1; True", "f(); 0", "f(2, 3, 2); 1", "f(0, 3); 0"},
    },
    {
        .sig = "logsumexp(Tensor self, int[] dim, bool keepdim=False) -> Tensor",
        .doc = "log of the sum of exp(self) over the dims (an empty list: over all), without overflow; of nothing "
               "-inf. Integers give the default dtype.",
        .compute = [](const Call& c) -> Results {
          const Tensor& given = c.tensor(0);
          const DType result = is_floating(given.dtype()) ? given.dtype() : c.cx.default_dtype;
          const Tensor x = rule::wide(c.cx, c.cx.contiguous(given, result));
          const Reduction r(x, c.args[1], c.flag(2)), kept(x, c.args[1], true);
          if (x.numel() == 0) return c.cx.full(r.to.dropped, -kInf, result);
          Tensor top = r.room(c.cx, x.dtype());
          const ExtremeParams largest{true};
          launch(c.cx, GW_KERNEL(extreme), {top.view()}, {x.view()}, &largest);
          top = where(eq(top - top, 0), top, 0);  // what is infinite is its own sum
          const Tensor sum = sum_of(c.cx, exp(x - top), kept, x.dtype(), 1);
          return r.done(c.cx, c.cx.contiguous(log(sum) + top, result));
        },
        .saves = {in(0), out(0)},
        .vjp = [](const Vjp& g) -> Grads {
          const Bound dims(g.ints(1));
          const Tensor d = rule::unreduced(g.dout(), g.shape(0), dims), y = rule::unreduced(g.out(), g.shape(0), dims);
          return {{d * exp(g.in(0) - y)}};
        },
        .examples = {{"[[0., 0.], [1., 1.]]; 1", "[0.6931472, 1.6931472]"}, {"[-inf, -inf]; 0", "-inf"}},
        .samples = {"f(2, 3); (0)", "f(2, 3); -1; True", "f(2, 3, 2); (0, 2)", "f(); 0", "f(2, 3); ()", "f(0, 3); 1"},
    },
    {
        .sig = "var(Tensor self, int[]? dim=None, bool unbiased=True, bool keepdim=False, *, Scalar? correction=None) "
               "-> Tensor",
        .doc = "The variance over the dims given, or over all: the mean of squared distances from the mean, with n - "
               "correction "
               "in place of n: 1 if unbiased, 0 if not, or as given. Floating only.",
        .compute = [](const Call& c) -> Results { return variance(c, c.args[1], correction_of(c), c.flag(3), false); },
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads {
          return {{variance_vjp(g, g.dout(), dims_of(g, 1), correction_of(g), false)}};
        },
        .examples = {{"[1., 2., 3., 4.]", "1.6666666"},
                     {"[[1., 3.], [2., 2.]]; 1; False", "[1., 0.]"},
                     {"[1., 3.]; correction=0", "1."}},
        .samples = {"f(2, 3)", "f(2, 3); (0)", "f(2, 3); (-1); False; True", "f(2, 3, 2); (0, 2)",
                    "f(2, 3); correction=0.5"},
    },
    {
        .sig = "var.unbiased(Tensor self, bool unbiased) -> Tensor",
        .doc = "The variance of all elements, with n - 1 in place of n if unbiased.",
        .compose = [](const Call& c) -> Results { return gradwire::var(c.tensor(0), OptionalInts(), c.flag(1)); },
        .examples = {{"[1., 3.]; False", "1."}},
        .samples = {"f(2, 3); False", "f(2, 3); True"},
    },
    {
        .sig = "std(Tensor self, int[]? dim=None, bool unbiased=True, bool keepdim=False, *, Scalar? correction=None) "
               "-> Tensor",
        .doc = "The standard deviation: the root of var. The gradient where it is 0 is 0.",
        .compute = [](const Call& c) -> Results { return variance(c, c.args[1], correction_of(c), c.flag(3), true); },
        .saves = {in(0), out(0)},
        .vjp = [](const Vjp& g) -> Grads {
          return {{variance_vjp(g, g.dout(), dims_of(g, 1), correction_of(g), true)}};
        },
        .examples = {{"[1., 2., 3., 4.]", "1.2909944"},
                     {"[[1., 3.], [2., 2.]]; 1; False", "[1., 0.]"},
                     {"[1., 3.]; correction=0", "1."}},
        .samples = {"f(2, 3)", "f(2, 3); (0)", "f(2, 3); (-1); False; True", "f(2, 3, 2); (0, 2)",
                    "f(2, 3); correction=0.5"},
    },
    {
        .sig = "std.unbiased(Tensor self, bool unbiased) -> Tensor",
        .doc = "The standard deviation of all elements, with n - 1 in place of n if unbiased.",
        .compose = [](const Call& c) -> Results { return gradwire::std(c.tensor(0), OptionalInts(), c.flag(1)); },
        .examples = {{"[1., 3.]; False", "1."}},
        .samples = {"f(2, 3); False", "f(2, 3); True"},
    },
    {
        .sig = "norm(Tensor self, Scalar? p=2, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
        .doc = "(sum of |self|^p)^(1/p) over the dims given, or over all; p = inf and -inf give the largest and the "
               "smallest |self|, p = 0 counts what is not 0. Of nothing 0. The gradient at 0 is 0.",
        .compute = [](const Call& c) -> Results { return norm_of(c, power_of(c)); },
        .saves = {in(0), out(0)},
        .vjp = [](const Vjp& g) -> Grads { return norm_vjp(g, g.given(1) ? g.scalar(1).real() : 2); },
        .examples = {{"[3., -4.]", "5."},
                     {"[[3., -4.], [0., 2.]]; 1; 1", "[7., 2.]"},
                     {"[3., -4.]; inf", "4."},
                     {"[3., 0.]; 0", "1."}},
        .samples = {"f(2, 3)", "f(2, 3); 2; (0); True", "f(2, 3); 1; 1", "f(2, 3); inf; 1", "f(2, 3); -inf",
                    "p(2, 3); 3; 0", "f(2, 3); 0.5", "f(2, 3); 1.5; (0, 1)", "f(2, 3); -1", "f(); 2", "f(0, 3); 2; 0"},
    },
    {
        .sig = "norm.named(Tensor self, str p, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
        .doc = "The norm of a name: 'fro' is the 2-norm. 'nuc' is not offered.",
        .compose = [](const Call& c) -> Results {
          const std::string_view p = c.text(1);
          if (p != "fro") {
            throw Error(Code::bad_argument, p == "nuc" ? std::string("the nuclear norm is not offered")
                                                       : "only valid string values are 'fro' and 'nuc', found " +
                                                             std::string(p.substr(0, 64)));
          }
          return gradwire::norm(c.tensor(0), Scalar(2), c.has(2) ? OptionalInts(c.ints(2)) : OptionalInts(), c.flag(3),
                                c.has(4) ? std::optional(c.dtype(4, DType::float32)) : std::nullopt);
        },
        .examples = {{"[3., -4.]; 'fro'", "5."}},
        .samples = {"f(2, 3); 'fro'", "f(2, 3); 'fro'; (0); True"},
    },
    {
        .sig = "all(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        .doc =
            "Whether no element is 0, over the dims given, or over all; true for nothing. uint8 for uint8, else bool.",
        .compute = [](const Call& c) -> Results { return asked(c, true); },
        .no_grad = "the result is bool",
        .examples = {{"[True, False]", "False"}, {"[[1, 2], [0, 1]]; 1", "[True, False]"}},
        .samples = {"f(2, 3)", "b(2, 3); 1", "b(2, 3); (0, 1); True", "b()", "b(0)"},
    },
    {
        .sig = "any(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        .doc =
            "Whether an element is not 0, over the dims given, or over all; false for nothing. uint8 for uint8, else "
            "bool.",
        .compute = [](const Call& c) -> Results { return asked(c, false); },
        .no_grad = "the result is bool",
        .examples = {{"[True, False]", "True"}, {"[[1, 2], [0, 0]]; 1", "[True, False]"}},
        .samples = {"f(2, 3)", "b(2, 3); 1", "b(2, 3); (0, 1); True", "b()", "b(0)"},
    },
    {
        .sig = "count_nonzero(Tensor self, int[]? dim=None) -> Tensor",
        .doc = "How many elements are not 0, over the dims given, or in all; int64.",
        .compute = [](const Call& c) -> Results {
          const Tensor x = c.cx.contiguous(c.tensor(0), DType::boolean);
          return sum_of(c.cx, x, Reduction(x, c.args[1], false), DType::int64, 1);
        },
        .no_grad = "the result is a count",
        .examples = {{"[[1., 0.], [2., 3.]]", "3"}, {"[[1, 0], [2, 3]]; 0", "[2, 1]"}},
        .samples = {"f(2, 3)", "i3(2, 3); 1", "b(2, 3); (0, 1)", "f()", "f(0, 3); 0"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kReduceOps = kRows;

}  // namespace gradwire::engine
