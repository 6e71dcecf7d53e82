// Convolutions: three operators that are each other's gradients, and the layers' forms made of them.
#include <algorithm>
#include <string>

#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/ops/window.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

void check_list(std::span<const int64_t> list, const char* name, int spatial) {
  if (list.size() == 1 || static_cast<int>(list.size()) == spatial) return;
  throw Error(Code::bad_argument, std::string("expected ") + name + " to be a single integer value or a list of " +
                                      std::to_string(spatial) +
                                      " values to match the convolution dimensions, but got " + name + "=" +
                                      to_string(list));
}

ConvParams params_of(int spatial, std::span<const int64_t> stride, std::span<const int64_t> padding,
                     std::span<const int64_t> dilation, int64_t groups) {
  ConvParams p;
  check_list(stride, "stride", spatial);
  check_list(padding, "padding", spatial);
  check_list(dilation, "dilation", spatial);
  p.groups = bounded(groups, 1, "non-positive groups is not supported");
  for (int d = 0; d < spatial; ++d) {
    p.padding[d] = bounded(per_dim(padding, d), 0, "negative padding is not supported");
    p.stride[d] = bounded(per_dim(stride, d), 1, "non-positive stride is not supported");
    p.dilation[d] = bounded(per_dim(dilation, d), 1, "dilation should be greater than zero");
  }
  return p;
}

std::string times(std::span<const int64_t> sizes) {
  std::string s = "(";
  for (size_t i = 0; i < sizes.size(); ++i) s += (i ? " x " : "") + std::to_string(sizes[i]);
  return s + ")";
}

void check_rank(std::span<const int64_t> x) {
  if (x.size() >= 3 && x.size() <= 5) return;
  throw Error(Code::shape_mismatch,
              "Expected 3D, 4D or 5D (batched) input to a convolution, but got input of size: " + to_string(x));
}

void check_sizes(std::span<const int64_t> sizes) {
  for (const int64_t n : sizes) bounded(n, 0, "a size of a convolution is not negative");
}

/// The shape of g.
Shape result_shape(std::span<const int64_t> x, std::span<const int64_t> w, const ConvParams& p) {
  check_rank(x);
  if (w.size() != x.size()) {
    throw Error(Code::shape_mismatch, "weight should have as many dimensions as input, but got input of size " +
                                          to_string(x) + " and weight of size " + to_string(w));
  }
  check_sizes(x);
  check_sizes(w);
  const std::string given = "Given groups=" + std::to_string(p.groups) + ", ";
  if (w[0] < p.groups) {
    throw Error(Code::shape_mismatch, given + "expected weight to be at least " + std::to_string(p.groups) +
                                          " at dimension 0, but got weight of size " + to_string(w) + " instead");
  }
  if (w[0] % p.groups != 0) {
    throw Error(Code::shape_mismatch, given + "expected weight to be divisible by " + std::to_string(p.groups) +
                                          " at dimension 0, but got weight of size [" + to_string(w) + "] instead");
  }
  if (x[1] % p.groups != 0 || x[1] / p.groups != w[1]) {
    throw Error(Code::shape_mismatch, given + "weight of size " + to_string(w) + ", expected input" + to_string(x) +
                                          " to have " + std::to_string(w[1] * p.groups) + " channels, but got " +
                                          std::to_string(x[1]) + " channels instead");
  }
  Shape out{x[0], w[0]}, padded, kernel;
  bool fits = true;
  for (size_t d = 2; d < x.size(); ++d) {
    if (w[d] == 0)
      throw Error(Code::shape_mismatch, "kernel size should be greater than zero, but got " + times(w.subspan(2)));
    const int64_t have = x[d] + 2 * p.padding[d - 2], span = p.dilation[d - 2] * (w[d] - 1) + 1;
    padded.push_back(have), kernel.push_back(span);
    fits = fits && have >= span;
    out.push_back((have - span) / p.stride[d - 2] + 1);
  }
  if (!fits) {
    throw Error(Code::shape_mismatch, "Calculated padded input size per channel: " + times(padded) + ". Kernel size: " +
                                          times(kernel) + ". Kernel size can't be greater than actual input size");
  }
  return out;
}

