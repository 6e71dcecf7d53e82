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
        .choose = [](const Call& c) -> Chosen {
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
          if (a.kind == Category::boolean)
            throw Error(Code::bad_argument, "Boolean alpha only supported for Boolean results.");
          if (a.kind == Category::integer && a.i == 1) return {};
          const Chosen by_alpha = scaled(c, a.kind == Category::floating
                                                ? Scalar(-a.f)
                                                : Scalar(static_cast<int64_t>(0 - static_cast<uint64_t>(a.integer()))));
          return is_one(a) ? Chosen{} : by_alpha;
        },
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor other = g.needs(1) ? -g.dout() : Tensor();
          return {{g.dout(), other && !is_one(g.scalar(2)) ? mul(other, g.scalar(2)) : other}};
        },
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
        .examples = {{"[1., 2.]; [10., 20.]", "[10., 40.]"}, {"[3]; 0.5", "[1.5]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 2.5", "2.5; f(3)", "f(0); f(1)"},
    },
    {
        .sig = "div(Operand self, Operand other, *, str? rounding_mode=None) -> Tensor",
        .inplace = true,
        .doc = "self / other, broadcast and promoted; integers give the default dtype. rounding_mode 'trunc' or "
               "'floor' keeps "
               "integers, which refuse to divide by zero.",
        .pointwise = 2,
        .dtype = [](const Call& c, DType t) -> DTypes {
          return c.has(2) ? DTypes{t == DType::boolean ? c.cx.default_dtype : t,
                                   t == DType::boolean ? c.cx.default_dtype : t}
                          : rule::floating(c, t);
        },
        .choose = [](const Call& c) -> Chosen {
          if (!c.has(2)) return {};
          const std::string_view mode = c.text(2);
          if (mode != "trunc" && mode != "floor") {
            throw Error(Code::bad_argument,
                        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '" +
                            std::string(mode.substr(0, 64)) + "'");
          }
          const DType compute = promoted(c);
          if (!is_floating(compute)) refuse_zero_divisor(c, compute);
          return {mode == "trunc" ? "div_trunc" : "div_floor", {}};
        },
        .saves = {in(0).when(1), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.given(2)) {  // constant almost everywhere
            d.at[0] = zeros_like(g.dout());
            if (g.needs(1)) d.at[1] = zeros_like(g.dout());
            return d;
          }
          if (g.needs(0)) d.at[0] = g.dout() / g.operand(1);
          if (g.needs(1)) d.at[1] = -g.dout() * ((g.operand(0) / g.operand(1)) / g.operand(1));
          return d;
        },
        .examples = {{"[1., 2.]; [4., 8.]", "[0.25, 0.25]"},
                     {"[7]; 2", "[3.5]"},
                     {"[-7]; 2; rounding_mode='floor'", "[-4]"},
                     {"[-7]; 2; rounding_mode='trunc'", "[-3]"}},
        .samples = {"f(2, 3); p(2, 3)", "f(2, 1); p(3)", "f(3); 2.5", "2.5; p(3)", "f(0); f(1)"},
    },
    {
        .sig = "maximum(Tensor self, Tensor other) -> Tensor",
        .doc = "The larger of self and other, elementwise; NaN if either is. Equal ones share the gradient.",
        .pointwise = 2,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor half = where(eq(g.in(0), g.in(1)), g.dout() / 2, g.dout());
          return {{where(lt(g.in(0), g.in(1)), 0, half), where(gt(g.in(0), g.in(1)), 0, half)}};
        },
        .examples = {{"[1., 5.]; [4., -8.]", "[4., 5.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "minimum(Tensor self, Tensor other) -> Tensor",
        .doc = "The smaller of self and other, elementwise; NaN if either is. Equal ones share the gradient.",
        .pointwise = 2,
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor half = where(eq(g.in(0), g.in(1)), g.dout() / 2, g.dout());
          return {{where(gt(g.in(0), g.in(1)), 0, half), where(lt(g.in(0), g.in(1)), 0, half)}};
        },
        .examples = {{"[1., 5.]; [4., -8.]", "[1., -8.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kBinaryOps = kRows;

}  // namespace gradwire::engine
