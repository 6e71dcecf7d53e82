// The largest and the mean of windows.
#include <algorithm>
#include <cmath>

#include "engine/apply.h"
#include "engine/draws.h"
#include "engine/kernels.h"
#include "engine/ops/window.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

/// The windows of one call, checked, and what they give.
struct Windows {
  PoolParams p;
  bool batched;
  Shape x, out;  // with a batch dim

  /// kernel_size, stride, padding, dilation (if there is one) are the arguments from 1 on.
  Windows(const Call& c, int spatial, std::span<const int64_t> dilation, bool ceil) {
    const Tensor& t = c.tensor(0);
    const std::string op = c.row.name();
    batched = t.ndim() == spatial + 2;
    x = Shape(t.shape());
    if (!batched) x.insert(0, 1);
    bool empty = false;
    for (int d = 1; d < static_cast<int>(x.size()); ++d) empty = empty || x[d] == 0;
    if (static_cast<int>(x.size()) != spatial + 2 || empty) {
      throw Error(
          Code::shape_mismatch,
          op + ": Expected " + std::to_string(spatial + 1) + "D or " + std::to_string(spatial + 2) +
              "D (batch mode) tensor with optional 0 dim batch size for input, but got:" + to_string(t.shape()));
    }
    const std::span<const int64_t> kernel = c.ints(1), padding = c.ints(3);
    const std::span<const int64_t> stride = c.has(2) && !c.ints(2).empty() ? c.ints(2) : kernel;
    for (const auto list : {kernel, stride, padding, dilation}) {
      if (list.size() != 1 && static_cast<int>(list.size()) != spatial) {
        throw Error(Code::bad_argument,
                    op +
                        ": kernel_size, stride, padding and dilation must either be a single int, or a "
                        "tuple of " +
                        std::to_string(spatial) + " ints");
      }
    }
    out = x;
    bool fits = true;
    for (int d = 0; d < spatial; ++d) {
      p.kernel[d] = bounded(per_dim(kernel, d), 1, "kernel size should be greater than zero");
      p.stride[d] = bounded(per_dim(stride, d), 1, "stride should be greater than zero");
      p.dilation[d] = bounded(per_dim(dilation, d), 1, "dilation should be greater than zero");
      p.padding[d] = per_dim(padding, d);
      if (p.padding[d] < 0) {
        throw Error(Code::bad_argument, "pad must be non-negative, but got pad: " + std::to_string(p.padding[d]));
      }
      if (p.padding[d] > p.kernel[d] / 2) {
        throw Error(Code::bad_argument,
                    "pad should be at most half of kernel size, but got pad=" + std::to_string(p.padding[d]) +
                        " and kernel_size=" + std::to_string(p.kernel[d]));
      }
      const int64_t n = x[d + 2], room = n + 2 * p.padding[d] - p.dilation[d] * (p.kernel[d] - 1) - 1;
      int64_t size =
          room < 0 ? (ceil && -room < p.stride[d] ? 1 : 0) : (room + (ceil ? p.stride[d] - 1 : 0)) / p.stride[d] + 1;
      // No window starts behind the input.
      if (ceil && size > 0 && (size - 1) * p.stride[d] >= n + p.padding[d]) --size;
      fits = fits && size > 0;
      out[d + 2] = size;
    }
    if (!fits) {
      throw Error(Code::shape_mismatch, "Given input size: " + times(x) + ". Calculated output size: " + times(out) +
                                            ". Output size is too small");
    }
  }
  static std::string times(const Shape& s) {
    std::string text = "(";
    for (size_t d = 1; d < s.size(); ++d) text += (d > 1 ? "x" : "") + std::to_string(s[d]);
    return text + ")";
  }
  Shape result() const { return batched ? out : Shape(std::span<const int64_t>(out).subspan(1)); }
};

