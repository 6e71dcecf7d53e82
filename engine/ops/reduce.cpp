// Reductions over some dims, or all.
#include <limits>

#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

Tensor reduce_sum(const Call& c, const Tensor& x, DType result, double scale) {
  const rule::Reduced r = rule::reduced(x.shape(), c.args[1], c.flag(2));
  const Tensor sum = c.cx.empty(r.kept, is_floating(result) ? result : DType::int64);
  const SumParams params{scale};
  launch(c.cx, GW_KERNEL(sum), {sum.view()}, {x.view()}, &params);
  const Tensor out = c.cx.contiguous(sum, result);
  return c.flag(2) ? out : c.cx.alias(out, r.dropped, contiguous_strides(r.dropped), 0);
}

// The gradient of a reduction's result, at the shape of its input.
Tensor spread(const Vjp& g, const Tensor& d) {
  const rule::Reduced r = rule::reduced(g.shape(0), g.given(1) ? Bound(g.ints(1)) : Bound(), true);
  return expand(reshape(d, Ints(std::span<const int64_t>(r.kept))), Ints(g.shape(0)));
}

constexpr OpDef kRows[] = {
    {
        .sig = "sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
        .doc = "The sum over the dims given, or over all. Integers and bool add up in int64; the sum of nothing is 0.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const DType result = c.dtype(3, is_floating(x.dtype()) ? x.dtype() : DType::int64);
          const bool cast = is_floating(result) ? x.dtype() != result : is_floating(x.dtype());
          return reduce_sum(c, cast ? c.cx.contiguous(x, result) : x, result, 1);
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
          const Tensor& x = c.tensor(0);
          const DType result = c.dtype(3, x.dtype());
          if (!is_floating(result)) {
            throw Error(Code::dtype_mismatch, std::string("mean(): could not infer output dtype. Input dtype must be "
                                                          "either a floating point or complex dtype. Got: ") +
                                                  row(result).torch);
          }
          const rule::Reduced r = rule::reduced(x.shape(), c.args[1], true);
          const double n =
              static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, checked_numel(r.kept)));
          if (x.numel() == 0) {  // of nothing
            const rule::Reduced out = rule::reduced(x.shape(), c.args[1], c.flag(2));
            return c.cx.full(out.dropped, std::numeric_limits<double>::quiet_NaN(), result);
          }
          return reduce_sum(c, c.cx.contiguous(x, result), result, 1 / n);
        },
        .vjp = [](const Vjp& g) -> Grads {
          int64_t all = 1, left = 1;
          for (const int64_t s : g.shape(0)) all *= s;
          for (const int64_t s : g.out_shape()) left *= s;
          return {{spread(g, g.dout() / (static_cast<double>(all) / static_cast<double>(std::max<int64_t>(1, left))))}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "2.5"}, {"[[1., 2.], [3., 4.]]; (0)", "[2., 3.]"}},
        .samples = {"f(2, 3)", "f(2, 3); (0)", "f(2, 3); (-1); True", "f(2, 3, 2); (0, 2)", "f()"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kReduceOps = kRows;

}  // namespace gradwire::engine
