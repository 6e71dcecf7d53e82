// Two operands, elementwise, broadcast against each other and promoted.
#include "engine/kernels.h"
#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

bool is_one(Scalar s) { return s.real() == 1; }

DType promoted(const Call& c) {
  Promotion p;
  for (int k = 0; k < 2; ++k) {
    if (c.is_tensor(k))
      p.add(c.tensor(k));
    else
      p.add(c.scalar(k), c.cx.default_dtype);
  }
  return p.result();
}

// The row's own functor; that of the operator whose other name it is.
Chosen plain(const Call& c, const char* functor) { return {c.row.kernel ? nullptr : functor, {}}; }

// self + alpha * other; alpha must not bring a category that the operands have not.
Chosen scaled(const Call& c, Scalar alpha) {
  const Category result = category(promoted(c));
  if (alpha.kind == Category::boolean && result != Category::boolean) {
    throw Error(Code::bad_argument, "Boolean alpha only supported for Boolean results.");
  }
  if (alpha.kind == Category::floating && result != Category::floating) {
    throw Error(Code::bad_argument, "For integral input tensors, argument alpha must not be a floating point number.");
  }
  return {"add_scaled", {alpha}};
}

bool is_bool(const Call& c, int k) {
  return c.is_tensor(k) ? c.tensor(k).dtype() == DType::boolean : c.scalar(k).kind == Category::boolean;
}

void refuse_zero_divisor(const Call& c, DType compute) {
  if (c.is_tensor(0) && c.tensor(0).numel() == 0) return;
  if (!c.is_tensor(1)) {
    int64_t divisor = 0;
    wrap_scalar(&divisor, compute, c.scalar(1));
    if (divisor == 0) throw Error(Code::bad_argument, "ZeroDivisionError");
    return;
  }
  const Tensor& t = c.tensor(1);
  const Tensor n = c.cx.empty({}, DType::int64);
  launch(c.cx, GW_KERNEL(count_nonzero), {n.view()}, {t.view()});
  if (item(n).integer() != t.numel()) throw Error(Code::bad_argument, "ZeroDivisionError");
}

// What a saved operand contributes, the other way round: mul's gradient for one input is made of the other.
Grads mul_vjp(const Vjp& g) {
  Grads d;
  if (g.needs(0)) d.at[0] = g.dout() * g.operand(1);
  if (g.needs(1)) d.at[1] = g.dout() * g.operand(0);
  return d;
}

