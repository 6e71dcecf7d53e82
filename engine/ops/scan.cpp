// Running sums and products along a dim.
#include <limits>

#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The scan of x along dim; `second` is another input.
Tensor scanned(Context& cx, const Tensor& x, int64_t along, const ScanParams& params, bool reverse = false,
               const Tensor* second = nullptr) {
  const int dim = wrap_dim(along, x.ndim());
  const Tensor out = cx.empty(x.shape(), x.dtype());
  if (out.numel() == 0) return out;
  rule::DimLast to(out, dim), from(x, dim);
  const View to_view = reverse ? to.reversed(out) : to.view(out), from_view = reverse ? from.reversed(x) : from.view(x);
  if (!second) {
    launch(cx, GW_KERNEL(scan), {to_view}, {from_view}, &params);
    return out;
  }
  rule::DimLast with(*second, dim);
  const View with_view = reverse ? with.reversed(*second) : with.view(*second);
  launch(cx, GW_KERNEL(scan), {to_view}, {from_view, with_view}, &params);
  return out;
}

// cumsum and cumprod: integers and bool in int64, or in the dtype asked for.
Tensor running(const Call& c, ScanOp op) {
  const DType t = c.tensor(0).dtype(), result = c.dtype(2, is_floating(t) ? t : DType::int64);
  if (result == DType::boolean) {
    throw Error(Code::dtype_mismatch, std::string("\"") + (op == ScanOp::sum ? "cumsum" : "cumprod") +
                                          "_out_cpu\" not implemented for 'Bool'");
  }
  return scanned(c.cx, c.cx.contiguous(c.tensor(0), result), c.integer(1), {op});
}

Results running_extreme(const Call& c, ScanOp op) {
  const Tensor& x = c.tensor(0);
  const int dim = wrap_dim(c.integer(1), x.ndim());
  const Tensor out = c.cx.empty(x.shape(), x.dtype()), places = c.cx.empty(x.shape(), DType::int64);
  const rule::DimLast to(out, dim), at(places, dim), from(x, dim);
  const ScanParams params{op};
  if (out.numel() > 0) launch(c.cx, GW_KERNEL(scan), {to.view(out), at.view(places)}, {from.view(x)}, &params);
  return {out, places};
}

Grads running_extreme_vjp(const Vjp& g) { return {{spread_along(g.dout(), Ints(g.shape(0)), g.integer(1), g.out(1))}}; }

Tensor running_product_vjp(const Tensor& x, const Tensor& y, const Tensor& d, int64_t along) {
  if (x.ndim() == 0) return d;
  const int dim = wrap_dim(along, x.ndim());
  if (x.size(dim) == 1) return d;
  // What comes after an element has it as a factor: a recurrence from the end, which divides by nothing.
  return rule::shifted(y, dim, 1) * linear_scan(x, d, dim, true);
}

