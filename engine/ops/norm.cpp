// Normalisation, and dropout.
#include "engine/apply.h"
#include "engine/draws.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

Tensor optional(const Call& c, int i) { return c.has(i) ? c.tensor(i) : Tensor(); }

// Halves are normalised in float32.
DType wide(DType t) { return t == DType::float64 ? t : DType::float32; }

void check_channels(const Tensor& t, const char* name, int64_t channels) {
  if (t && t.numel() != channels) {
    throw Error(Code::shape_mismatch, std::string(name) + " should contain " + std::to_string(channels) +
                                          " elements not " + std::to_string(t.numel()));
  }
}

// running = (1 - momentum) * running + momentum * now, without history.
void update(Context& cx, const Tensor& running, const Tensor& now, double momentum) {
  if (!running) return;
  const GradMode off(cx, false);
  mul_(running, 1 - momentum);
  add_(running, reshape(cast(detach(now), running.dtype()), Ints(running.shape())), {.alpha = momentum});
}

constexpr DType kNumbers = DType::float64;  // of what there is one number a channel

// Normalised by moments that were given, one a channel.
Tensor by_running(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
                  double eps) {
  Tensor factor = rsqrt(reshape(cast(var, kNumbers), {-1}) + eps);
  if (weight) factor = factor * reshape(cast(weight, kNumbers), {-1});
  Tensor constant = -(reshape(cast(mean, kNumbers), {-1}) * factor);
  if (bias) constant = constant + reshape(cast(bias, kNumbers), {-1});
  return channel_mix(unsqueeze(factor, 0), x, {}, {}, constant);
}

Tensor flat(const Tensor& t) { return t ? reshape(t, {-1}) : t; }

Results batch(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), "batch_norm");
  if (x.ndim() < 2) {
    throw Error(Code::shape_mismatch,
                "batch_norm: expected 2D or more input (got " + std::to_string(x.ndim()) + "D input)");
  }
  const int64_t channels = x.size(1);
  const Tensor running_mean = optional(c, 1), running_var = optional(c, 2), weight = optional(c, 3),
               bias = optional(c, 4);
  check_channels(running_mean, "running_mean", channels);
  check_channels(running_var, "running_var", channels);
  check_channels(weight, "weight", channels);
  check_channels(bias, "bias", channels);
  const bool training = c.flag(5);
  const double momentum = c.scalar(6).real(), eps = c.scalar(7).real();
  if (!training) {
    if (!running_mean || !running_var)
      throw Error(Code::bad_argument, "Expected running_mean and running_var to be defined when training=False");
    return by_running(x, running_mean, running_var, weight, bias, eps);
  }
  int64_t n = 1;
  for (int d = 0; d < x.ndim(); ++d) n *= d == 1 ? 1 : x.size(d);
  if (n == 1) {
    throw Error(Code::shape_mismatch,
                "Expected more than 1 value per channel when training, got input size torch.Size(" +
                    to_string(x.shape()) + ")");
  }
  const auto [y, mean, var] = channel_norm(x, flat(weight), flat(bias), eps);
  update(c.cx, running_mean, mean, momentum);
  if (running_var)
    update(c.cx, running_var, detach(var) * (static_cast<double>(n) / static_cast<double>(n - 1)), momentum);
  return y;
}

