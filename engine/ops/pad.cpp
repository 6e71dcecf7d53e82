// Borders around a tensor.
#include <algorithm>

#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// pad counts from the last dim: (left, right) of it, then of the one before.
struct Border {
  int64_t before = 0, after = 0;
};
Border border(std::span<const int64_t> pad, int dim, int ndim) {
  const size_t i = static_cast<size_t>(ndim - 1 - dim) * 2;
  return i + 1 < pad.size() ? Border{pad[i], pad[i + 1]} : Border{};
}

void check_pad(std::span<const int64_t> pad, int ndim) {
  if (pad.size() % 2 != 0) {
    throw Error(Code::bad_argument, "Length of pad must be even but instead it equals " + std::to_string(pad.size()));
  }
  if (pad.size() > 2 * static_cast<size_t>(ndim)) {
    throw Error(Code::bad_argument,
                "Length of pad should be no more than twice the number of dimensions of the input. Pad length is " +
                    std::to_string(pad.size()) + " while the input has " + std::to_string(ndim) + " dimensions.");
  }
  for (const int64_t p : pad) {
    if (p > kMaxDim || p < -kMaxDim) throw Error(Code::bad_argument, "a pad of " + std::to_string(p) + " is too large");
  }
}

// Along one dim of n elements, the index that each element of the padded dim reads.
Tensor places(Context& cx, const std::string& mode, int64_t n, Border b) {
  const int64_t size = n + b.before + b.after;
  const Shape shape{size};
  checked_numel(shape);
  std::vector<int64_t> index(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    int64_t at = i - b.before;
    if (mode == "replicate")
      at = std::clamp<int64_t>(at, 0, n - 1);
    else if (mode == "circular")
      at = ((at % n) + n) % n;
    else
      at = at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
    index[static_cast<size_t>(i)] = at;
  }
  return from_bytes(cx, DType::int64, shape, std::as_bytes(std::span(index)));
}

constexpr OpDef kRows[] = {
    {
        .sig = "constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor",
        .doc = "self with borders of value: pad has (before, after) of the last dim, then of the one before it, and so "
               "on; negative borders cut off.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          check_pad(c.ints(1), x.ndim());
          Shape size, kept;
          int64_t from = x->offset, to = 0;
          for (int d = 0; d < x.ndim(); ++d) {
            const Border b = border(c.ints(1), d, x.ndim());
            size.push_back(x.size(d) + b.before + b.after);
            if (size.back() < 0) {
              throw Error(Code::bad_argument,
                          "The input size " + std::to_string(x.size(d)) + ", plus negative padding " +
                              std::to_string(b.before) + " and " + std::to_string(b.after) +
                              ", resulted in a negative output size, which is invalid. Check dimension " +
                              std::to_string(d) + " of your input.");
            }
            const int64_t cut = std::max<int64_t>(0, -b.before), end = std::min(x.size(d), x.size(d) + b.after);
            kept.push_back(std::max<int64_t>(0, end - cut));
            from += cut * x.strides()[d];
          }
          char number[16];
          store_scalar(number, x.dtype(), c.scalar(2));  // refuses what does not fit
          const Tensor out = c.cx.full(size, c.scalar(2), x.dtype());
          if (out.numel() == 0 || checked_numel(kept) == 0) return out;
          for (int d = 0; d < x.ndim(); ++d)
            to += std::max<int64_t>(0, border(c.ints(1), d, x.ndim()).before) * out.strides()[d];
          c.cx.copy(c.cx.alias(out, kept, out.strides(), to), c.cx.alias(x, kept, x.strides(), from));
          return out;
        },
        .vjp = [](const Vjp& g) -> Grads {
          Shape back;
          std::vector<int64_t> pad;
          for (const int64_t p : g.ints(1)) pad.push_back(-p);
          return {{constant_pad_nd(g.dout(), pad)}};
        },
        .examples = {{"[1., 2.]; (1, 2); 9", "[9., 1., 2., 9., 9.]"}, {"[1., 2., 3.]; (-1, 1)", "[2., 3., 0.]"}},
        .samples = {"f(2, 3); (1, 2)", "f(2, 3); (0, 1, 2, 0); 1.5", "f(2, 3); (-1, 1, 1, -1)", "f(0, 3); (1, 1)"},
    },
    {
        .sig = "pad(Tensor input, int[] pad, str mode='constant', float? value=None) -> Tensor",
        .doc =
            "input with borders: of value ('constant'), mirrored ('reflect'), of the nearest element ('replicate') or "
            "of the other end ('circular'). pad is as in constant_pad_nd.",
        .compose = [](const Call& c) -> Results {
          const std::string mode(c.text(2));
          const Tensor& x = c.tensor(0);
          check_pad(c.ints(1), x.ndim());
          if (mode == "constant") {
            const double v = c.has(3) ? c.scalar(3).real() : 0;
            const bool whole = !is_floating(x.dtype()) && v == static_cast<double>(static_cast<int64_t>(v));
            return constant_pad_nd(x, Ints(c.ints(1)), whole ? Scalar(static_cast<int64_t>(v)) : Scalar(v));
          }
          if (mode != "reflect" && mode != "replicate" && mode != "circular") {
            throw Error(Code::bad_argument, "Unrecognised padding mode " + mode.substr(0, 64));
          }
          if (c.has(3) && c.scalar(3).real() != 0) {
            throw Error(Code::bad_argument, "Padding mode \"" + mode + "\" doesn't take in value argument");
          }
          const int padded = static_cast<int>(c.ints(1).size() / 2);
          if (padded < 1 || padded > 3 || (x.ndim() != padded + 1 && x.ndim() != padded + 2)) {
            throw Error(Code::not_implemented,
                        "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now");
          }
          Tensor y = mode == "circular" ? x : through(x);
          for (int d = x.ndim() - padded; d < x.ndim(); ++d) {
            const Border b = border(c.ints(1), d, x.ndim());
            const int64_t n = x.size(d);
            if (n == 0 || n + b.before + b.after < 1) {
              throw Error(Code::shape_mismatch, "Expected a non-empty tensor along dimension " + std::to_string(d) +
                                                    " for padding mode " + mode + ", but got " + to_string(x.shape()));
            }
            if (mode == "reflect" && (b.before >= n || b.after >= n)) {
              throw Error(Code::shape_mismatch,
                          "Argument #4: Padding size should be less than the corresponding input dimension, but got: "
                          "padding (" +
                              std::to_string(b.before) + ", " + std::to_string(b.after) + ") at dimension " +
                              std::to_string(d) + " of input " + to_string(x.shape()));
            }
            if (mode == "circular" && (b.before > n || b.after > n)) {
              throw Error(Code::shape_mismatch, "Padding value causes wrapping around more than once.");
            }
            if (b.before != 0 || b.after != 0) y = index_select(y, d, places(c.cx, mode, n, b));
          }
          return y;
        },
        .examples = {{"[[1., 2., 3.]]; (1, 1); 'reflect'", "[[2., 1., 2., 3., 2.]]"},
                     {"[[1., 2., 3.]]; (1, 1); 'circular'", "[[3., 1., 2., 3., 1.]]"}},
        .samples = {"f(2, 3); (1, 2)", "f(1, 2, 3); (1, 1); 'replicate'", "f(1, 3, 3); (1, 2, 0, 1); 'reflect'",
                    "f(2, 3); (-1, 2); 'circular'"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kPadOps = kRows;

}  // namespace gradwire::engine
