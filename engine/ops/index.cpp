// x[...] with every kind of index, and writing through it. Integers, slices and new axes make a view; index tensors,
// masks and nested lists pick elements, whose places are computed and checked once, for reading and for writing.
#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/pick.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

Results read(const Call& c) {
  const Picked p = pick(c.cx, c.tensor(0), c.index(1));
  if (!p.offsets) return p.view;
  const Tensor out = c.cx.empty(p.result, c.tensor(0).dtype());
  if (out.numel() > 0) {
    launch(c.cx, GW_KERNEL(take), {out.view()},
           {at_result(p.view, p.result, p.self_strides), at_result(p.offsets, p.result, p.offset_strides)});
  }
  return out;
}

constexpr OpDef kRows[] = {
    {
        .sig = "index(Tensor self, Index[] index) -> Tensor",
        .doc = "self[...]: integers, slices, '...', new axes, true and false, index tensors and lists, masks. A view "
               "as long "
               "as nothing is picked; neighbouring index lists are replaced where they stand (also around an empty "
               "'...'), others "
               "move to the front.",
        .view = read,
        .vjp = [](const Vjp& g) -> Grads {
          return {{index_backward(g.dout(), Ints(g.shape(0)), Indices<Tensor>(g.index(1)))}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]; {1}", "[3., 4.]"},
                     {"[[1., 2.], [3., 4.]]; {0:2, [1, 0]}", "[[2., 1.], [4., 3.]]"},
                     {"[1, 2, 3]; {[True, False, True]}", "[1, 3]"}},
        .samples = {"f(4, 3); {1:3, None, ...}", "f(4, 3); {[0, 0, 2], [1, 1, 2]}", "f(3); {[True, False, True]}",
                    "f(2, 3, 4); {[0, 1], 0:3, [2, 3]}", "f(3); {0:0}"},
    },
    {
        .sig = "index_backward(Tensor grad, int[] size, Index[] index) -> Tensor",
        .doc = "Zeros of that size with grad added up where the index reads: the gradient of index.",
        .compute = [](const Call& c) -> Results {
          const Tensor out = c.cx.full(c.ints(1), 0, c.tensor(0).dtype());
          assign_picked(c.cx, out, c.index(2), c.tensor(0), true);
          return out;
        },
        .vjp = [](const Vjp& g) -> Grads { return {{gradwire::index(g.dout(), Indices<Tensor>(g.index(2)))}}; },
        .examples = {{"[1., 2.]; (3); {[0, 0]}", "[3., 0., 0.]"}},
        .samples = {"f(2, 3); (4, 3); {1:3}", "f(3); (4, 3); {[0, 0, 2], [1, 1, 2]}"},
    },
    {
        .sig = "index_put(Tensor self, Index[] index, Operand values, bool accumulate=False) -> Tensor",
        .inplace = true,
        .doc = "self with self[index] = values, or += with accumulate. Values broadcast to what the index names. Where "
               "a place "
               "is named twice the last value in row-major order stays, or all add up.",
        .write =
            [](const Call& c, const Tensor& target) {
              Tensor value = c.is_tensor(2) ? c.tensor(2) : c.cx.full({}, c.scalar(2), target.dtype());
              assign_picked(c.cx, target, c.index(1), std::move(value), c.flag(3));
            },
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = g.flag(3) ? g.dout() : index_put(g.dout(), Indices<Tensor>(g.index(1)), 0);
          if (g.needs(2)) {
            d.at[2] = gradwire::index(g.dout(), Indices<Tensor>(g.index(1)));
            std::span<const int64_t> shape = g.shape(2);
            if (shape.size() > d.at[2].shape().size()) {  // leading sizes of 1 were dropped
              d.at[2] = reshape(sum_to(g.cx, d.at[2], shape.last(d.at[2].shape().size())), Ints(shape));
            }
          }
          return d;
        },
        .examples = {{"[1., 2., 3.]; {[0, 2]}; 9.", "[9., 2., 9.]"}, {"[1, 1]; {[0, 0]}; [2, 3]; True", "[6, 1]"}},
        .samples = {"f(4, 3); {1:3}; f(2, 3)", "f(4, 3); {[0, 2], [1, 2]}; f(2)", "f(4, 3); {[0, 0]}; f(3); True",
                    "f(3); {[True, False, True]}; f(1)", "f(4); {1}; f(1, 1)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kIndexOps = kRows;

}  // namespace gradwire::engine
