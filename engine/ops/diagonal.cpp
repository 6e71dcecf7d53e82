// Diagonals and triangles of matrices.
#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/kernels.h"
#include "engine/pick.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

struct Plane {
  int rows, columns;  // which dims
};
Plane plane_of(int64_t dim1, int64_t dim2, int ndim) {
  const Plane p{wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)};
  if (p.rows == p.columns) {
    throw Error(Code::bad_argument,
                "diagonal dimensions cannot be identical " + std::to_string(dim1) + ", " + std::to_string(dim2));
  }
  return p;
}

// Parameters of diagonal behind the tensor, from i on.
Tensor diagonal_at(const Call& c, const Tensor& x, int i) {
  const int64_t offset = c.integer(i);
  const Plane p = plane_of(c.integer(i + 1), c.integer(i + 2), x.ndim());
  const int64_t rows = x.size(p.rows), columns = x.size(p.columns);
  const int64_t size =
      std::max<int64_t>(offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns), 0);
  Shape shape, strides;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d != p.rows && d != p.columns)
      shape.push_back(x.size(d)), strides.push_back(x.strides()[static_cast<size_t>(d)]);
  }
  const int64_t down = x.strides()[static_cast<size_t>(p.rows)], right = x.strides()[static_cast<size_t>(p.columns)];
  shape.push_back(size), strides.push_back(down + right);
  const int64_t start = size == 0 ? 0 : offset >= 0 ? offset * right : -offset * down;
  return c.cx.alias(x, shape, strides, x->offset + start);
}

// Writes zeros outside of the triangles.
void cut(const Call& c, const Tensor& target, bool lower) {
  if (target.numel() == 0) return;
  if (target.ndim() == 0)
    throw Error(Code::index_out_of_range, "Dimension specified as -2 but tensor has no dimensions");
  wrap_dim(-2, target.ndim());
  const TriangleParams params{std::clamp(c.integer(1), -kMaxDim, kMaxDim), lower};
  launch(c.cx, GW_KERNEL(triangle), {out_view(target)}, {}, &params);
}

// A tensor of block_diag as a matrix.
struct Block {
  int64_t rows, columns;
};
Block block_of(std::span<const int64_t> shape) {
  return {shape.size() == 2 ? shape[0] : 1, shape.empty() ? 1 : shape.back()};
}

