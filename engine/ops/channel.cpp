// What normalisation is made of: moments by channel and sums of multiples by channel, closed under differentiation, and
// the two steps of it that one kernel each computes.
#include <cmath>

#include "engine/apply.h"
#include "engine/draws.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr DType kNumbers = DType::float64;  // of what there is one number a channel

DType wide(DType t) { return t == DType::float64 ? t : DType::float32; }

int64_t channels_of(const Tensor& x, const std::string& op) {
  if (x.ndim() < 2) {
    throw Error(Code::shape_mismatch,
                op + ": expected a tensor of at least 2 dims, [N, C, ...], but got " + to_string(x.shape()));
  }
  return x.size(1);
}

/// The tensors from parameter `first` on, of one shape and dtype, in the dtype that they are computed in.
struct Operands {
  Tensor at[3];
  size_t count = 0;
  int64_t channels;
  Operands(const Call& c, int first, int last) : channels(channels_of(c.tensor(first), c.row.name())) {
    const Tensor& a = c.tensor(first);
    check_floating(a.dtype(), c.row.name().c_str());
    for (int i = first; i <= last; ++i) {
      if (!c.has(i)) continue;
      const Tensor& t = c.tensor(i);
      if (!std::ranges::equal(t.shape(), a.shape())) {
        throw Error(Code::shape_mismatch, c.row.name() + ": expected tensors of one shape, but got " +
                                              to_string(a.shape()) + " and " + to_string(t.shape()));
      }
      if (t.dtype() != a.dtype()) {
        throw Error(Code::dtype_mismatch,
                    std::string("expected scalar type ") + row(a.dtype()).torch + " but found " + row(t.dtype()).torch);
      }
      at[count++] = c.cx.contiguous(t, wide(a.dtype()));
    }
  }
};

/// Parameter i as one float64 number a channel; `otherwise` where it is left out.
Tensor numbers(const Call& c, int i, int64_t channels, double otherwise) {
  const int64_t shape[] = {channels};
  if (!c.has(i)) return c.cx.full(shape, otherwise, kNumbers);
  const Tensor& t = c.tensor(i);
  check_floating(t.dtype(), c.row.name().c_str());
  if (t.ndim() != 1 || t.size(0) != channels) {
    throw Error(Code::shape_mismatch, c.row.name() + ": expected a number for each of " + std::to_string(channels) +
                                          " channels, but got " + to_string(t.shape()));
  }
  return c.cx.contiguous(t, kNumbers);
}

ChannelParams with_eps(const Call& c, int i) {
  ChannelParams p;
  p.eps = c.scalar(i).real();
  return p;
}

Tensor nothing(const Call& c, std::span<const int64_t> shape) { return c.cx.full(shape, std::nan(""), kNumbers); }

Results moments(const Call& c) {
  const Operands t(c, 0, 2);
  const std::span<const int64_t> pairs = c.ints(3);
  ChannelParams p;
  if (pairs.size() % 2 != 0 || pairs.size() > 2 * ChannelParams::kPairs) {
    throw Error(Code::bad_argument, "channel_moments: pairs has up to " + std::to_string(ChannelParams::kPairs) +
                                        " pairs of numbers, but got " + to_string(pairs));
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] < 0 || pairs[i] >= static_cast<int64_t>(t.count)) {
      throw Error(Code::bad_argument, "channel_moments: a pair names tensor " + std::to_string(pairs[i]) + " of " +
                                          std::to_string(t.count));
    }
    p.pairs[i / 2][i % 2] = static_cast<int>(pairs[i]);
  }
  p.count = static_cast<int>(pairs.size() / 2);
  const Shape means{static_cast<int64_t>(t.count), t.channels}, covariances{p.count, t.channels};
  if (t.at[0].numel() == 0) return {nothing(c, means), nothing(c, covariances)};
  const Tensor mean = c.cx.empty(means, kNumbers), cov = c.cx.empty(covariances, kNumbers);
  if (t.count == 1)
    launch(c.cx, GW_KERNEL(channel_moments), {mean.view(), cov.view()}, {t.at[0].view()}, &p);
  else if (t.count == 2)
    launch(c.cx, GW_KERNEL(channel_moments), {mean.view(), cov.view()}, {t.at[0].view(), t.at[1].view()}, &p);
  else
    launch(c.cx, GW_KERNEL(channel_moments), {mean.view(), cov.view()},
           {t.at[0].view(), t.at[1].view(), t.at[2].view()}, &p);
  return {mean, cov};
}

