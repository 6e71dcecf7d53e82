// Transcendental functions, elementwise.
#include <cmath>
#include <limits>

#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402;
constexpr double kErf = 1.12837916709551257390;  // 2 / sqrt(pi)

// Exponents that need no logarithm.
Chosen choose_power(const Call& c) {
  if (c.is_tensor(1)) return {};
  const Scalar e = c.scalar(1);
  const DType base = c.is_tensor(0) ? c.tensor(0).dtype() : DType::int64;
  if (!is_floating(base) && e.kind != Category::floating) {
    if (e.integer() < 0) throw Error(Code::bad_argument, "Integers to negative integer powers are not allowed.");
    char room[16];
    store_scalar(room, category(base) < e.kind ? DType::int64 : base, e);  // refuses what does not fit
  }
  const double x = e.real();
  const char* const functor = x == 2      ? "square"
                              : x == 3    ? "cube"
                              : x == 0.5  ? "sqrt"
                              : x == -1   ? "reciprocal"
                              : x == -0.5 ? "rsqrt"
                                          : nullptr;
  return {functor, {}};
}

Grads pow_vjp(const Vjp& g) {
  Grads d;
  const Operand<Tensor> base = g.operand(0), exponent = g.operand(1);
  if (g.needs(0)) {
    const Tensor& x = g.in(0);
    if (exponent.is_tensor()) {
      const Tensor& e = g.in(1);
      d.at[0] = where(eq(e, 0), 0, g.dout() * (e * pow(x, add(e, -1))));
    } else if (const Scalar e = exponent.scalar(); e.real() == 0) {
      d.at[0] = zeros_like(g.dout());
    } else if (e.real() == 2) {
      d.at[0] = g.dout() * mul(x, e);
    } else {
      const bool whole = e.kind != Category::floating && e.integer() != std::numeric_limits<int64_t>::min();
      const Scalar less = whole ? Scalar(e.integer() - 1) : Scalar(e.real() - 1);
      d.at[0] = g.dout() * mul(pow(x, less), e);
    }
  }
  if (g.needs(1)) {  // 0 to any power from 0 on stays 0
    const Tensor& e = g.in(1);
    if (base.is_tensor()) {
      const Tensor& x = g.in(0);
      d.at[1] = g.dout() * where(logical_and(eq(x, 0), ge(e, 0)), 0, g.out() * log(x));
    } else if (const double x = base.scalar().real(); x == 0) {
      d.at[1] = where(ge(e, 0), 0, g.dout() * mul(g.out(), std::log(x)));
    } else {
      d.at[1] = g.dout() * mul(g.out(), std::log(x));
    }
  }
  return d;
}