template <int kSpatial> Results largest(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), c.row.name().c_str());
  const Windows w(c, kSpatial, c.ints(4), c.flag(5));
  const Shape shape = w.result();
  const Tensor y = c.cx.empty(shape, x.dtype()), places = c.cx.empty(shape, DType::int64);
  if (y.numel() > 0) {
    const auto batched = [&](const Tensor& t, const Shape& s) {
      return c.cx.alias(t, s, contiguous_strides(s), t->offset);
    };
    const Tensor from = batched(c.cx.contiguous(x), w.x), to = batched(y, w.out), at = batched(places, w.out);
    launch(c.cx, GW_KERNEL(max_pool), {to.view(), at.view()}, {from.view()}, &w.p);
  }
  return {y, places};
}

// The last n dims as one.
Tensor planes(const Tensor& t, int n) {
  Shape s(t.shape().first(t.shape().size() - static_cast<size_t>(n)));
  int64_t plane = 1;
  for (const int64_t d : t.shape().last(static_cast<size_t>(n))) plane *= d;
  s.push_back(plane);
  return reshape(t, s);
}

template <int kSpatial> Grads largest_vjp(const Vjp& g) {
  const Tensor at = planes(g.out(1), kSpatial), d = planes(g.dout(), kSpatial);
  int64_t plane = 1;
  for (const int64_t n : g.shape(0).last(kSpatial)) plane *= n;
  return {{constant_of(reshape(put_places(d, at, plane), Ints(g.shape(0))), g.in(0))}};
}

// max_pool2d(…): the values, and with return_indices the places too.
template <int kSpatial> Results layer(const Call& c) {
  const Ints kernel(c.ints(1)), padding(c.ints(3)), dilation(c.ints(4));
  const OptionalInts stride = c.has(2) ? OptionalInts(c.ints(2)) : OptionalInts();
  std::array<Tensor, 2> r;
  if constexpr (kSpatial == 1) r = max_pool1d_with_indices(c.tensor(0), kernel, stride, padding, dilation, c.flag(5));
  if constexpr (kSpatial == 2) r = max_pool2d_with_indices(c.tensor(0), kernel, stride, padding, dilation, c.flag(5));
  if constexpr (kSpatial == 3) r = max_pool3d_with_indices(c.tensor(0), kernel, stride, padding, dilation, c.flag(5));
  if (c.row.params > 6 && c.flag(6)) return {r[0], r[1]};
  return r[0];
}

template <int kSpatial> Results mean_of(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), c.row.name().c_str());
  static constexpr int64_t kOne[] = {1};
  const Windows w(c, kSpatial, kOne, c.flag(4));
  const bool with_pad = c.flag(5);
  double divisor = 0;
  if constexpr (kSpatial > 1) {
    if (c.has(6)) {
      if (c.integer(6) == 0) throw Error(Code::bad_argument, "divisor must be not zero");
      divisor = static_cast<double>(c.integer(6));
    }
  }
  // Sums where the divisor is given, else means with or without the borders.
  const int64_t counted = divisor != 0 ? 2 : with_pad ? 1 : 0;
  Tensor y = through(as_computed(x));
  for (int d = 0; d < kSpatial; ++d) {
    y = resample(y, x.ndim() - kSpatial + d, w.out[d + 2], "mean",
                 {w.p.kernel[d], w.p.stride[d], w.p.padding[d], counted});
  }
  return cast(divisor != 0 ? y / divisor : y, x.dtype());
}