// Rows of [n, C]: to differentiate again.
Tensor line(const Tensor& t, int64_t i) { return select(t, 0, i); }
Tensor lines(const std::vector<Tensor>& t) { return stack(t, 0); }
Tensor zeros(Context& cx, int64_t channels) {
  const int64_t shape[] = {channels};
  return cx.full(shape, 0, kNumbers);
}
double each(std::span<const int64_t> shape) {  // elements of a channel
  double n = 1;
  for (size_t d = 0; d < shape.size(); ++d) n *= d == 1 ? 1.0 : static_cast<double>(shape[d]);
  return n;
}
/// constant + factors[0] * tensors[0] + ...; no constant is 0.
Tensor mixed(const Tensor& constant, const std::vector<Tensor>& factors, const std::vector<Tensor>& tensors) {
  const size_t n = tensors.size();
  return channel_mix(lines(factors), tensors[0], n > 1 ? tensors[1] : Tensor(), n > 2 ? tensors[2] : Tensor(),
                     constant);
}

Grads moments_vjp(const Vjp& g) {
  Grads d;
  const Tensor mean = g.out(0);
  const double n = each(g.shape(0));
  const int64_t channels = g.shape(0)[1];
  const std::span<const int64_t> pairs = g.ints(3);
  std::vector<int> given;  // the parameters, as pairs count them
  for (int i = 0; i < 3; ++i) {
    if (i == 0 || g.has_in(i)) given.push_back(i);
  }
  for (size_t self = 0; self < given.size(); ++self) {
    const int i = given[self];
    if (!g.needs(i)) continue;
    Tensor constant = g.has(0) ? line(g.dout(0), static_cast<int64_t>(self)) : zeros(g.cx, channels);
    std::vector<Tensor> factors, tensors;
    for (size_t p = 0; g.has(1) && p < pairs.size(); p += 2) {
      for (int side = 0; side < 2; ++side) {  // a pair of a tensor with itself counts twice
        if (pairs[p + side] != static_cast<int64_t>(self)) continue;
        const int64_t other = pairs[p + 1 - side];
        const Tensor f = line(g.dout(1), static_cast<int64_t>(p / 2));
        constant = constant - f * line(mean, other);
        factors.push_back(f / n), tensors.push_back(g.in(given[static_cast<size_t>(other)]));
      }
    }
    if (tensors.empty()) factors.push_back(zeros(g.cx, channels)), tensors.push_back(g.in(i));
    Tensor sum;
    for (size_t k = 0; k < tensors.size(); k += 3) {
      const size_t end = std::min(tensors.size(), k + 3);
      const Tensor some =
          mixed(k == 0 ? constant / n : Tensor(),
                {factors.begin() + static_cast<int64_t>(k), factors.begin() + static_cast<int64_t>(end)},
                {tensors.begin() + static_cast<int64_t>(k), tensors.begin() + static_cast<int64_t>(end)});
      sum = sum ? sum + some : some;
    }
    d.at[i] = sum;
  }
  return d;
}

Results mix(const Call& c) {
  const Operands t(c, 1, 3);
  const auto count = static_cast<int64_t>(t.count);
  const Shape want{count, t.channels}, all{count + 1, t.channels};
  const Tensor& f = c.tensor(0);
  check_floating(f.dtype(), "channel_mix");
  if (!std::ranges::equal(f.shape(), std::span<const int64_t>(want))) {
    throw Error(Code::shape_mismatch,
                "channel_mix: expected factors of shape " + to_string(want) + ", but got " + to_string(f.shape()));
  }
  const Tensor out = c.cx.empty(c.tensor(1).shape(), t.at[0].dtype()), constant = numbers(c, 4, t.channels, 0);
  if (out.numel() > 0) {
    const Tensor factors = c.cx.empty(all, kNumbers);  // the constant is the first
    const Shape line{1, t.channels}, strides = contiguous_strides(line);
    c.cx.copy(c.cx.alias(factors, line, strides, 0), c.cx.alias(constant, line, strides, constant->offset));
    c.cx.copy(c.cx.alias(factors, want, contiguous_strides(want), t.channels), f);
    if (t.count == 1)
      launch(c.cx, GW_KERNEL(channel_mix), {out.view()}, {factors.view(), t.at[0].view()});
    else if (t.count == 2)
      launch(c.cx, GW_KERNEL(channel_mix), {out.view()}, {factors.view(), t.at[0].view(), t.at[1].view()});
    else
      launch(c.cx, GW_KERNEL(channel_mix), {out.view()},
             {factors.view(), t.at[0].view(), t.at[1].view(), t.at[2].view()});
  }
  return c.cx.contiguous(out, c.tensor(1).dtype());
}

