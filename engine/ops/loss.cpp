// Losses.
#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// The classes' dim apart: input [N, C, D], target [N, D]; [C] is [1, C, 1].
struct Classes {
  int64_t n = 1, c = 1, d = 1;
  explicit Classes(std::span<const int64_t> input) {
    const size_t at = input.size() == 1 ? 0 : 1;
    if (at) n = input[0];
    c = input[at];
    for (size_t k = at + 1; k < input.size(); ++k) d *= input[k];
  }
};

Shape without_classes(std::span<const int64_t> input) {
  Shape s(input);
  s.erase(input.size() == 1 ? 0 : 1);
  return s;
}

// The weight's view: stride 0 over a single 1 where there is none.
Tensor weight_of(const Call& c, int i, DType t, int64_t classes) {
  if (!c.has(i)) return c.cx.full(Shape{1}, 1, t);
  const Tensor& w = c.tensor(i);
  if (w.ndim() != 1 || w.size(0) != classes) {
    throw Error(Code::shape_mismatch,
                "weight tensor should be defined either for all " + std::to_string(classes) +
                    " classes or no classes but got weight tensor of shape: " + to_string(w.shape()));
  }
  if (w.dtype() != t)
    throw Error(Code::dtype_mismatch,
                std::string("expected scalar type ") + row(t).torch + " but found " + row(w.dtype()).torch);
  return w;
}

Tensor spread_weight(const Call& c, const Tensor& w, int64_t classes) {
  return w.size(0) == classes ? w : c.cx.alias(w, Shape{classes}, Shape{0}, w->offset);
}

void check_floating(const Tensor& x) {
  if (is_floating(x.dtype())) return;
  throw Error(Code::dtype_mismatch,
              std::string("\"nll_loss_out_frame\" not implemented for '") + row(x.dtype()).torch + "'");
}

void check_input(const Tensor& x) {
  if (x.ndim() == 0) throw Error(Code::shape_mismatch, "nll_loss: expected input to have at least one dimension");
  check_floating(x);
}

const Tensor& checked_target(const Call& c, const Tensor& target, const Shape& want) {
  if (target.dtype() != DType::int64)
    throw Error(Code::dtype_mismatch, std::string("expected scalar type Long but found ") + row(target.dtype()).torch);
  if (!std::ranges::equal(target.shape(), std::span<const int64_t>(want))) {
    throw Error(Code::shape_mismatch, "Expected target size " + to_string(want) + ", got " + to_string(target.shape()));
  }
  (void)c;
  return target;
}

