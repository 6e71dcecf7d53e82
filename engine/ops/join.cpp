// Tensors put together and taken apart.
#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/pick.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr int64_t kMaxParts = Node::kMaxOutputs;

// cat leaves out what PyTorch once had for "nothing": a tensor of shape [0] goes with any others.
bool nothing(std::span<const int64_t> shape) { return shape.size() == 1 && shape[0] == 0; }

Results joined(const Call& c) {
  const std::span<const Tensor> all = c.tensors(0);
  if (all.empty()) throw Error(Code::bad_argument, "torch.cat(): expected a non-empty list of Tensors");
  Promotion p;
  const Tensor* like = nullptr;
  for (size_t k = 0; k < all.size(); ++k) {
    if (all[k].ndim() == 0) {
      throw Error(Code::shape_mismatch,
                  "zero-dimensional tensor (at position " + std::to_string(k) + ") cannot be concatenated");
    }
    p.add(all[k]);
    if (!like && !nothing(all[k].shape())) like = &all[k];
  }
  if (!like) return c.cx.empty(Shape{0}, p.result());
  const int dim = wrap_dim(c.integer(1), like->ndim());
  const auto d = static_cast<size_t>(dim);
  Shape shape(like->shape());
  shape[d] = 0;
  for (size_t k = 0; k < all.size(); ++k) {
    const std::span<const int64_t> s = all[k].shape();
    if (nothing(s)) continue;
    if (s.size() != shape.size()) {
      throw Error(Code::shape_mismatch, "Tensors must have same number of dimensions: got " +
                                            std::to_string(shape.size()) + " and " + std::to_string(s.size()));
    }
    for (size_t i = 0; i < s.size(); ++i) {
      if (i == d || s[i] == shape[i]) continue;
      throw Error(Code::shape_mismatch, "Sizes of tensors must match except in dimension " + std::to_string(d) +
                                            ". Expected size " + std::to_string(shape[i]) + " but got size " +
                                            std::to_string(s[i]) + " for tensor number " + std::to_string(k) +
                                            " in the list.");
    }
    shape[d] = checked_sum(shape[d], s[d]);
  }
  const Tensor out = c.cx.empty(shape, p.result());
  int64_t at = 0;
  for (const Tensor& t : all) {
    if (nothing(t.shape())) continue;
    c.cx.copy(sliced(c.cx, out, dim, at, t.size(dim)), t);
    at += t.size(dim);
  }
  return out;
}

// Views of parts of these sizes.
Results parts(const Call& c, int dim, std::span<const int64_t> sizes) {
  std::vector<Tensor> all;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    all.push_back(sliced(c.cx, c.tensor(0), dim, at, size));
    at += size;
  }
  return all;
}

Grads put_back(const Vjp& g, int64_t dim) {
  std::vector<Tensor> all;
  for (uint32_t i = 0; i < g.node.outs; ++i) all.push_back(g.dout(static_cast<int>(i)));
  return {{cat(all, dim)}};
}

Error too_many(int64_t n) {
  return Error(Code::bad_argument, std::to_string(n) + " parts are over the limit of " + std::to_string(kMaxParts));
}

