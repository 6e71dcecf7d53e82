// Losses of an input and a target of its shape, and cross entropy.
#include <algorithm>

#include "engine/apply.h"
#include "engine/draws.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// `reduction` of the losses one by one.
Tensor reduced(const Call& c, int i, const Tensor& each) {
  const std::string_view how = c.text(i);
  if (how == "none") return each;
  if (how == "sum") return sum(each);
  if (how == "mean") return mean(each);
  throw Error(Code::bad_argument, std::string(how.substr(0, 64)) + " is not a valid value for reduction");
}

// input and target broadcast; another shape is worth a warning.
void warn_of_sizes(const Call& c) {
  const Tensor &x = c.tensor(0), &t = c.tensor(1);
  if (std::ranges::equal(x.shape(), t.shape())) return;
  c.cx.warn(c.row.name(), "Using a target size (torch.Size(" + to_string(t.shape()) +
                              ")) that is different to the input size (torch.Size(" + to_string(x.shape()) +
                              ")). This will likely lead to incorrect results due to broadcasting. "
                              "Please ensure they have the same size.");
}

void check_same_size(const Call& c) {
  const Tensor &x = c.tensor(0), &t = c.tensor(1);
  if (std::ranges::equal(x.shape(), t.shape())) return;
  throw Error(Code::shape_mismatch, "Target size (torch.Size(" + to_string(t.shape()) +
                                        ")) must be the same as input size (torch.Size(" + to_string(x.shape()) + "))");
}

Results smooth(const Call& c, double edge, bool divide) {
  check_floating(c.tensor(0).dtype(), c.row.name().c_str());
  warn_of_sizes(c);
  const Tensor d = c.tensor(0) - c.tensor(1), a = abs(d);
  if (edge == 0) return reduced(c, 2, divide ? a : a * 0);
  const Tensor near = d * d * 0.5, far = (a - 0.5 * edge) * edge, each = where(lt(a, edge), near, far);
  return reduced(c, 2, divide ? each / edge : each);
}

// -log p, weighted, of classes: [N, C, d...] or [C].
Results cross(const Call& c) {
  const Tensor &x = c.tensor(0), &target = c.tensor(1);
  check_floating(x.dtype(), "cross_entropy");
  if (x.ndim() == 0) throw Error(Code::shape_mismatch, "cross_entropy: the input needs a dim of classes");
  const int dim = x.ndim() > 1 ? 1 : 0;
  const int64_t classes = x.size(dim);
  const Tensor weight = c.has(2) ? c.tensor(2) : Tensor();
  const int64_t ignore = c.integer(4);
  const std::string_view how = c.text(6);
  const double smoothing = c.scalar(7).real();
  if (!(smoothing >= 0 && smoothing <= 1)) {
    throw Error(Code::bad_argument, "label_smoothing must be between 0.0 and 1.0. Got: " + std::to_string(smoothing));
  }
  if (how != "none" && how != "sum" && how != "mean")
    throw Error(Code::bad_argument, std::string(how.substr(0, 64)) + " is not a valid value for reduction");
  const Tensor p = log_softmax(x, dim);
  if (weight && weight.numel() != classes) {
    throw Error(Code::shape_mismatch, "cross_entropy: weight tensor should be defined either for all " +
                                          std::to_string(classes) +
                                          " classes or no classes but got weight tensor of "
                                          "shape: " +
                                          to_string(weight.shape()));
  }
  Shape along(x.shape().size(), 1);
  along[static_cast<size_t>(dim)] = classes;
  if (is_floating(target.dtype())) {  // probabilities of classes
    check_same_size(c);
    const Tensor t = smoothing > 0 ? target * (1 - smoothing) + smoothing / static_cast<double>(classes) : target;
    const Tensor weighted = weight ? p * reshape(weight, along) : p;
    const Tensor each = -sum(weighted * t, dim);
    if (how == "none") return each;
    const Tensor total = sum(each);
    if (how == "sum") return total;
    const int64_t images = classes == 0 ? 0 : x.numel() / classes;
    return total / static_cast<double>(images);
  }
  if (smoothing == 0) return nll_loss(p, target, {.weight = weight, .ignore_index = ignore, .reduction = how});
  const Tensor hard = nll_loss(p, target, {.weight = weight, .ignore_index = ignore, .reduction = how});
  Tensor soft = -sum(weight ? p * reshape(weight, along) : p, dim);
  soft = masked_fill(soft, eq(target, ignore), 0);
  const double share = smoothing / static_cast<double>(classes);
  if (how == "none") return hard * (1 - smoothing) + soft * share;
  Tensor total = sum(soft);
  if (how == "mean") {
    const Tensor ones = expand(c.cx.full({}, -1, x.dtype()), Ints(x.shape()));
    total = total / nll_loss(ones, target, {.weight = weight, .ignore_index = ignore, .reduction = "sum"});
  }
  return hard * (1 - smoothing) + total * share;
}

