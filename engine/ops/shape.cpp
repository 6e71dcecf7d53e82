// Views: the same memory under another shape. Gradients take the same way back.
#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

Tensor permuted(Context& cx, const Tensor& x, std::span<const int64_t> dims) {
  Shape shape, strides;
  for (const int64_t d : dims) shape.push_back(x.shape()[d]), strides.push_back(x.strides()[d]);
  return cx.alias(x, shape, strides, x->offset);
}

// The order of dims after checks: each once, none missing.
Shape checked_order(const Tensor& x, std::span<const int64_t> dims) {
  if (static_cast<int>(dims.size()) != x.ndim()) {
    throw Error(Code::shape_mismatch,
                "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                "desired ordering of dimensions i.e. input.dim() = " +
                    std::to_string(x.ndim()) + " is not equal to len(dims) = " + std::to_string(dims.size()));
  }
  Shape order;
  bool seen[kMaxDims] = {};
  for (const int64_t given : dims) {
    const int d = wrap_dim(given, x.ndim());
    if (std::exchange(seen[d], true)) throw Error(Code::bad_argument, "permute(): duplicate dims are not allowed.");
    order.push_back(d);
  }
  return order;
}

void check_strided(const Tensor& x, std::span<const int64_t> size, std::span<const int64_t> stride, int64_t offset) {
  if (size.size() != stride.size()) throw Error(Code::shape_mismatch, "mismatch in length of strides and shape");
  for (const int64_t s : stride) {
    if (s < 0)
      throw Error(Code::bad_argument,
                  "as_strided: Negative strides are not supported at the moment, got strides: " + to_string(stride));
  }
  if (offset < 0) throw Error(Code::bad_argument, "Tensor: invalid storage offset " + std::to_string(offset));
  checked_numel(size);
  const auto e = extent_of(size, stride, offset);
  const int64_t have = static_cast<int64_t>(x->storage->bytes()) / size_of(x.dtype());
  if (e && e->last >= have) {
    throw Error(Code::index_out_of_range,
                "setStorage: sizes " + to_string(size) + ", strides " + to_string(stride) + ", storage offset " +
                    std::to_string(offset) + " require " + std::to_string(static_cast<uint64_t>(e->last) + 1) +
                    " elements, which are out of bounds for storage of size " + std::to_string(have));
  }
}

