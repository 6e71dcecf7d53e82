// Other sizes along one dim, by weighted sums of neighbours; and interpolation made of that.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

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

/// For each of m results the elements of n that it is a sum of, from start on, and their weights; as the kernel has it.
struct Bands {
  ResampleParams::Kind kind = ResampleParams::by_result;
  std::vector<int64_t> start;  // first elements, counts, first weights
  std::vector<double> weight;
  explicit Bands(int64_t m) : start(static_cast<size_t>(3 * m)), m_(m) {}
  int64_t& first(int64_t o) { return start[static_cast<size_t>(o)]; }
  int64_t& count(int64_t o) { return start[static_cast<size_t>(m_ + o)]; }
  int64_t& weights(int64_t o) { return start[static_cast<size_t>(2 * m_ + o)]; }
  int64_t end(int64_t o) { return first(o) + count(o); }
  void add(int64_t o, int64_t from, int64_t to, double w) {
    first(o) = from, count(o) = std::max<int64_t>(to - from, 0), weight.push_back(w);
  }

 private:
  int64_t m_;
};

/// The windows of pools: window = kernel, stride, padding, and how they are divided: 0 by what is inside, 1 by all of
/// the kernel, 2 not at all.
Bands means(int64_t n, int64_t m, std::span<const int64_t> window) {
  Bands b(m);
  const int64_t kernel = window[0], stride = window[1], padding = window[2];
  for (int64_t o = 0; o < m; ++o) {
    const int64_t start = o * stride - padding, end = std::min(start + kernel, n + padding);
    const int64_t from = std::clamp<int64_t>(start, 0, n), to = std::clamp<int64_t>(end, from, n);
    const int64_t divisor = window[3] == 2 ? 1 : window[3] == 1 ? end - start : to - from;
    b.add(o, from, to, divisor == 0 ? 0 : 1.0 / static_cast<double>(divisor));
  }
  return b;
}

Bands shares(int64_t n, int64_t m) {
  Bands b(m);
  for (int64_t o = 0; o < m; ++o) {
    const int64_t from = o * n / m, to = ((o + 1) * n + m - 1) / m;
    b.add(o, from, to, 1.0 / static_cast<double>(to - from));
  }
  return b;
}

/// PyTorch computes the place of the nearest in float.
Bands nearest(int64_t n, int64_t m, double scale, bool exact) {
  Bands b(m);
  for (int64_t o = 0; o < m; ++o) {
    const float place = (static_cast<float>(o) + (exact ? 0.5f : 0.0f)) * static_cast<float>(scale);
    // A place may be infinite, or no number: the first of a scale that floats do not hold.
    const int64_t at = place >= static_cast<float>(n - 1) ? n - 1 : place > 0 ? static_cast<int64_t>(place) : 0;
    b.add(o, at, at + 1, 1);
  }
  return b;
}

