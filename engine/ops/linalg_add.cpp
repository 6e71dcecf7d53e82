#include "engine/apply.h"
#include "engine/ops/linalg.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine::linalg {
namespace {

std::string number(int64_t n) { return std::to_string(n); }

bool is_one(Scalar s) { return s.real() == 1; }

// A factor as kernels of dtype t take it: for integers without its fraction, for bool whether it is anything.
Scalar factor(Scalar s, DType t) {
  if (is_floating(t)) return Scalar(s.real());
  if (t == DType::boolean) return Scalar(s.real() != 0);
  char bytes[16];
  store_scalar(bytes, t, s);  // refuses what does not fit
  return s.kind == Category::floating ? Scalar(static_cast<int64_t>(s.f)) : Scalar(s.integer());
}

// beta * self + alpha * product, in product's dtype, which self has.
Tensor weighted(Context& cx, const Tensor& self, Scalar beta, const Tensor& product, Scalar alpha) {
  const Scalar a = factor(alpha, product.dtype()), b = factor(beta, product.dtype());
  if (b.real() == 0) {  // self takes no part, not even as NaN; its gradient is there, and zero
    const Tensor p = is_one(a) ? product : mul(product, a);
    return cx.grad_mode && self.requires_grad() ? add(p, fill(self, 0)) : p;
  }
  return add(is_one(b) ? self : mul(self, b), product, a);
}

// Refuses a self that does not expand to the product's shape.
void check_expands(const Tensor& self, const Shape& to) {
  if (!broadcasts_to(self.shape(), to)) expand(self, to);  // which says why
}

void check_self_dtype(const Tensor& self, const Tensor& mat2) {
  if (self.dtype() == mat2.dtype()) return;
  throw Error(Code::dtype_mismatch, "self and mat2 must have the same dtype, but got " + torch_name(self.dtype()) +
                                        " and " + torch_name(mat2.dtype()));
}

void check_batches(const Tensor& a, const Tensor& b) {
  if (a.ndim() != 3) throw Error(Code::shape_mismatch, "batch1 must be a 3D tensor");
  if (b.ndim() != 3) throw Error(Code::shape_mismatch, "batch2 must be a 3D tensor");
}

// For addr: beta and alpha must not bring a category that the result has not.
void check_factor(Scalar s, const char* what, DType result) {
  if (s.kind == Category::boolean && result != DType::boolean) {
    throw Error(Code::bad_argument, std::string("Boolean ") + what + " only supported for Boolean results.");
  }
  if (s.kind == Category::floating && !is_floating(result)) {
    throw Error(Code::bad_argument,
                std::string("For integral input tensors, argument ") + what + " must not be a floating point number.");
  }
}

}  // namespace

void check_bmm(const Tensor& a, const Tensor& b) {
  check_batches(a, b);
  if (a.size(0) != b.size(0) || a.size(2) != b.size(1)) {
    throw Error(Code::shape_mismatch, "Expected size for first two dimensions of batch2 tensor to be: " +
                                          to_string(Shape{a.size(0), a.size(2)}) +
                                          " but got: " + to_string(Shape{b.size(0), b.size(1)}) + ".");
  }
}

void check_vector(const Tensor& t, const char* op, const char* name) {
  if (t.ndim() == 1) return;
  throw Error(Code::shape_mismatch,
              std::string(op) + ": Expected 1-D argument " + name + ", but got " + number(t.ndim()) + "-D");
}

Tensor outer(const Tensor& a, const Tensor& b) { return mul(view(a, {a.size(0), 1}), b); }

Tensor addmm(const Call& c) {
  const Tensor &self = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  for (int i = 1; i < 3; ++i) {
    if (c.tensor(i).ndim() != 2) {
      throw Error(Code::shape_mismatch,
                  "mat" + number(i) + " must be a matrix, got " + number(c.tensor(i).ndim()) + "-D tensor");
    }
  }
  check_self_dtype(self, b);
  if (a.size(1) == b.size(0)) check_expands(self, {a.size(0), b.size(1)});
  return weighted(c.cx, self, c.scalar(3), matmul(a, b), c.scalar(4));
}

