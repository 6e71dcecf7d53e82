#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/ops/linalg.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine::linalg {
namespace {

using Sizes = std::span<const int64_t>;

std::string number(int64_t n) { return std::to_string(n); }

// The product of two vectors, of a matrix and a vector, of two matrices, or of batches of matrices: PyTorch has other
// words for each. A batch against one matrix is one tall matrix to it, and here.
enum class Kind { dot, mv, mm, bmm };
Kind kind_of(size_t a, size_t b) {
  if (b == 1) return a == 1 ? Kind::dot : Kind::mv;
  if (b > 2 && a == 1) return Kind::mv;
  return a <= 2 || b <= 2 ? Kind::mm : Kind::bmm;
}

void check_dtypes(Kind kind, const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  if (kind == Kind::dot) {
    throw Error(Code::dtype_mismatch, "dot : expected both vectors to have same dtype, but found " +
                                          torch_name(a.dtype()) + " and " + torch_name(b.dtype()));
  }
  if (kind != Kind::mm) check_same_dtype(a, b);
  auto low = [](DType t) {
    return std::string(t == DType::float32    ? "float"
                       : t == DType::float64  ? "double"
                       : t == DType::float16  ? "c10::Half"
                       : t == DType::bfloat16 ? "c10::BFloat16"
                                              : name(t));
  };
  throw Error(Code::dtype_mismatch,
              "expected m1 and m2 to have the same dtype, but got: " + low(a.dtype()) + " != " + low(b.dtype()));
}

// Why a [..., k] and b [..., depth, n] do not go together.
Error size_mismatch(Kind kind, Sizes a, Sizes b, int64_t k, int64_t depth) {
  const auto by = [](int64_t rows, int64_t columns) { return number(rows) + "x" + number(columns); };
  if (kind == Kind::dot) {
    return Error(Code::shape_mismatch, "inconsistent tensor size, expected tensor " + to_string(a) + " and src " +
                                           to_string(b) + " to have the same number of elements, but got " + number(k) +
                                           " and " + number(depth) + " elements respectively");
  }
  if (kind == Kind::bmm) {
    const int64_t batches = checked_numel(broadcast_shapes(a.first(a.size() - 2), b.first(b.size() - 2)));
    return Error(Code::shape_mismatch,
                 "Expected size for first two dimensions of batch2 tensor to be: " + to_string(Shape{batches, k}) +
                     " but got: " + to_string(Shape{batches, depth}) + ".");
  }
  // The rows of a, or where b is the batch the columns of b.
  const bool turned = b.size() > 2;
  Shape all = turned ? Shape(b) : Shape(a);
  all.erase(all.size() - (turned ? 2 : 1));
  const int64_t rows = checked_numel(all);
  if (kind == Kind::mv) {
    return Error(Code::shape_mismatch, "size mismatch, got input (" + number(rows) + "), mat (" +
                                           by(rows, turned ? depth : k) + "), vec (" + number(turned ? k : depth) +
                                           ")");
  }
  const std::string left = turned ? by(rows, depth) : by(rows, k),
                    right = turned ? by(k, a.size() == 1 ? 1 : a[0]) : by(depth, b.back());
  return Error(Code::shape_mismatch, "mat1 and mat2 shapes cannot be multiplied (" + left + " and " + right + ")");
}

Tensor unsqueezed(const Tensor& t, int64_t at) {
  Shape s(t.shape());
  s.insert(static_cast<size_t>(at), 1);
  return view(t, s);
}

}  // namespace

std::string torch_name(DType t) { return gradwire::row(t).torch; }

void check_same_dtype(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  throw Error(Code::dtype_mismatch,
              "expected scalar type " + torch_name(a.dtype()) + " but found " + torch_name(b.dtype()));
}