// Sizes of an adaptive pool's result: None keeps the input's.
template <int kSpatial> Shape adaptive_size(const Call& c) {
  const Tensor& x = c.tensor(0);
  const std::string op = c.row.name();
  if (x.ndim() != kSpatial + 1 && x.ndim() != kSpatial + 2) {
    throw Error(Code::shape_mismatch, op + ": Expected " + std::to_string(kSpatial + 1) + "D or " +
                                          std::to_string(kSpatial + 2) + "D tensor, but got " + to_string(x.shape()));
  }
  for (int d = x.ndim() - kSpatial; d < x.ndim(); ++d) {
    if (x.size(d) == 0) {
      throw Error(Code::shape_mismatch,
                  op + "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes " +
                      to_string(x.shape()) + " with dimension " + std::to_string(d) + " being empty");
    }
  }
  if (c.ints(1).size() != 1 && c.ints(1).size() != kSpatial) {
    throw Error(Code::bad_argument,
                op + ": output_size must be a single int, or a tuple of " + std::to_string(kSpatial) + " ints");
  }
  Shape size;
  for (int d = 0; d < kSpatial; ++d) {
    const int64_t n = per_dim(c.ints(1), d);
    if (n < 0) {
      throw Error(
          Code::bad_argument,
          op + ": elements of output_size must be greater than or equal to 0 but received " + std::to_string(n));
    }
    size.push_back(n);
  }
  return size;
}

template <int kSpatial> Results adaptive_mean(const Call& c) {
  check_floating(c.tensor(0).dtype(), c.row.name().c_str());
  const Shape size = adaptive_size<kSpatial>(c);
  if (std::ranges::all_of(size, [](int64_t n) { return n == 1; })) {
    Shape dims;
    for (int d = 0; d < kSpatial; ++d) dims.push_back(d - kSpatial);
    return mean(c.tensor(0), dims, true);
  }
  Tensor y = through(as_computed(c.tensor(0)));
  for (int d = 0; d < kSpatial; ++d) {
    const int dim = y.ndim() - kSpatial + d;
    y = resample(y, dim, bounded(size[d], 0, ""), "adaptive");
  }
  return cast(y, c.tensor(0).dtype());
}

template <int kSpatial> Results adaptive_largest(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), c.row.name().c_str());
  const Shape size = adaptive_size<kSpatial>(c);
  Shape shape(x.shape().first(x.shape().size() - kSpatial));
  for (const int64_t n : size) shape.push_back(n);
  const Tensor y = c.cx.empty(shape, x.dtype()), places = c.cx.empty(shape, DType::int64);
  if (y.numel() > 0) {
    const bool batched = x.ndim() == kSpatial + 2;
    const auto with_batch = [&](const Tensor& t) {
      Shape s(t.shape());
      if (!batched) s.insert(0, 1);
      return c.cx.alias(t, s, contiguous_strides(s), t->offset);
    };
    PoolParams p;
    p.adaptive = true;
    const Tensor from = with_batch(c.cx.contiguous(x)), to = with_batch(y), at = with_batch(places);
    launch(c.cx, GW_KERNEL(max_pool), {to.view(), at.view()}, {from.view()}, &p);
  }
  return {y, places};
}

template <int kSpatial> Results adaptive_layer(const Call& c) {
  const Ints size(c.ints(1));
  std::array<Tensor, 2> r;
  if constexpr (kSpatial == 1) r = adaptive_max_pool1d_with_indices(c.tensor(0), size);
  if constexpr (kSpatial == 2) r = adaptive_max_pool2d_with_indices(c.tensor(0), size);
  if constexpr (kSpatial == 3) r = adaptive_max_pool3d_with_indices(c.tensor(0), size);
  if (c.row.params > 2 && c.flag(2)) return {r[0], r[1]};
  return r[0];
}