constexpr OpDef kRows[] = {
    {
        .sig = "diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
        .doc = "The view of a diagonal of the matrices in dim1 and dim2, as a new last dim; a positive offset lies "
               "above the main one.",
        .view = [](const Call& c) -> Results { return diagonal_at(c, c.tensor(0), 1); },
        .vjp = [](const Vjp& g) -> Grads {
          return {{diagonal_backward(g.dout(), Ints(g.shape(0)), g.integer(1), g.integer(2), g.integer(3))}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "[1., 4.]"}, {"[[1., 2.], [3., 4.]]; 1", "[2.]"}},
        .samples = {"f(3, 3)", "f(2, 4); 1", "f(2, 3, 2); -1; -1; 0", "f(2, 3); 7", "f(0, 2)"},
    },
    {
        .sig = "diagonal_backward(Tensor grad, int[] input_sizes, int offset, int dim1, int dim2) -> Tensor",
        .doc = "The gradient of diagonal: grad on that diagonal, in zeros.",
        .compute = [](const Call& c) -> Results {
          return embedded(c, c.tensor(0), c.ints(1),
                          [](const Call& b, const Tensor& x) { return diagonal_at(b, x, 2); });
        },
        .vjp = [](const Vjp& g) -> Grads { return {{diagonal(g.dout(), g.integer(2), g.integer(3), g.integer(4))}}; },
        .examples = {{"[1., 2.]; (2, 2); 0; 0; 1", "[[1., 0.], [0., 2.]]"}},
        .samples = {"f(3); (3, 3); 0; 0; 1", "f(2); (2, 4); 1; 0; 1"},
    },
    {
        .sig = "diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
        .doc = "Zeros with the last dim of self on a diagonal of the matrices in dim1 and dim2 of the result.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int ndim = x.ndim() + 1;
          if (x.ndim() == 0) wrap_dim(c.integer(2), 1);
          const Plane p = plane_of(c.integer(2), c.integer(3), ndim);
          const int64_t offset = c.integer(1);
          const int64_t size = checked_sum(x.size(x.ndim() - 1), offset < 0 ? checked_difference(0, offset) : offset);
          Shape shape(x.shape().first(x.shape().size() - 1));
          shape.insert(static_cast<size_t>(std::min(p.rows, p.columns)), size);
          shape.insert(static_cast<size_t>(std::max(p.rows, p.columns)), size);
          return diagonal_backward(x, shape, offset, p.rows, p.columns);
        },
        .examples = {{"[1., 2.]", "[[1., 0.], [0., 2.]]"}},
        .samples = {"f(3)", "f(2, 3); 1; 0; 2", "f(2); -1", "f(0)"},
    },
    {
        .sig = "diag(Tensor self, int diagonal=0) -> Tensor",
        .doc = "A copy of a diagonal of a matrix; of a vector the matrix that has it there, and zeros elsewhere.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.ndim() == 1) return diag_embed(x, c.integer(1));
          if (x.ndim() != 2) throw Error(Code::shape_mismatch, "matrix or a vector expected");
          return gradwire::clone(diagonal(x, c.integer(1)));
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "[1., 4.]"}, {"[1., 2.]", "[[1., 0.], [0., 2.]]"}},
        .samples = {"f(3)", "f(3); -1", "f(2, 3); 1", "f(0)"},
    },
    {
        .sig = "diagflat(Tensor self, int offset=0) -> Tensor",
        .doc = "A matrix with all elements of self on a diagonal, and zeros elsewhere.",
        .compose = [](const Call& c) -> Results { return diag_embed(reshape(c.tensor(0), {-1}), c.integer(1)); },
        .examples = {{"[[1.], [2.]]", "[[1., 0.], [0., 2.]]"}},
        .samples = {"f(2, 2)", "f(2); 1"},
    },
    {
        .sig = "tril(Tensor self, int diagonal=0) -> Tensor",
        .inplace = true,
        .doc = "The lower triangles of the matrices in the last two dims, up to that diagonal, and zeros elsewhere.",
        .write = [](const Call& c, const Tensor& target) { cut(c, target, true); },
        .vjp = [](const Vjp& g) -> Grads { return {{tril(g.dout(), g.integer(1))}}; },
        .examples = {{"[[1., 2.], [3., 4.]]", "[[1., 0.], [3., 4.]]"}},
        .samples = {"f(3, 3)", "f(2, 3, 2); 1", "f(3, 2); -1", "f(0, 2)"},
    },
    {
        .sig = "triu(Tensor self, int diagonal=0) -> Tensor",
        .inplace = true,
        .doc = "The upper triangles of the matrices in the last two dims, from that diagonal on, and zeros elsewhere.",
        .write = [](const Call& c, const Tensor& target) { cut(c, target, false); },
        .vjp = [](const Vjp& g) -> Grads { return {{triu(g.dout(), g.integer(1))}}; },
        .examples = {{"[[1., 2.], [3., 4.]]", "[[1., 2.], [0., 4.]]"}},
        .samples = {"f(3, 3)", "f(2, 3, 2); 1", "f(3, 2); -1", "f(0, 2)"},
    },
    {
        .sig = "block_diag(Tensor[] tensors) -> Tensor",
        .doc = "One matrix with those of the list along its diagonal, and zeros elsewhere; a vector is a row.",
        .compute = [](const Call& c) -> Results {
          Promotion p;
          int64_t rows = 0, columns = 0;
          for (size_t k = 0; k < c.tensors(0).size(); ++k) {
            const Tensor& t = c.tensors(0)[k];
            if (t.ndim() > 2) {
              throw Error(Code::shape_mismatch,
                          "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input " +
                              std::to_string(k) + " has " + std::to_string(t.ndim()) + " dimensions");
            }
            p.add(t);
            const Block b = block_of(t.shape());
            rows += b.rows, columns += b.columns;  // at most 2^16 sizes of at most 2^40
          }
          if (c.tensors(0).empty()) rows = 1;
          const Tensor out = c.cx.full(Shape{rows, columns}, 0, c.tensors(0).empty() ? c.cx.default_dtype : p.result());
          rows = columns = 0;
          for (const Tensor& t : c.tensors(0)) {
            const Block b = block_of(t.shape());
            const Tensor part = sliced(c.cx, sliced(c.cx, out, 0, rows, b.rows), 1, columns, b.columns);
            const Shape shape{b.rows, b.columns};
            const Shape strides{t.ndim() == 2 ? t.strides()[0] : 0, t.ndim() == 0 ? 0 : t.strides().back()};
            c.cx.copy(part, c.cx.alias(t, shape, strides, t->offset));
            rows += b.rows, columns += b.columns;
          }
          return out;
        },
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          int64_t rows = 0, columns = 0;
          for (int k = 0; k < g.node.edge_count; ++k) {
            const Block b = block_of(g.shape(0, k));
            d.list.emplace_back();
            if (g.needs(0, k)) {
              const Tensor part = slice(slice(g.dout(), 0, rows, rows + b.rows), 1, columns, columns + b.columns);
              d.list.back() = reshape(part, Ints(g.shape(0, k)));
            }
            rows += b.rows, columns += b.columns;
          }
          return d;
        },
        .examples = {{"[[1., 2.]]; [3.]", "[[1., 2., 0.], [0., 0., 3.]]"}},
        .samples = {"f(2, 1); f(2); f()", "f(0, 2); f(1, 1)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kDiagonalOps = kRows;

}  // namespace gradwire::engine