std::string low(DType t) {
  return t == DType::float32    ? "float"
         : t == DType::float64  ? "double"
         : t == DType::float16  ? "c10::Half"
         : t == DType::bfloat16 ? "c10::BFloat16"
                                : name(t);
}

void check_types(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) {
    throw Error(Code::dtype_mismatch,
                std::string("expected scalar type ") + row(a.dtype()).torch + " but found " + row(b.dtype()).torch);
  }
  if (!is_floating(a.dtype())) {
    throw Error(Code::dtype_mismatch,
                std::string("\"convolution\" not implemented for '") + row(a.dtype()).torch + "'");
  }
}

DType computed(DType t) { return t == DType::float64 ? t : DType::float32; }

int64_t scratch_of(const Context& cx, ConvPass pass, const Launch& l) {
#if GRADWIRE_CUDA
  if (!cx.on_cpu) return cuda::conv_scratch(pass, l);
#endif
  (void)cx;
  return cpu::conv_scratch(pass, l);
}

/// out = kernel(a, b), in the dtype of a.
Tensor run(const Call& c, ConvPass pass, std::span<const int64_t> shape, const Tensor& a, const Tensor& b,
           const ConvParams& p) {
  static constexpr Kernel kKernels[] = {GW_KERNEL(conv_forward), GW_KERNEL(conv_input), GW_KERNEL(conv_weight)};
  const DType t = a.dtype(), in = computed(t);
  const Tensor x = c.cx.contiguous(a, in), y = c.cx.contiguous(b, in), out = c.cx.empty(shape, in);
  if (out.numel() > 0) {
    const View outs[] = {out.view()}, ins[] = {x.view(), y.view()};
    const int64_t bytes[] = {scratch_of(c.cx, pass, {.out = outs, .in = ins, .params = &p})};
    const Tensor scratch = c.cx.empty(bytes, DType::uint8);
    launch(c.cx, kKernels[static_cast<int>(pass)], {out.view(), scratch.view()}, {x.view(), y.view()}, &p);
  }
  return c.cx.contiguous(out, t);
}

void check_grad(const char* op, std::span<const int64_t> grad, const Shape& want) {
  if (std::ranges::equal(grad, want)) return;
  throw Error(Code::shape_mismatch, std::string(op) + ": grad of shape " + to_string(grad) +
                                        " for a convolution whose result has shape " + to_string(want));
}

// What the three have after their tensors, and after the size of their result.
ConvParams tail(const Call& c, int i) {
  check_rank(c.tensor(0).shape());
  return params_of(c.tensor(0).ndim() - 2, c.ints(i), c.ints(i + 1), c.ints(i + 2), c.integer(i + 3));
}

/// The layers' forms: a batch of one is added and taken away again.
struct Layer {
  Tensor x, w, bias;
  bool batched;
  Layer(const Call& c, int spatial, bool transposed)
      : x(c.tensor(0)), w(c.tensor(1)), batched(x.ndim() != spatial + 1) {
    const std::string op = c.row.name();
    if (batched && x.ndim() != spatial + 2) {
      throw Error(Code::shape_mismatch, "Expected " + std::to_string(spatial + 1) + "D (unbatched) or " +
                                            std::to_string(spatial + 2) + "D (batched) input to " + op +
                                            ", but got input of size: " + to_string(x.shape()));
    }
    if (w.ndim() != spatial + 2) {
      throw Error(Code::shape_mismatch, "Expected " + std::to_string(spatial + 2) + "D weight for " + op +
                                            ", but got weight of size " + to_string(w.shape()));
    }
    if (c.has(2)) {
      bias = c.tensor(2);
      const int64_t groups = bounded(c.integer(6), 1, "non-positive groups is not supported");
      const int64_t channels = transposed ? checked_numel(Shape{w.size(1), groups}) : w.size(0);
      if (bias.ndim() != 1 || bias.size(0) != channels) {
        throw Error(Code::shape_mismatch,
                    std::string("Given ") + (transposed ? "transposed=1, " : "") + "weight of size " +
                        to_string(w.shape()) + ", expected bias to be 1-dimensional with " + std::to_string(channels) +
                        " elements, but got bias of size " + to_string(bias.shape()) + " instead");
      }
      if (bias.dtype() != x.dtype()) {
        throw Error(Code::dtype_mismatch,
                    "Input type (" + low(x.dtype()) + ") and bias type (" + low(bias.dtype()) + ") should be the same");
      }
    }
    if (!batched) {
      Shape one(x.shape());
      one.insert(0, 1);
      x = reshape(x, one);
    }
  }
  /// y with the bias added, as the caller gave the input.
  Tensor finish(Tensor y) const {
    if (bias) {
      Shape along(y.shape().size() - 1, 1);
      along[0] = bias.size(0);
      y = y + reshape(bias, along);
    }
    return batched ? y : reshape(y, Ints(y.shape().subspan(1)));
  }
};

