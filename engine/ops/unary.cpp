// One operand, elementwise: arithmetic and rounding. curves.cpp has the transcendental functions.
#include <cmath>

#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// The gradient of what is constant almost everywhere.
Grads constant(const Vjp& g) { return {{zeros_like(g.dout())}}; }

constexpr OpDef kRows[] = {
    {
        .sig = "neg(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "-self, elementwise. Integers wrap; bool is refused.",
        .pointwise = 1,
        .choose = [](const Call& c) -> Chosen {
          if (c.tensor(0).dtype() == DType::boolean) {
            throw Error(Code::dtype_mismatch,
                        "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
                        "mask, use the `~` or `logical_not()` operator instead.");
          }
          return {};
        },
        .vjp = [](const Vjp& g) -> Grads { return {{-g.dout()}}; },
        .examples = {{"[1., -2.]", "[-1., 2.]"}, {"[3]", "[-3]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "abs(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "The size of self without its sign, elementwise. The gradient at 0 is 0.",
        .pointwise = 1,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * sign(g.in(0))}}; },
        .examples = {{"[1., -2.]", "[1., 2.]"}, {"[-3]", "[3]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "sign(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "1, -1 or 0, as self is above, below or at 0, elementwise; 0 for NaN.",
        .pointwise = 1,
        .vjp = constant,
        .examples = {{"[1., -2., 0.]", "[1., -1., 0.]"}, {"[True, False]", "[True, False]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "sgn(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "1, -1 or 0, as self is above, below or at 0, elementwise; 0 for NaN.",
        .pointwise = 1,
        .choose = [](const Call&) -> Chosen {
          return {"sign", {}};
        },
        .vjp = constant,
        .examples = {{"[1., -2., 0.]", "[1., -1., 0.]"}, {"[True, False]", "[True, False]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "positive(Tensor self) -> Tensor",
        .doc = "self itself; bool is refused.",
        .compose = [](const Call& c) -> Results {
          if (c.tensor(0).dtype() == DType::boolean)
            throw Error(Code::dtype_mismatch, "The `+` operator, on a bool tensor is not supported.");
          return c.tensor(0);
        },
        .examples = {{"[1., -2.]", "[1., -2.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "square(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "self * self, elementwise; of bool, as int64.",
        .pointwise = 1,
        .dtype = [](const Call&, DType t) -> DTypes {
          if (t == DType::boolean) t = DType::int64;
          return {t, t};
        },
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (2 * g.in(0))}}; },
        .examples = {{"[1., -2.]", "[1., 4.]"}, {"[True]", "[1]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "sqrt(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "The square root, elementwise; NaN of a negative number.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() / (2 * g.out())}}; },
        .examples = {{"[4., 2.]", "[2., 1.4142135]"}, {"[9]", "[3.]"}},
        .samples = {"p(2, 3)", "p()", "p(0)"},
    },
    {
        .sig = "rsqrt(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "1 / sqrt(self), elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (-0.5 * (g.out() * g.out() * g.out()))}}; },
        .examples = {{"[4., 0.25]", "[0.5, 2.]"}},
        .samples = {"p(2, 3)", "p()", "p(0)"},
    },
    {
        .sig = "reciprocal(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "1 / self, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{-g.dout() * (g.out() * g.out())}}; },
        .examples = {{"[4., -0.5]", "[0.25, -2.]"}, {"[2]", "[0.5]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "floor(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Rounded down to a whole number, elementwise; integers stay.",
        .pointwise = 1,
        .vjp = constant,
        .examples = {{"[1.7, -1.7]", "[1., -2.]"}, {"[3]", "[3]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "ceil(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Rounded up to a whole number, elementwise; integers stay.",
        .pointwise = 1,
        .vjp = constant,
        .examples = {{"[1.7, -1.7]", "[2., -1.]"}, {"[3]", "[3]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "trunc(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Rounded toward 0 to a whole number, elementwise; integers stay.",
        .pointwise = 1,
        .vjp = constant,
        .examples = {{"[1.7, -1.7]", "[1., -1.]"}, {"[3]", "[3]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "round(Tensor self, *, int decimals=0) -> Tensor",
        .inplace = true,
        .doc = "Rounded to the nearest whole number, halves to even, or to that many decimals; integers stay.",
        .pointwise = 1,
        .choose = [](const Call& c) -> Chosen {
          const int64_t decimals = c.integer(1);
          if (decimals == 0) return {};
          return {decimals > 0 ? "round_up_to" : "round_down_to",
                  {std::pow(10.0, std::abs(static_cast<double>(decimals)))}};
        },
        .vjp = constant,
        .examples = {{"[0.5, 1.5, -2.7]", "[0., 2., -3.]"}, {"[1234.]; decimals=-2", "[1200.]"}},
        .samples = {"f(4)", "f()", "f(0)", "f(3); decimals=1"},
    },
    {
        .sig = "frac(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "self - trunc(self), elementwise.",
        .pointwise = 1,
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout()}}; },
        .examples = {{"[1.5, -1.25]", "[0.5, -0.25]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "relu(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "max(self, 0), elementwise; NaN stays. The gradient at 0 is 0.",
        .pointwise = 1,
        .choose = [](const Call& c) -> Chosen {
          if (c.tensor(0).dtype() == DType::boolean)
            throw Error(Code::dtype_mismatch, "Boolean inputs not supported for relu");
          return {};
        },
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