constexpr OpDef kRows[] = {
    {
        .sig = "cat(Tensor[] tensors, int dim=0) -> Tensor",
        .doc = "The tensors one after the other along a dim, in the dtype that all promote to.",
        .compute = joined,
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          int64_t at = 0;
          const int ndim = static_cast<int>(g.out_shape().size());
          const int dim = wrap_dim(g.integer(1), ndim);
          for (int k = 0; k < g.node.edge_count; ++k) {
            const std::span<const int64_t> shape = g.shape(0, k);
            Tensor& one = d.list.emplace_back();
            if (nothing(shape)) {
              if (g.needs(0, k)) one = g.cx.full(shape, 0, g.dtype(0, k));
              continue;
            }
            const int64_t end = at + shape[static_cast<size_t>(dim)];
            if (g.needs(0, k)) one = slice(g.dout(), dim, at, end);
            at = end;
          }
          return d;
        },
        .examples = {{"[1., 2.]; [3.]", "[1., 2., 3.]"}, {"[[1], [2]]; [[3], [4]]; dim=1", "[[1, 3], [2, 4]]"}},
        .samples = {"f(2, 3); f(1, 3)", "f(2, 1); f(2, 3); dim=-1", "f(0); f(2, 3); f(0)", "f(0); f(0)"},
    },
    {
        .sig = "stack(Tensor[] tensors, int dim=0) -> Tensor",
        .doc = "Tensors of one shape along a new dim, in the dtype that all promote to.",
        .compute = [](const Call& c) -> Results {
          const std::span<const Tensor> all = c.tensors(0);
          if (all.empty()) throw Error(Code::bad_argument, "stack expects a non-empty TensorList");
          const int dim = wrap_dim(c.integer(1), all[0].ndim() + 1);
          Promotion p;
          for (size_t k = 0; k < all.size(); ++k) {
            if (!std::ranges::equal(all[k].shape(), all[0].shape())) {
              throw Error(Code::shape_mismatch, "stack expects each tensor to be equal size, but got " +
                                                    to_string(all[0].shape()) + " at entry 0 and " +
                                                    to_string(all[k].shape()) + " at entry " + std::to_string(k));
            }
            p.add(all[k]);
          }
          Shape shape(all[0].shape());
          shape.insert(static_cast<size_t>(dim), static_cast<int64_t>(all.size()));
          const Tensor out = c.cx.empty(shape, p.result());
          for (size_t k = 0; k < all.size(); ++k) c.cx.copy(selected(c.cx, out, dim, static_cast<int64_t>(k)), all[k]);
          return out;
        },
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          for (int k = 0; k < g.node.edge_count; ++k) {
            d.list.emplace_back();
            if (g.needs(0, k)) d.list.back() = select(g.dout(), g.integer(1), k);
          }
          return d;
        },
        .examples = {{"[1., 2.]; [3., 4.]", "[[1., 2.], [3., 4.]]"}},
        .samples = {"f(2, 3); f(2, 3)", "f(2); f(2); f(2); dim=-1", "f(); f()", "f(0); f(0); dim=1"},
    },
    {
        .sig = "split(Tensor self, int split_size_or_sections, int dim=0) -> Tensor[]",
        .doc = "Views of parts of this size along a dim; the last one may be smaller.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.ndim() == 0) throw Error(Code::shape_mismatch, "split expects at least a 1-dimensional tensor");
          const int dim = wrap_dim(c.integer(2), x.ndim());
          const int64_t part = c.integer(1), size = x.size(dim);
          if (part < 0) {
            throw Error(Code::bad_argument,
                        "split expects split_size be non-negative, but got split_size=" + std::to_string(part));
          }
          if (part == 0 && size > 0) {
            throw Error(
                Code::bad_argument,
                "split_size can only be 0 if dimension size is 0, but got dimension size of " + std::to_string(size));
          }
          const int64_t n = size == 0 ? 1 : (size - 1) / part + 1;
          if (n > kMaxParts) throw too_many(n);
          Shape sizes(static_cast<size_t>(n), part);
          sizes[static_cast<size_t>(n - 1)] = size - (n - 1) * part;
          return parts(c, dim, sizes);
        },
        .vjp = [](const Vjp& g) -> Grads { return put_back(g, g.integer(2)); },
        .examples = {{"[1., 2., 3.]; 2", "[1., 2.]; [3.]"}},
        .samples = {"f(5); 2", "f(2, 4); 2; -1", "f(3); 3", "f(0, 2); 0"},
    },
    {
        .sig = "split.sizes(Tensor self, int[] split_size_or_sections, int dim=0) -> Tensor[]",
        .doc = "Views of parts of these sizes along a dim.",
        .compose = [](const Call& c) -> Results {
          return split_with_sizes(c.tensor(0), Ints(c.ints(1)), c.integer(2));
        },
        .examples = {{"[1., 2., 3.]; (1, 2)", "[1.]; [2., 3.]"}},
        .samples = {"f(5); (1, 4)"},
    },
    {
        .sig = "split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        .doc = "Views of parts of these sizes along a dim.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.ndim() == 0) throw Error(Code::shape_mismatch, "split expects at least a 1-dimensional tensor");
          const int dim = wrap_dim(c.integer(2), x.ndim());
          const std::span<const int64_t> sizes = c.ints(1);
          if (static_cast<int64_t>(sizes.size()) > kMaxParts) throw too_many(static_cast<int64_t>(sizes.size()));
          int64_t sum = 0;
          for (const int64_t size : sizes) {
            if (size < 0) {
              throw Error(Code::bad_argument,
                          "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes=" +
                              to_string(sizes));
            }
            sum = checked_sum(sum, size);
          }
          if (sum != x.size(dim)) {
            throw Error(Code::bad_argument, "split_with_sizes expects split_sizes to sum exactly to " +
                                                std::to_string(x.size(dim)) + " (input tensor's size at dimension " +
                                                std::to_string(dim) + "), but got split_sizes=" + to_string(sizes));
          }
          return parts(c, dim, sizes);
        },
        .vjp = [](const Vjp& g) -> Grads { return put_back(g, g.integer(2)); },
        .examples = {{"[1., 2., 3.]; (1, 2)", "[1.]; [2., 3.]"}},
        .samples = {"f(5); (1, 0, 4)", "f(2, 3); (1, 2); -1"},
    },
    {
        .sig = "chunk(Tensor self, int chunks, int dim=0) -> Tensor[]",
        .doc = "At most so many views of parts of one size along a dim; the last one may be smaller.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.ndim() == 0) throw Error(Code::shape_mismatch, "chunk expects at least a 1-dimensional tensor");
          const int64_t n = c.integer(1);
          if (n <= 0) {
            throw Error(Code::bad_argument, "chunk expects `chunks` to be greater than 0, got: " + std::to_string(n));
          }
          const int64_t size = x.size(wrap_dim(c.integer(2), x.ndim()));
          if (size > 0) return split(x, (size - 1) / n + 1, c.integer(2));
          if (n > kMaxParts) throw too_many(n);
          return split_with_sizes(x, Shape(static_cast<size_t>(n), 0), c.integer(2));
        },
        .examples = {{"[1., 2., 3.]; 2", "[1., 2.]; [3.]"}},
        .samples = {"f(5); 3", "f(2, 4); 3; 1", "f(0, 2); 2"},
    },
    {
        .sig = "unbind(Tensor self, int dim=0) -> Tensor[]",
        .doc = "Views of all places of a dim, without the dim.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.ndim() == 0)
            throw Error(Code::index_out_of_range, "Dimension specified as 0 but tensor has no dimensions");
          const int dim = wrap_dim(c.integer(1), x.ndim());
          if (x.size(dim) > kMaxParts) throw too_many(x.size(dim));
          std::vector<Tensor> all;
          for (int64_t i = 0; i < x.size(dim); ++i) all.push_back(selected(c.cx, x, dim, i));
          return all;
        },
        .vjp = [](const Vjp& g) -> Grads {
          std::vector<Tensor> all;
          for (uint32_t i = 0; i < g.node.outs; ++i) all.push_back(g.dout(static_cast<int>(i)));
          return {{stack(all, g.integer(1))}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "[1., 2.]; [3., 4.]"}},
        .samples = {"f(2, 3)", "f(2, 3); -1", "f(3)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kJoinOps = kRows;

}  // namespace gradwire::engine
