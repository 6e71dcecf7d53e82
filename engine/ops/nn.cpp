// Functions of layers.
#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// t with `dim` last; a 0-dim tensor is one of a single element.
struct DimLast {
  Shape shape, strides;
  DimLast(const Tensor& t, int dim) : shape(t.shape()), strides(t.strides()) {
    if (shape.empty()) {
      shape.push_back(1), strides.push_back(1);
      return;
    }
    const int64_t size = shape[dim], stride = strides[dim];
    shape.erase(dim), strides.erase(dim);
    shape.push_back(size), strides.push_back(stride);
  }
  View view(const Tensor& t) const {
    return {t.data(), shape.data(), strides.data(), static_cast<int32_t>(shape.size()), t.dtype()};
  }
};

constexpr OpDef kRows[] = {
    {
        .sig = "log_softmax(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
        .doc = "log(exp(self) / sum of exp(self) along dim), without overflow. Floating only.",
        .compute = [](const Call& c) -> Results {
          const Tensor x = c.cx.contiguous(c.tensor(0), c.dtype(2, c.tensor(0).dtype()));
          if (!is_floating(x.dtype())) {
            throw Error(Code::dtype_mismatch, std::string("\"log_softmax_lastdim_kernel_impl\" not implemented for '") +
                                                  row(x.dtype()).torch + "'");
          }
          const int dim = wrap_dim(c.integer(1), x.ndim());
          const Tensor out = c.cx.empty(x.shape(), x.dtype());
          const DimLast to(out, dim), from(x, dim);
          if (out.numel() > 0) launch(c.cx, GW_KERNEL(log_softmax), {to.view(out)}, {from.view(x)});
          return out;
        },
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() - exp(g.out()) * sum(g.dout(), g.integer(1), true)}}; },
        .examples = {{"[0., 0.]; 0", "[-0.6931472, -0.6931472]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0", "f(2, 3, 2); -2", "f(4); 0", "f(); 0", "f(0, 3); 1"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kNnOps = kRows;

}  // namespace gradwire::engine
