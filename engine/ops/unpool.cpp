// What goes to places in planes, and what is taken from them: the gradient of max_pool, and its inverse.
#include <string>
#include <vector>

#include "engine/apply.h"
#include "engine/draws.h"
#include "engine/kernels.h"
#include "engine/ops/window.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

/// Tensors [..., n] and [..., m] that agree but for the last dim, which both have.
void check_rows(const char* op, std::span<const int64_t> a, std::span<const int64_t> b) {
  if (!a.empty() && a.size() == b.size() && std::ranges::equal(a.first(a.size() - 1), b.first(b.size() - 1))) return;
  throw Error(Code::shape_mismatch, std::string(op) + ": expected sizes that agree but for the last, got " +
                                        to_string(a) + " and " + to_string(b));
}
Tensor places_of(const Call& c) {
  const Tensor& t = c.tensor(1);
  if (t.dtype() != DType::int64)
    throw Error(Code::dtype_mismatch, std::string("expected scalar type Long but found ") + row(t.dtype()).torch);
  return c.cx.contiguous(t);
}

template <int kSpatial> Results unpool(const Call& c) {
  const Tensor &x = c.tensor(0), &at = c.tensor(1);
  check_floating(x.dtype(), c.row.name().c_str());
  if (x.ndim() != kSpatial + 1 && x.ndim() != kSpatial + 2) {
    throw Error(Code::shape_mismatch, "Input to " + c.row.name() + " should be a " + std::to_string(kSpatial + 1) +
                                          "d or " + std::to_string(kSpatial + 2) + "d Tensor, but got " +
                                          std::to_string(x.ndim()) + " dimensions");
  }
  if (!std::ranges::equal(x.shape(), at.shape())) {
    throw Error(Code::shape_mismatch, "Expected shape of indices to be same as that of the input tensor (" +
                                          to_string(x.shape()) +
                                          ") but got indices tensor with shape: " + to_string(at.shape()));
  }
  const std::span<const int64_t> kernel = c.ints(2), padding = c.ints(4), wanted = c.has(5) ? c.ints(5) : kernel;
  const std::span<const int64_t> stride = c.has(3) && !c.ints(3).empty() ? c.ints(3) : kernel;
  for (const auto list : {kernel, stride, padding}) {
    if (list.size() != 1 && list.size() != kSpatial)
      throw Error(Code::bad_argument, c.row.name() + ": expected one number or " + std::to_string(kSpatial));
  }
  if (c.has(5) && (wanted.size() < kSpatial || wanted.size() > kSpatial + 2)) {
    throw Error(Code::bad_argument, "output_size should be a sequence containing " + std::to_string(kSpatial) + " or " +
                                        std::to_string(kSpatial + 2) + " elements, but it has a length of '" +
                                        std::to_string(wanted.size()) + "'");
  }
  Shape lead(x.shape().first(x.shape().size() - kSpatial)), whole(lead);
  int64_t plane = 1;
  for (int d = 0; d < kSpatial; ++d) {
    const int64_t n = x.size(x.ndim() - kSpatial + d),
                  step = bounded(per_dim(stride, d), 1, "stride should be greater than zero");
    int64_t size = (n - 1) * step + bounded(per_dim(kernel, d), 1, "kernel size should be greater than zero") -
                   2 * bounded(per_dim(padding, d), 0, "padding is not negative");
    if (c.has(5)) {
      const int64_t given = wanted[wanted.size() - kSpatial + static_cast<size_t>(d)];
      if (given <= size - step || given >= size + step) {
        throw Error(Code::bad_argument, "invalid output_size \"" + to_string(wanted) + "\" (dim " + std::to_string(d) +
                                            " must be between " + std::to_string(size - step) + " and " +
                                            std::to_string(size + step) + ")");
      }
      size = given;
    }
    whole.push_back(bounded(size, 0, "max_unpool: the output size is too small"));
    plane *= whole.back();
    checked_numel(whole);
  }
  Shape flat(lead), rows(lead);
  int64_t some = 1;
  for (const int64_t n : x.shape().last(kSpatial)) some *= n;
  flat.push_back(plane), rows.push_back(some);
  return reshape(scatter(c.cx.full(flat, 0, x.dtype()), -1, reshape(at, Ints(rows)), reshape(x, Ints(rows))),
                 Ints(whole));
}