Results layer(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), "layer_norm");
  const std::span<const int64_t> shape = c.ints(1);
  const size_t n = shape.size(), all = x.shape().size();
  if (n == 0) {
    throw Error(Code::shape_mismatch,
                "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
                "one element, but got normalized_shape = []");
  }
  const Tensor weight = optional(c, 2), bias = optional(c, 3);
  for (const auto& [t, name] : {std::pair(weight, "weight"), std::pair(bias, "bias")}) {
    if (t && !std::ranges::equal(t.shape(), shape)) {
      throw Error(Code::shape_mismatch, std::string("Expected ") + name +
                                            " to be of same shape as normalized_shape, but got " + name + " of shape " +
                                            to_string(t.shape()) + " and normalized_shape = " + to_string(shape));
    }
  }
  if (all < n || !std::ranges::equal(x.shape().last(n), shape)) {
    throw Error(Code::shape_mismatch, "Given normalized_shape=" + to_string(shape) +
                                          ", expected input with shape [*, " + to_string(shape).substr(1) +
                                          ", but got input of size" + to_string(x.shape()));
  }
  // Each row is a channel of one image.
  int64_t rows = 1;
  for (size_t d = 0; d < all - n; ++d) rows *= x.size(static_cast<int>(d));
  const int64_t row = rows == 0 ? 0 : x.numel() / rows;
  const Tensor w = cast(x, wide(x.dtype()));
  Tensor y = reshape(channel_norm(reshape(w, {1, rows, row}), {}, {}, c.scalar(4).real())[0], Ints(x.shape()));
  if (weight) y = y * cast(weight, y.dtype());
  if (bias) y = y + cast(bias, y.dtype());
  return cast(y, x.dtype());
}

// Groups of channels, normalised one by one for each image.
Tensor grouped(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  const int64_t all = checked_numel(Shape{x.size(0), groups}), rest = all == 0 ? 0 : x.numel() / all;
  const Tensor w = cast(x, wide(x.dtype()));
  const Tensor y = reshape(channel_norm(reshape(w, {1, all, rest}), {}, {}, eps)[0], Ints(x.shape()));
  if (!weight && !bias) return cast(y, x.dtype());
  const int64_t channels[] = {x.size(1)};
  const Tensor factor = weight ? cast(flat(weight), kNumbers) : x.maker().full(channels, 1, kNumbers);
  return cast(channel_mix(unsqueeze(factor, 0), y, {}, {}, flat(bias)), x.dtype());
}

Results group(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), "group_norm");
  const int64_t groups = c.integer(1);
  if (x.ndim() < 2) {
    throw Error(Code::shape_mismatch,
                "Expected at least 2 dimensions for input tensor but received " + std::to_string(x.ndim()));
  }
  if (groups < 1)
    throw Error(Code::bad_argument, "Expected num groups to be greater than 0, got " + std::to_string(groups));
  if (x.size(1) % groups != 0) {
    throw Error(Code::shape_mismatch,
                "Expected number of channels in input to be divisible by num_groups, but got input "
                "of shape " +
                    to_string(x.shape()) + " and num_groups=" + std::to_string(groups));
  }
  const Tensor weight = optional(c, 2), bias = optional(c, 3);
  check_channels(weight, "weight", x.size(1));
  check_channels(bias, "bias", x.size(1));
  return grouped(x, groups, weight, bias, c.scalar(4).real());
}

Results instance(const Call& c) {
  const Tensor& x = c.tensor(0);
  check_floating(x.dtype(), "instance_norm");
  if (x.ndim() < 3) {
    throw Error(Code::shape_mismatch,
                "instance_norm: expected 3D or more input (got " + std::to_string(x.ndim()) + "D input)");
  }
  const int64_t channels = x.size(1);
  const Tensor running_mean = optional(c, 1), running_var = optional(c, 2), weight = optional(c, 3),
               bias = optional(c, 4);
  check_channels(running_mean, "running_mean", channels);
  check_channels(running_var, "running_var", channels);
  check_channels(weight, "weight", channels);
  check_channels(bias, "bias", channels);
  const double eps = c.scalar(7).real();
  if (!c.flag(5)) {
    if (!running_mean || !running_var) {
      throw Error(Code::bad_argument,
                  "Expected running_mean and running_var to be defined when use_input_stats is false");
    }
    return by_running(x, running_mean, running_var, weight, bias, eps);
  }
  const int64_t places = x.numel() == 0 ? 0 : x.numel() / x.size(0) / channels;
  if (places == 1) {
    throw Error(Code::shape_mismatch, "Expected more than 1 spatial element when training, got input size torch.Size(" +
                                          to_string(x.shape()) + ")");
  }
  if (running_mean || running_var) {
    const Shape rows{1, x.size(0) * channels, places}, by_image{x.size(0), channels};
    const auto [mean_of, var_of] = [&] {
      const GradMode off(c.cx, false);
      static constexpr int64_t kItself[] = {0, 0};
      const auto [m, v] =
          channel_moments(reshape(detach(x), Ints(rows)), {}, {}, Ints(std::span<const int64_t>(kItself)));
      return std::pair(mean(reshape(m, Ints(by_image)), {0}), mean(reshape(v, Ints(by_image)), {0}));
    }();
    const double unbiased = static_cast<double>(places) / static_cast<double>(places - 1);
    update(c.cx, running_mean, mean_of, c.scalar(6).real());
    update(c.cx, running_var, var_of * unbiased, c.scalar(6).real());
  }
  return grouped(x, channels, weight, bias, eps);
}

