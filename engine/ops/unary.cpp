// One operand, elementwise.
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr OpDef kRows[] = {
    {
        .sig = "neg(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "-self, elementwise. Integers wrap; bool is refused.",
        .pointwise = 1,
        .vjp = [](const Vjp& g) -> Grads { return {{-g.dout()}}; },
        .examples = {{"[1., -2.]", "[-1., 2.]"}, {"[3]", "[-3]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "exp(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "e to the power of self, elementwise; within 2 ULP.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * g.out()}}; },
        .examples = {{"[0., 1.]", "[1., 2.7182817]"}, {"[0]", "[1.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "log(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Natural logarithm, elementwise; within 2 ULP. log(0) is -inf, of a negative number NaN.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() / g.in(0)}}; },
        .examples = {{"[1., 10.]", "[0., 2.3025851]"}},
        .samples = {"p(2, 3)", "p()", "p(0)"},
    },
    {
        .sig = "relu(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "max(self, 0), elementwise; NaN stays. The gradient at 0 is 0.",
        .pointwise = 1,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{threshold_backward(g.dout(), g.out())}}; },
        .examples = {{"[-1., 0., 2.]", "[0., 0., 2.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "threshold_backward(Tensor grad_output, Tensor self) -> Tensor",
        .doc = "grad_output where self > 0 (or NaN), else 0: the gradient of relu, told by its result.",
        .pointwise = 2,
        .saves = {in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = threshold_backward(g.dout(), g.in(1));
          if (g.needs(1)) d.at[1] = zeros_like(g.dout());
          return d;
        },
        .examples = {{"[1., 2.]; [0., 5.]", "[0., 2.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(0); f(0)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kUnaryOps = kRows;

}  // namespace gradwire::engine
