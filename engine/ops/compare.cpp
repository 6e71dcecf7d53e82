// Comparisons, and choosing by them.
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kConstant = "a comparison is constant almost everywhere";

constexpr OpDef kRows[] = {
    {
        .sig = "eq(Operand self, Operand other) -> Tensor",
        .doc = "self == other, elementwise, as bool, which NaN never is.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [1., 3.]", "[True, False]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 0.5", "f(0); f(1)"},
    },
    {
        .sig = "ne(Operand self, Operand other) -> Tensor",
        .doc = "self != other, elementwise, as bool; NaN differs from everything.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [1., 3.]", "[False, True]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 0.5", "f(0); f(1)"},
    },
    {
        .sig = "lt(Operand self, Operand other) -> Tensor",
        .doc = "self < other, elementwise, as bool, which NaN never is.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [1., 3.]", "[False, True]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 0.5", "f(0); f(1)"},
    },
    {
        .sig = "le(Operand self, Operand other) -> Tensor",
        .doc = "self <= other, elementwise, as bool, which NaN never is.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [1., 3.]", "[True, True]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 0.5", "f(0); f(1)"},
    },
    {
        .sig = "gt(Operand self, Operand other) -> Tensor",
        .doc = "self > other, elementwise, as bool, which NaN never is.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .since_0_2 = true,
        .examples = {{"[1., 4.]; [1., 3.]", "[False, True]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 0.5", "f(0); f(1)"},
    },
    {
        .sig = "ge(Operand self, Operand other) -> Tensor",
        .doc = "self >= other, elementwise, as bool, which NaN never is.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .since_0_2 = true,
        .examples = {{"[1., 2.]; [1., 3.]", "[True, False]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(3); 0.5", "f(0); f(1)"},
    },
    {
        .sig = "where(Tensor condition, Operand self, Operand other) -> Tensor",
        .doc = "self where the condition (bool) holds, else other; all three broadcast.",
        .pointwise = 3,
        .choose = [](const Call& c) -> Chosen {
          const DType t = c.tensor(0).dtype();
          if (t == DType::uint8) {
            c.cx.warn("where",
                      "where received a uint8 condition tensor. This behavior is deprecated and will be "
                      "removed in a future version of PyTorch. Use a boolean condition instead.");
          } else if (t != DType::boolean) {
            throw Error(Code::dtype_mismatch,
                        std::string("where expected condition to be a boolean tensor, but got a tensor with dtype ") +
                            row(t).torch);
          }
          return {};
        },
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(1)) d.at[1] = where(g.in(0), g.dout(), 0);
          if (g.needs(2)) d.at[2] = where(g.in(0), 0, g.dout());
          return d;
        },
        .examples = {{"[True, False]; [1., 2.]; [10., 20.]", "[1., 20.]"}},
        .samples = {"b(2, 3); f(2, 3); f(2, 3)", "b(3); f(2, 1); f(3)", "b(3); f(3); 0.0", "b(3); 0.0; f(3)",
                    "b(0); f(0); f(1)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kCompareOps = kRows;

}  // namespace gradwire::engine