constexpr OpDef kRows[] = {
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
        .sig = "exp2(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "2 to the power of self, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (g.out() * kLn2)}}; },
        .examples = {{"[3., -1.]", "[8., 0.5]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "expm1(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "exp(self) - 1, elementwise, exact to the last digits near 0 too.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (g.out() + 1)}}; },
        .examples = {{"[0., 1e-10]", "[0., 1e-10]"}},
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
        .sig = "log2(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Logarithm to base 2, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() / (g.in(0) * kLn2)}}; },
        .examples = {{"[8., 0.5]", "[3., -1.]"}},
        .samples = {"p(2, 3)", "p()", "p(0)"},
    },
    {
        .sig = "log10(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Logarithm to base 10, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() / (g.in(0) * kLn10)}}; },
        .examples = {{"[1000., 0.1]", "[3., -1.]"}},
        .samples = {"p(2, 3)", "p()", "p(0)"},
    },
    {
        .sig = "log1p(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "log(1 + self), elementwise, exact to the last digits near 0 too.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() / (g.in(0) + 1)}}; },
        .examples = {{"[0., 1e-10]", "[0., 1e-10]"}},
        .samples = {"p(2, 3)", "p()", "p(0)"},
    },
    {
        .sig = "sin(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Sine of radians, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * cos(g.in(0))}}; },
        .examples = {{"[0., 1.5707963]", "[0., 1.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "cos(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Cosine of radians, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{-g.dout() * sin(g.in(0))}}; },
        .examples = {{"[0., 3.1415927]", "[1., -1.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "tan(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Tangent of radians, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (1 + g.out() * g.out())}}; },
        .examples = {{"[0., 0.7853982]", "[0., 1.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "asin(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "The angle in [-pi/2, pi/2] whose sine is self, elementwise; NaN outside [-1, 1].",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * rsqrt(1 - g.in(0) * g.in(0))}}; },
        .examples = {{"[0., 1.]", "[0., 1.5707963]"}},
        .samples = {"f(1)", "f()", "f(0)"},
    },
    {
        .sig = "acos(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "The angle in [0, pi] whose cosine is self, elementwise; NaN outside [-1, 1].",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{-g.dout() * rsqrt(1 - g.in(0) * g.in(0))}}; },
        .examples = {{"[1., 0.]", "[0., 1.5707963]"}},
        .samples = {"f(1)", "f()", "f(0)"},
    },
    {
        .sig = "atan(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "The angle in [-pi/2, pi/2] whose tangent is self, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() / (g.in(0) * g.in(0) + 1)}}; },
        .examples = {{"[0., 1.]", "[0., 0.7853982]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "sinh(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Hyperbolic sine, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * cosh(g.in(0))}}; },
        .examples = {{"[0., 1.]", "[0., 1.1752012]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "cosh(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Hyperbolic cosine, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * sinh(g.in(0))}}; },
        .examples = {{"[0., 1.]", "[1., 1.5430806]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "asinh(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Inverse hyperbolic sine, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * rsqrt(g.in(0) * g.in(0) + 1)}}; },
        .examples = {{"[0., 1.]", "[0., 0.8813736]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "acosh(Tensor self) -> Tensor",
        .doc = "Inverse hyperbolic cosine, elementwise; NaN below 1.",
        .compose = [](const Call& c) -> Results {
          const Tensor t = add(c.tensor(0), -1.0);
          return log1p(t + sqrt(t) * sqrt(t + 2));  // t, not self: exact near 1, and no square that overflows
        },
        .examples = {{"[1., 2.]", "[0., 1.316958]"}},
        .samples = {"p(0)"},
    },
    {
        .sig = "atanh(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Inverse hyperbolic tangent, elementwise; NaN outside [-1, 1].",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() / (1 - g.in(0) * g.in(0))}}; },
        .examples = {{"[0., 0.5]", "[0., 0.5493061]"}},
        .samples = {"f(1)", "f()", "f(0)"},
    },
    {
        .sig = "erf(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "The error function, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (exp(-(g.in(0) * g.in(0))) * kErf)}}; },
        .examples = {{"[0., 1.]", "[0., 0.8427008]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "erfc(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "1 - erf(self), elementwise, exact for large self too.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (exp(-(g.in(0) * g.in(0))) * -kErf)}}; },
        .examples = {{"[0., 1.]", "[1., 0.1572992]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "tanh(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Hyperbolic tangent, elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (1 - g.out() * g.out())}}; },
        .examples = {{"[0., 1., -30.]", "[0., 0.7615942, -1.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "sigmoid(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "1 / (1 + exp(-self)), elementwise.",
        .pointwise = 1,
        .dtype = rule::floating,
        .saves = {out(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout() * (g.out() * (1 - g.out()))}}; },
        .examples = {{"[0., 2., -2.]", "[0.5, 0.8807971, 0.11920292]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "pow(Operand self, Operand exponent) -> Tensor",
        .inplace = true,
        .doc = "self to the power of exponent, broadcast and promoted. Integers wrap; a negative whole number is "
               "refused as "
               "the exponent of integers, and in a tensor of exponents gives 0, or 1 and -1 for the bases 1 and -1.",
        .pointwise = 2,
        .choose = choose_power,
        .saves = {in(0), in(1), out(0).when(1)},
        .vjp = pow_vjp,
        .since_0_2 = true,
        .examples = {{"[2., 3.]; 2", "[4., 9.]"},
                     {"2; [3, 0]", "[8, 1]"},
                     {"[4., 9.]; [0.5, -1.]", "[2., 0.11111111]"},
                     {"[2, 1]; [-1, -1]", "[0, 1]"}},
        .samples = {"p(2, 3); f(2, 3)", "p(2, 1); f(3)", "f(2, 3); 2", "p(3); 0.5", "f(3); 3", "f(3); -1", "p(3); 1.7",
                    "f(3); 0", "2.5; f(3)", "p(0); f(1)"},
    },
    {
        .sig = "atan2(Tensor self, Tensor other) -> Tensor",
        .inplace = true,
        .doc = "The angle of the point (other, self), in radians, broadcast and promoted.",
        .pointwise = 2,
        .dtype = rule::floating,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor part = g.dout() / (g.in(0) * g.in(0) + g.in(1) * g.in(1));
          return {{g.needs(0) ? part * g.in(1) : Tensor(), g.needs(1) ? -part * g.in(0) : Tensor()}};
        },
        .examples = {{"[1., -1.]; [1., -1.]", "[0.7853982, -2.3561945]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "hypot(Tensor self, Tensor other) -> Tensor",
        .inplace = true,
        .doc = "sqrt(self^2 + other^2), broadcast and promoted, without overflow in between.",
        .pointwise = 2,
        .saves = {in(0).when(0), in(1).when(1), out(0)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = g.dout() * (g.in(0) / g.out());
          if (g.needs(1)) d.at[1] = g.dout() * (g.in(1) / g.out());
          return d;
        },
        .examples = {{"[3.]; [4.]", "[5.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "logaddexp(Tensor self, Tensor other) -> Tensor",
        .doc = "log(exp(self) + exp(other)), broadcast and promoted, without overflow in between.",
        .pointwise = 2,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = g.dout() * sigmoid(g.in(0) - g.in(1));
          if (g.needs(1)) d.at[1] = g.dout() * sigmoid(g.in(1) - g.in(0));
          return d;
        },
        .examples = {{"[0., 1000.]; [0., 0.]", "[0.6931472, 1000.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "copysign(Tensor self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "The size of self with the sign of other, broadcast and promoted; integers give the default dtype.",
        .pointwise = 2,
        .dtype = rule::floating,
        .saves = {in(0).when(0), out(0).when(0)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = g.dout() * where(eq(g.in(0), 0), 0, g.out() / g.in(0));
          if (g.needs(1)) d.at[1] = zeros_like(g.dout());
          return d;
        },
        .examples = {{"[1., -2.]; [-1., 1.]", "[-1., 2.]"}, {"[3]; -1", "[-3.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); -2.0", "f(0); f(1)"},
    },
    {
        .sig = "xlogy(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "self * log(other), which is 0 where self is 0 unless other is NaN, broadcast and promoted.",
        .pointwise = 2,
        .dtype = rule::floating,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          const Operand<Tensor> x = g.operand(0), y = g.operand(1);
          if (g.needs(0)) {
            const Tensor other = y.is_tensor() ? g.in(1) : g.cx.full({}, y.scalar(), g.dout().dtype());
            d.at[0] = where(logical_and(eq(g.in(0), 0), le(other, 0)), 0, xlogy(g.dout(), other));
          }
          if (g.needs(1)) d.at[1] = g.dout() * (x / g.in(1));
          return d;
        },
        .examples = {{"[0., 2.]; [0., 1.]", "[0., 0.]"}},
        .samples = {"f(2, 3); p(2, 3)", "f(2, 1); p(3)", "f(3); 2.0", "2.5; p(3)", "f(0); p(1)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kCurvesOps = kRows;

}  // namespace gradwire::engine
