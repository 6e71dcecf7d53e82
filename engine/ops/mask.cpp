// Elements picked and placed by masks, and where a mask holds.
#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/pick.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kWhole = "its result is whole numbers";

// Parameter i as a mask of bool; bytes are taken with a warning.
Tensor as_mask(const Call& c, int i, const std::string& op) {
  const Tensor& t = c.tensor(i);
  if (t.dtype() == DType::boolean) return t;
  if (t.dtype() != DType::uint8) throw Error(Code::dtype_mismatch, op + ": expected BoolTensor or ByteTensor for mask");
  c.cx.warn(op, op + " received a mask with dtype torch.uint8, this behavior is now deprecated,please "
                     "use a mask with dtype torch.bool instead.");
  return c.cx.contiguous(t, DType::boolean);
}

Tensor indexes_of(Context& cx, const Tensor& t) {
  const Tensor count = cx.empty({}, DType::int64);
  launch(cx, GW_KERNEL(count_nonzero), {count.view()}, {t.view()});
  const Tensor all = cx.empty(Shape{item(count).integer(), t.ndim()}, DType::int64);
  if (all.numel() > 0) launch(cx, GW_KERNEL(nonzero), {all.view()}, {t.view()});
  return all;
}

constexpr OpDef kRows[] = {
    {
        .sig = "masked_select(Tensor self, Tensor mask) -> Tensor",
        .doc = "The elements where the mask (bool) holds, in row-major order; both broadcast.",
        .compose = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), mask = as_mask(c, 1, "masked_select");
          const Shape shape = broadcast_shapes(mask.shape(), x.shape());
          const Tensor all = expand(x, shape), where = expand(mask, shape);
          return x.ndim() == 0 && shape.empty() ? gradwire::index(reshape(all, {1}), {reshape(where, {1})})
                                                : gradwire::index(all, {where});
        },
        .examples = {{"[[0, 1, 2], [3, 4, 5]]; [True, False, True]", "[0, 2, 3, 5]"}},
        .samples = {"f(2, 3); b(2, 3)", "f(2, 1); b(3)", "f(3); b(2, 1)", "f(0); b(0)"},
    },
    {
        .sig = "masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
        .doc =
            "self with the elements of source in row-major order where the mask (bool) holds; self and mask broadcast.",
        .compose = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &mask = c.tensor(1);
          const Shape shape = broadcast_shapes(mask.shape(), x.shape());
          return masked_scatter_(gradwire::clone(expand(x, shape)), mask, c.tensor(2));
        },
        .examples = {{"[0., 0., 0., 0.]; [False, True, False, True]; [7., 8.]", "[0., 7., 0., 8.]"}},
        .samples = {"f(2, 3); b(3); f(6)", "f(3); b(2, 1); f(2, 3)", "f(2); b(2); f(4)"},
    },
    {
        .sig = "masked_scatter_(Tensor self, Tensor mask, Tensor source) -> Tensor",
        .doc = "Writes the elements of source in row-major order into self where the mask (bool, broadcast) holds.",
        .write =
            [](const Call& c, const Tensor& target) {
              const Tensor mask = as_mask(c, 1, "masked_scatter_"), &source = c.tensor(2);
              if (source.dtype() != target.dtype()) {
                throw Error(Code::dtype_mismatch,
                            std::string("masked_scatter: expected self and source to have same dtypes but got") +
                                row(target.dtype()).torch + " and " + row(source.dtype()).torch);
              }
              const Tensor where = expand(mask, Ints(target.shape()));
              const Tensor count = c.cx.empty({}, DType::int64);
              launch(c.cx, GW_KERNEL(count_nonzero), {count.view()}, {where.view()});
              const int64_t n = item(count).integer();
              if (n > source.numel())
                throw Error(Code::shape_mismatch, "Number of elements of source < number of ones in mask");
              if (n == 0) return;
              const Tensor flat = c.cx.contiguous(source);
              const Tensor first = c.cx.alias(flat, Shape{n}, Shape{1}, flat->offset);
              const IndexItem<Tensor> item(where);
              assign_picked(c.cx, target, {&item, 1}, first, false);
            },
        .saves = {in(1)},
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          const Tensor& mask = g.in(1);
          const Tensor where = mask.dtype() == DType::boolean ? mask : cast(mask, DType::boolean);
          if (g.needs(0)) d.at[0] = gradwire::where(where, 0, g.dout());
          if (g.needs(2)) {
            int64_t n = 1;
            for (const int64_t s : g.shape(2)) n *= s;  // as many as a tensor has
            const Tensor picked = masked_select(g.dout(), where);
            d.at[2] = reshape(slice_backward(picked, {n}, 0, 0, picked.numel(), 1), Ints(g.shape(2)));
          }
          return d;
        },
        .samples = {"f(2, 3); b(3); f(6)", "f(2); b(2); f(4)"},
    },
    {
        .sig = "nonzero(Tensor self, *, bool as_tuple=False) -> Tensor",
        .doc = "The indexes of all elements that are not 0, a row each, in row-major order.",
        .compute = [](const Call& c) -> Results {
          if (c.flag(1)) throw Error(Code::bad_argument, "nonzero(): nonzero_numpy gives a tuple of tensors");
          return indexes_of(c.cx, c.tensor(0));
        },
        .no_grad = kWhole,
        .examples = {{"[[0, 1], [2, 0]]", "[[0, 1], [1, 0]]"}},
        .samples = {"f(2, 3)", "b(4)", "f()", "f(0, 2)"},
    },
    {
        .sig = "nonzero_numpy(Tensor self) -> Tensor[]",
        .doc = "As nonzero, but with a vector of indexes for each dim: what PyTorch gives with as_tuple=True.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const Tensor all = indexes_of(c.cx, x.ndim() == 0 ? c.cx.alias(x, Shape{1}, Shape{1}, x->offset) : x);
          std::vector<Tensor> columns;
          for (int d = 0; d < all.size(1); ++d) columns.push_back(copy_of(c.cx, selected(c.cx, all, 1, d)));
          return columns;
        },
        .no_grad = kWhole,
        .examples = {{"[[0, 1], [2, 0]]", "[0, 1]; [1, 0]"}},
        .samples = {"f(2, 3)", "f()"},
    },
    {
        .sig = "argwhere(Tensor self) -> Tensor",
        .doc = "nonzero under NumPy's name.",
        .compute = [](const Call& c) -> Results { return indexes_of(c.cx, c.tensor(0)); },
        .no_grad = kWhole,
        .examples = {{"[0, 1, 2]", "[[1], [2]]"}},
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "one_hot(Tensor self, int num_classes=-1) -> Tensor",
        .doc = "For each class number (int64) a row of zeros with a 1 there; -1 stands for one more than the largest "
               "number.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.dtype() != DType::int64)
            throw Error(Code::dtype_mismatch, "one_hot is only applicable to index tensor.");
          int64_t classes = c.integer(1), least = 0, most = -1;
          const HostInts values(c.cx, x);
          for (const int64_t v : values.values()) least = std::min(least, v), most = std::max(most, v);
          if (x.numel() == 0 && classes <= 0)
            throw Error(Code::bad_argument, "Can not infer total number of classes from empty tensor.");
          if (least < 0) throw Error(Code::index_out_of_range, "Class values must be non-negative.");
          if (classes == -1)
            classes = checked_sum(most, 1);
          else if (most >= classes)
            throw Error(Code::index_out_of_range, "Class values must be smaller than num_classes.");
          Shape shape(x.shape()), column(x.shape());
          shape.push_back(classes), column.push_back(1);
          const Tensor out = c.cx.full(shape, 0, DType::int64);
          return scatter_(out, -1, reshape(x, column), 1);
        },
        .no_grad = kWhole,
        .examples = {{"[0, 2]", "[[1, 0, 0], [0, 0, 1]]"}},
        .samples = {"i3(4)", "i3(2, 2); 5", "i3(); 3", "i3(0); 2"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kMaskOps = kRows;

}  // namespace gradwire::engine
