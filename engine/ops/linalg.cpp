// Products of matrices.
#include "engine/ops/linalg.h"

#include "engine/apply.h"
#include "engine/einsum.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// A vector by a vector.
Tensor dot(const Tensor& a, const Tensor& b) {
  if (a.ndim() != 1 || b.ndim() != 1) {
    throw Error(Code::shape_mismatch, "1D tensors expected, but got " + std::to_string(a.ndim()) + "D and " +
                                          std::to_string(b.ndim()) + "D tensors");
  }
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  linalg::check_vector(a, "outer", "self"), linalg::check_vector(b, "outer", "vec2");
  return linalg::outer(a, b);
}

constexpr OpDef kRows[] = {
    {
        .sig = "matmul(Tensor self, Tensor other) -> Tensor",
        .doc = "The matrix product. A vector is a row on the left and a column on the right; dims before the last two "
               "are batches that broadcast. One dtype; halves add up in float32.",
        .compute = [](const Call& c) -> Results { return linalg::product(c); },
        .saves = {in(0).when(1), in(1).when(0)},
        .vjp = linalg::product_vjp,
        .examples = {{"[[1., 2.], [3., 4.]]; [[1., 0.], [0., 2.]]", "[[1., 4.], [3., 8.]]"},
                     {"[1., 2.]; [3., 4.]", "11."}},
        .samples = {"f(2, 3); f(3, 2)", "f(3); f(3)", "f(3); f(3, 2)", "f(2, 3); f(3)", "f(2, 2, 3); f(3, 2)",
                    "f(2, 1, 2, 3); f(3, 3, 2)", "f(2, 2, 3); f(3)", "f(3); f(2, 3, 2)", "f(2, 0); f(0, 3)"},
    },
    {
        .sig = "mm(Tensor self, Tensor mat2) -> Tensor",
        .doc = "The product of two matrices. Does not broadcast.",
        .compose = [](const Call& c) -> Results {
          if (c.tensor(0).ndim() != 2) throw Error(Code::shape_mismatch, "self must be a matrix");
          if (c.tensor(1).ndim() != 2) throw Error(Code::shape_mismatch, "mat2 must be a matrix");
          return matmul(c.tensor(0), c.tensor(1));
        },
        .examples = {{"[[1., 2.], [3., 4.]]; [[1., 0.], [0., 2.]]", "[[1., 4.], [3., 8.]]"}},
        .samples = {"f(2, 3); f(3, 4)", "f(2, 0); f(0, 3)", "f(0, 2); f(2, 3)"},
    },
    {
        .sig = "bmm(Tensor self, Tensor mat2) -> Tensor",
        .doc = "The products of the matrices of two batches of one size. Does not broadcast.",
        .compose = [](const Call& c) -> Results {
          linalg::check_bmm(c.tensor(0), c.tensor(1));
          return matmul(c.tensor(0), c.tensor(1));
        },
        .examples = {{"[[[1., 2.]], [[3., 4.]]]; [[[1.], [1.]], [[2.], [2.]]]", "[[[3.]], [[14.]]]"}},
        .samples = {"f(2, 2, 3); f(2, 3, 4)", "f(2, 2, 0); f(2, 0, 3)", "f(0, 2, 3); f(0, 3, 1)"},
    },
    {
        .sig = "mv(Tensor self, Tensor vec) -> Tensor",
        .doc = "A matrix by a vector.",
        .compose = [](const Call& c) -> Results {
          if (c.tensor(0).ndim() != 2 || c.tensor(1).ndim() != 1) {
            throw Error(Code::shape_mismatch, "vector + matrix @ vector expected, got 1, " +
                                                  std::to_string(c.tensor(0).ndim()) + ", " +
                                                  std::to_string(c.tensor(1).ndim()));
          }
          return matmul(c.tensor(0), c.tensor(1));
        },
        .examples = {{"[[1., 2.], [3., 4.]]; [1., 10.]", "[21., 43.]"}},
        .samples = {"f(2, 3); f(3)", "f(2, 0); f(0)"},
    },
    {
        .sig = "dot(Tensor self, Tensor tensor) -> Tensor",
        .doc = "The sum of the products of two vectors' elements.",
        .compose = [](const Call& c) -> Results { return dot(c.tensor(0), c.tensor(1)); },
        .examples = {{"[1., 2.]; [3., 4.]", "11."}, {"[2, 3]; [2, 1]", "7"}},
        .samples = {"f(3); f(3)", "f(0); f(0)"},
    },
    {
        .sig = "vdot(Tensor self, Tensor other) -> Tensor",
        .doc = "As dot: no dtype here is complex.",
        .compose = [](const Call& c) -> Results { return dot(c.tensor(0), c.tensor(1)); },
        .examples = {{"[1., 2.]; [3., 4.]", "11."}},
        .samples = {"f(3); f(3)"},
    },
    {
        .sig = "inner(Tensor self, Tensor other) -> Tensor",
        .doc = "The sums of products over the last dim of both, whose other dims stand side by side. With a 0-dim "
               "tensor the ordinary product.",
        .compose = [](const Call& c) -> Results { return linalg::inner(c); },
        .examples = {{"[1., 2.]; [3., 4.]", "11."}, {"[[1., 2.], [3., 4.]]; [1., 10.]", "[21., 43.]"}},
        .samples = {"f(2, 3); f(4, 3)", "f(3); f(3)", "f(); f(2)", "f(2, 2, 3); f(3)"},
    },
    {
        .sig = "outer(Tensor self, Tensor vec2) -> Tensor",
        .doc = "The products of all pairs of two vectors' elements: a row an element of self. Promotes.",
        .compose = [](const Call& c) -> Results { return outer(c.tensor(0), c.tensor(1)); },
        .examples = {{"[1., 2.]; [3., 4.]", "[[3., 4.], [6., 8.]]"}},
        .samples = {"f(2); f(3)", "f(0); f(3)", "f(2); f(0)"},
    },
    {
        .sig = "ger(Tensor self, Tensor vec2) -> Tensor",
        .doc = "As outer, by its older name.",
        .compose = [](const Call& c) -> Results { return outer(c.tensor(0), c.tensor(1)); },
        .examples = {{"[1., 2.]; [3., 4.]", "[[3., 4.], [6., 8.]]"}},
        .samples = {"f(2); f(3)"},
    },
    {
        .sig = "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "beta * self + alpha * (mat1 @ mat2); self expands to the product's shape. With beta=0 self takes no "
               "part, even where it is NaN. For integers beta and alpha lose their fraction.",
        .compose = [](const Call& c) -> Results { return linalg::addmm(c); },
        .examples = {{"[1., 1.]; [[1., 2.], [3., 4.]]; [[1., 0.], [0., 2.]]", "[[2., 5.], [4., 9.]]"},
                     {"[[1]]; [[2]]; [[3]]; beta=10; alpha=2", "[[22]]"}},
        .samples = {"f(2, 4); f(2, 3); f(3, 4); beta=2; alpha=3", "f(4); f(2, 3); f(3, 4)", "f(2, 1); f(2, 3); f(3, 4)",
                    "f(2, 4); f(2, 3); f(3, 4); beta=0", "f(); f(2, 0); f(0, 3)"},
    },
    {
        .sig = "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "beta * self + alpha * (mat @ vec), in vec's dtype; self expands. beta and alpha as for addmm.",
        .compose = [](const Call& c) -> Results { return linalg::addmv(c); },
        .examples = {{"[1., 1.]; [[1., 2.], [3., 4.]]; [1., 10.]", "[22., 44.]"}},
        .samples = {"f(2); f(2, 3); f(3); beta=2; alpha=3", "f(); f(2, 3); f(3)", "f(2); f(2, 3); f(3); beta=0",
                    "f(1); f(2, 0); f(0)"},
    },
    {
        .sig = "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "beta * self + alpha * outer(vec1, vec2); self expands. Promotes. With beta=0 self takes no part.",
        .compose = [](const Call& c) -> Results { return linalg::addr(c); },
        .examples = {{"[[1., 1.], [1., 1.]]; [1., 2.]; [3., 4.]", "[[4., 5.], [7., 9.]]"}},
        .samples = {"f(2, 3); f(2); f(3); beta=2; alpha=3", "f(3); f(2); f(3)", "f(2, 3); f(2); f(3); beta=0",
                    "f(); f(0); f(3)"},
    },
    {
        .sig = "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "beta * self + alpha * the sum of the products of two batches of matrices. The rest as for addmm.",
        .compose = [](const Call& c) -> Results { return linalg::addbmm(c); },
        .examples = {{"[[1.]]; [[[1., 2.]], [[3., 4.]]]; [[[1.], [1.]], [[2.], [2.]]]", "[[18.]]"}},
        .samples = {"f(2, 4); f(3, 2, 3); f(3, 3, 4); beta=2; alpha=3", "f(4); f(2, 2, 3); f(2, 3, 4)",
                    "f(2, 4); f(2, 2, 3); f(2, 3, 4); beta=0", "f(); f(0, 2, 3); f(0, 3, 2)"},
    },
    {
        .sig = "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        .inplace = true,
        .doc = "beta * self + alpha * bmm(batch1, batch2), in batch2's dtype; self expands. The rest as for addmm.",
        .compose = [](const Call& c) -> Results { return linalg::baddbmm(c); },
        .examples = {{"[[[1.]]]; [[[1., 2.]], [[3., 4.]]]; [[[1.], [1.]], [[2.], [2.]]]", "[[[4.]], [[15.]]]"}},
        .samples = {"f(2, 2, 4); f(2, 2, 3); f(2, 3, 4); beta=2; alpha=3", "f(4); f(2, 2, 3); f(2, 3, 4)",
                    "f(2, 2, 4); f(2, 2, 3); f(2, 3, 4); beta=0", "f(); f(2, 2, 0); f(2, 0, 3)"},
    },
    {
        .sig = "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
        .doc = "input @ weight.T + bias. weight is [out, in] or [in]; dims of input before the last are kept.",
        .compose = [](const Call& c) -> Results { return linalg::linear(c); },
        .examples = {{"[[1., 2.]]; [[1., 1.], [0., 10.]]; [1., 0.]", "[[4., 20.]]"}},
        .samples = {"f(2, 3); f(4, 3); f(4)", "f(2, 3); f(4, 3)", "f(3); f(4, 3); f(4)", "f(2, 2, 3); f(4, 3); f(4)",
                    "f(2, 3); f(3)", "f(2, 3); f(4, 3); f(2, 4)", "f(2, 2, 3); f(4, 3); f(4, 4)",
                    "f(2, 0); f(3, 0); f(3)"},
    },
    {
        .sig = "einsum(str equation, Tensor[] operands) -> Tensor",
        .doc =
            "Sums of products over named dims: a letter a dim, a comma between operands, '->' before the dims of the "
            "result; '...' stands for dims that broadcast. Without '->' the result has the letters that stand there "
            "once, in alphabetical order. A letter twice for one operand is its diagonal. The cheapest pair is "
            "multiplied first.",
        .compose = [](const Call& c) -> Results { return contraction::contract(c.cx, c.text(0), c.tensors(1)); },
        .examples = {{"'ij,j->i'; [[1., 2.], [3., 4.]]; [1., 10.]", "[21., 43.]"},
                     {"'ii'; [[1., 2.], [3., 4.]]", "5."},
                     {"'ij->ji'; [[1., 2.], [3., 4.]]", "[[1., 3.], [2., 4.]]"}},
        .samples = {"'ij,jk->ik'; f(2, 3); f(3, 4)", "'bij,bjk->bik'; f(2, 3, 4); f(2, 4, 2)", "'ii->i'; f(3, 3)",
                    "'iji->j'; f(2, 3, 2)", "'ij->'; f(2, 3)", "'i,j->ij'; f(2); f(3)",
                    "'bn,anm,bm->ba'; f(2, 3); f(4, 3, 2); f(2, 2)", "'...ij,...jk'; f(2, 1, 2, 3); f(2, 3, 2)",
                    "'ij,ij->j'; f(2, 3); f(1, 3)", "'abc,cb,d->da'; f(2, 3, 2); f(2, 3); f(4)",
                    "'ij,jk'; f(2, 0); f(0, 3)"},
    },
    {
        .sig = "tensordot(Tensor a, Tensor b, int dims=2) -> Tensor",
        .doc = "The sums of products over the last dims of a and the first of b.",
        .compose = [](const Call& c) -> Results { return linalg::tensordot(c); },
        .examples = {{"[[1., 2.], [3., 4.]]; [[1., 0.], [0., 2.]]", "9."},
                     {"[[1., 2.], [3., 4.]]; [1., 10.]; 1", "[21., 43.]"}},
        .samples = {"f(2, 3, 4); f(4, 3); 1", "f(2, 3, 2); f(3, 2, 2)", "f(2); f(3); 0", "f(2, 0); f(0, 3); 1"},
    },
    {
        .sig = "tensordot.lists(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor",
        .doc = "The sums of products over pairs of dims, one of self and one of other.",
        .compose = [](const Call& c) -> Results { return linalg::tensordot_lists(c); },
        .examples = {{"[[1., 2.], [3., 4.]]; [[1., 0.], [0., 2.]]; (0); (1)", "[[1., 6.], [2., 8.]]"}},
        .samples = {"f(2, 3, 4); f(4, 2); (-1, 0); (0, 1)", "f(2, 1, 2); f(3, 2); (1); (0)", "f(3, 2); f(2); (1); (0)"},
    },
    {
        .sig = "tensordot.pair(Tensor a, Tensor b, Index[] dims) -> Tensor",
        .doc = "The same with both lists in one: [[0, 1], [1, 2]].",
        .compose = [](const Call& c) -> Results { return linalg::tensordot_pair(c); },
        .examples = {{"[[1., 2.], [3., 4.]]; [[1., 0.], [0., 2.]]; {[0], [1]}", "[[1., 6.], [2., 8.]]"}},
        .samples = {"f(2, 3, 4); f(4, 2); {[-1, 0], [0, 1]}"},
    },
    {
        .sig = "kron(Tensor self, Tensor other) -> Tensor",
        .doc = "The Kronecker product: other in blocks, each times one element of self.",
        .compose = [](const Call& c) -> Results { return linalg::kron(c); },
        .examples = {{"[1., 10.]; [1., 2., 3.]", "[1., 2., 3., 10., 20., 30.]"}},
        .samples = {"f(2, 2); f(2, 3)", "f(3); f(2, 2)", "f(); f(2)", "f(0, 2); f(3)"},
    },
    {
        .sig = "matrix_power(Tensor self, int n) -> Tensor",
        .doc = "A square matrix, or a batch of them, times itself: n at least 0, for which it is the identity.",
        .compose = [](const Call& c) -> Results { return linalg::matrix_power(c); },
        .examples = {{"[[1., 1.], [0., 1.]]; 5", "[[1., 5.], [0., 1.]]"},
                     {"[[2., 3.], [4., 5.]]; 0", "[[1., 0.], [0., 1.]]"}},
        .samples = {"f(2, 2); 3", "f(2, 2, 2); 2", "f(2, 2); 1", "f(2, 2); 0", "f(3, 3); 4", "f(0, 0); 2"},
    },
    {
        .sig = "cross(Tensor self, Tensor other, int? dim=None) -> Tensor",
        .doc = "The vector product along dim, which has size 3; without dim along the first that has.",
        .compose = [](const Call& c) -> Results { return linalg::cross(c); },
        .examples = {{"[1., 0., 0.]; [0., 1., 0.]", "[0., 0., 1.]"}},
        .samples = {"f(2, 3); f(2, 3); 1", "f(3, 2); f(3, 1)", "f(0, 3); f(0, 3)"},
    },
    {
        .sig = "trace(Tensor self) -> Tensor",
        .doc = "The sum of a matrix's diagonal. Integers add up in int64.",
        .compose = [](const Call& c) -> Results { return linalg::trace(c); },
        .examples = {{"[[1., 2.], [3., 4.]]", "5."}},
        .samples = {"f(3, 3)", "f(2, 3)", "f(3, 2)", "f(0, 2)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kLinalgOps = kRows;

}  // namespace gradwire::engine