constexpr OpDef kRows[] = {
    {
        .sig = "mse_loss(Tensor input, Tensor target, str reduction='mean') -> Tensor",
        .doc = "(input - target) squared; the mean of all, their sum, or each ('none').",
        .compose = [](const Call& c) -> Results {
          check_floating(c.tensor(0).dtype(), "mse_loss");
          warn_of_sizes(c);
          const Tensor d = c.tensor(0) - c.tensor(1);
          return reduced(c, 2, d * d);
        },
        .examples = {{"[1., 2.]; [1., 4.]", "2."}, {"[1., 2.]; [1., 4.]; 'none'", "[0., 4.]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(4); f(4); 'sum'", "f(0); f(0); 'none'"},
    },
    {
        .sig = "l1_loss(Tensor input, Tensor target, str reduction='mean') -> Tensor",
        .doc = "abs(input - target); the mean of all, their sum, or each ('none').",
        .compose = [](const Call& c) -> Results {
          warn_of_sizes(c);
          const Tensor &x = c.tensor(0), &t = c.tensor(1);
          // without a sign a difference would wrap
          const bool whole = x.dtype() == DType::uint8 && t.dtype() == DType::uint8;
          return reduced(c, 2, whole ? maximum(x, t) - minimum(x, t) : abs(x - t));
        },
        .examples = {{"[1., 2.]; [1., 4.]", "1."}},
        .samples = {"f(2, 3); f(2, 3)", "f(4); f(4); 'sum'"},
    },
    {
        .sig = "smooth_l1_loss(Tensor input, Tensor target, str reduction='mean', float beta=1.0) -> Tensor",
        .doc = "With d = abs(input - target): d * d / 2 / beta below beta, and d - beta / 2 from there on.",
        .compose = [](const Call& c) -> Results {
          const double beta = c.scalar(3).real();
          if (!(beta >= 0))
            throw Error(Code::bad_argument, "smooth_l1_loss does not support negative values for beta.");
          return smooth(c, beta, true);
        },
        .examples = {{"[1., 2.]; [1.5, 4.]; 'none'", "[0.125, 1.5]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(4); f(4); 'sum'; 0.7"},
    },
    {
        .sig = "huber_loss(Tensor input, Tensor target, str reduction='mean', float delta=1.0) -> Tensor",
        .doc = "With d = abs(input - target): d * d / 2 below delta, and delta * (d - delta / 2) from there on.",
        .compose = [](const Call& c) -> Results {
          const double delta = c.scalar(3).real();
          if (!(delta > 0))
            throw Error(Code::bad_argument, "huber_loss does not support non-positive values for delta.");
          return smooth(c, delta, false);
        },
        .examples = {{"[1., 2.]; [1.5, 4.]; 'none'", "[0.125, 1.5]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(4); f(4); 'sum'; 0.7"},
    },
    {
        .sig = "binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, str reduction='mean') -> Tensor",
        .doc = "-(target * log(input) + (1 - target) * log(1 - input)) * weight, each logarithm at least -100.",
        .compose = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &t = c.tensor(1);
          check_floating(x.dtype(), "binary_cross_entropy");
          if (!std::ranges::equal(x.shape(), t.shape())) {
            throw Error(Code::shape_mismatch, "Using a target size (torch.Size(" + to_string(t.shape()) +
                                                  ")) that is different to the input size (torch.Size(" +
                                                  to_string(x.shape()) +
                                                  ")) is deprecated. Please ensure they have the same size.");
          }
          const auto outside = logical_or(lt(detach(x), 0), gt(detach(x), 1));
          if (item(any(outside)).b) {
            throw Error(Code::bad_argument, "all elements of input should be between 0 and 1");
          }
          Tensor each = -(t * clamp_min(log(x), -100) + (1 - t) * clamp_min(log1p(-x), -100));
          if (c.has(2)) each = each * c.tensor(2);
          return reduced(c, 3, each);
        },
        .examples = {{"[0.5, 0.5]; [1., 0.]", "0.6931472"}},
        .samples = {"f(0); f(0); reduction='sum'"},
    },
    {
        .sig =
            "binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, str reduction='mean', "
            "Tensor? pos_weight=None) -> Tensor",
        .doc = "binary_cross_entropy of sigmoid(input), without overflow; pos_weight counts for the targets of 1.",
        .compose = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &t = c.tensor(1);
          check_floating(x.dtype(), "binary_cross_entropy_with_logits");
          check_same_size(c);
          // log(1 + exp(-x)) = max(-x, 0) + log1p(exp(-abs(x)))
          const Tensor tail = log1p(exp(-abs(x))) + relu(-x);
          Tensor each = c.has(4) ? (1 - t) * x + ((c.tensor(4) - 1) * t + 1) * tail : (1 - t) * x + tail;
          if (c.has(2)) each = each * c.tensor(2);
          return reduced(c, 3, each);
        },
        .examples = {{"[0., 0.]; [1., 0.]", "0.6931472"}},
        .samples = {"f(2, 3); f(2, 3)", "f(4); f(4); f(4); 'sum'; p(4)"},
    },
    {
        .sig = "kl_div(Tensor input, Tensor target, str reduction='mean', bool log_target=False) -> Tensor",
        .doc =
            "target * (log(target) - input), with log_target exp(target) * (target - input); 'batchmean' divides the "
            "sum by the first size.",
        .compose = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &t = c.tensor(1);
          check_floating(x.dtype(), "kl_div");
          Tensor each;
          if (c.flag(3)) {
            each = exp(t) * (t - x);
          } else {  // 0 log 0 is 0
            const Tensor positive = gt(t, 0);
            each = where(positive, t * log(where(positive, t, 1)), where(eq(t, 0), 0, log(t))) - t * x;
          }
          if (c.text(2) != "batchmean") return reduced(c, 2, each);
          if (x.ndim() == 0) throw Error(Code::shape_mismatch, "kl_div: 'batchmean' needs a batch dim");
          return sum(each) / x.size(0);
        },
        .examples = {{"[0., 0.]; [1., 0.]", "0."}},
        .samples = {"f(2, 3); p(2, 3)", "f(2, 3); f(2, 3); 'batchmean'; True"},
    },
    {
        .sig = "cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int "
               "ignore_index=-100, bool? reduce=None, str reduction='mean', float label_smoothing=0.0) -> Tensor",
        .doc =
            "nll_loss of log_softmax(input) over the classes (dim 1, or the only one). The target has class numbers, "
            "or in input's shape probabilities.",
        .compose = cross,
        .examples = {{"[[0., 0.], [0., 0.]]; [0, 1]", "0.6931472"}, {"[[0., 0.]]; [[0.5, 0.5]]", "0.6931472"}},
        .samples = {"f(4, 5); i5(4)", "f(4, 5); i5(4); p(5); reduction='sum'; label_smoothing=0.1",
                    "f(2, 5, 3); i5(2, 3); reduction='none'; label_smoothing=0.2", "f(4, 5); f(4, 5)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kDistanceOps = kRows;

}  // namespace gradwire::engine