/// Neighbours by their distance from where the result lies; corners: the first and the last results lie on the first
/// and the last elements, else halves of elements on halves.
Bands between(int64_t n, int64_t m, double scale, bool corners, bool cubic) {
  Bands b(m);
  b.kind = ResampleParams::each;
  for (int64_t o = 0; o < m; ++o) {
    double place = corners ? scale * static_cast<double>(o) : scale * (static_cast<double>(o) + 0.5) - 0.5;
    if (!cubic) place = std::max(place, 0.0);
    const double whole = std::clamp(std::floor(place), -2.0, static_cast<double>(n));
    const double t = std::clamp(place - whole, 0.0, 1.0);
    const auto at = static_cast<int64_t>(whole);
    b.weights(o) = static_cast<int64_t>(b.weight.size());
    if (!cubic) {
      const int64_t from = std::min(at, n - 1), to = std::min(from + 1, n - 1);
      b.first(o) = from, b.count(o) = to - from + 1;
      b.weight.push_back(to > from ? 1 - t : 1);
      if (to > from) b.weight.push_back(t);
      continue;
    }
    constexpr double kA = -0.75;  // as PyTorch has it
    const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
    const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
    const double w[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    const int64_t from = std::clamp<int64_t>(at - 1, 0, n - 1), to = std::clamp<int64_t>(at + 2, 0, n - 1);
    b.first(o) = from, b.count(o) = to - from + 1;
    const size_t own = b.weight.size();
    b.weight.resize(own + static_cast<size_t>(to - from + 1), 0);
    for (int64_t k = 0; k < 4; ++k)  // what lies outside is the element at the border
      b.weight[own + static_cast<size_t>(std::clamp<int64_t>(at - 1 + k, 0, n - 1) - from)] += w[k];
  }
  return b;
}

/// The transpose, from m to n: bands move forward only, so that those which hold one element lie side by side.
Bands transpose_of(Bands& b, int64_t n, int64_t m) {
  Bands t(n);
  t.kind = b.kind == ResampleParams::each ? b.kind : ResampleParams::by_source;
  if (b.kind != ResampleParams::each) t.weight = b.weight;
  for (int64_t i = 0, low = 0, high = 0; i < n; ++i) {
    while (low < m && b.end(low) <= i) ++low;
    while (high < m && b.first(high) <= i) ++high;
    t.first(i) = std::min(low, m), t.count(i) = std::max<int64_t>(high - low, 0);
    t.weights(i) = static_cast<int64_t>(t.weight.size());
    if (b.kind != ResampleParams::each) continue;
    for (int64_t o = low; o < high; ++o)
      t.weight.push_back(b.weight[static_cast<size_t>(b.weights(o) + i - b.first(o))]);
  }
  return t;
}

Bands bands_of(const std::string& mode, int64_t n, int64_t m, std::span<const int64_t> window, double scale) {
  if (mode == "mean") return means(n, m, window);
  if (mode == "adaptive") return shares(n, m);
  if (mode == "nearest" || mode == "nearest-exact") return nearest(n, m, scale, mode != "nearest");
  return between(n, m, scale, !window.empty() && window[0] != 0, mode == "cubic");
}

void check_mode(const std::string& mode, std::span<const int64_t> window, double scale) {
  if (mode == "mean") {
    if (window.size() != 4) {
      throw Error(
          Code::bad_argument,
          "resample: the window of mode 'mean' is kernel, stride, padding and divisor, got " + to_string(window));
    }
    bounded(window[0], 1, "resample: a kernel has at least one element");
    bounded(window[1], 1, "resample: a stride is at least 1");
    bounded(window[2], 0, "resample: padding is not negative");
    if (window[3] < 0 || window[3] > 2) throw Error(Code::bad_argument, "resample: the divisor is 0, 1 or 2");
  } else if (mode == "nearest" || mode == "nearest-exact" || mode == "linear" || mode == "cubic") {
    if (!(scale >= 0) || !std::isfinite(scale))
      throw Error(Code::bad_argument, "resample: the scale is finite and not negative, got " + std::to_string(scale));
  } else if (mode != "adaptive") {
    throw Error(Code::bad_argument, "resample: no mode '" + mode.substr(0, 64) + "'");
  }
}

Results resampled(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), "resample");
  const std::string mode(c.text(3));
  const int dim = wrap_dim(c.integer(1), x.ndim());
  if (x.ndim() == 0) throw Error(Code::shape_mismatch, "resample: expected a tensor with dims");
  const int64_t size = bounded(c.integer(2), 0, "resample: a size is not negative"), from = x.size(dim);
  bounded(from, 0, "");
  check_mode(mode, c.ints(4), c.scalar(5).real());
  Shape shape(x.shape());
  shape[static_cast<size_t>(dim)] = size;
  const DType in = x.dtype() == DType::float64 ? x.dtype() : DType::float32;
  const Tensor out = c.cx.empty(shape, in);
  if (out.numel() == 0) return c.cx.contiguous(out, x.dtype());
  if (from == 0) return c.cx.full(shape, 0, x.dtype());
  const bool back = c.flag(6);
  const int64_t n = back ? size : from, m = back ? from : size;
  const int64_t most[] = {8 * (n + m)};
  const Tensor charged = c.cx.empty(most, DType::float64);  // for the bands
  Bands b = bands_of(mode, n, m, c.ints(4), c.scalar(5).real());
  if (back) b = transpose_of(b, n, m);
  const Tensor rows = c.cx.contiguous(x, in);
  const auto sizes = std::span<const int64_t>(shape);
  const Shape to{checked_numel(sizes.first(static_cast<size_t>(dim))), size,
                 checked_numel(sizes.subspan(static_cast<size_t>(dim) + 1))},
      of{to[0], from, to[2]};
  const Tensor y = c.cx.alias(out, to, contiguous_strides(to), 0),
               v = c.cx.alias(rows, of, contiguous_strides(of), rows->offset);
  const ResampleParams p{
      b.kind,         size,           static_cast<int64_t>(b.start.size()), static_cast<int64_t>(b.weight.size()),
      b.start.data(), b.weight.data()};
  launch(c.cx, GW_KERNEL(resample), {y.view()}, {v.view()}, &p);
  return c.cx.contiguous(out, x.dtype());
}