constexpr OpDef kRows[] = {
    {
        .sig = "put_places(Tensor values, Tensor places, int size) -> Tensor",
        .doc = "Zeros [..., size] with each of values [..., m] added at its place in its row.",
        .compute = [](const Call& c) -> Results {
          const Tensor& v = c.tensor(0);
          check_floating(v.dtype(), "put_places");
          if (!std::ranges::equal(v.shape(), c.tensor(1).shape()) || v.ndim() == 0) {
            throw Error(Code::shape_mismatch, "put_places: expected values and places of one shape with dims, got " +
                                                  to_string(v.shape()) + " and " + to_string(c.tensor(1).shape()));
          }
          Shape shape(v.shape());
          shape[shape.size() - 1] = bounded(c.integer(2), 0, "put_places: the size is not negative");
          const DType in = v.dtype() == DType::float64 ? v.dtype() : DType::float32;
          const Tensor from = c.cx.contiguous(v, in), at = places_of(c), out = c.cx.empty(shape, in);
          if (out.numel() > 0 || v.numel() > 0)
            launch(c.cx, GW_KERNEL(put_places), {out.view()}, {from.view(), at.view()});
          return c.cx.contiguous(out, v.dtype());
        },
        .saves = {in(1)},
        .vjp = [](const Vjp& g) -> Grads { return {{take_places(g.dout(), g.in(1))}}; },
        .examples = {{"[[1., 2.], [3., 4.]]; [[0, 2], [1, 1]]; 3", "[[1., 0., 2.], [0., 7., 0.]]"}},
        .samples = {"f(2, 3); i5(2, 3); 5", "f(4); i5(4); 6", "f(0, 3); i5(0, 3); 5"},
    },
    {
        .sig = "take_places(Tensor self, Tensor places) -> Tensor",
        .doc = "The elements of self [..., n] at the places [..., m] of their row: the gradient of put_places.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          check_rows("take_places", x.shape(), c.tensor(1).shape());
          const Tensor from = c.cx.contiguous(x), at = places_of(c), out = c.cx.empty(at.shape(), x.dtype());
          if (at.numel() > 0) launch(c.cx, GW_KERNEL(take_places), {out.view()}, {from.view(), at.view()});
          return out;
        },
        .saves = {in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          return {{put_places(g.dout(), g.in(1), g.shape(0)[g.shape(0).size() - 1])}};
        },
        .examples = {{"[[1., 2., 3.]]; [[2, 0]]", "[[3., 1.]]"}},
        .samples = {"f(2, 5); i5(2, 3)", "f(6); i5(4)"},
    },
    {
        .sig = "max_unpool1d(Tensor input, Tensor indices, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, "
               "int[]? output_size=None) -> Tensor",
        .doc = "Zeros, with the elements of input [N, C, L] or [C, L] at the places that max_pool1d has given.",
        .compose = unpool<1>,
        .examples = {{"[[[3., 5.]]]; [[[1, 3]]]; 2", "[[[0., 3., 0., 5.]]]"}},
        .samples = {"f(1, 2, 3); [[[0, 2, 4], [5, 1, 3]]]; 2"},
    },
    {
        .sig = "max_unpool2d(Tensor input, Tensor indices, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, "
               "int[]? output_size=None) -> Tensor",
        .doc = "Zeros, with the elements of input [N, C, H, W] or [C, H, W] at the places that max_pool2d has given.",
        .compose = unpool<2>,
        .examples = {{"[[[[5.]]]]; [[[[3]]]]; 2", "[[[[0., 0.], [0., 5.]]]]"}},
        .samples = {"f(1, 2, 2, 1); [[[[0], [14]], [[3], [2]]]]; 2; output_size=(5, 3)"},
    },
    {
        .sig = "max_unpool3d(Tensor input, Tensor indices, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, "
               "int[]? output_size=None) -> Tensor",
        .doc = "Zeros, with the elements of input [N, C, D, H, W] or [C, D, H, W] at the places that max_pool3d has "
               "given.",
        .compose = unpool<3>,
        .examples = {{"[[[[[7.]]]]]; [[[[[4]]]]]; 2", "[[[[[0., 0.], [0., 0.]], [[7., 0.], [0., 0.]]]]]"}},
        .samples = {"f(1, 1, 1, 2, 1); [[[[[1], [4]]]]]; 2"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kUnpoolOps = kRows;

}  // namespace gradwire::engine
