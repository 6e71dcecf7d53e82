// New tensors.
#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kNew = "made of no tensor";

// The common tail of creators: dtype, device, requires_grad from parameter i on.
Tensor finish(const Call& c, int i, Tensor t) {
  if (c.flag(i + 2)) {
    if (!is_floating(t.dtype()))
      throw Error(Code::dtype_mismatch, "Only Tensors of floating point and complex dtype can require gradients");
    require_grad(t);
  }
  return t;
}

Tensor filled(const Call& c, std::span<const int64_t> size, Scalar value, DType dtype, int i) {
  rule::device(c, i + 1);
  char number[16];
  store_scalar(number, dtype, value);  // refuses what does not fit
  return finish(c, i, c.cx.full(size, value, dtype));
}

Results like(const Call& c, Scalar value) {
  return filled(c, c.tensor(0).shape(), value, c.dtype(1, c.tensor(0).dtype()), 1);
}

DType dtype_of(const Call& c, Scalar s) {
  return s.kind == Category::boolean ? DType::boolean : s.kind == Category::integer ? DType::int64 : c.cx.default_dtype;
}

Results random(const Call& c, const Kernel& kernel, const char* what) {
  const DType dtype = c.dtype(1, c.cx.default_dtype);
  if (!is_floating(dtype))
    throw Error(Code::dtype_mismatch, std::string("\"") + what + "\" not implemented for '" + row(dtype).torch + "'");
  rule::device(c, 2);
  const Tensor t = c.cx.empty(c.ints(0), dtype);
  Generator& g = c.cx.generator;
  const RandomParams params{g.seed, g.offset};
  if (t.numel() > 0) launch(c.cx, kernel, {out_view(t)}, {}, &params);
  const int64_t per = dtype == DType::float64 ? 2 : 4;  // elements a counter
  g.offset += static_cast<uint64_t>((t.numel() + per - 1) / per);
  return finish(c, 1, t);
}

constexpr OpDef kRows[] = {
    {
        .sig = "zeros(int[] size, *, dtype? dtype=None, device? device=None, bool requires_grad=False) -> Tensor",
        .doc = "Filled with 0; the default dtype if none is given.",
        .compute = [](const Call& c) -> Results { return filled(c, c.ints(0), 0, c.dtype(1, c.cx.default_dtype), 1); },
        .no_grad = kNew,
        .examples = {{"(2)", "[0., 0.]"}, {"(1); dtype='int64'", "[0]"}},
        .samples = {"(2, 3)", "()", "(0, 2); dtype='float16'"},
    },
    {
        .sig = "ones(int[] size, *, dtype? dtype=None, device? device=None, bool requires_grad=False) -> Tensor",
        .doc = "Filled with 1; the default dtype if none is given.",
        .compute = [](const Call& c) -> Results { return filled(c, c.ints(0), 1, c.dtype(1, c.cx.default_dtype), 1); },
        .no_grad = kNew,
        .examples = {{"(2)", "[1., 1.]"}},
        .samples = {"(2, 3)", "()", "(0, 2); dtype='bool'"},
    },
    {
        .sig = "full(int[] size, Scalar fill_value, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with fill_value; without a dtype bool, int64 or the default dtype, as the value is.",
        .compute = [](const Call& c) -> Results {
          return filled(c, c.ints(0), c.scalar(1), c.dtype(2, dtype_of(c, c.scalar(1))), 2);
        },
        .no_grad = kNew,
        .examples = {{"(2); 7", "[7, 7]"}, {"(2); 2.5", "[2.5, 2.5]"}},
        .samples = {"(2, 3); 2.5", "(); True", "(2); 7; dtype='uint8'"},
    },
    {
        .sig = "zeros_like(Tensor self, *, dtype? dtype=None, device? device=None, bool requires_grad=False) -> Tensor",
        .doc = "Filled with 0, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results { return like(c, 0); },
        .no_grad = kNew,
        .examples = {{"[1., 2.]", "[0., 0.]"}},
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "ones_like(Tensor self, *, dtype? dtype=None, device? device=None, bool requires_grad=False) -> Tensor",
        .doc = "Filled with 1, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results { return like(c, 1); },
        .no_grad = kNew,
        .examples = {{"[5, 2]", "[1, 1]"}},
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "rand(int[] size, *, dtype? dtype=None, device? device=None, bool requires_grad=False) -> Tensor",
        .doc = "Uniform in [0, 1), by Philox 4x32-10: the same seed gives the same bits on every device and for any "
               "number of threads.",
        .compute = [](const Call& c) -> Results { return random(c, GW_KERNEL(uniform), "uniform"); },
        .no_grad = kNew,
        .samples = {"(2, 3)", "()", "(5); dtype='float64'"},
    },
    {
        .sig = "randn(int[] size, *, dtype? dtype=None, device? device=None, bool requires_grad=False) -> Tensor",
        .doc = "Normal with mean 0 and variance 1, by Philox 4x32-10 and Box and Muller.",
        .compute = [](const Call& c) -> Results { return random(c, GW_KERNEL(normal), "normal"); },
        .no_grad = kNew,
        .samples = {"(2, 3)", "()", "(5); dtype='float64'"},
    },
    {
        .sig = "manual_seed(int seed) -> ()",
        .doc = "Starts the session's generator anew.",
        .compute = [](const Call& c) -> Results {
          c.cx.generator = {static_cast<uint64_t>(c.integer(0)), 0};
          return {};
        },
        .no_grad = kNew,
        .samples = {"7"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kCreateOps = kRows;

}  // namespace gradwire::engine
