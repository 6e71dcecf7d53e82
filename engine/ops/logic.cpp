// Truth and bits, elementwise.
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kConstant = "it is constant almost everywhere";
constexpr const char* kWhole = "it is for integers and bool";

constexpr OpDef kRows[] = {
    {
        .sig = "logical_and(Tensor self, Tensor other) -> Tensor",
        .inplace = true,
        .doc = "Whether both of self and other are not 0 (NaN is not), elementwise, as bool.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .examples = {{"[1., 2., 0.]; [True, False, False]", "[True, False, False]"}},
        .samples = {"f(2, 3); f(2, 3)", "b(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "logical_or(Tensor self, Tensor other) -> Tensor",
        .inplace = true,
        .doc = "Whether one or both of self and other are not 0 (NaN is not), elementwise, as bool.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .examples = {{"[1., 2., 0.]; [True, False, False]", "[True, True, False]"}},
        .samples = {"f(2, 3); f(2, 3)", "b(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "logical_xor(Tensor self, Tensor other) -> Tensor",
        .inplace = true,
        .doc = "Whether exactly one of self and other are not 0 (NaN is not), elementwise, as bool.",
        .pointwise = 2,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .examples = {{"[1., 2., 0.]; [True, False, False]", "[False, True, False]"}},
        .samples = {"f(2, 3); f(2, 3)", "b(2, 1); f(3)", "f(0); f(1)"},
    },
    {
        .sig = "logical_not(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Whether self is 0, elementwise, as bool.",
        .pointwise = 1,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .examples = {{"[1., 0.]", "[False, True]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "bitwise_and(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "Bit by bit `and` of integers or bool, broadcast and promoted.",
        .pointwise = 2,
        .no_grad = kWhole,
        .examples = {{"[6, 12]; [3, 10]", "[2, 8]"}, {"[True]; [False]", "[False]"}},
        .samples = {"i9(2, 3); i9(2, 3)", "i9(2, 1); i9(3)", "b(2); b(2)", "i9(3); 5", "5; i9(3)", "i9(0); i9(1)"},
    },
    {
        .sig = "bitwise_or(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "Bit by bit `or` of integers or bool, broadcast and promoted.",
        .pointwise = 2,
        .no_grad = kWhole,
        .examples = {{"[6, 12]; [3, 10]", "[7, 14]"}, {"[True]; [False]", "[True]"}},
        .samples = {"i9(2, 3); i9(2, 3)", "i9(2, 1); i9(3)", "b(2); b(2)", "i9(3); 5", "5; i9(3)", "i9(0); i9(1)"},
    },
    {
        .sig = "bitwise_xor(Operand self, Operand other) -> Tensor",
        .inplace = true,
        .doc = "Bit by bit `xor` of integers or bool, broadcast and promoted.",
        .pointwise = 2,
        .no_grad = kWhole,
        .examples = {{"[6, 12]; [3, 10]", "[5, 6]"}, {"[True]; [False]", "[True]"}},
        .samples = {"i9(2, 3); i9(2, 3)", "i9(2, 1); i9(3)", "b(2); b(2)", "i9(3); 5", "5; i9(3)", "i9(0); i9(1)"},
    },
    {
        .sig = "bitwise_not(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "Every bit of an integer turned, elementwise; of bool, `not`.",
        .pointwise = 1,
        .no_grad = kWhole,
        .examples = {{"[0, 5]", "[-1, -6]"}, {"[True]", "[False]"}},
        .samples = {"i9(2, 3)", "b(3)", "i9()", "i9(0)"},
    },
    {
        .sig = "isnan(Tensor self) -> Tensor",
        .doc = "Whether self is NaN, elementwise, as bool.",
        .pointwise = 1,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .examples = {{"[1., 0.]", "[False, False]"}},
        .samples = {"f(2, 3)", "f()", "f(0)", "i9(3)"},
    },
    {
        .sig = "isinf(Tensor self) -> Tensor",
        .doc = "Whether self is infinite, elementwise, as bool.",
        .pointwise = 1,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .examples = {{"[1., 0.]", "[False, False]"}},
        .samples = {"f(2, 3)", "f()", "f(0)", "i9(3)"},
    },
    {
        .sig = "isfinite(Tensor self) -> Tensor",
        .doc = "Whether self is neither NaN nor infinite, elementwise, as bool.",
        .pointwise = 1,
        .dtype = rule::boolean,
        .no_grad = kConstant,
        .examples = {{"[1., 0.]", "[True, True]"}},
        .samples = {"f(2, 3)", "f()", "f(0)", "i9(3)"},
    },
    {
        .sig = "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
        .doc = "Whether |self - other| <= atol + rtol * |other|, elementwise, as bool; infinities are close to "
               "themselves only, "
               "NaN to NaN with equal_nan.",
        .compose = [](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const double rtol = c.scalar(2).real(), atol = c.scalar(3).real();
          if (a.dtype() != b.dtype()) {
            throw Error(Code::dtype_mismatch, std::string(gradwire::row(a.dtype()).torch) + " did not match " +
                                                  gradwire::row(b.dtype()).torch);
          }
          if (!(rtol >= 0))
            throw Error(Code::bad_argument,
                        "rtol must be greater than or equal to zero, but got " + std::to_string(rtol));
          if (!(atol >= 0))
            throw Error(Code::bad_argument,
                        "atol must be greater than or equal to zero, but got " + std::to_string(atol));
          const GradMode off(c.cx, false);
          Tensor close = eq(a, b);
          if (c.flag(4)) close = logical_or(close, logical_and(isnan(a), isnan(b)));
          if (rtol == 0 && atol == 0) return close;
          const bool boolean = a.dtype() == DType::boolean;
          const Tensor x = boolean ? cast(a, DType::int64) : a, y = boolean ? cast(b, DType::int64) : b;
          const Tensor apart = abs(x - y), allowed = add(abs(y * rtol), atol);
          return logical_or(close, logical_and(isfinite(apart), le(apart, allowed)));
        },
        .examples = {{"[1., 2.]; [1.000001, 2.1]", "[True, False]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2, 1); f(3)", "f(0); f(1)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kLogicOps = kRows;

}  // namespace gradwire::engine
