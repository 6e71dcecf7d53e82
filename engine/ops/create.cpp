// New tensors.
#include <cmath>
#include <cstdio>
#include <limits>

#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kNew = "made of no tensor";

int64_t as_whole(Scalar s) { return s.kind == Category::floating ? math::whole<int64_t>(s.f) : s.integer(); }
std::string plain(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

[[noreturn]] void wrong_sign() {
  throw Error(Code::bad_argument, "upper bound and larger bound inconsistent with step sign");
}
int64_t count(int64_t start, int64_t end, int64_t step) {
  if (step > 0 ? end < start : end > start) wrong_sign();
  const uint64_t way = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(start)
                                : static_cast<uint64_t>(start) - static_cast<uint64_t>(end);
  const uint64_t one = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t n = way / one + (way % one != 0);
  if (n > static_cast<uint64_t>(kMaxDim)) throw Error(Code::bad_argument, "invalid size, possible overflow?");
  return static_cast<int64_t>(n);
}
int64_t count(double start, double end, double step) {
  if (step > 0 ? end < start : end > start) wrong_sign();
  const double n = std::ceil((end - start) / step);
  if (!(n <= static_cast<double>(kMaxDim))) throw Error(Code::bad_argument, "invalid size, possible overflow?");
  return static_cast<int64_t>(n);
}

// The common tail of creators: dtype, device, requires_grad from parameter i on.
Tensor finish(const Call& c, int i, Tensor t) {
  if (c.flag(i + 2)) {
    if (!is_floating(t.dtype()))
      throw Error(Code::dtype_mismatch, "Only Tensors of floating point and complex dtype can require gradients");
    require_grad(t);
  }
  return t;
}

// A finite value must stay finite.
void check_finite(DType t, double x) {
  const double most = t == DType::float16    ? 65504
                      : t == DType::bfloat16 ? 0x1.FEp127
                      : t == DType::float32  ? std::numeric_limits<float>::max()
                                             : std::numeric_limits<double>::max();
  if (!is_floating(t) || !std::isfinite(x) || std::abs(x) <= most) return;
  throw Error(Code::bad_argument, std::string("value cannot be converted to type ") +
                                      (t == DType::float16    ? "at::Half"
                                       : t == DType::bfloat16 ? "at::BFloat16"
                                                              : "float") +
                                      " without overflow");
}

Tensor filled(const Call& c, std::span<const int64_t> size, Scalar value, DType dtype, int i) {
  rule::device(c, i + 1);
  char number[16];
  store_scalar(number, dtype, value);  // refuses what does not fit
  check_finite(dtype, value.real());
  return finish(c, i, c.cx.full(size, value, dtype));
}

Results like(const Call& c, Scalar value) {
  return filled(c, c.tensor(0).shape(), value, c.dtype(1, c.tensor(0).dtype()), 1);
}

DType dtype_of(const Call& c, Scalar s) {
  return s.kind == Category::boolean ? DType::boolean : s.kind == Category::integer ? DType::int64 : c.cx.default_dtype;
}

// Half-open steps from start to end: how many, and their values.
Results steps(const Call& c, Scalar start, Scalar end, Scalar step, int i) {
  const auto floating = [](Scalar s) { return s.kind == Category::floating; };
  const bool whole = !floating(start) && !floating(end) && !floating(step) && !c.cx.compat.arange_float;
  const DType dtype = c.dtype(i, whole ? DType::int64 : c.cx.default_dtype);
  rule::device(c, i + 1);
  if (dtype == DType::boolean) throw Error(Code::dtype_mismatch, "\"arange_cpu\" not implemented for 'Bool'");
  SequenceParams p;
  p.start = start.real(), p.step = step.real();
  p.whole_start = as_whole(start), p.whole_step = as_whole(step);
  if (is_floating(dtype) ? p.step == 0 : p.whole_step == 0) throw Error(Code::bad_argument, "step must be nonzero");
  if (!std::isfinite(p.start) || !std::isfinite(end.real()))
    throw Error(Code::bad_argument, "unsupported range: " + plain(p.start) + " -> " + plain(end.real()));
  const int64_t n =
      dtype == DType::int64 ? count(p.whole_start, as_whole(end), p.whole_step) : count(p.start, end.real(), p.step);
  const Tensor t = c.cx.empty(Shape{n}, dtype);
  if (n > 0) launch(c.cx, GW_KERNEL(sequence), {out_view(t)}, {}, &p);
  return finish(c, i, t);
}

// So many numbers from start to end, both included, or the powers of base with these exponents.
Results between(const Call& c, int i, SequenceParams p, const char* op) {
  const int64_t n = c.integer(2);
  const DType dtype = c.dtype(i, c.cx.default_dtype);
  rule::device(c, i + 1);
  if (n < 0) throw Error(Code::bad_argument, "number of steps must be non-negative");
  if (dtype == DType::boolean)
    throw Error(Code::dtype_mismatch, std::string("\"") + op + "_cpu\" not implemented for 'Bool'");
  char number[16];
  for (const int k : {0, 1}) store_scalar(number, dtype, c.scalar(k));  // refuses what does not fit
  const auto end_point = [&](int k) {
    return is_floating(dtype) ? c.scalar(k).real() : static_cast<double>(as_whole(c.scalar(k)));
  };
  p.start = end_point(0), p.end = end_point(1);
  p.step = n > 1 ? (p.end - p.start) / static_cast<double>(n - 1) : 0;
  if (n == 1) p.end = p.start;
  const Tensor t = c.cx.empty(Shape{n}, dtype);
  if (n > 0) launch(c.cx, GW_KERNEL(sequence), {out_view(t)}, {}, &p);
  return finish(c, i, t);
}

Results triangle_indices(const Call& c, Tensor (*cut)(const Tensor&, int64_t)) {
  rule::device(c, 4);
  for (const int k : {0, 1}) {
    if (c.integer(k) < 0) {
      throw Error(Code::bad_argument,
                  std::string(k ? "col" : "row") + " must be non-negative, got" + std::to_string(c.integer(k)));
    }
  }
  const Tensor all = c.cx.full(Shape{c.integer(0), c.integer(1)}, true, DType::boolean);
  const Tensor places = transpose(nonzero(cut(all, c.integer(2))), 0, 1);
  const Tensor out = c.cx.empty(places.shape(), c.dtype(3, DType::int64));
  c.cx.copy(out, places);
  return out;
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
        .sig = "empty(int[] size, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with 0: nobody sees what was in the memory before.",
        .compute = [](const Call& c) -> Results { return filled(c, c.ints(0), 0, c.dtype(1, c.cx.default_dtype), 1); },
        .no_grad = kNew,
        .samples = {"(2, 3)", "(0, 2); dtype='int8'"},
    },
    {
        .sig = "full_like(Tensor self, Scalar fill_value, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with fill_value, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results {
          return filled(c, c.tensor(0).shape(), c.scalar(1), c.dtype(2, c.tensor(0).dtype()), 2);
        },
        .no_grad = kNew,
        .examples = {{"[1., 2.]; 7", "[7., 7.]"}},
        .samples = {"f(2, 3); 2.5", "b(2); 1"},
    },
    {
        .sig = "empty_like(Tensor self, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with 0, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results { return like(c, 0); },
        .no_grad = kNew,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "new_zeros(Tensor self, int[] size, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with 0, in self's dtype.",
        .compute = [](const Call& c) -> Results { return filled(c, c.ints(1), 0, c.dtype(2, c.tensor(0).dtype()), 2); },
        .no_grad = kNew,
        .examples = {{"[1.]; (2)", "[0., 0.]"}},
        .samples = {"f(3); (2, 2)", "b(1); (2)"},
    },
    {
        .sig = "new_ones(Tensor self, int[] size, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with 1, in self's dtype.",
        .compute = [](const Call& c) -> Results { return filled(c, c.ints(1), 1, c.dtype(2, c.tensor(0).dtype()), 2); },
        .no_grad = kNew,
        .examples = {{"[1.]; (2)", "[1., 1.]"}},
        .samples = {"f(3); (2, 2)", "b(1); (2)"},
    },
    {
        .sig = "new_empty(Tensor self, int[] size, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with 0, in self's dtype.",
        .compute = [](const Call& c) -> Results { return filled(c, c.ints(1), 0, c.dtype(2, c.tensor(0).dtype()), 2); },
        .no_grad = kNew,
        .samples = {"f(3); (2, 2)"},
    },
    {
        .sig = "new_full(Tensor self, int[] size, Scalar fill_value, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Filled with fill_value, in self's dtype.",
        .compute = [](const Call& c) -> Results {
          return filled(c, c.ints(1), c.scalar(2), c.dtype(3, c.tensor(0).dtype()), 3);
        },
        .no_grad = kNew,
        .examples = {{"[1.]; (2); 7", "[7., 7.]"}},
        .samples = {"f(3); (2, 2); 1.5"},
    },
    {
        .sig = "new_tensor(Tensor self, Operand data, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "A copy of a number or a tensor in self's dtype, without history.",
        .compute = [](const Call& c) -> Results {
          const DType dtype = c.dtype(2, c.tensor(0).dtype());
          if (!c.is_tensor(1)) return filled(c, {}, c.scalar(1), dtype, 2);
          rule::device(c, 3);
          const Tensor t = c.cx.empty(c.tensor(1).shape(), dtype);
          c.cx.copy(t, c.tensor(1));
          return finish(c, 2, t);
        },
        .no_grad = "a copy of data",
        .examples = {{"[1.]; [1, 2]", "[1., 2.]"}, {"[1]; 2.5", "2"}},
        .samples = {"f(1); i3(2)", "f(2); 3"},
    },
    {
        .sig = "arange(Scalar end, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "0, 1, ... below end: int64, or the default dtype where end has a point.",
        .compute = [](const Call& c) -> Results { return steps(c, 0, c.scalar(0), 1, 1); },
        .no_grad = kNew,
        .examples = {{"3", "[0, 1, 2]"}, {"2.5", "[0., 1., 2.]"}},
        .samples = {"5", "0", "3; dtype='float16'"},
    },
    {
        .sig = "arange.start(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "start, start + step, ... up to end, which is not among them: int64, or the default dtype where any of "
               "the three has a point.",
        .compute = [](const Call& c) -> Results { return steps(c, c.scalar(0), c.scalar(1), c.scalar(2), 3); },
        .no_grad = kNew,
        .examples = {{"2; 6", "[2, 3, 4, 5]"}, {"1; 2.5; 0.5", "[1., 1.5, 2.]"}, {"6; 2; -3", "[6, 3]"}},
        .samples = {"2; 6", "10; 0; -3", "1; 2.5; 0.5", "3; 3"},
    },
    {
        .sig = "range(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "start, start + step, ... up to end, which may be among them, in the default dtype. Deprecated: use "
               "arange.",
        .compute = [](const Call& c) -> Results {
          const double start = c.scalar(0).real(), end = c.scalar(1).real(), step = c.scalar(2).real();
          if (step == 0) throw Error(Code::bad_argument, "step must be nonzero");
          if (!std::isfinite(start) || !std::isfinite(end))
            throw Error(Code::bad_argument, "unsupported range: " + plain(start) + " -> " + plain(end));
          if (step > 0 ? end < start : end > start)
            throw Error(Code::bad_argument, "upper bound and lower bound inconsistent with step sign");
          const double n = std::floor((end - start) / step) + 1;
          if (!(n <= static_cast<double>(kMaxDim))) throw Error(Code::bad_argument, "invalid size, possible overflow?");
          const DType dtype = c.dtype(3, c.cx.default_dtype);
          rule::device(c, 4);
          if (dtype == DType::boolean) throw Error(Code::dtype_mismatch, "\"range_cpu\" not implemented for 'Bool'");
          SequenceParams p;
          p.start = start, p.step = step;
          p.whole_start = as_whole(c.scalar(0)), p.whole_step = as_whole(c.scalar(2));
          const Tensor t = c.cx.empty(Shape{static_cast<int64_t>(n)}, dtype);
          launch(c.cx, GW_KERNEL(sequence), {out_view(t)}, {}, &p);
          c.cx.warn("range",
                    "torch.range is deprecated and will be removed in a future release because its "
                    "behavior is inconsistent with Python's range builtin. Instead, use torch.arange, "
                    "which produces values in [start, end).");
          return finish(c, 3, t);
        },
        .no_grad = kNew,
        .examples = {{"1; 3", "[1., 2., 3.]"}},
        .samples = {"1; 4", "1; 2.2; 0.5", "4; 1; -2"},
    },
    {
        .sig = "linspace(Scalar start, Scalar end, int steps, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "So many numbers from start to end in equal steps, both included; one step gives start.",
        .compute = [](const Call& c) -> Results { return between(c, 3, {SequenceParams::between}, "linspace"); },
        .no_grad = kNew,
        .examples = {{"3; 10; 5", "[3., 4.75, 6.5, 8.25, 10.]"}, {"0; 10; 4; dtype='int64'", "[0, 3, 6, 10]"}},
        .samples = {"3; 10; 5", "3; 10; 1", "0; 1; 0", "10; 0; 4; dtype='int32'"},
    },
    {
        .sig = "logspace(Scalar start, Scalar end, int steps, Scalar base=10, *, dtype? dtype=None, device? "
               "device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "base to the power of so many numbers from start to end in equal steps, both included.",
        .compute = [](const Call& c) -> Results {
          SequenceParams p{SequenceParams::powers};
          p.base = c.scalar(3).real();
          return between(c, 4, p, "logspace");
        },
        .no_grad = kNew,
        .examples = {{"0; 3; 4", "[1., 10., 100., 1000.]"}, {"0; 3; 4; 2", "[1., 2., 4., 8.]"}},
        .samples = {"-2; 2; 5", "0; 3; 1; 2.0", "0; 1; 0"},
    },
    {
        .sig = "eye(int n, int? m=None, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "n rows and m (or n) columns of 0 with 1 on the diagonal.",
        .compute = [](const Call& c) -> Results {
          const int64_t n = c.integer(0), m = c.has(1) ? c.integer(1) : n;
          if (n < 0) throw Error(Code::bad_argument, "n must be greater or equal to 0, got " + std::to_string(n));
          if (m < 0) throw Error(Code::bad_argument, "m must be greater or equal to 0, got " + std::to_string(m));
          const DType dtype = c.dtype(2, c.cx.default_dtype);
          rule::device(c, 3);
          const Tensor t = c.cx.full(Shape{n, m}, 0, dtype), one = c.cx.full({}, 1, dtype);
          if (t.numel() > 0) {
            const Shape line{std::min(n, m)};
            c.cx.copy(c.cx.alias(t, line, Shape{m + 1}, 0), c.cx.alias(one, line, Shape{0}, 0));
          }
          return finish(c, 2, t);
        },
        .no_grad = kNew,
        .examples = {{"2; 3", "[[1., 0., 0.], [0., 1., 0.]]"}},
        .samples = {"3", "2; 3", "0", "3; 1; dtype='bool'"},
    },
    {
        .sig = "tril_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None) -> Tensor",
        .doc = "The row and the column of each element of the lower triangle of a matrix of that size, in row-major "
               "order.",
        .compute = [](const Call& c) -> Results {
          return triangle_indices(c, [](const Tensor& t, int64_t offset) { return Tensor(tril_(t, offset)); });
        },
        .no_grad = kNew,
        .examples = {{"2; 2", "[[0, 1, 1], [0, 0, 1]]"}},
        .samples = {"3; 4; 1", "2; 3; -1", "0; 3"},
    },
    {
        .sig = "triu_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None) -> Tensor",
        .doc = "The row and the column of each element of the upper triangle of a matrix of that size, in row-major "
               "order.",
        .compute = [](const Call& c) -> Results {
          return triangle_indices(c, [](const Tensor& t, int64_t offset) { return Tensor(triu_(t, offset)); });
        },
        .no_grad = kNew,
        .examples = {{"2; 2", "[[0, 0, 1], [0, 1, 1]]"}},
        .samples = {"3; 4; 1", "2; 3; -1", "0; 3"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kCreateOps = kRows;

}  // namespace gradwire::engine