constexpr OpDef kRows[] = {
    {
        .sig = "cumsum(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
        .doc = "The sums of the first 1, 2, 3 ... elements along dim. Integers and bool add up in int64.",
        .compute = [](const Call& c) -> Results { return running(c, ScanOp::sum); },
        .vjp = [](const Vjp& g) -> Grads { return {{reverse_cumsum(g.dout(), g.integer(1))}}; },
        .examples = {{"[1., 2., 3.]; 0", "[1., 3., 6.]"}, {"[[True], [True]]; 0", "[[1], [2]]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(2, 3, 2); -2", "f(); 0", "f(0, 3); 0"},
    },
    {
        .sig = "reverse_cumsum(Tensor self, int dim) -> Tensor",
        .doc = "The sums of the last n, n - 1 ... 1 elements along dim: the gradient of cumsum.",
        .compute = [](const Call& c) -> Results {
          if (!is_floating(c.tensor(0).dtype()))
            throw Error(Code::dtype_mismatch, "reverse_cumsum(): expected a floating point tensor");
          return scanned(c.cx, c.tensor(0), c.integer(1), {ScanOp::sum}, true);
        },
        .vjp = [](const Vjp& g) -> Grads { return {{cumsum(g.dout(), g.integer(1))}}; },
        .examples = {{"[1., 2., 3.]; 0", "[6., 5., 3.]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(); 0", "f(0, 3); 0"},
    },
    {
        .sig = "cumprod(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
        .doc = "The products of the first 1, 2, 3 ... elements along dim. Integers and bool multiply in int64.",
        .compute = [](const Call& c) -> Results { return running(c, ScanOp::product); },
        .saves = {in(0), out(0)},
        .vjp = [](const Vjp& g) -> Grads {
          return {{running_product_vjp(rule::as(g.in(0), g.dout().dtype()), g.out(), g.dout(), g.integer(1))}};
        },
        .examples = {{"[1., 2., 3.]; 0", "[1., 2., 6.]"}, {"[2, 0, 3]; 0", "[2, 0, 0]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(2, 3, 2); -2", "f(); 0", "f(0, 3); 0"},
    },
    {
        .sig = "linear_scan(Tensor decay, Tensor self, int dim, bool reverse=False) -> Tensor",
        .doc = "h[i] = self[i] + decay[i] * h[i - 1] along dim, with h = 0 before the start. In reverse it is the "
               "transpose, h[i] = self[i] + decay[i + 1] * h[i + 1]. Both of one shape and floating dtype.",
        .compute = [](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          if (!std::ranges::equal(a.shape(), b.shape())) {
            throw Error(Code::shape_mismatch, "linear_scan(): decay of shape " + to_string(a.shape()) +
                                                  " and self of shape " + to_string(b.shape()) + " differ");
          }
          if (a.dtype() != b.dtype() || !is_floating(a.dtype()))
            throw Error(Code::dtype_mismatch, "linear_scan(): expected two floating point tensors of one dtype");
          const bool reverse = c.flag(3);
          return scanned(c.cx, b, c.integer(2), {ScanOp::linear, reverse}, reverse, &a);
        },
        .saves = {in(0), out(0).when(0)},
        .vjp = [](const Vjp& g) -> Grads {
          const bool reverse = g.flag(3);
          const int dim = wrap_dim(g.integer(2), static_cast<int>(g.shape(0).size()));
          Grads d;
          d.at[1] = linear_scan(g.in(0), g.dout(), dim, !reverse);
          if (g.needs(0)) {
            d.at[0] = reverse ? rule::shifted(d.at[1], dim, 0) * g.out() : rule::shifted(g.out(), dim, 0) * d.at[1];
          }
          return d;
        },
        .examples = {{"[9., 0.5, 0.5]; [8., 1., 1.]; 0", "[8., 5., 3.5]"}},
        .samples = {"f(2, 3); f(2, 3); 1", "f(2, 3); f(2, 3); 0; True", "f(4); f(4); 0; True", "f(); f(); 0",
                    "f(0, 3); f(0, 3); 0"},
    },
    {
        .sig = "logcumsumexp(Tensor self, int dim) -> Tensor",
        .doc = "The log of the sums of exp of the first 1, 2, 3 ... elements along dim, without overflow.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (!is_floating(x.dtype())) {
            throw Error(Code::dtype_mismatch,
                        std::string("\"logcumsumexp_out_cpu\" not implemented for '") + row(x.dtype()).torch + "'");
          }
          return scanned(c.cx, x, c.integer(1), {ScanOp::log_sum_exp});
        },
        .saves = {in(0), out(0)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor &x = g.in(0), &y = g.out();
          if (x.ndim() == 0) return {{g.dout()}};
          const int dim = wrap_dim(g.integer(1), x.ndim());
          // exp(x[j]) sum of d[i] exp(-y[i]) for i >= j, in ratios that are at most 1.
          const Tensor before = rule::shifted(y, dim, -kInf);
          const Tensor ratio = exp(where(eq(before, -kInf), -kInf, before - y));
          return {{exp(where(eq(x, -kInf), -kInf, x - y)) * linear_scan(ratio, g.dout(), dim, true)}};
        },
        .examples = {{"[0., 0., 1.]; 0", "[0., 0.6931472, 1.5514446]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(); 0", "f(0, 3); 0"},
    },
    {
        .sig = "cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        .doc = "The largest of the first 1, 2, 3 ... elements along dim, and where the last such stands. NaN stays.",
        .compute = [](const Call& c) -> Results { return running_extreme(c, ScanOp::largest); },
        .saves = {out(1)},
        .vjp = running_extreme_vjp,
        .examples = {{"[1., 3., 2., 3.]; 0", "[1., 3., 3., 3.]; [0, 1, 1, 3]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(); 0", "f(0, 3); 0"},
    },
    {
        .sig = "cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        .doc = "The smallest of the first 1, 2, 3 ... elements along dim, and where the last such stands. NaN stays.",
        .compute = [](const Call& c) -> Results { return running_extreme(c, ScanOp::smallest); },
        .saves = {out(1)},
        .vjp = running_extreme_vjp,
        .examples = {{"[3., 1., 2., 1.]; 0", "[3., 1., 1., 1.]; [0, 1, 1, 3]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(); 0", "f(0, 3); 0"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kScanOps = kRows;

}  // namespace gradwire::engine