Tensor product(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  if (a.ndim() == 0 || b.ndim() == 0) {
    throw Error(Code::shape_mismatch, "both arguments to matmul need to be at least 1D, but they are " +
                                          number(a.ndim()) + "D and " + number(b.ndim()) + "D");
  }
  // A vector is a row on the left and a column on the right.
  Shape sa(a.shape()), ta(a.strides()), sb(b.shape()), tb(b.strides());
  const bool row = a.ndim() == 1, column = b.ndim() == 1;
  const Kind kind = kind_of(sa.size(), sb.size());
  check_dtypes(kind, a, b);
  if (row) sa.insert(0, 1), ta.insert(0, 0);
  if (column) sb.push_back(1), tb.push_back(0);
  const int64_t m = sa[sa.size() - 2], k = sa.back(), n = sb.back();
  if (k != sb[sb.size() - 2]) throw size_mismatch(kind, a.shape(), b.shape(), k, sb[sb.size() - 2]);
  auto batch = [](const Shape& s) { return Sizes(s).first(s.size() - 2); };
  Shape wide = broadcast_shapes(batch(sa), batch(sb));
  const size_t batches = wide.size();
  Shape out_shape = wide;
  if (!row) out_shape.push_back(m);
  if (!column) out_shape.push_back(n);
  const Tensor out = c.cx.empty(out_shape, a.dtype());
  if (out.numel() == 0) return out;
  auto spread = [&](const Shape& shape, const Shape& strides, Shape& to, Shape& steps) {
    to = wide;
    steps = Shape(batches, 0);
    expand_strides(batch(shape), Sizes(strides).first(shape.size() - 2), wide, steps.data());
    for (int d = 2; d > 0; --d) to.push_back(shape[shape.size() - d]), steps.push_back(strides[shape.size() - d]);
  };
  Shape shape_a, steps_a, shape_b, steps_b, shape_o = wide, steps_o;
  spread(sa, ta, shape_a, steps_a);
  spread(sb, tb, shape_b, steps_b);
  shape_o.push_back(m), shape_o.push_back(n);
  steps_o = contiguous_strides(shape_o);
  auto view = [batches](const Tensor& t, const Shape& shape, const Shape& steps) {
    return View{t.data(), shape.data(), steps.data(), static_cast<int32_t>(batches + 2), t.dtype()};
  };
  // Batches of one matrix on the right are one tall matrix.
  if (batches > 0 && sb.size() == 2 && a->contiguous) {
    const Shape tall_a{a.numel() / std::max<int64_t>(k, 1), k}, tall_o{out.numel() / n, n};
    if (k > 0) {
      const Shape ra = contiguous_strides(tall_a), ro = contiguous_strides(tall_o);
      launch(c.cx, GW_KERNEL(matmul), {{out.data(), tall_o.data(), ro.data(), 2, out.dtype()}},
             {{a.data(), tall_a.data(), ra.data(), 2, a.dtype()}, {b.data(), sb.data(), tb.data(), 2, b.dtype()}});
      return out;
    }
  }
  launch(c.cx, GW_KERNEL(matmul), {view(out, shape_o, steps_o)},
         {view(a, shape_a, steps_a), view(b, shape_b, steps_b)});
  return out;
}

Grads product_vjp(const Vjp& g) {
  const size_t a = g.shape(0).size(), b = g.shape(1).size();
  Tensor dout = g.dout();
  if (a == 1 && b == 1)
    dout = view(dout, {1, 1});
  else if (a == 1)
    dout = unsqueezed(dout, dout.ndim() - 1);
  else if (b == 1)
    dout = unsqueezed(dout, dout.ndim());
  Grads d;
  if (g.needs(0)) {
    const Tensor right = b == 1 ? view(g.in(1), {1, g.shape(1)[0]}) : transpose(g.in(1), -1, -2);
    d.at[0] = matmul(dout, right);  // summed over broadcast batches; a row's extra dim goes the same way
  }
  if (g.needs(1)) {
    const Tensor left = a == 1 ? view(g.in(0), {g.shape(0)[0], 1}) : transpose(g.in(0), -1, -2);
    if (b <= 2 && a > 2) {  // one matrix for all batches: the batches are one long sum
      const int64_t rows = checked_numel(g.shape(0).first(a - 1)), k = g.shape(0).back(), n = dout.shape().back();
      d.at[1] = matmul(transpose(reshape(g.in(0), {rows, k}), 0, 1), reshape(dout, {rows, n}));
    } else {
      d.at[1] = matmul(left, dout);
    }
    if (b == 1) d.at[1] = view(gradwire::contiguous(d.at[1]), Ints(d.at[1].shape().first(d.at[1].shape().size() - 1)));
  }
  return d;
}

}  // namespace gradwire::engine::linalg