Chosen choose_sub(const Call& c) {
  if (is_bool(c, 0) && is_bool(c, 1)) {
    throw Error(Code::dtype_mismatch,
                "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                "`logical_xor()` operator instead.");
  }
  if (is_bool(c, 0) || is_bool(c, 1)) {
    throw Error(Code::dtype_mismatch,
                "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
                "invert a mask, use the `~` or `logical_not()` operator instead.");
  }
  const Scalar a = c.scalar(2);
  if (a.kind == Category::boolean) throw Error(Code::bad_argument, "Boolean alpha only supported for Boolean results.");
  if (a.kind == Category::integer && a.i == 1) return plain(c, "sub");
  const Chosen by_alpha =
      scaled(c, a.kind == Category::floating ? Scalar(-a.f)
                                             : Scalar(static_cast<int64_t>(0 - static_cast<uint64_t>(a.integer()))));
  return is_one(a) ? plain(c, "sub") : by_alpha;  // alpha's kind is refused at 1 too
}

Grads sub_vjp(const Vjp& g) {
  const Tensor other = g.needs(1) ? -g.dout() : Tensor();
  return {{g.dout(), other && !is_one(g.scalar(2)) ? mul(other, g.scalar(2)) : other}};
}

bool drops_fraction(const Call& c) { return c.cx.compat.integer_division && !c.has(2); }

DTypes div_types(const Call& c, DType t) {
  const bool whole = category(t) == Category::integer && drops_fraction(c);
  return c.has(2) || whole ? DTypes{t, t} : rule::floating(c, t);
}

// With a rounding mode, or where the row always rounds down.
Chosen choose_div(const Call& c) {
  if (!c.has(2) && !(drops_fraction(c) && category(promoted(c)) == Category::integer)) return plain(c, "div");
  const std::string_view mode = c.has(2) ? c.text(2) : "trunc";
  if (mode != "trunc" && mode != "floor") {
    throw Error(Code::bad_argument, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '" +
                                        std::string(mode.substr(0, 64)) + "'");
  }
  const DType compute = promoted(c);
  if (category(compute) == Category::integer) refuse_zero_divisor(c, compute);
  return {mode == "trunc" ? "div_trunc" : "div_floor", {}};
}

// Remainders, and division that always rounds down.
template <int kName> Chosen choose_whole(const Call& c) {
  static constexpr const char* kNames[] = {"fmod", "remainder", "div_floor"};
  const DType compute = promoted(c);
  if (category(compute) == Category::integer) refuse_zero_divisor(c, compute);
  return {kNames[kName], {}};
}

Grads quotient_vjp(const Vjp& g) {
  Grads d;
  if (g.needs(0)) d.at[0] = g.dout() / g.operand(1);
  if (g.needs(1)) d.at[1] = -g.dout() * ((g.operand(0) / g.operand(1)) / g.operand(1));
  return d;
}

Grads constant(const Vjp& g) {
  const Tensor zeros = zeros_like(g.dout());
  return {{zeros, g.needs(1) ? zeros : Tensor()}};
}

Grads div_vjp(const Vjp& g) { return g.given(2) ? constant(g) : quotient_vjp(g); }

// What a remainder's divisor contributes is the quotient, rounded as the remainder has it.
Grads remainder_vjp(const Vjp& g, const char* rounding) {
  Grads d;
  d.at[0] = g.dout();
  if (g.needs(1)) {
    const Bound args[] = {g.operand(0).value(), g.operand(1).value(), Bound(std::string_view(rounding))};
    d.at[1] = -g.dout() * call(g.cx, op::div, args).at[0];
  }
  return d;
}

constexpr OpDef kRows[] = {
    {
        .sig = "add(Operand self, Operand other, *, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "self + alpha * other, broadcast and promoted. On bool it is `or`.",
        .pointwise = 2,
        .choose = [](const Call& c) -> Chosen {
          const Scalar alpha = c.scalar(2);
          if (alpha.kind == Category::integer && alpha.i == 1) return {};
          const Chosen by_alpha = scaled(c, alpha);  // refuses what does not fit
          return is_one(alpha) ? Chosen{} : by_alpha;
        },
        .vjp = [](const Vjp& g) -> Grads {
          return {{g.dout(), is_one(g.scalar(2)) ? g.dout() : mul(g.dout(), g.scalar(2))}};
        },
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [10., 20.]", "[11., 22.]"},
                     {"[1, 2]; 1; alpha=3", "[4, 5]"},
                     {"[True]; [False]", "[True]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 2.5", "f(2); f(2); alpha=3", "f(0); f(1)"},
    },
    {
        .sig = "sub(Operand self, Operand other, *, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "self - alpha * other, broadcast and promoted. bool is refused.",
        .pointwise = 2,
        .choose = choose_sub,
        .vjp = sub_vjp,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [10., 20.]", "[-9., -18.]"}, {"[5]; 2; alpha=2", "[1]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "3.0; f(2)", "f(2); f(2); alpha=0.5", "f(0); f(1)"},
    },
    {
        .sig = "mul(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "self * other, broadcast and promoted. On bool it is `and`.",
        .pointwise = 2,
        .saves = {in(0).when(1), in(1).when(0)},
        .vjp = mul_vjp,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [10., 20.]", "[10., 40.]"}, {"[3]; 0.5", "[1.5]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 2.5", "2.5; f(3)", "f(0); f(1)"},
    },
    {
        .sig = "div(Operand self, Operand other, *, str? rounding_mode=None) -> Tensor",
        .inplace = true,
        .doc = "self / other, broadcast and promoted; integers give the default dtype. rounding_mode "
               "'trunc' or "
               "'floor' keeps "
               "integers, which refuse to divide by zero.",
        .pointwise = 2,
        .dtype = div_types,
        .choose = choose_div,
        .saves = {in(0).when(1), in(1)},
        .vjp = div_vjp,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [4., 8.]", "[0.25, 0.25]"},
                     {"[7]; 2", "[3.5]"},
                     {"[-7]; 2; rounding_mode='floor'", "[-4]"},
                     {"[-7]; 2; rounding_mode='trunc'", "[-3]"}},
        .samples = {"f(2, 3); p(2, 3)", "f(2, 1); p(3)", "f(3); 2.5", "2.5; p(3)", "f(0); f(1)"},
    },
    {
        .sig = "maximum(Tensor self, Tensor other) -> Tensor",
        .doc = "The larger of self and other, elementwise; NaN if either is. Equal ones share the "
               "gradient.",
        .pointwise = 2,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor half = where(eq(g.in(0), g.in(1)), g.dout() / 2, g.dout());
          return {{where(lt(g.in(0), g.in(1)), 0, half), where(gt(g.in(0), g.in(1)), 0, half)}};
        },
        .since_0_2 = true,
        .examples = {{"[1., 5.]; [4., -8.]", "[4., 5.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "minimum(Tensor self, Tensor other) -> Tensor",
        .doc = "The smaller of self and other, elementwise; NaN if either is. Equal ones share the "
               "gradient.",
        .pointwise = 2,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor half = where(eq(g.in(0), g.in(1)), g.dout() / 2, g.dout());
          return {{where(gt(g.in(0), g.in(1)), 0, half), where(lt(g.in(0), g.in(1)), 0, half)}};
        },
        .since_0_2 = true,
        .examples = {{"[1., 5.]; [4., -8.]", "[1., -8.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "fmod(Tensor self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "The remainder of self / other with the sign of self, broadcast and promoted; "
               "integers refuse to divide "
               "by zero.",
        .pointwise = 2,
        .choose = choose_whole<0>,
        .saves = {in(0).when(1), in(1).when(1)},
        .vjp = [](const Vjp& g) -> Grads { return remainder_vjp(g, "trunc"); },
        .since_0_2 = true,
        .examples = {{"[5., -5.]; 3", "[2., -2.]"}, {"[-7]; [2]", "[-1]"}},
        .samples = {"f(2, 3); p(2, 3)", "f(2, 1); p(3)", "f(3); 0.7", "f(0); f(1)"},
    },
    {
        .sig = "remainder(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "The remainder of self / other with the sign of other, as Python has it, broadcast "
               "and promoted; "
               "integers refuse to divide by zero.",
        .pointwise = 2,
        .choose = choose_whole<1>,
        .saves = {in(0).when(1), in(1).when(1)},
        .vjp = [](const Vjp& g) -> Grads { return remainder_vjp(g, "floor"); },
        .since_0_2 = true,
        .examples = {{"[5., -5.]; 3", "[2., 1.]"}, {"[-7]; [2]", "[1]"}},
        .samples = {"f(2, 3); p(2, 3)", "f(2, 1); p(3)", "f(3); 0.7", "2.7; p(3)", "f(0); f(1)"},
    },
    {
        .sig = "floor_divide(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "self / other rounded down, broadcast and promoted; integers refuse to divide by zero.",
        .pointwise = 2,
        .choose = choose_whole<2>,
        .vjp = constant,
        .examples = {{"[-7]; 2", "[-4]"}, {"[7.]; 2", "[3.]"}},
        .samples = {"f(2, 3); p(2, 3)", "f(2, 1); p(3)", "f(3); 0.7", "2.7; p(3)", "f(0); f(1)"},
    },
    {
        .sig = "true_divide(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "self / other, broadcast and promoted; integers give the default dtype.",
        .pointwise = 2,
        .dtype = rule::floating,
        .choose = [](const Call& c) -> Chosen { return plain(c, "div"); },
        .saves = {in(0).when(1), in(1)},
        .vjp = quotient_vjp,
        .examples = {{"[7]; 2", "[3.5]"}},
        .samples = {"f(2, 3); p(2, 3)", "2.5; p(3)"},
    },
    {
        .sig = "divide(Operand self, Operand other, *, str? rounding_mode=None) -> Tensor",
        .inplace = true,
        .doc = "Another name of div.",
        .pointwise = 2,
        .dtype = div_types,
        .choose = choose_div,
        .saves = {in(0).when(1), in(1)},
        .vjp = div_vjp,
        .examples = {{"[7]; 2", "[3.5]"}, {"[7]; 2; rounding_mode='floor'", "[3]"}},
        .samples = {"f(2, 3); p(2, 3)", "2.5; p(3)"},
    },
    {
        .sig = "multiply(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "Another name of mul.",
        .pointwise = 2,
        .choose = [](const Call& c) -> Chosen { return plain(c, "mul"); },
        .saves = {in(0).when(1), in(1).when(0)},
        .vjp = mul_vjp,
        .examples = {{"[3]; 0.5", "[1.5]"}},
        .samples = {"f(2, 3); f(2, 3)", "2.5; f(3)"},
    },
    {
        .sig = "subtract(Operand self, Operand other, *, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "Another name of sub.",
        .pointwise = 2,
        .choose = choose_sub,
        .vjp = sub_vjp,
        .examples = {{"[5]; 2; alpha=2", "[1]"}},
        .samples = {"f(2, 3); f(2, 3)", "2.5; f(3)"},
    },
    {
        .sig = "rsub(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor",
        .doc = "other - alpha * self, broadcast and promoted. bool is refused.",
        .compose = [](const Call& c) -> Results {
          const Bound args[] = {c.args[1], c.args[0], c.args[2]};
          return call(c.cx, op::sub, args);
        },
        .examples = {{"[1., 2.]; 10", "[9., 8.]"}, {"[2]; [7]; alpha=3", "[1]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(3); 2.5; alpha=2"},
    },
    {
        .sig = "fmax(Tensor self, Tensor other) -> Tensor",
        .doc = "The larger of self and other, elementwise; a number wins over NaN. Of equal ones "
               "self gets the gradient.",
        .pointwise = 2,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor first = logical_or(ge(g.in(0), g.in(1)), isnan(g.in(1)));
          Grads d;
          if (g.needs(0)) d.at[0] = where(first, g.dout(), 0);
          if (g.needs(1)) d.at[1] = where(first, 0, g.dout());
          return d;
        },
        .examples = {{"[1., 5.]; [4., -8.]", "[4., 5.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "fmin(Tensor self, Tensor other) -> Tensor",
        .doc = "The smaller of self and other, elementwise; a number wins over NaN. Of equal ones "
               "self gets the gradient.",
        .pointwise = 2,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor first = logical_or(le(g.in(0), g.in(1)), isnan(g.in(1)));
          Grads d;
          if (g.needs(0)) d.at[0] = where(first, g.dout(), 0);
          if (g.needs(1)) d.at[1] = where(first, 0, g.dout());
          return d;
        },
        .examples = {{"[1., 5.]; [4., -8.]", "[1., -8.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kBinaryOps = kRows;

}  // namespace gradwire::engine
