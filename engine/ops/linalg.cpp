// Products of matrices.
#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

Tensor product(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  if (a.ndim() == 0 || b.ndim() == 0) {
    throw Error(Code::shape_mismatch, "both arguments to matmul need to be at least 1D, but they are " +
                                          std::to_string(a.ndim()) + "D and " + std::to_string(b.ndim()) + "D");
  }
  if (a.dtype() != b.dtype()) {
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
  // A vector is a row on the left and a column on the right.
  Shape sa(a.shape()), ta(a.strides()), sb(b.shape()), tb(b.strides());
  const bool row = a.ndim() == 1, column = b.ndim() == 1;
  if (row) sa.insert(0, 1), ta.insert(0, 0);
  if (column) sb.push_back(1), tb.push_back(0);
  const int64_t m = sa[sa.size() - 2], k = sa.back(), n = sb.back();
  if (k != sb[sb.size() - 2]) {
    if (row && column) {
      throw Error(Code::shape_mismatch, "inconsistent tensor size, expected tensor " + to_string(a.shape()) +
                                            " and src " + to_string(b.shape()) +
                                            " to have the same number of elements, but got " + std::to_string(k) +
                                            " and " + std::to_string(sb[0]) + " elements respectively");
    }
    throw Error(Code::shape_mismatch, "mat1 and mat2 shapes cannot be multiplied (" + std::to_string(m) + "x" +
                                          std::to_string(k) + " and " + std::to_string(sb[sb.size() - 2]) + "x" +
                                          std::to_string(n) + ")");
  }
  auto batch = [](const Shape& s) { return std::span<const int64_t>(s).first(s.size() - 2); };
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
    expand_strides(batch(shape), std::span<const int64_t>(strides).first(shape.size() - 2), wide, steps.data());
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

Tensor unsqueezed(const Tensor& t, int64_t at) {
  Shape s(t.shape());
  s.insert(static_cast<size_t>(at), 1);
  return view(t, s);
}

constexpr OpDef kRows[] = {
    {
        .sig = "matmul(Tensor self, Tensor other) -> Tensor",
        .doc = "The matrix product. A vector is a row on the left and a column on the right; dims before the last two "
               "are batches "
               "that broadcast. One dtype; halves add up in float32.",
        .compute = [](const Call& c) -> Results { return product(c); },
        .saves = {in(0).when(1), in(1).when(0)},
        .vjp = [](const Vjp& g) -> Grads {
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
            const Tensor right = b == 1 ? view(g.in(1), {1, -1}) : transpose(g.in(1), -1, -2);
            d.at[0] = matmul(dout, right);  // summed over broadcast batches; a row's extra dim goes the same way
          }
          if (g.needs(1)) {
            const Tensor left = a == 1 ? view(g.in(0), {-1, 1}) : transpose(g.in(0), -1, -2);
            if (b <= 2 && a > 2) {  // one matrix for all batches: the batches are one long sum
              const int64_t k = g.shape(0).back(), n = dout.shape().back();
              const int64_t rows = checked_numel(g.shape(0).first(a - 1));  // no -1: sizes of 0 leave it open
              d.at[1] = matmul(transpose(reshape(g.in(0), {rows, k}), 0, 1), reshape(dout, {rows, n}));
            } else {
              d.at[1] = matmul(left, dout);
            }
            if (b == 1)
              d.at[1] = view(gradwire::contiguous(d.at[1]), Ints(d.at[1].shape().first(d.at[1].shape().size() - 1)));
          }
          return d;
        },
        .examples = {{"[[1., 2.], [3., 4.]]; [[1., 0.], [0., 2.]]", "[[1., 4.], [3., 8.]]"},
                     {"[1., 2.]; [3., 4.]", "11."}},
        .samples = {"f(2, 3); f(3, 2)", "f(3); f(3)", "f(3); f(3, 2)", "f(2, 3); f(3)", "f(2, 2, 3); f(3, 2)",
                    "f(2, 1, 2, 3); f(3, 3, 2)", "f(2, 2, 3); f(3)", "f(3); f(2, 3, 2)", "f(2, 0); f(0, 3)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kLinalgOps = kRows;

}  // namespace gradwire::engine