struct Mode {
  const char *name, *along;  // of interpolate, and of resample
  int spatial;               // 0: any
};
constexpr Mode kModes[] = {{"nearest", "nearest", 0}, {"nearest-exact", "nearest-exact", 0},
                           {"area", "adaptive", 0},   {"linear", "linear", 1},
                           {"bilinear", "linear", 2}, {"trilinear", "linear", 3},
                           {"bicubic", "cubic", 2}};

/// One size or one scale for all spatial dims of input [N, C, ...].
struct Asked {
  std::span<const int64_t> size;  // empty: by the scale
  double scale = 0;
};

Tensor interpolated(const Call& c, const Asked& asked, const std::string& mode, bool corners_given, bool corners,
                    bool recompute) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), c.row.name().c_str());
  const int spatial = x.ndim() - 2;
  const auto* m = std::ranges::find_if(kModes, [&](const Mode& k) { return mode == k.name; });
  if (spatial < 1 || spatial > 3 || m == std::end(kModes)) {
    throw Error(Code::not_implemented,
                "Input Error: Only 3D, 4D and 5D input Tensors supported (got " + std::to_string(x.ndim()) +
                    "D) for the modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact (got " +
                    mode.substr(0, 64) + ")");
  }
  if (m->spatial == 0 && corners_given) {
    throw Error(Code::bad_argument,
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
                "trilinear");
  }
  if (m->spatial != 0 && m->spatial != spatial) {
    throw Error(Code::shape_mismatch, "Got " + std::to_string(x.ndim()) + "D input, but " + mode + " mode needs " +
                                          std::to_string(m->spatial + 2) + "D input");
  }
  if (asked.size.size() > 1 && static_cast<int>(asked.size.size()) != spatial) {
    throw Error(Code::shape_mismatch,
                "Input and output must have the same number of spatial dimensions, but got input with spatial "
                "dimensions of " +
                    to_string(x.shape().subspan(2)) + " and output size of " + to_string(asked.size) +
                    ". Please provide input tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, "
                    "...,oK) format.");
  }
  const std::string along = m->along;
  // The mean of areas is adaptive_avg_pool, whose second derivative is zeros; of the others there is none.
  Tensor y = as_computed(x);
  if (mode == "area") y = through(y);
  for (int d = 0; d < spatial; ++d) {
    const int64_t n = x.size(d + 2);
    const double grown = std::floor(static_cast<double>(n) * asked.scale);
    if (asked.size.empty() && !(grown >= 0 && grown <= 2147483647.0))
      throw Error(Code::bad_argument, "a scale_factor of " + std::to_string(asked.scale) + " is too large");
    const int64_t size = asked.size.empty() ? static_cast<int64_t>(grown) : per_dim(asked.size, d);
    if (n < 1 || size < 1) {
      throw Error(Code::shape_mismatch, "Input and output sizes should be greater than 0, but got input (" +
                                            std::to_string(n) + ") output (" + std::to_string(size) + ")");
    }
    double scale =
        asked.size.empty() && !recompute ? 1 / asked.scale : static_cast<double>(n) / static_cast<double>(size);
    if (corners) scale = size > 1 ? static_cast<double>(n - 1) / static_cast<double>(size - 1) : 0;
    if (n == size && along == "linear") scale = 1;  // whatever the scale_factor, as PyTorch has it
    if (n == size && scale == 1 && d + 1 < spatial) continue;
    y = resample(y, d + 2, size, along, corners ? std::vector<int64_t>{1} : std::vector<int64_t>{}, scale);
  }
  return cast(y, x.dtype());
}

Asked asked(const Call& c) {
  if (c.has(1) == c.has(2)) {
    throw Error(Code::bad_argument, c.has(1) ? "only one of size or scale_factor should be defined"
                                             : "either size or scale_factor should be defined");
  }
  if (c.has(1) && c.ints(1).empty()) throw Error(Code::bad_argument, "interpolate: size is empty");
  Asked a;
  if (c.has(1))
    a.size = c.ints(1);
  else
    a.scale = c.scalar(2).real();
  return a;
}

Results interpolate_of(const Call& c) {
  const bool given = c.has(4), recompute = c.row.params > 5 && c.flag(5);
  if (c.row.params > 6 && c.flag(6)) throw Error(Code::not_implemented, "interpolate: antialias=True is not supported");
  if (recompute && !c.has(2))
    throw Error(Code::bad_argument, "recompute_scale_factor is not meaningful with an explicit size.");
  return interpolated(c, asked(c), std::string(c.text(3)), given, given && c.flag(4), recompute);
}

