// Three operands, elementwise; and bounds, of which one may be left out.
#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

DTypes own_type(const Call& c, DType) { return {c.tensor(0).dtype(), c.tensor(0).dtype()}; }

DType promoted(const Call& c) {
  Promotion p;
  for (int k = 0; k < c.row.def->pointwise; ++k) {
    if (c.is_tensor(k))
      p.add(c.tensor(k));
    else if (c.has(k))
      p.add(c.scalar(k), c.cx.default_dtype);
  }
  return p.result();
}

/// Throws where a number is no value of the dtype.
void check_fits(DType t, Scalar s) {
  char room[16];
  store_scalar(room, t, s);
}

// Integers take the whole part of value.
Chosen choose_scaled(const Call& c) {
  const DType compute = promoted(c);
  const Scalar value = c.scalar(3);
  if (is_floating(compute)) return {nullptr, {value}};
  check_fits(DType::int64, value);
  return {nullptr, {value.kind == Category::floating ? Scalar(static_cast<int64_t>(value.f)) : value}};
}

void check_bounds(const Call& c, int bounds) {
  const DType compute = promoted(c);
  for (int k = 1; k <= bounds; ++k) {
    if (c.has(k) && !c.is_tensor(k)) check_fits(compute, c.scalar(k));
  }
}

Grads clamp_vjp(const Vjp& g) {
  const Tensor& x = g.in(0);
  const bool low = g.given(1) || g.has_in(1), high = g.given(2) || g.has_in(2);
  const Operand<Tensor> min = low ? g.operand(1) : Operand<Tensor>(0), max = high ? g.operand(2) : Operand<Tensor>(0);
  Grads d;
  if (g.needs(0)) {
    const Tensor above = low ? ge(x, min) : Tensor(), below = high ? le(x, max) : Tensor();
    d.at[0] = where(low && high ? logical_and(above, below) : low ? above : below, g.dout(), 0);
  }
  if (g.needs(1)) {
    const Tensor held = lt(x, min);
    d.at[1] = where(high ? logical_and(held, g.in(1) < max) : held, g.dout(), 0);
  }
  if (g.needs(2)) {
    const Tensor held = gt(x, max);
    d.at[2] = where(low ? logical_or(held, g.in(2) < min) : held, g.dout(), 0);
  }
  return d;
}

Chosen choose_fill(const Call& c) {
  const DType type = c.tensor(0).dtype(), mask = c.tensor(1).dtype();
  if (mask == DType::uint8) {
    c.cx.warn("masked_fill",
              "masked_fill_ received a mask with dtype torch.uint8, this behavior is now deprecated,"
              "please use a mask with dtype torch.bool instead.");
  } else if (mask != DType::boolean) {
    throw Error(Code::dtype_mismatch,
                std::string("masked_fill_ only supports boolean masks, but got mask with dtype ") + row(mask).torch);
  }
  if (!c.is_tensor(2)) {
    check_fits(type, c.scalar(2));
    return {};
  }
  const Tensor& value = c.tensor(2);
  if (value.ndim() > 0) {
    throw Error(Code::bad_argument, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with " +
                                        std::to_string(value.ndim()) + " dimension(s).");
  }
  if (value.dtype() != type) check_fits(type, item(value));
  return {};
}