constexpr OpDef kRows[] = {
    {
        .sig = "max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] "
               "dilation=1, bool ceil_mode=False) -> (Tensor output, Tensor indices)",
        .doc = "The largest of each window of self [N, C, L] or [C, L], and its place in the plane; of equals the "
               "first, and NaN is the largest. stride is kernel_size if not given.",
        .compute = largest<1>,
        .saves = {in(0), out(1)},
        .vjp = largest_vjp<1>,
        .examples = {{"[[[1., 3., 2., 5.]]]; 2", "[[[3., 5.]]]; [[[1, 3]]]"}},
        .samples = {"f(2, 2, 5); 2", "f(2, 5); 3; 2; 1", "f(1, 2, 6); 2; 1; 0; 2", "f(1, 1, 5); 2; 2; ceil_mode=True"},
    },
    {
        .sig = "max_pool1d(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] dilation=1, "
               "bool ceil_mode=False) -> Tensor",
        .doc = "The largest of each window: max_pool1d_with_indices without the places.",
        .compose = layer<1>,
        .examples = {{"[[[1., 3., 2., 5.]]]; 2", "[[[3., 5.]]]"}},
        .samples = {"f(2, 2, 5); 2", "f(2, 5); 3; 2; 1", "f(1, 2, 6); 2; 1; 0; 2", "f(1, 1, 5); 2; 2; ceil_mode=True"},
    },
    {
        .sig = "max_pool1d.indices(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] "
               "dilation=1, bool ceil_mode=False, bool return_indices=False) -> (Tensor output, Tensor? indices)",
        .doc = "With return_indices the places too.",
        .compose = layer<1>,
        .examples = {{"[[[1., 3., 2., 5.]]]; 2; return_indices=True", "[[[3., 5.]]]; [[[1, 3]]]"}},
        .samples = {"f(2, 2, 5); 2; return_indices=True"},
    },
    {
        .sig = "max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] "
               "dilation=1, bool ceil_mode=False) -> (Tensor output, Tensor indices)",
        .doc = "The largest of each window of self [N, C, H, W] or [C, H, W], and its place in the plane; of equals "
               "the first, and NaN is the largest. stride is kernel_size if not given.",
        .compute = largest<2>,
        .saves = {in(0), out(1)},
        .vjp = largest_vjp<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 2", "[[[[5.]]]]; [[[[3]]]]"}},
        .samples = {"f(1, 2, 5, 4); 2", "f(2, 5, 4); (3, 2); 2; 1", "f(1, 2, 5, 4); 2; 2; ceil_mode=True"},
    },
    {
        .sig = "max_pool2d(Tensor input, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] dilation=1, "
               "bool ceil_mode=False) -> Tensor",
        .doc = "The largest of each window: max_pool2d_with_indices without the places.",
        .compose = layer<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 2", "[[[[5.]]]]"}},
        .samples = {"f(1, 2, 5, 4); 2", "f(2, 5, 4); (3, 2); 2; 1", "f(1, 2, 5, 4); 2; 2; ceil_mode=True"},
    },
    {
        .sig = "max_pool2d.indices(Tensor input, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] "
               "dilation=1, bool ceil_mode=False, bool return_indices=False) -> (Tensor output, Tensor? indices)",
        .doc = "With return_indices the places too.",
        .compose = layer<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 2; return_indices=True", "[[[[5.]]]]; [[[[3]]]]"}},
        .samples = {"f(1, 2, 5, 4); 2; return_indices=True"},
    },
    {
        .sig = "max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, int[3] "
               "dilation=1, bool ceil_mode=False) -> (Tensor output, Tensor indices)",
        .doc = "The largest of each window of self [N, C, D, H, W] or [C, D, H, W], and its place in the plane; of "
               "equals the first, and NaN is the largest. stride is kernel_size if not given.",
        .compute = largest<3>,
        .saves = {in(0), out(1)},
        .vjp = largest_vjp<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 2", "[[[[[7.]]]]]; [[[[[4]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); 2", "f(2, 4, 3, 2); 2; 1; 1"},
    },
    {
        .sig = "max_pool3d(Tensor input, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, int[3] dilation=1, "
               "bool ceil_mode=False) -> Tensor",
        .doc = "The largest of each window: max_pool3d_with_indices without the places.",
        .compose = layer<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 2", "[[[[[7.]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); 2", "f(2, 4, 3, 2); 2; 1; 1"},
    },
    {
        .sig = "max_pool3d.indices(Tensor input, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, int[3] "
               "dilation=1, bool ceil_mode=False, bool return_indices=False) -> (Tensor output, Tensor? indices)",
        .doc = "With return_indices the places too.",
        .compose = layer<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 2; return_indices=True",
                      "[[[[[7.]]]]]; [[[[[4]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); 2; return_indices=True"},
    },
    {
        .sig = "avg_pool1d(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool "
               "ceil_mode=False, bool count_include_pad=True) -> Tensor",
        .doc = "The mean of each window of input [N, C, L] or [C, L]. Borders of padding count as zeros, or with "
               "count_include_pad=False not at all.",
        .compose = mean_of<1>,
        .examples = {{"[[[1., 3., 2., 5.]]]; 2", "[[[2., 3.5]]]"}},
        .samples = {"f(2, 2, 5); 2", "f(2, 5); 3; 2; 1", "f(2, 2, 5); 2; 2; 1; True; False"},
    },
    {
        .sig = "avg_pool2d(Tensor input, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, bool "
               "ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
        .doc = "The mean of each window of input [N, C, H, W] or [C, H, W]. Borders of padding count as zeros, or with "
               "count_include_pad=False not at all; divisor_override divides instead of the count.",
        .compose = mean_of<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 2", "[[[[2.75]]]]"}},
        .samples = {"f(1, 2, 5, 4); 2", "f(2, 5, 4); (3, 2); 2; 1", "f(1, 2, 5, 4); 2; 2; 1; True; False"},
    },
    {
        .sig = "avg_pool3d(Tensor input, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, bool "
               "ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
        .doc = "The mean of each window of input [N, C, D, H, W] or [C, D, H, W]. Borders of padding count as zeros, "
               "or with count_include_pad=False not at all; divisor_override divides instead of the count.",
        .compose = mean_of<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 2", "[[[[[2.875]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); 2", "f(2, 4, 3, 2); 2; 1; 1", "f(1, 2, 4, 3, 2); 2; 2; 1; True; False"},
    },
    {
        .sig = "adaptive_avg_pool1d(Tensor input, int[1] output_size) -> Tensor",
        .doc = "The mean of windows that share input [N, C, L] or [C, L] out among output_size places.",
        .compose = adaptive_mean<1>,
        .examples = {{"[[[1., 3., 2., 4.]]]; 2", "[[[2., 3.]]]"}},
        .samples = {"f(2, 2, 5); 3", "f(2, 4); 2"},
    },
    {
        .sig = "adaptive_avg_pool2d(Tensor input, int[2] output_size) -> Tensor",
        .doc = "The mean of windows that share input [N, C, H, W] or [C, H, W] out among output_size places.",
        .compose = adaptive_mean<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 1", "[[[[2.75]]]]"}},
        .samples = {"f(1, 2, 5, 4); (3, 2)", "f(2, 3, 3); 1"},
    },
    {
        .sig = "adaptive_avg_pool3d(Tensor input, int[3] output_size) -> Tensor",
        .doc = "The mean of windows that share input [N, C, D, H, W] or [C, D, H, W] out among output_size places.",
        .compose = adaptive_mean<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 1", "[[[[[2.875]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); (3, 2, 1)"},
    },
    {
        .sig = "adaptive_max_pool1d_with_indices(Tensor self, int[1] output_size) -> (Tensor output, Tensor indices)",
        .doc = "The largest of windows that share self [N, C, L] or [C, L] out among output_size places, and its "
               "place in the plane; of equals the first, and NaN is the largest.",
        .compute = adaptive_largest<1>,
        .saves = {in(0), out(1)},
        .vjp = largest_vjp<1>,
        .examples = {{"[[[1., 3., 2., 5.]]]; 2", "[[[3., 5.]]]; [[[1, 3]]]"}},
        .samples = {"f(2, 2, 5); 3", "f(2, 4); 2"},
    },
    {
        .sig = "adaptive_max_pool1d(Tensor input, int[1] output_size) -> Tensor",
        .doc = "adaptive_max_pool1d_with_indices without the places.",
        .compose = adaptive_layer<1>,
        .examples = {{"[[[1., 3., 2., 5.]]]; 2", "[[[3., 5.]]]"}},
        .samples = {"f(2, 2, 5); 3", "f(2, 4); 2"},
    },
    {
        .sig = "adaptive_max_pool1d.indices(Tensor input, int[1] output_size, bool return_indices=False) -> (Tensor "
               "output, Tensor? indices)",
        .doc = "With return_indices the places too.",
        .compose = adaptive_layer<1>,
        .examples = {{"[[[1., 3., 2., 5.]]]; 2; True", "[[[3., 5.]]]; [[[1, 3]]]"}},
        .samples = {"f(2, 2, 5); 3; True"},
    },
    {
        .sig = "adaptive_max_pool2d_with_indices(Tensor self, int[2] output_size) -> (Tensor output, Tensor indices)",
        .doc = "The largest of windows that share self [N, C, H, W] or [C, H, W] out among output_size places, and its "
               "place in the plane; of equals the first, and NaN is the largest.",
        .compute = adaptive_largest<2>,
        .saves = {in(0), out(1)},
        .vjp = largest_vjp<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 1", "[[[[5.]]]]; [[[[3]]]]"}},
        .samples = {"f(1, 2, 5, 4); (3, 2)", "f(2, 3, 3); 1"},
    },
    {
        .sig = "adaptive_max_pool2d(Tensor input, int[2] output_size) -> Tensor",
        .doc = "adaptive_max_pool2d_with_indices without the places.",
        .compose = adaptive_layer<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 1", "[[[[5.]]]]"}},
        .samples = {"f(1, 2, 5, 4); (3, 2)", "f(2, 3, 3); 1"},
    },
    {
        .sig = "adaptive_max_pool2d.indices(Tensor input, int[2] output_size, bool return_indices=False) -> (Tensor "
               "output, Tensor? indices)",
        .doc = "With return_indices the places too.",
        .compose = adaptive_layer<2>,
        .examples = {{"[[[[1., 3.], [2., 5.]]]]; 1; True", "[[[[5.]]]]; [[[[3]]]]"}},
        .samples = {"f(1, 2, 5, 4); (3, 2); True"},
    },
    {
        .sig = "adaptive_max_pool3d_with_indices(Tensor self, int[3] output_size) -> (Tensor output, Tensor indices)",
        .doc = "The largest of windows that share self [N, C, D, H, W] or [C, D, H, W] out among output_size places, "
               "and its "
               "place in the plane; of equals the first, and NaN is the largest.",
        .compute = adaptive_largest<3>,
        .saves = {in(0), out(1)},
        .vjp = largest_vjp<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 1", "[[[[[7.]]]]]; [[[[[4]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); (3, 2, 1)"},
    },
    {
        .sig = "adaptive_max_pool3d(Tensor input, int[3] output_size) -> Tensor",
        .doc = "adaptive_max_pool3d_with_indices without the places.",
        .compose = adaptive_layer<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 1", "[[[[[7.]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); (3, 2, 1)"},
    },
    {
        .sig = "adaptive_max_pool3d.indices(Tensor input, int[3] output_size, bool return_indices=False) -> (Tensor "
               "output, Tensor? indices)",
        .doc = "With return_indices the places too.",
        .compose = adaptive_layer<3>,
        .examples = {{"[[[[[1., 3.], [2., 5.]], [[7., 0.], [1., 4.]]]]]; 1; True", "[[[[[7.]]]]]; [[[[[4]]]]]"}},
        .samples = {"f(1, 2, 4, 3, 2); (3, 2, 1); True"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kPoolOps = kRows;

}  // namespace gradwire::engine
