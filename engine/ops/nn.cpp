// Functions of layers.
#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// The dim of a softmax; without one PyTorch's old choice, with its warning.
int dim_of(const Call& c) {
  const int n = c.tensor(0).ndim();
  if (c.has(1)) return wrap_dim(c.integer(1), n);
  c.cx.warn(c.row.name(), "Implicit dimension choice for " + c.row.name() +
                              " has been deprecated. Change the call to include dim=X as an argument.");
  return n == 0 || n == 1 || n == 3 ? 0 : 1;
}
int64_t dim_of(const Vjp& g) {
  const size_t n = g.shape(0).size();
  return g.given(1) ? g.integer(1) : n == 0 || n == 1 || n == 3 ? 0 : 1;
}

Tensor along_rows(const Call& c, const Kernel& kernel, const char* name) {
  const DType t = c.dtype(2, c.tensor(0).dtype());
  if (!is_floating(t) && c.tensor(0).numel() > 0)
    throw Error(Code::dtype_mismatch, std::string("\"") + name + "\" not implemented for '" + row(t).torch + "'");
  const int dim = dim_of(c);
  const Tensor x = c.cx.contiguous(c.tensor(0), t), out = c.cx.empty(x.shape(), t);
  const rule::DimLast to(out, dim), from(x, dim);
  if (out.numel() > 0) launch(c.cx, kernel, {to.view(out)}, {from.view(x)});
  return out;
}

constexpr OpDef kRows[] = {
    {
        .sig = "softmax(Tensor self, int? dim=None, *, dtype? dtype=None) -> Tensor",
        .doc = "exp(self) / sum of exp(self) along dim, without overflow. Floating only. Without dim it is 0 for 0, 1 "
               "and 3 dims, else 1, with a warning.",
        .compute = [](const Call& c) -> Results {
          return along_rows(c, GW_KERNEL(softmax), "softmax_lastdim_kernel_impl");
        },
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor some = g.dout() * g.out();
          return {{some - g.out() * sum(some, dim_of(g), true)}};
        },
        .examples = {{"[0., 0.]; 0", "[0.5, 0.5]"}, {"[[0., 1.0986123]]; 1", "[[0.25, 0.75]]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(2, 3, 2); -2", "f(4); 0", "f(); 0", "f(0, 3); 1", "f(2, 3)"},
    },
    {
        .sig = "softmin(Tensor self, int? dim=None, *, dtype? dtype=None) -> Tensor",
        .doc = "softmax of -self.",
        .compose = [](const Call& c) -> Results {
          return softmax(-c.tensor(0), dim_of(c), c.has(2) ? std::optional(c.dtype(2, DType::float32)) : std::nullopt);
        },
        .examples = {{"[0., 0.]; 0", "[0.5, 0.5]"}},
        .samples = {"f(2, 3); 1", "f(2, 3)"},
    },
    {
        .sig = "log_softmax(Tensor self, int? dim=None, *, dtype? dtype=None) -> Tensor",
        .doc = "log(exp(self) / sum of exp(self) along dim), without overflow. Floating only. Without dim it is 0 for "
               "0, 1 and 3 dims, else 1, with a warning.",
        .compute = [](const Call& c) -> Results {
          return along_rows(c, GW_KERNEL(log_softmax), "log_softmax_lastdim_kernel_impl");
        },
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() - exp(g.out()) * sum(g.dout(), dim_of(g), true)}}; },
        .examples = {{"[0., 0.]; 0", "[-0.6931472, -0.6931472]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(2, 3, 2); -2", "f(4); 0", "f(); 0", "f(0, 3); 1"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kNnOps = kRows;

}  // namespace gradwire::engine