Grads mix_vjp(const Vjp& g) {
  Grads d;
  const double n = each(g.shape(1));
  std::vector<Tensor> tensors;
  int place = 0;
  for (int i = 1; i < 4; ++i) {
    if (i > 1 && !g.has_in(i)) continue;
    if (g.needs(0)) tensors.push_back(g.in(i));
    if (g.needs(i)) d.at[i] = mixed({}, {line(g.in(0), place)}, {g.dout()});
    ++place;
  }
  std::vector<Tensor> sums;
  for (size_t k = 0; k < tensors.size(); k += 2) {  // beside the gradient there is room for two
    const bool two = k + 1 < tensors.size();
    static constexpr int64_t kTwo[] = {0, 1, 0, 2};
    const auto [mean, cov] = channel_moments(g.dout(), tensors[k], two ? tensors[k + 1] : Tensor(),
                                             Ints(std::span<const int64_t>(kTwo, two ? 4 : 2)));
    const Tensor own = line(mean, 0);
    if (k == 0 && g.needs(4)) d.at[4] = own * n;
    for (int64_t i = 0; i < 1 + two; ++i) sums.push_back(line(cov, i) + own * line(mean, i + 1));
  }
  if (g.needs(0)) d.at[0] = lines(sums) * n;
  if (g.needs(4) && !g.needs(0)) d.at[4] = line(channel_moments(g.dout())[0], 0) * n;
  return d;
}

Results norm(const Call& c) {
  const Operands t(c, 0, 0);
  const ChannelParams p = with_eps(c, 3);
  const Tensor weight = numbers(c, 1, t.channels, 1), bias = numbers(c, 2, t.channels, 0);
  const int64_t channels[] = {t.channels};
  const Tensor out = c.cx.empty(c.tensor(0).shape(), t.at[0].dtype());
  if (out.numel() == 0) return {c.cx.contiguous(out, c.tensor(0).dtype()), nothing(c, channels), nothing(c, channels)};
  const Tensor mean = c.cx.empty(channels, kNumbers), var = c.cx.empty(channels, kNumbers);
  launch(c.cx, GW_KERNEL(channel_norm), {out.view(), mean.view(), var.view()},
         {t.at[0].view(), weight.view(), bias.view()}, &p);
  return {c.cx.contiguous(out, c.tensor(0).dtype()), mean, var};
}

Grads norm_vjp(const Vjp& g) {
  Grads d;
  const double n = each(g.shape(0));
  const Tensor weight = g.has_in(1) ? g.in(1) : Tensor();
  if (g.has(0)) {
    const auto [dx, sums] = channel_norm_backward(g.dout(0), g.in(0), weight, g.scalar(3).real());
    d.at[0] = dx;
    if (g.needs(1)) d.at[1] = line(sums, 0);
    if (g.needs(2)) d.at[2] = line(sums, 1);
  }
  if (g.needs(0) && (g.has(1) || g.has(2))) {
    const Tensor slope = g.dout(2) * (2 / n);
    const Tensor more = mixed(g.dout(1) / n - slope * g.out(1), {slope}, {g.in(0)});
    d.at[0] = d.at[0] ? d.at[0] + more : more;
  }
  return d;
}

Results norm_backward(const Call& c) {
  const Operands t(c, 0, 1);
  const ChannelParams p = with_eps(c, 3);
  const Tensor weight = numbers(c, 2, t.channels, 1);
  const int64_t two[] = {2, t.channels};
  const Tensor out = c.cx.empty(c.tensor(0).shape(), t.at[0].dtype());
  if (out.numel() == 0) return {c.cx.contiguous(out, c.tensor(0).dtype()), c.cx.full(two, 0, kNumbers)};
  const Tensor sums = c.cx.empty(two, kNumbers);
  launch(c.cx, GW_KERNEL(channel_norm_backward), {out.view(), sums.view()},
         {t.at[0].view(), t.at[1].view(), weight.view()}, &p);
  return {c.cx.contiguous(out, c.tensor(0).dtype()), sums};
}