constexpr OpDef kRows[] = {
    {
        .sig = "nll_pick(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100) -> Tensor",
        .doc = "-weight[t] * input[n, t, ...] for each target t; 0 where it is ignore_index. What nll_loss adds up.",
        .compute = [](const Call& c) -> Results {
          const Tensor x = c.cx.contiguous(c.tensor(0));
          check_input(x);
          const Classes k(x.shape());
          const Tensor target = c.cx.contiguous(checked_target(c, c.tensor(1), without_classes(x.shape())));
          const Tensor w = spread_weight(c, weight_of(c, 2, x.dtype(), k.c), k.c),
                       out = c.cx.empty(target.shape(), x.dtype());
          const NllParams params{c.integer(3)};
          const Shape wide{k.n, k.c, k.d}, flat{k.n, k.d}, ws = contiguous_strides(wide), fs = contiguous_strides(flat);
          if (out.numel() > 0) {
            launch(c.cx, GW_KERNEL(nll_pick), {{out.data(), flat.data(), fs.data(), 2, x.dtype()}},
                   {{x.data(), wide.data(), ws.data(), 3, x.dtype()},
                    {target.data(), flat.data(), fs.data(), 2, DType::int64},
                    w.view()},
                   &params);
          }
          return out;
        },
        .saves = {in(0), in(1), in(2)},
        .constant = 2,
        .vjp = [](const Vjp& g) -> Grads {
          return {{nll_spread(g.dout(), g.in(0), g.in(1), g.has_in(2) ? g.in(2) : Tensor(), g.integer(3))}};
        },
        .examples = {{"[[-1., -2.], [-3., -4.]]; [0, 1]", "[1., 4.]"}},
        .samples = {"f(4, 5); i5(4)", "f(4, 5); i5(4); p(5)", "f(2, 5, 3); i5(2, 3)", "f(0, 5); i5(0)"},
    },
    {
        .sig = "nll_spread(Tensor grad, Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100) -> "
               "Tensor",
        .doc = "Zeros in input's shape with -weight[t] * grad at each target t: the gradient of nll_pick.",
        .compute = [](const Call& c) -> Results {
          const Shape size(c.tensor(1).shape());
          if (size.empty()) throw Error(Code::shape_mismatch, "nll_spread: the input needs a dim of classes");
          const Tensor g = c.cx.contiguous(c.tensor(0));
          check_floating(g);
          const Classes k(size);
          const Tensor target = c.cx.contiguous(checked_target(c, c.tensor(2), without_classes(size)));
          if (!std::ranges::equal(g.shape(), target.shape()))
            throw Error(Code::shape_mismatch,
                        "Expected grad size " + to_string(target.shape()) + ", got " + to_string(g.shape()));
          const Tensor w = spread_weight(c, weight_of(c, 3, g.dtype(), k.c), k.c), out = c.cx.empty(size, g.dtype());
          const NllParams params{c.integer(4)};
          const Shape wide{k.n, k.c, k.d}, flat{k.n, k.d}, ws = contiguous_strides(wide), fs = contiguous_strides(flat);
          if (out.numel() > 0) {
            launch(c.cx, GW_KERNEL(nll_spread), {{out.data(), wide.data(), ws.data(), 3, g.dtype()}},
                   {{g.data(), flat.data(), fs.data(), 2, g.dtype()},
                    {target.data(), flat.data(), fs.data(), 2, DType::int64},
                    w.view()},
                   &params);
          }
          return out;
        },
        .saves = {in(2), in(3)},
        .constant = 3,
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = nll_pick(g.dout(), g.in(2), g.has_in(3) ? g.in(3) : Tensor(), g.integer(4));
          if (g.needs(1)) d.at[1] = g.cx.full(g.shape(1), 0, g.dtype(1));
          return d;
        },
        .examples = {{"[1., 2.]; [[0., 0., 0.], [0., 0., 0.]]; [0, 1]", "[[-1., 0., 0.], [0., -2., 0.]]"}},
        .samples = {"f(4); f(4, 5); i5(4)", "f(4); f(4, 5); i5(4); p(5)"},
    },
    {
        .sig = "nll_loss(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int "
               "ignore_index=-100, bool? reduce=None, str reduction='mean') -> Tensor",
        .doc = "The negative log likelihood: -weight[t] * input[n, t, ...], added up ('sum'), divided by the weights "
               "that took part "
               "('mean'), or one by one ('none'). Targets equal to ignore_index take no part; if none is left the mean "
               "is NaN.",
        .compose = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &target = c.tensor(1);
          check_input(x);
          const size_t batch = x.ndim() > 1 ? 1 : 0;
          if (batch && target.ndim() > 0 && target.size(0) != x.size(0)) {
            throw Error(Code::shape_mismatch, "Expected input batch_size (" + std::to_string(x.size(0)) +
                                                  ") to match target batch_size (" + std::to_string(target.size(0)) +
                                                  ").");
          }
          std::string_view reduction = c.text(6);
          if (c.has(3) || c.has(5)) {  // the pair of arguments before `reduction`
            const bool average = !c.has(3) || c.flag(3), any = !c.has(5) || c.flag(5);
            reduction = !any ? "none" : average ? "mean" : "sum";
          }
          if (reduction != "none" && reduction != "sum" && reduction != "mean") {
            throw Error(Code::bad_argument,
                        std::string(reduction.substr(0, 64)) + " is not a valid value for reduction");
          }
          const Tensor weight = c.has(2) ? c.tensor(2) : Tensor();
          const Tensor each = nll_pick(x, target, weight, c.integer(4));
          if (reduction == "none") return each;
          const Tensor total = sum(each);
          if (reduction == "sum") return total;
          const Tensor one = c.cx.full({}, -1, x.dtype());
          return total / sum(nll_pick(expand(one, Ints(x.shape())), target, weight, c.integer(4)));
        },
        .examples = {{"[[-1., -2.], [-3., -4.]]; [0, 1]; [1., 3.]", "3.25"},
                     {"[[-1., -2.], [-3., -4.]]; [0, 1]; reduction='sum'", "5."}},
        .samples = {"f(4, 5); i5(4)", "f(4, 5); i5(4); p(5)", "f(2, 5, 3); i5(2, 3); reduction='sum'",
                    "f(4, 5); i5(4); ignore_index=1; reduction='none'"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kLossOps = kRows;

}  // namespace gradwire::engine