constexpr OpDef kRows[] = {
    {
        .sig = "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
        .inplace = true,
        .doc = "self + value * tensor1 * tensor2, broadcast and promoted.",
        .pointwise = 3,
        .choose = choose_scaled,
        .saves = {in(1).when(2), in(2).when(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          d.at[0] = g.dout();
          if (g.needs(1)) d.at[1] = g.dout() * mul(g.in(2), g.scalar(3));
          if (g.needs(2)) d.at[2] = g.dout() * mul(g.in(1), g.scalar(3));
          return d;
        },
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [3., 4.]; [5., 6.]; value=2", "[31., 50.]"}, {"[1]; [2]; [3]", "[7]"}},
        .samples = {"f(2, 3); f(2, 3); f(2, 3)", "f(3); f(2, 1); f(2, 3); value=2", "f(0); f(1); f(0)"},
    },
    {
        .sig = "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
        .inplace = true,
        .doc = "self + value * tensor1 / tensor2, broadcast and promoted. Two integer tensors are refused.",
        .pointwise = 3,
        .choose = [](const Call& c) -> Chosen {
          if (!is_floating(c.tensor(1).dtype()) && !is_floating(c.tensor(2).dtype())) {
            throw Error(
                Code::dtype_mismatch,
                "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
                "true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + "
                "value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * "
                "tensor1 / tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: "
                "(input + value * tensor1 / tensor2), for all dtypes.");
          }
          return choose_scaled(c);
        },
        .saves = {in(1).when(2), in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          d.at[0] = g.dout();
          if (g.needs(1)) d.at[1] = g.dout() * (g.scalar(3) / g.in(2));
          if (g.needs(2)) d.at[2] = -g.dout() * (mul(g.in(1), g.scalar(3)) / (g.in(2) * g.in(2)));
          return d;
        },
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [3., 4.]; [4., 2.]; value=2", "[2.5, 6.]"}},
        .samples = {"f(2, 3); f(2, 3); p(2, 3)", "f(3); f(2, 1); p(2, 3); value=0.5", "f(0); f(1); f(0)"},
    },
    {
        .sig = "lerp(Tensor self, Tensor end, Operand weight) -> Tensor",
        .inplace = true,
        .doc = "self + weight * (end - self), broadcast, exact at the weights 0 and 1. One floating dtype.",
        .pointwise = 3,
        .dtype = own_type,
        .choose = [](const Call& c) -> Chosen {
          for (int k = 1; k < 3; ++k) {
            if (c.is_tensor(k) && c.tensor(k).dtype() != c.tensor(0).dtype()) {
              throw Error(Code::dtype_mismatch, std::string("expected dtype ") + name(c.tensor(0).dtype()) + " for `" +
                                                    (k == 1 ? "end" : "weight") + "` but got dtype " +
                                                    name(c.tensor(k).dtype()));
            }
          }
          return {};
        },
        .saves = {in(0).when(2), in(1).when(2), in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          const Operand<Tensor> w = g.operand(2);
          if (g.needs(0)) d.at[0] = g.dout() * (w.is_tensor() ? Operand<Tensor>(1 - g.in(2)) : 1 - w.scalar().real());
          if (g.needs(1)) d.at[1] = g.dout() * w;
          if (g.needs(2)) d.at[2] = g.dout() * (g.in(1) - g.in(0));
          return d;
        },
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [3., 6.]; 0.5", "[2., 4.]"}, {"[1., 2.]; [3., 6.]; [0., 1.]", "[1., 6.]"}},
        .samples = {"f(2, 3); f(2, 3); 0.3", "f(2, 3); f(3); 0.8", "f(2, 1); f(3); p(2, 3)", "f(0); f(1); f(0)"},
    },
    {
        .sig = "clamp(Tensor self, Operand? min=None, Operand? max=None) -> Tensor",
        .inplace = true,
        .doc = "min where self is below it, max where it is above that, else self; broadcast and promoted. NaN in any "
               "of them wins, and max over min. The gradient at a bound is 1.",
        .pointwise = 3,
        .choose = [](const Call& c) -> Chosen {
          if (!c.has(1) && !c.has(2))
            throw Error(Code::bad_argument, "torch.clamp: At least one of 'min' or 'max' must not be None");
          check_bounds(c, 2);
          return {c.has(2) ? nullptr : "maximum", {}};  // where min is left out, self stands in for it
        },
        .saves = {in(0), in(1), in(2)},
        .vjp = clamp_vjp,
        .examples = {{"[-1., 0.5, 2.]; 0; 1", "[0., 0.5, 1.]"},
                     {"[1, 5]; max=3", "[1, 3]"},
                     {"[1., 5.]; [2., 2.]; [9., 3.]", "[2., 3.]"}},
        .samples = {"f(2, 3); -0.5; 0.5", "f(2, 3); p(2, 3); p(3)", "f(2, 3); f(2, 3); f(2, 3)", "f(3); None; 0.3",
                    "f(3); f(2, 1)", "f(3); max=f(2, 1)", "f(0); 1", "f(3); -0.4; p(3)"},
    },
    {
        .sig = "clamp_min(Tensor self, Operand min) -> Tensor",
        .inplace = true,
        .doc = "min where self is below it, else self; broadcast and promoted. NaN in either wins. The gradient at the "
               "bound is 1.",
        .pointwise = 2,
        .choose = [](const Call& c) -> Chosen {
          check_bounds(c, 1);
          return {"maximum", {}};
        },
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = where(ge(g.in(0), g.operand(1)), g.dout(), 0);
          if (g.needs(1)) d.at[1] = where(lt(g.in(0), g.operand(1)), g.dout(), 0);
          return d;
        },
        .examples = {{"[-1., 2.]; 0", "[0., 2.]"}},
        .samples = {"f(2, 3); -0.5", "f(2, 1); f(3)", "f(0); 1"},
    },
    {
        .sig = "clamp_max(Tensor self, Operand max) -> Tensor",
        .inplace = true,
        .doc = "max where self is above it, else self; broadcast and promoted. NaN in either wins. The gradient at the "
               "bound is 1.",
        .pointwise = 2,
        .choose = [](const Call& c) -> Chosen {
          check_bounds(c, 1);
          return {"minimum", {}};
        },
        .saves = {in(0), in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = where(le(g.in(0), g.operand(1)), g.dout(), 0);
          if (g.needs(1)) d.at[1] = where(gt(g.in(0), g.operand(1)), g.dout(), 0);
          return d;
        },
        .examples = {{"[-1., 2.]; 0", "[-1., 0.]"}},
        .samples = {"f(2, 3); -0.5", "f(2, 1); f(3)", "f(0); 1"},
    },
    {
        .sig = "masked_fill(Tensor self, Tensor mask, Operand value) -> Tensor",
        .inplace = true,
        .doc = "value where the mask (bool) holds, else self, in self's dtype; self and mask broadcast, value is a "
               "number or a 0-dim tensor.",
        .pointwise = 3,
        .dtype = own_type,
        .choose = choose_fill,
        .saves = {in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor mask = g.dtype(1) == DType::boolean ? g.in(1) : ne(g.in(1), 0);
          Grads d;
          if (g.needs(0)) d.at[0] = where(mask, 0, g.dout());
          if (g.needs(2)) d.at[2] = where(mask, g.dout(), 0);
          return d;
        },
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [True, False]; 5", "[5., 2.]"}},
        .samples = {"f(2, 3); b(3); 1.5", "f(3); b(2, 1); f()", "f(0); b(1); 0"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kTernaryOps = kRows;

}  // namespace gradwire::engine