constexpr OpDef kRows[] = {
    {
        .sig = "view(Tensor self, int[] size) -> Tensor",
        .doc = "self under another shape, without a copy; one -1 is inferred. Refuses where the strides need a copy.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const Shape shape = infer_shape(c.ints(1), x.numel());
          const auto strides = view_strides(x.shape(), x.strides(), shape);
          if (!strides) {
            throw Error(Code::shape_mismatch,
                        "view size is not compatible with input tensor's size and stride (at least one dimension spans "
                        "across two contiguous subspaces). Use .reshape(...) instead.");
          }
          return c.cx.alias(x, shape, *strides, x->offset);
        },
        .vjp = [](const Vjp& g) -> Grads { return {{reshape(g.dout(), Ints(g.shape(0)))}}; },
        .by_strides = true,
        .examples = {{"[1., 2., 3., 4.]; (2, -1)", "[[1., 2.], [3., 4.]]"}},
        .samples = {"f(2, 3); (3, 2)", "f(6); (-1, 2)", "f(); (1)", "f(0, 3); (3, 0)"},
    },
    {
        .sig = "reshape(Tensor self, int[] shape) -> Tensor",
        .doc = "self under another shape: a view where the strides allow it, else a copy; one -1 is inferred.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const Shape shape = infer_shape(c.ints(1), x.numel());
          return view(view_strides(x.shape(), x.strides(), shape) ? x : gradwire::clone(x), shape);
        },
        .examples = {{"[[1., 2.], [3., 4.]]; (-1)", "[1., 2., 3., 4.]"}},
        .samples = {"f(2, 3); (3, 2)", "f(6); (-1, 2)", "f(); (1)", "f(0, 3); (3, 0)"},
    },
    {
        .sig = "expand(Tensor self, int[] size) -> Tensor",
        .doc = "self at a larger shape, without a copy: stride 0 along what is repeated; -1 keeps a size.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          Shape size(c.ints(1));
          if (size.size() < x.shape().size()) {
            throw Error(Code::shape_mismatch,
                        "expand(torch." + std::string(row(x.dtype()).torch) + "Tensor{" + to_string(x.shape()) +
                            "}, size=" + to_string(size) + "): the number of sizes provided (" +
                            std::to_string(size.size()) +
                            ") must be greater or equal to the number of dimensions in the tensor (" +
                            std::to_string(x.ndim()) + ")");
          }
          const size_t more = size.size() - x.shape().size();
          for (size_t d = 0; d < size.size(); ++d) {
            if (size[d] == -1 && d < more) {
              throw Error(Code::shape_mismatch,
                          "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension " +
                              std::to_string(d));
            }
            if (size[d] == -1) size[d] = x.shape()[d - more];
            if (d >= more && size[d] != x.shape()[d - more] && x.shape()[d - more] != 1) {
              throw Error(Code::shape_mismatch,
                          "The expanded size of the tensor (" + std::to_string(size[d]) +
                              ") must match the existing size (" + std::to_string(x.shape()[d - more]) +
                              ") at non-singleton dimension " + std::to_string(d) +
                              ".  Target sizes: " + to_string(size) + ".  Tensor sizes: " + to_string(x.shape()));
            }
          }
          checked_numel(size);
          Shape strides(size.size(), 0);
          expand_strides(x.shape(), x.strides(), size, strides.data());
          return c.cx.alias(x, size, strides, x->offset);
        },
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout()}}; },  // summed over what was repeated
        .examples = {{"[[1.], [2.]]; (2, 3)", "[[1., 1., 1.], [2., 2., 2.]]"}},
        .samples = {"f(2, 1); (2, 3)", "f(3); (2, -1)", "f(); (2)", "f(1); (0)"},
    },
    {
        .sig = "permute(Tensor self, int[] dims) -> Tensor",
        .doc = "A view with the dims in another order.",
        .view = [](const Call& c) -> Results {
          return permuted(c.cx, c.tensor(0), checked_order(c.tensor(0), c.ints(1)));
        },
        .vjp = [](const Vjp& g) -> Grads {
          const std::span<const int64_t> dims = g.ints(1);
          Shape back(dims.size(), 0);
          for (size_t i = 0; i < dims.size(); ++i)
            back[wrap_dim(dims[i], static_cast<int>(dims.size()))] = static_cast<int64_t>(i);
          return {{permute(g.dout(), back)}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]; (1, 0)", "[[1., 3.], [2., 4.]]"}},
        .samples = {"f(2, 3); (1, 0)", "f(2, 3, 4); (2, 0, -2)", "f(0, 2); (1, 0)"},
    },
    {
        .sig = "transpose(Tensor self, int dim0, int dim1) -> Tensor",
        .doc = "A view with two dims swapped.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int a = wrap_dim(c.integer(1), x.ndim()), b = wrap_dim(c.integer(2), x.ndim());
          Shape order;
          for (int d = 0; d < x.ndim(); ++d) order.push_back(d == a ? b : d == b ? a : d);
          return permuted(c.cx, x, order);
        },
        .vjp = [](const Vjp& g) -> Grads { return {{transpose(g.dout(), g.integer(1), g.integer(2))}}; },
        .examples = {{"[[1., 2.], [3., 4.]]; 0; 1", "[[1., 3.], [2., 4.]]"}},
        .samples = {"f(2, 3); 0; 1", "f(2, 3, 4); -1; 0", "f(0, 2); 0; 1"},
    },
    {
        .sig = "as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
        .doc = "A view of self's storage with any sizes, strides and offset that stay inside it.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t offset = c.has(3) ? c.integer(3) : x->offset;
          check_strided(x, c.ints(1), c.ints(2), offset);
          const auto g = within(x.shape(), x.strides(), x->offset, c.ints(1), c.ints(2), offset);
          if (!g && c.cx.grad_mode && x.requires_grad()) {
            throw Error(Code::not_differentiable,
                        "as_strided: the view reaches outside of a tensor that requires grad");
          }
          return strided_view(x, Ints(c.ints(1)), Ints(c.ints(2)), offset, g ? g->strides : Shape(), g ? g->offset : 0);
        },
        .by_strides = true,
        .examples = {{"[1., 2., 3., 4.]; (2, 2); (1, 2); 0", "[[1., 3.], [2., 4.]]"}},
        .samples = {"f(2, 3); (2, 2); (3, 1); 1", "f(4); (2); (2); 0"},
    },
    {
        .sig = "strided_view(Tensor self, int[] size, int[] stride, int storage_offset, int[] within_stride, int "
               "within_offset) -> Tensor",
        .doc = "as_strided with what its gradient needs: the same view of a contiguous self.",
        .view = [](const Call& c) -> Results {
          check_strided(c.tensor(0), c.ints(1), c.ints(2), c.integer(3));
          return c.cx.alias(c.tensor(0), c.ints(1), c.ints(2), c.integer(3));
        },
        .vjp = [](const Vjp& g) -> Grads {
          return {{as_strided_backward(g.dout(), Ints(g.shape(0)), Ints(g.ints(1)), Ints(g.ints(4)), g.integer(5))}};
        },
        .by_strides = true,
        .examples = {{"[1., 2., 3., 4.]; (2, 2); (1, 2); 0; (1, 2); 0", "[[1., 3.], [2., 4.]]"}},
        .samples = {"f(2, 3); (2, 2); (3, 1); 1; (3, 1); 1"},
    },
    {
        .sig = "as_strided_backward(Tensor grad, int[] shape, int[] size, int[] stride, int storage_offset) -> Tensor",
        .doc = "The gradient of as_strided for a contiguous input of that shape: grad added up where the view had its "
               "elements.",
        .compute = [](const Call& c) -> Results {
          const Tensor out = c.cx.full(c.ints(1), 0, c.tensor(0).dtype());
          check_strided(out, c.ints(2), c.ints(3), c.integer(4));
          if (!std::ranges::equal(c.tensor(0).shape(), c.ints(2))) {
            throw Error(Code::shape_mismatch, "as_strided_backward: grad of shape " + to_string(c.tensor(0).shape()) +
                                                  " for a view of shape " + to_string(c.ints(2)));
          }
          // Windows that overlap add up one by one: each slice along a dim that reaches into its neighbour goes alone.
          const Tensor view = c.cx.alias(out, c.ints(2), c.ints(3), c.integer(4));
          struct Part {
            Tensor into, from;
          };
          std::vector<Part> parts = {{view, c.tensor(0)}};
          while (!parts.empty()) {
            const Part p = std::move(parts.back());
            parts.pop_back();
            if (!overlaps_itself(p.into.shape(), p.into.strides())) {
              if (p.into.numel() > 0) add_into(c.cx, p.into, p.from);
              continue;
            }
            const Shape shape(p.into.shape().subspan(1)), a(p.into.strides().subspan(1)),
                b(p.from.strides().subspan(1));
            for (int64_t i = p.into.size(0); i-- > 0;) {
              parts.push_back({c.cx.alias(p.into, shape, a, p.into->offset + i * p.into.strides()[0]),
                               c.cx.alias(p.from, shape, b, p.from->offset + i * p.from.strides()[0])});
            }
          }
          return out;
        },
        .vjp = [](const Vjp& g) -> Grads {
          const Tensor dout = gradwire::contiguous(g.dout());  // which may be a view, with an offset of its own
          return {{as_strided(dout, Ints(g.ints(2)), Ints(g.ints(3)), dout->offset + g.integer(4))}};
        },
        .examples = {{"[1., 2.]; (4); (2); (2); 1", "[0., 1., 0., 2.]"}},
        .samples = {"f(2, 2); (2, 3); (2, 2); (3, 1); 1", "f(3, 2); (4); (3, 2); (1, 1); 0"},
    },
    {
        .sig =
            "as_strided_scatter(Tensor self, Tensor src, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
        .doc = "A copy of self in which the elements of that view are src's.",
        .compute = [](const Call& c) -> Results {
          const Tensor out = copy_of(c.cx, c.tensor(0));
          const int64_t offset = c.has(4) ? c.integer(4) : 0;
          check_strided(out, c.ints(2), c.ints(3), offset);
          if (!broadcasts_to(c.tensor(1).shape(), c.ints(2))) {
            throw Error(Code::shape_mismatch, "expected src to have a size equal to the slice of self. src size = " +
                                                  to_string(c.tensor(1).shape()) +
                                                  ", slice size = " + to_string(c.ints(2)));
          }
          Shape strides(c.ints(2).size(), 0);
          expand_strides(c.tensor(1).shape(), c.tensor(1).strides(), c.ints(2), strides.data());
          c.cx.copy(c.cx.alias(out, c.ints(2), c.ints(3), offset),
                    c.cx.alias(c.tensor(1), c.ints(2), strides, c.tensor(1)->offset));
          return out;
        },
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          const int64_t offset = g.given(4) ? g.integer(4) : 0;
          const Tensor dout = gradwire::contiguous(g.dout());
          if (g.needs(0))
            d.at[0] =
                as_strided_scatter(dout, g.cx.full({}, 0, dout.dtype()), Ints(g.ints(2)), Ints(g.ints(3)), offset);
          if (g.needs(1)) d.at[1] = as_strided(dout, Ints(g.ints(2)), Ints(g.ints(3)), dout->offset + offset);
          return d;
        },
        .examples = {{"[1., 2., 3., 4.]; [8., 9.]; (2); (2); 1", "[1., 8., 3., 9.]"}},
        .samples = {"f(2, 3); f(2, 2); (2, 2); (3, 1); 1", "f(4); f(2); (2); (2); 0"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kShapeOps = kRows;

}  // namespace gradwire::engine