constexpr OpDef kRows[] = {
    {
        .sig = "batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? "
               "bias=None, bool training=False, float momentum=0.1, float eps=1e-05) -> Tensor",
        .doc =
            "(input - mean) / sqrt(var + eps) * weight + bias for each channel (dim 1): with training the batch's own "
            "moments, which also move the running ones by momentum (the variance unbiased), else the running ones.",
        .compose = batch,
        .examples = {{"[[1., 2.], [3., 6.]]; None; None; training=True; eps=0", "[[-1., -1.], [1., 1.]]"},
                     {"[[1., 2.]]; [1., 1.]; [4., 4.]; eps=0", "[[0., 0.5]]"}},
        .samples = {"f(3, 2); None; None; f(2); f(2); True", "f(2, 2, 3); f(2); p(2); f(2); f(2)",
                    "f(2, 3, 2, 2); None; None; training=True"},
    },
    {
        .sig =
            "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) "
            "-> Tensor",
        .doc = "(input - mean) / sqrt(var + eps) * weight + bias, with the moments over the last dims, which have "
               "normalized_shape.",
        .compose = layer,
        .examples = {{"[[1., 3.]]; (2); eps=0", "[[-1., 1.]]"}},
        .samples = {"f(2, 3); (3); f(3); f(3)", "f(2, 2, 3); (2, 3)"},
    },
    {
        .sig = "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> "
               "Tensor",
        .doc = "As batch_norm, with the moments of each image over the channels of each group.",
        .compose = group,
        .examples = {{"[[1., 3., 5., 9.]]; 2; eps=0", "[[-1., 1., -1., 1.]]"}},
        .samples = {"f(2, 4, 3); 2; f(4); f(4)", "f(2, 4); 1"},
    },
    {
        .sig = "instance_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, "
               "Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05) -> Tensor",
        .doc = "As batch_norm, with the moments of each channel of each image.",
        .compose = instance,
        .examples = {{"[[[1., 3.], [5., 9.]]]; eps=0", "[[[-1., 1.], [-1., 1.]]]"}},
        .samples = {"f(2, 2, 3); weight=f(2); bias=f(2)", "f(1, 2, 2, 2); f(2); p(2); f(2); f(2); False"},
    },
    {
        .sig = "dropout(Tensor input, float p=0.5, bool training=True, bool inplace=False) -> Tensor",
        .doc = "With training each element is 0 with probability p, and else divided by 1 - p; without, input itself.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const double p = c.scalar(1).real();
          if (!(p >= 0 && p <= 1)) {
            throw Error(Code::bad_argument,
                        "dropout probability has to be between 0 and 1, but got " + std::to_string(p));
          }
          if (!c.flag(2) || p == 0 || x.numel() == 0) return x;
          check_floating(x.dtype(), "dropout");
          Tensor keep;
          {
            const GradMode off(c.cx, false);
            keep = p == 1 ? zeros_like(x) : cast(ge(rand_like(x), p), x.dtype()) / (1 - p);
          }
          return c.flag(3) ? Tensor(mul_(x, keep)) : x * keep;
        },
        .examples = {{"[1., 2.]; 0.5; False", "[1., 2.]"}, {"[1., 2.]; 1.0", "[0., 0.]"}},
        .samples = {"f(2, 3); 0.5; False", "f(2, 3); 1.0"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kNormOps = kRows;

}  // namespace gradwire::engine