Tensor addmv(const Call& c) {
  const Tensor &self = c.tensor(0), &mat = c.tensor(1), &vec = c.tensor(2);
  if (self.ndim() > 1 || mat.ndim() != 2 || vec.ndim() != 1) {
    throw Error(Code::shape_mismatch, "vector + matrix @ vector expected, got " + number(self.ndim()) + ", " +
                                          number(mat.ndim()) + ", " + number(vec.ndim()));
  }
  if (mat.size(1) != vec.size(0) || (self.numel() != mat.size(0) && self.numel() != 1)) {
    throw Error(Code::shape_mismatch, "size mismatch, got input (" + number(self.numel()) + "), mat (" +
                                          number(mat.size(0)) + "x" + number(mat.size(1)) + "), vec (" +
                                          number(vec.size(0)) + ")");
  }
  check_same_dtype(mat, vec);
  return weighted(c.cx, to(self, vec.dtype()), c.scalar(3), matmul(mat, vec), c.scalar(4));
}

Tensor addr(const Call& c) {
  const Tensor &self = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  check_vector(a, "addr", "vec1"), check_vector(b, "addr", "vec2");
  const DType t = promote(promote(self.dtype(), a.dtype()), b.dtype());  // self counts as the matrix it expands to
  check_expands(self, {a.size(0), b.size(0)});
  check_factor(c.scalar(3), "beta", t), check_factor(c.scalar(4), "alpha", t);
  return weighted(c.cx, to(self, t), c.scalar(3), outer(to(a, t), to(b, t)), c.scalar(4));
}

Tensor addbmm(const Call& c) {
  const Tensor &self = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  check_batches(a, b);
  if (a.size(0) != b.size(0)) {
    throw Error(Code::shape_mismatch, "batch1 and batch2 must have same number of batches, got " + number(a.size(0)) +
                                          " and " + number(b.size(0)));
  }
  const int64_t n = a.size(1), k = a.size(2), p = b.size(2);
  if (k != b.size(1)) {
    throw Error(Code::shape_mismatch, "Incompatible matrix sizes for bmm (" + number(n) + "x" + number(k) + " and " +
                                          number(b.size(1)) + "x" + number(p) + ")");
  }
  check_self_dtype(self, b);
  check_expands(self, {n, p});
  // The sum over batches is one long sum of one product.
  const int64_t terms = checked_numel(Shape{a.size(0), k});
  const Tensor flat_a = reshape(permute(a, {1, 0, 2}), {n, terms}), flat_b = reshape(b, {terms, p});
  return weighted(c.cx, self, c.scalar(3), matmul(flat_a, flat_b), c.scalar(4));
}

Tensor baddbmm(const Call& c) {
  const Tensor &self = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  check_bmm(a, b);
  check_same_dtype(a, b);
  check_expands(self, {a.size(0), a.size(1), b.size(2)});
  return weighted(c.cx, to(self, b.dtype()), c.scalar(3), matmul(a, b), c.scalar(4));
}

Tensor linear(const Call& c) {
  const Tensor &x = c.tensor(0), &w = c.tensor(1);
  if (x.ndim() == 0 || w.ndim() == 0) {
    throw Error(Code::shape_mismatch, "both arguments to linear need to be at least 1D, but they are " +
                                          number(x.ndim()) + "D and " + number(w.ndim()) + "D");
  }
  if (w.ndim() > 2) {
    throw Error(Code::shape_mismatch,
                "t() expects a tensor with <= 2 dimensions, but self is " + number(w.ndim()) + "D");
  }
  const Tensor turned = w.ndim() == 2 ? transpose(w, 0, 1) : w;
  if (!c.has(2)) return matmul(x, turned);
  const Tensor& bias = c.tensor(2);
  const bool rows = x.ndim() == 2 || x.ndim() == 3;  // PyTorch's addmm, which sees three dims as two
  if (rows && w.ndim() == 1) throw Error(Code::shape_mismatch, "mat2 must be a matrix, got 1-D tensor");
  if (rows) check_self_dtype(bias, w);
  const Tensor out = matmul(x, turned);
  if (!rows || broadcasts_to(bias.shape(), Shape{w.size(0)})) return add_(out, bias);
  const Shape flat{checked_numel(x.shape().first(x.shape().size() - 1)), w.size(0)};
  return add_(out, reshape(expand(bias, flat), Ints(out.shape())));
}

}  // namespace gradwire::engine::linalg