template <int kSpatial> Results convolve(const Call& c) {
  const Layer l(c, kSpatial, false);
  return l.finish(conv_forward(l.x, l.w, Ints(c.ints(3)), Ints(c.ints(4)), Ints(c.ints(5)), c.integer(6)));
}

// conv(…, padding='same' or 'valid', …): as many zeros on both sides as keep the size, or none.
template <int kSpatial> Results convolve_named(const Call& c) {
  const Layer l(c, kSpatial, false);
  const std::string mode(c.text(4));
  if (mode != "same" && mode != "valid") {
    throw Error(Code::bad_argument, "Invalid padding string: '" + mode.substr(0, 64) + "'");
  }
  std::vector<int64_t> padding(kSpatial, 0), more;
  Tensor x = l.x;
  if (mode == "same") {
    const ConvParams p = params_of(kSpatial, c.ints(3), padding, c.ints(5), c.integer(6));
    bool odd = false;
    for (int d = kSpatial; d-- > 0;) {
      if (p.stride[d] != 1) throw Error(Code::bad_argument, "padding='same' is not supported for strided convolutions");
      const int64_t all = p.dilation[d] * (l.w.size(d + 2) - 1);
      padding[static_cast<size_t>(d)] = std::max<int64_t>(all / 2, 0);
      more.push_back(0), more.push_back(all > 0 ? all % 2 : 0);  // one more zero behind
      odd = odd || more.back() > 0;
    }
    if (odd) x = constant_pad_nd(x, more);
  }
  return l.finish(conv_forward(x, l.w, Ints(c.ints(3)), padding, Ints(c.ints(5)), c.integer(6)));
}

// conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation): the gradient of a convolution
// that has `input` as its result.
template <int kSpatial> Results transposed(const Call& c) {
  const Layer l(c, kSpatial, true);
  const ConvParams p = params_of(kSpatial, c.ints(3), c.ints(4), c.ints(7), c.integer(6));
  check_list(c.ints(5), "output_padding", kSpatial);
  check_sizes(l.x.shape());
  check_sizes(l.w.shape());
  if (l.x.size(1) != l.w.size(0)) {
    throw Error(Code::shape_mismatch, "Given transposed=1, weight of size " + to_string(l.w.shape()) +
                                          ", expected input" + to_string(l.x.shape()) + " to have " +
                                          std::to_string(l.w.size(0)) + " channels, but got " +
                                          std::to_string(l.x.size(1)) + " channels instead");
  }
  Shape size{l.x.size(0), l.w.size(1) * p.groups}, in;
  bool fits = true;
  for (int d = 0; d < kSpatial; ++d) {
    const int64_t more = bounded(per_dim(c.ints(5), d), 0, "negative output_padding is not supported");
    if (more >= p.stride[d] && more >= p.dilation[d]) {
      throw Error(Code::bad_argument,
                  "output padding must be smaller than either stride or dilation, but got output_padding: " +
                      std::to_string(more) + " stride: " + std::to_string(p.stride[d]) +
                      " dilation: " + std::to_string(p.dilation[d]));
    }
    const int64_t n = l.x.size(d + 2);
    in.push_back(n);
    size.push_back((n - 1) * p.stride[d] - 2 * p.padding[d] + p.dilation[d] * (l.w.size(d + 2) - 1) + more + 1);
    fits = fits && size.back() > 0 && n > 0;
  }
  if (!fits) {
    throw Error(Code::shape_mismatch,
                "Given input size per channel: " + times(in) + ". Calculated output size per channel: " +
                    times(std::span<const int64_t>(size).subspan(2)) + ". Output size is too small");
  }
  // An output padding of a stride or more leaves room for results that this input has not: they count as zeros.
  std::vector<int64_t> missing;
  const Shape whole = result_shape(size, l.w.shape(), p);
  for (int d = kSpatial; d-- > 0;) missing.push_back(0), missing.push_back(whole[d + 2] - l.x.size(d + 2));
  const bool complete = std::ranges::equal(whole, l.x.shape());
  const Tensor x = complete ? l.x : constant_pad_nd(l.x, missing);
  return l.finish(conv_input(x, l.w, size, Ints(c.ints(3)), Ints(c.ints(4)), Ints(c.ints(7)), c.integer(6)));
}

