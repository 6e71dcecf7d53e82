// Elements picked and placed by index tensors along a dim. Indexes are checked before anything is written.
#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/kernels.h"
#include "engine/pick.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "engine/slices.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr OpDef kRows[] = {
    {
        .sig = "index_select(Tensor self, int dim, Tensor index) -> Tensor",
        .doc = "The slices along a dim that a vector of indexes (int32 or int64, not negative) names.",
        .compute = selected_slices,
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads { return {{index_add_(zeros_for(g), g.integer(1), g.in(2), g.dout())}}; },
        .examples = {{"[[1., 2.], [3., 4.]]; 0; [1, 1]", "[[3., 4.], [3., 4.]]"}},
        .samples = {"f(3, 2); 0; i3(4)", "f(2, 3); -1; i3(2)", "f(2); 0; i2()", "f(); 0; [0]", "f(2, 3); 0; i2(0)"},
    },
    {
        .sig = "gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
        .doc =
            "out[i][j] = self[index[i][j]][j] for dim 0, likewise for others. index (int64) has as many dims as self, "
            "and is no larger but along the dim.",
        .compute = gathered,
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads { return {{scatter_add_(zeros_for(g), g.integer(1), g.in(2), g.dout())}}; },
        .examples = {{"[[1, 2], [3, 4]]; 1; [[0, 0], [1, 0]]", "[[1, 1], [4, 3]]"}},
        .samples = {"f(3, 2); 0; i3(4, 2)", "f(2, 3); -1; i3(1, 5)", "f(3); 0; i3(2)", "f(2, 3); 1; i3(0, 2)"},
    },
    {
        .sig = "scatter(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
        .inplace = true,
        .doc =
            "self with self[index[i][j]][j] = src[i][j] for dim 0, likewise for others. Where a place is named twice "
            "the last one in row-major order stays.",
        .write = [](const Call& c, const Tensor& t) { scatter_into(c, t, &c.tensor(3), Tensor(), false); },
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = scatter(g.dout(), g.integer(1), g.in(2), 0);
          if (g.needs(3)) d.at[3] = of_src(g);
          return d;
        },
        .examples = {{"[1., 2., 3.]; 0; [2, 0]; [8., 9.]", "[9., 2., 8.]"}},
        .samples = {"f(3, 3); 0; [[0, 2, 1]]; f(1, 3)", "f(2, 3); -1; [[2, 0], [1, 2]]; f(2, 3)",
                    "f(3); 0; i3(0); f(2)"},
    },
    {
        .sig = "scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
        .inplace = true,
        .doc = "self with self[index[i][j]][j] = value for dim 0, likewise for others.",
        .write = [](const Call& c,
                    const Tensor& t) { scatter_into(c, t, nullptr, number(c, c.scalar(3), t.dtype()), false); },
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads { return {{scatter(g.dout(), g.integer(1), g.in(2), 0)}}; },
        .examples = {{"[1., 2., 3.]; 0; [2, 0]; 9", "[9., 2., 9.]"}},
        .samples = {"f(3, 3); 0; i3(2, 3); 1.5", "f(3); 0; i3(0); 2"},
    },
    {
        .sig = "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
        .inplace = true,
        .doc = "self with self[index[i][j]][j] += src[i][j] for dim 0, likewise for others.",
        .write = [](const Call& c, const Tensor& t) { scatter_into(c, t, &c.tensor(3), Tensor(), true); },
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          d.at[0] = g.dout();
          if (g.needs(3)) d.at[3] = of_src(g);
          return d;
        },
        .examples = {{"[1., 2., 3.]; 0; [2, 2]; [8., 9.]", "[1., 2., 20.]"}},
        .samples = {"f(3, 3); 0; i3(4, 2); f(4, 3)", "f(2, 3); -1; i3(1, 5); f(1, 5)", "f(); 0; [0, 0]; f(2)",
                    "f(3); 0; i3(0); f(2)"},
    },
    {
        .sig = "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "self with alpha times the slices of source added to those along a dim that the vector index names.",
        .write = add_slices,
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          d.at[0] = g.dout();
          if (g.needs(3)) {
            const Tensor picked = index_select(g.dout(), g.integer(1), g.in(2));
            d.at[3] = g.scalar(4).real() == 1 ? picked : picked * g.scalar(4);
            const bool spread = g.shape(0).empty() && !g.shape(3).empty();
            d.at[3] = spread ? expand(d.at[3], Ints(g.shape(3))) : reshape(d.at[3], Ints(g.shape(3)));
          }
          return d;
        },
        .examples = {{"[0., 0., 0.]; 0; [0, 0, 2]; [1., 2., 3.]", "[3., 0., 3.]"}},
        .samples = {"f(3, 2); 0; i3(4); f(4, 2)", "f(2, 3); -1; i3(2); f(2, 2); alpha=2", "f(3); 0; i3(); f(1)",
                    "f(2, 3); 0; i2(0); f(0, 3)"},
    },
    {
        .sig = "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
        .inplace = true,
        .doc = "self with the slices of source in place of those along a dim that the vector index (int64) names; the "
               "last one stays.",
        .write = copy_slices,
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = index_fill(g.dout(), g.integer(1), g.in(2), 0);
          if (g.needs(3)) d.at[3] = reshape(index_select(g.dout(), g.integer(1), g.in(2)), Ints(g.shape(3)));
          return d;
        },
        .examples = {{"[1., 2., 3.]; 0; [2, 0]; [8., 9.]", "[9., 2., 8.]"}},
        .samples = {"f(3, 2); 0; [2, 0]; f(2, 2)", "f(2, 3); -1; [1]; f(2, 1)", "f(); 0; [0]; f(1)",
                    "f(2, 3); 0; i2(0); f(0, 3)"},
    },
    {
        .sig = "index_fill(Tensor self, int dim, Tensor index, Operand value) -> Tensor",
        .inplace = true,
        .doc = "self with value, a number or a tensor without dims, in the slices along a dim that the vector index "
               "(int64, negative ones from the end) names.",
        .write = fill_slices,
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = index_fill(g.dout(), g.integer(1), g.in(2), 0);
          if (g.needs(3)) d.at[3] = sum(overwritten(g));
          return d;
        },
        .examples = {{"[1., 2., 3.]; 0; [2, 0]; 9", "[9., 2., 9.]"}},
        .samples = {"f(3, 2); 0; [2, 0]; 1.5", "f(2, 3); -1; [-1]; f()", "f(); 0; [0]; 2", "f(2, 3); 0; i2(0); f()"},
    },
    {
        .sig = "take(Tensor self, Tensor index) -> Tensor",
        .doc = "The elements that index (int64, negative ones from the end) names in row-major order, in its shape.",
        .compute = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &index = c.tensor(1);
          if (index.dtype() != DType::int64) {
            throw Error(Code::dtype_mismatch,
                        std::string("take(): Expected a long tensor for index, but got ") + row(index.dtype()).torch);
          }
          if (x.numel() == 0 && index.numel() > 0)
            throw Error(Code::index_out_of_range, "take(): tried to take from an empty tensor");
          LinearIndexParams p{};
          p.refuse = outside_all;
          const Tensor at = places(c.cx, index, p, 0, x.numel(), 1), flat = c.cx.contiguous(x);
          const Tensor out = c.cx.empty(index.shape(), x.dtype());
          const Shape shape(index.shape()), still(shape.size(), 0), steps(at.strides());
          if (out.numel() > 0)
            launch(c.cx, GW_KERNEL(take), {out.view()}, {at_result(flat, shape, still), at_result(at, shape, steps)});
          return out;
        },
        .saves = {in(1)},
        .vjp = [](const Vjp& g) -> Grads { return {{put_(zeros_for(g), g.in(1), g.dout(), true)}}; },
        .examples = {{"[[4, 3, 5], [6, 7, 8]]; [0, 2, 5]", "[4, 5, 8]"}},
        .samples = {"f(2, 3); i6(4)", "f(3); [[-1, 0]]", "f(2, 3); i6(0)"},
    },
    {
        .sig = "put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
        .inplace = true,
        .doc = "self with the elements of source where index (int64, negative ones from the end) names places in "
               "row-major order, or added to them.",
        .write =
            [](const Call& c, const Tensor& target) {
              const Tensor &index = c.tensor(1), &source = c.tensor(2);
              if (source.dtype() != target.dtype()) {
                throw Error(
                    Code::dtype_mismatch,
                    std::string("put_(): self and source expected to have the same dtype, but got self.dtype = ") +
                        row(target.dtype()).torch + " and source.dtype = " + row(source.dtype()).torch);
              }
              if (index.dtype() != DType::int64) {
                throw Error(Code::dtype_mismatch, std::string("put_(): Expected a long tensor for index, but got ") +
                                                      row(index.dtype()).torch);
              }
              if (index.numel() != source.numel()) {
                throw Error(Code::shape_mismatch,
                            "put_(): Expected source and index to have the same number of elements, but got "
                            "source.numel() = " +
                                std::to_string(source.numel()) + ", index.numel() = " + std::to_string(index.numel()));
              }
              if (target.numel() == 0 && index.numel() > 0)
                throw Error(Code::index_out_of_range, "put_(): tried to put elements into an empty tensor");
              LinearIndexParams p{};
              p.refuse = outside_all;
              const Tensor at = places(c.cx, index, p, 0, target.numel(), 1);
              const bool own = target->contiguous && source->storage != target->storage;
              const Tensor flat = target->contiguous ? target : copy_of(c.cx, target);
              const Tensor values = own ? c.cx.contiguous(source) : copy_of(c.cx, source);
              const Shape line{index.numel()}, step{1}, still{0};
              put_at(c.cx, line, {flat, still}, {at, step}, {values, step}, c.flag(3));
              if (flat.get() != target.get()) c.cx.copy(target, flat);
            },
        .saves = {in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) {
            d.at[0] = g.flag(3) ? g.dout() : put(g.dout(), g.in(1), g.cx.full(g.in(1).shape(), 0, g.dout().dtype()));
          }
          if (g.needs(2)) d.at[2] = reshape(take(g.dout(), g.in(1)), Ints(g.shape(2)));
          return d;
        },
        .examples = {{"[1., 2., 3.]; [2, 0]; [8., 9.]", "[9., 2., 8.]"}},
        .samples = {"f(2, 3); [5, 0, -2]; f(3)", "f(2, 3); i6(4); f(2, 2); True", "f(3); i3(0); f(0)"},
    },
    {
        .sig = "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
        .doc = "gather with self and indices broadcast against each other but along the dim; without one, take.",
        .compose = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &index = c.tensor(1);
          if (index.dtype() != DType::int64) {
            throw Error(Code::dtype_mismatch,
                        std::string("torch.take_along_dim(): dtype of indices should be Long but got ") +
                            row(index.dtype()).torch);
          }
          if (!c.has(2)) return gather(reshape(x, {x.numel()}), 0, reshape(index, {index.numel()}));
          if (x.ndim() != index.ndim()) {
            throw Error(
                Code::shape_mismatch,
                "torch.take_along_dim(): input and indices should have the same number of dimensions, but got " +
                    std::to_string(x.ndim()) + " dimensions for input, and " + std::to_string(index.ndim()) +
                    " dimensions for indices");
          }
          const auto d = static_cast<size_t>(wrap_dim(c.integer(2), x.ndim()));
          if (x.ndim() == 0) return gather(x, 0, index);
          Shape a(x.shape()), b(index.shape());
          a[d] = b[d] = 1;
          Shape wide = broadcast_shapes(a, b), to = wide;
          wide[d] = x.shape()[d], to[d] = index.shape()[d];
          return gather(expand(x, wide), static_cast<int64_t>(d), expand(index, to));
        },
        .examples = {{"[[1., 2.], [3., 4.]]; [[1]]; 1", "[[2.], [4.]]"}},
        .samples = {"f(2, 3); i3(1, 2); 1", "f(2, 3); i6(4)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kSelectOps = kRows;

}  // namespace gradwire::engine
