// Activations made of other operators.
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// Half types are rounded once, at the end.
Tensor wide(const Call& c) {
  const Tensor& x = c.tensor(0);
  if (!is_floating(x.dtype())) {
    throw Error(Code::dtype_mismatch,
                "\"" + c.row.name() + "\" not implemented for '" + gradwire::row(x.dtype()).torch + "'");
  }
  return size_of(x.dtype()) < 4 ? cast(x, DType::float32) : x;
}
Tensor as_given(const Call& c, const Tensor& y) {
  return y.dtype() == c.tensor(0).dtype() ? y : cast(y, c.tensor(0).dtype());
}

constexpr OpDef kRows[] = {
    {
        .sig = "leaky_relu(Tensor input, float negative_slope=0.01) -> Tensor",
        .doc =
            "input where it is above 0, else negative_slope * input, elementwise. The gradient at 0 is negative_slope.",
        .compose = [](const Call& c) -> Results {
          const Tensor x = wide(c);
          // relu, not x: as PyTorch has it, the second derivative is zeros and not nothing
          return as_given(c, where(gt(x, 0), relu(x), mul(x, c.scalar(1))));
        },
        .examples = {{"[-1., 2.]; 0.1", "[-0.1, 2.]"}},
        .samples = {"f(2, 3)", "f(3); 0.2", "f()", "f(0)"},
    },
    {
        .sig = "silu(Tensor input) -> Tensor",
        .doc = "input * sigmoid(input), elementwise.",
        .compose = [](const Call& c) -> Results {
          const Tensor x = wide(c);
          return as_given(c, x * sigmoid(x));
        },
        .examples = {{"[0., 1.]", "[0., 0.7310586]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "gelu(Tensor input, str approximate='none') -> Tensor",
        .doc = "input times the normal distribution function of it, elementwise; approximate='tanh' for the formula "
               "with tanh.",
        .compose = [](const Call& c) -> Results {
          const Tensor x = wide(c);
          if (c.text(1) == "none") return as_given(c, x * (0.5 * (1 + erf(x * 0.70710678118654752440))));
          if (c.text(1) != "tanh") throw Error(Code::bad_argument, "approximate argument must be either none or tanh.");
          return as_given(c, x * (0.5 * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * (x * x * x))))));
        },
        .examples = {{"[0., 1.]", "[0., 0.8413447]"}, {"[0., 1.]; approximate='tanh'", "[0., 0.841192]"}},
        .samples = {"f(2, 3)", "f(3); 'tanh'", "f()", "f(0)"},
    },
    {
        .sig = "softplus(Tensor input, float beta=1, float threshold=20) -> Tensor",
        .doc =
            "log(1 + exp(beta * input)) / beta, elementwise; input itself where beta * input is above the threshold.",
        .compose = [](const Call& c) -> Results {
          const Tensor x = wide(c), scaled = mul(x, c.scalar(1));
          return as_given(c,
                          where(gt(scaled, c.scalar(2)), x, div(logaddexp(scaled, zeros_like(scaled)), c.scalar(1))));
        },
        .examples = {{"[0., 30.]", "[0.6931472, 30.]"}},
        .samples = {"f(2, 3)", "f(3); 2.0", "f(3); 1.0; 1.0", "f()", "f(0)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kActivationOps = kRows;

}  // namespace gradwire::engine
