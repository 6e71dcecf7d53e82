// Views by sizes, strides and offset, and what their gradients and histories are made of.
#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

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

constinit const std::span<const OpDef> kStridedOps = kRows;

}  // namespace gradwire::engine