constexpr OpDef kRows[] = {
    {
        .sig = "conv_forward(Tensor input, Tensor weight, int[] stride, int[] padding, int[] dilation, int groups) -> "
               "Tensor",
        .doc =
            "The convolution of input [N, C, ...] with weight [O, C / groups, ...] over one to three dims; one number "
            "stands for all dims. float32 and float64; halves compute in float32.",
        .compute = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &w = c.tensor(1);
          check_types(x, w);
          const ConvParams p = tail(c, 2);
          return run(c, ConvPass::forward, result_shape(x.shape(), w.shape(), p), x, w, p);
        },
        .saves = {in(0).when(1), in(1).when(0)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          const Ints stride(g.ints(2)), padding(g.ints(3)), dilation(g.ints(4));
          if (g.needs(0))
            d.at[0] = conv_input(g.dout(), g.in(1), Ints(g.shape(0)), stride, padding, dilation, g.integer(5));
          if (g.needs(1))
            d.at[1] = conv_weight(g.dout(), g.in(0), Ints(g.shape(1)), stride, padding, dilation, g.integer(5));
          return d;
        },
        .examples = {{"[[[1., 2., 3.]]]; [[[1., 10.]]]; 1; 0; 1; 1", "[[[21., 32.]]]"}},
        .samples = {"f(2, 2, 5); f(3, 2, 2); (2); (1); (1); 1",
                    "f(1, 4, 4, 3); f(2, 2, 2, 3); (1, 2); (1, 0); (2, 1); 2",
                    "f(1, 1, 2, 3, 3); f(1, 1, 2, 2, 1); 1; 1; 1; 1"},
    },
    {
        .sig =
            "conv_input(Tensor grad, Tensor weight, int[] input_size, int[] stride, int[] padding, int[] dilation, int "
            "groups) -> Tensor",
        .doc = "The gradient of conv_forward for its input, which has size input_size; a transposed convolution.",
        .compute = [](const Call& c) -> Results {
          const Tensor &g = c.tensor(0), &w = c.tensor(1);
          check_types(g, w);
          checked_numel(c.ints(2));
          const ConvParams p = tail(c, 3);
          check_grad("conv_input", g.shape(), result_shape(c.ints(2), w.shape(), p));
          return run(c, ConvPass::input, c.ints(2), g, w, p);
        },
        .saves = {in(0).when(1), in(1).when(0)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          const Ints stride(g.ints(3)), padding(g.ints(4)), dilation(g.ints(5));
          if (g.needs(0)) d.at[0] = conv_forward(g.dout(), g.in(1), stride, padding, dilation, g.integer(6));
          if (g.needs(1))
            d.at[1] = conv_weight(g.in(0), g.dout(), Ints(g.shape(1)), stride, padding, dilation, g.integer(6));
          return d;
        },
        .examples = {{"[[[1., 2.]]]; [[[1., 10.]]]; (1, 1, 3); 1; 0; 1; 1", "[[[1., 12., 20.]]]"}},
        .samples = {"f(2, 3, 3); f(3, 2, 2); (2, 2, 5); (2); (1); (1); 1",
                    "f(1, 2, 4, 1); f(2, 2, 2, 3); (1, 4, 4, 3); (1, 2); (1, 0); (2, 1); 2"},
    },
    {
        .sig = "conv_weight(Tensor grad, Tensor input, int[] weight_size, int[] stride, int[] padding, int[] dilation, "
               "int "
               "groups) -> Tensor",
        .doc = "The gradient of conv_forward for its weight, which has size weight_size.",
        .compute = [](const Call& c) -> Results {
          const Tensor &g = c.tensor(0), &x = c.tensor(1);
          check_types(g, x);
          checked_numel(c.ints(2));
          const ConvParams p = tail(c, 3);
          check_grad("conv_weight", g.shape(), result_shape(x.shape(), c.ints(2), p));
          return run(c, ConvPass::weight, c.ints(2), g, x, p);
        },
        .saves = {in(0).when(1), in(1).when(0)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          const Ints stride(g.ints(3)), padding(g.ints(4)), dilation(g.ints(5));
          if (g.needs(0)) d.at[0] = conv_forward(g.in(1), g.dout(), stride, padding, dilation, g.integer(6));
          if (g.needs(1))
            d.at[1] = conv_input(g.in(0), g.dout(), Ints(g.shape(1)), stride, padding, dilation, g.integer(6));
          return d;
        },
        .examples = {{"[[[1., 10.]]]; [[[1., 2., 3.]]]; (1, 1, 2); 1; 0; 1; 1", "[[[21., 32.]]]"}},
        .samples = {"f(2, 3, 3); f(2, 2, 5); (3, 2, 2); (2); (1); (1); 1",
                    "f(1, 2, 4, 1); f(1, 4, 4, 3); (2, 2, 2, 3); (1, 2); (1, 0); (2, 1); 2"},
    },
    {
        .sig = "conv1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] "
               "dilation=1, int groups=1) -> Tensor",
        .doc = "The convolution of input [N, C, L] or [C, L] with weight [O, C / groups, K], plus bias [O].",
        .compose = convolve<1>,
        .examples = {{"[[[1., 2., 3.]]]; [[[1., 10.]]]; [0.5]", "[[[21.5, 32.5]]]"}},
        .samples = {"f(2, 2, 5); f(3, 2, 2); f(3); 2; 1", "f(4, 5); f(2, 2, 3); groups=2"},
    },
    {
        .sig = "conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, str padding='valid', "
               "int[1] dilation=1, int groups=1) -> Tensor",
        .doc =
            "With padding 'same' the result has the input's sizes, by zeros on both sides (of an odd number the last "
            "behind); the stride is 1. 'valid' is no padding.",
        .compose = convolve_named<1>,
        .examples = {{"[[[1., 2., 3.]]]; [[[1., 10.]]]; padding='same'", "[[[21., 32., 3.]]]"}},
        .samples = {"f(2, 2, 5); f(3, 2, 2); f(3); padding='same'", "f(4, 5); f(2, 2, 3); None; 2; 'valid'; 1; 2"},
    },
    {
        .sig = "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] "
               "dilation=1, int groups=1) -> Tensor",
        .doc = "The convolution of input [N, C, H, W] or [C, H, W] with weight [O, C / groups, KH, KW], plus bias [O].",
        .compose = convolve<2>,
        .examples = {{"[[[[0., 1., 2.], [3., 4., 5.], [6., 7., 8.]]]]; [[[[1., 1.], [1., 1.]]]]",
                      "[[[[8., 12.], [20., 24.]]]]"}},
        .samples = {"f(2, 2, 4, 3); f(3, 2, 2, 2); f(3); 1; 1", "f(2, 3, 3); f(2, 2, 2, 2); stride=(2, 1)"},
    },
    {
        .sig = "conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, str padding='valid', "
               "int[2] dilation=1, int groups=1) -> Tensor",
        .doc =
            "With padding 'same' the result has the input's sizes, by zeros on both sides (of an odd number the last "
            "behind); the stride is 1. 'valid' is no padding.",
        .compose = convolve_named<2>,
        .examples = {{"[[[[1., 2.]]]]; [[[[1., 10.]]]]; padding='same'", "[[[[21., 2.]]]]"}},
        .samples = {"f(2, 2, 4, 3); f(3, 2, 2, 3); f(3); padding='same'", "f(2, 3, 3); f(2, 2, 2, 2); padding='valid'"},
    },
    {
        .sig = "conv3d(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] "
               "dilation=1, int groups=1) -> Tensor",
        .doc = "The convolution of input [N, C, D, H, W] or [C, D, H, W] with weight [O, C / groups, KD, KH, KW], plus "
               "bias [O].",
        .compose = convolve<3>,
        .examples = {{"[[[[[1., 2.]]]]]; [[[[[3.]]]]]", "[[[[[3., 6.]]]]]"}},
        .samples = {"f(1, 2, 2, 3, 3); f(2, 2, 2, 2, 2); f(2)"},
    },
    {
        .sig = "conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, str padding='valid', "
               "int[3] dilation=1, int groups=1) -> Tensor",
        .doc =
            "With padding 'same' the result has the input's sizes, by zeros on both sides (of an odd number the last "
            "behind); the stride is 1. 'valid' is no padding.",
        .compose = convolve_named<3>,
        .examples = {{"[[[[[1., 2.]]]]]; [[[[[3.]]]]]; padding='same'", "[[[[[3., 6.]]]]]"}},
        .samples = {"f(1, 2, 2, 3, 3); f(2, 2, 2, 1, 3); f(2); padding='same'"},
    },
    {
        .sig = "conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, "
               "int[1] output_padding=0, int groups=1, int[1] dilation=1) -> Tensor",
        .doc = "The transposed convolution of input [N, C, L] or [C, L] with weight [C, O / groups, K], plus bias [O].",
        .compose = transposed<1>,
        .examples = {{"[[[1., 2.]]]; [[[1., 10.]]]", "[[[1., 12., 20.]]]"}},
        .samples = {"f(2, 2, 3); f(2, 3, 2); f(3); 2; 1; 1", "f(2, 4); f(2, 1, 3); groups=2"},
    },
    {
        .sig = "conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, "
               "int[2] output_padding=0, int groups=1, int[2] dilation=1) -> Tensor",
        .doc =
            "The transposed convolution of input [N, C, H, W] or [C, H, W] with weight [C, O / groups, KH, KW], plus "
            "bias [O].",
        .compose = transposed<2>,
        .examples = {{"[[[[1.]]]]; [[[[1., 2.], [3., 4.]]]]", "[[[[1., 2.], [3., 4.]]]]"}},
        .samples = {"f(2, 2, 3, 2); f(2, 3, 2, 2); f(3); 2; 1", "f(2, 3, 3); f(2, 1, 2, 2); groups=2"},
    },
    {
        .sig = "conv_transpose3d(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, "
               "int[3] output_padding=0, int groups=1, int[3] dilation=1) -> Tensor",
        .doc =
            "The transposed convolution of input [N, C, D, H, W] or [C, D, H, W] with weight [C, O / groups, KD, KH, "
            "KW], plus bias [O].",
        .compose = transposed<3>,
        .examples = {{"[[[[[1., 2.]]]]]; [[[[[3.]]]]]", "[[[[[3., 6.]]]]]"}},
        .samples = {"f(1, 2, 2, 2, 2); f(2, 2, 2, 2, 1); f(2)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kConvOps = kRows;

}  // namespace gradwire::engine