constexpr OpDef kRows[] = {
    {
        .sig = "resample(Tensor input, int dim, int size, str mode, int[] window=[], float scale=0, bool "
               "transposed=False) -> Tensor",
        .doc = "input with `size` elements along dim, each a weighted sum of neighbours: 'mean' of windows (kernel, "
               "stride, padding, and 0 to divide by what lies inside, 1 by the kernel, 2 not at all), 'adaptive' "
               "windows, or 'nearest', 'nearest-exact', 'linear', 'cubic' with `scale` elements a result (window 1: "
               "the corners lie on the corners). transposed: the gradient of that, for an input of `size`.",
        .compute = resampled,
        .vjp = [](const Vjp& g) -> Grads {
          const std::span<const int64_t> shape = g.shape(0);
          const int64_t dim = wrap_dim(g.integer(1), static_cast<int>(shape.size()));
          return {{resample(g.dout(), dim, shape[static_cast<size_t>(dim)], g.text(3), Ints(g.ints(4)),
                            g.scalar(5).real(), !g.flag(6))}};
        },
        .examples = {{"[1., 3., 5., 7.]; 0; 2; 'mean'; (2, 2, 0, 0)", "[2., 6.]"},
                     {"[1., 3.]; 0; 4; 'linear'; scale=0.5", "[1., 1.5, 2.5, 3.]"}},
        .samples = {"f(2, 5, 2); 1; 3; 'mean'; (3, 2, 1, 0)", "f(2, 5); 1; 3; 'adaptive'",
                    "f(2, 3); 0; 3; 'nearest'; scale=0.7", "f(3, 2); 0; 5; 'linear'; scale=0.6",
                    "f(4); 0; 7; 'cubic'; (1); 0.5", "f(3, 2); 0; 5; 'mean'; (2, 2, 1, 1); transposed=True",
                    "f(5); 0; 3; 'cubic'; scale=0.6; transposed=True", "f(0, 3); 1; 2; 'adaptive'"},
    },
    {
        .sig = "interpolate(Tensor input, int[]? size=None, float? scale_factor=None, str mode='nearest', bool? "
               "align_corners=None, bool? recompute_scale_factor=None, bool antialias=False) -> Tensor",
        .doc =
            "input [N, C, ...] with other spatial sizes, given or scaled: by the 'nearest' element ('nearest-exact': "
            "by the middles of elements), 'linear', 'bilinear' or 'trilinear' between neighbours, 'bicubic', or "
            "the mean of an 'area'. align_corners puts the corners on the corners.",
        .compose = interpolate_of,
        .examples = {{"[[[[1., 2.], [3., 4.]]]]; scale_factor=2.0",
                      "[[[[1., 1., 2., 2.], [1., 1., 2., 2.], [3., 3., 4., 4.], [3., 3., 4., 4.]]]]"},
                     {"[[[1., 2.]]]; (4); mode='linear'", "[[[1., 1.25, 1.75, 2.]]]"}},
        .samples = {"f(1, 2, 2, 3); (3, 4); mode='bilinear'; align_corners=True", "f(1, 1, 4); scale_factor=1.6",
                    "f(1, 1, 2, 2, 2); 3; mode='trilinear'", "f(1, 1, 3, 4); (4, 2); mode='bicubic'"},
    },
    {
        .sig = "upsample(Tensor input, int[]? size=None, float? scale_factor=None, str mode='nearest', bool? "
               "align_corners=None) -> Tensor",
        .doc = "interpolate, by its old name.",
        .compose = interpolate_of,
        .examples = {{"[[[1., 2.]]]; scale_factor=2.0", "[[[1., 1., 2., 2.]]]"}},
        .samples = {"f(1, 2, 2, 3); 3", "f(1, 1, 3); 5; mode='linear'"},
    },
    {
        .sig = "upsample_nearest(Tensor input, int[]? size=None, float? scale_factor=None) -> Tensor",
        .doc = "interpolate by the nearest element, by its old name.",
        .compose = [](const Call& c) -> Results { return interpolated(c, asked(c), "nearest", false, false, false); },
        .examples = {{"[[[1., 2.]]]; scale_factor=2.0", "[[[1., 1., 2., 2.]]]"}},
        .samples = {"f(1, 2, 2, 3); 3"},
    },
    {
        .sig = "upsample_bilinear(Tensor input, int[]? size=None, float? scale_factor=None) -> Tensor",
        .doc = "interpolate 'bilinear' with align_corners, by its old name.",
        .compose = [](const Call& c) -> Results { return interpolated(c, asked(c), "bilinear", true, true, false); },
        .examples = {{"[[[[1., 3.]]]]; (1, 3)", "[[[[1., 2., 3.]]]]"}},
        .samples = {"f(1, 2, 2, 3); 3"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kResampleOps = kRows;

}  // namespace gradwire::engine