// With y = (x - mean) r, r = 1 / sqrt(var + eps), cov for means of products of what is left without the mean, and the
// three results dx = w r (g - mean g - y cov(g, y)), dw = sum g y and db = sum g, of which u, s and t are the
// gradients:
Grads norm_backward_vjp(const Vjp& v) {
  Grads d;
  const int64_t channels = v.shape(0)[1];
  const double n = each(v.shape(0));
  const Tensor &u = v.dout(0), g = v.in(0), x = v.in(1);
  const Tensor s = v.has(1) ? line(v.dout(1), 0) : zeros(v.cx, channels),
               t = v.has(1) ? line(v.dout(1), 1) : zeros(v.cx, channels);
  const Tensor w = v.has_in(2) ? cast(v.in(2), kNumbers) : zeros(v.cx, channels) + 1;
  static constexpr int64_t kPairs[] = {0, 1, 0, 2, 1, 2, 2, 2};
  const auto [mean, cov] = channel_moments(u, g, x, Ints(std::span<const int64_t>(kPairs)));
  const Tensor mean_u = line(mean, 0), mean_g = line(mean, 1), mean_x = line(mean, 2);
  const Tensor r = rsqrt(line(cov, 3) + v.scalar(3).real());
  const Tensor along_g = line(cov, 2) * r, along_u = line(cov, 1) * r;  // cov(g, y), cov(u, y)
  const Tensor rest = line(cov, 0) - along_u * along_g, wr = w * r;
  if (v.needs(0)) {
    const Tensor by_x = (s - wr * along_u) * r;
    d.at[0] = mixed(t - wr * mean_u - by_x * mean_x, {wr, by_x}, {u, x});
  }
  if (v.needs(1)) {
    const Tensor by_u = -(wr * r * along_g), by_g = (s - wr * along_u) * r;
    const Tensor by_x = -(r * r * (s * along_g + wr * (rest - 2 * (along_u * along_g))));
    d.at[1] = mixed(-(by_u * mean_u + by_g * mean_g + by_x * mean_x), {by_u, by_g, by_x}, {u, g, x});
  }
  if (v.needs(2)) d.at[2] = r * rest * n;
  return d;
}

constexpr OpDef kRows[] = {
    {
        .sig = "channel_moments(Tensor a, Tensor? b=None, Tensor? c=None, int[] pairs=[]) -> (Tensor mean, Tensor cov)",
        .doc = "Of up to three tensors [N, C, ...] of one shape the mean of each channel, and for each pair of numbers "
               "in pairs, which count the tensors from 0, the mean of the product of what is left of the two without "
               "their means. float64.",
        .compute = moments,
        .saves = {in(0), in(1), in(2), out(0)},
        .vjp = moments_vjp,
        .samples = {"f(2, 2, 3); f(2, 2, 3); f(2, 2, 3); (0, 1, 0, 2, 2, 2)", "f(3, 2); c=f(3, 2); pairs=(0, 1)",
                    "f(2, 3, 2, 2)"},
    },
    {
        .sig = "channel_mix(Tensor factors, Tensor a, Tensor? b=None, Tensor? c=None, Tensor? constant=None) -> Tensor",
        .doc =
            "constant + factors[0] * a + factors[1] * b + factors[2] * c, with one number [C] for each channel of up "
            "to three tensors [N, C, ...] of one shape.",
        .compute = mix,
        .saves = {in(0), in(1), in(2), in(3)},
        .vjp = mix_vjp,
        .examples = {{"[[10., 0.]]; [[1., 1.], [3., 3.]]; constant=[1., 2.]", "[[11., 2.], [31., 2.]]"}},
        .samples = {"f(3, 2); f(2, 2, 3); f(2, 2, 3); f(2, 2, 3); f(2)", "f(2, 2); f(3, 2); c=f(3, 2)",
                    "f(1, 3); f(2, 3, 2); constant=f(3)"},
    },
    {
        .sig = "channel_norm(Tensor input, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> (Tensor output, "
               "Tensor mean, Tensor var)",
        .doc = "(input - mean) / sqrt(var + eps) * weight + bias, with the mean and the biased variance of each "
               "channel of input [N, C, ...], which come too, in float64. What batch_norm does in training.",
        .compute = norm,
        .saves = {in(0), in(1), out(1)},
        .vjp = norm_vjp,
        .samples = {"f(3, 2); f(2); f(2)", "f(2, 2, 3); f(2)", "f(2, 3, 2, 2)"},
    },
    {
        .sig = "channel_norm_backward(Tensor grad, Tensor input, Tensor? weight=None, float eps=1e-05) -> (Tensor "
               "input_grad, Tensor sums)",
        .doc = "The gradient of channel_norm's output for its input, and [2, C] those for weight and bias.",
        .compute = norm_backward,
        .saves = {in(0), in(1), in(2)},
        .vjp = norm_backward_vjp,
        .samples = {"f(3, 2); f(3, 2); f(2)", "f(2, 2, 3); f(2, 2, 3); f(2)", "f(2, 3, 2, 2); f(2, 3, 2, 2)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kChannelOps = kRows;

}  // namespace gradwire::engine
