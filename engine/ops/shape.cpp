// Views: the same memory under another shape. Gradients take the same way back.
#include "engine/apply.h"
#include "engine/pick.h"
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

// Parameters of slice and select behind the tensor, from i on.
Tensor slice_at(const Call& c, const Tensor& x, int i) {
  if (x.ndim() == 0) throw Error(Code::bad_argument, "slice() cannot be applied to a 0-dim tensor.");
  const int dim = wrap_dim(c.integer(i), x.ndim());
  const auto part = [&](int k) { return c.has(k) ? std::optional(c.integer(k)) : std::nullopt; };
  const int64_t step = c.integer(i + 3);
  const Range r = slice_range(part(i + 1), part(i + 2), step, x.size(dim));
  return sliced(c.cx, x, dim, r.start, r.length, step);
}

Tensor select_at(const Call& c, const Tensor& x, int i) {
  if (x.ndim() == 0) throw Error(Code::index_out_of_range, "select() cannot be applied to a 0-dim tensor.");
  const int dim = wrap_dim(c.integer(i), x.ndim());
  const int64_t place = c.integer(i + 1), size = x.size(dim);
  if (place < -size || place >= size) {
    throw Error(Code::index_out_of_range, "select(): index " + std::to_string(place) +
                                              " out of range for tensor of size " + to_string(x.shape()) +
                                              " at dimension " + std::to_string(dim));
  }
  return selected(c.cx, x, dim, place < 0 ? place + size : place);
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
          for (size_t d = size.size(); d-- > 0;) {
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
        .sig = "t(Tensor self) -> Tensor",
        .doc = "A matrix transposed; a view of self where it has fewer dims.",
        .compose = [](const Call& c) -> Results {
          const int n = c.tensor(0).ndim();
          if (n > 2) {
            throw Error(Code::shape_mismatch,
                        "t() expects a tensor with <= 2 dimensions, but self is " + std::to_string(n) + "D");
          }
          return transpose(c.tensor(0), 0, n < 2 ? 0 : 1);
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "[[1., 3.], [2., 4.]]"}},
        .samples = {"f(2, 3)", "f(3)", "f()", "f(0, 2)"},
    },
    {
        .sig = "swapaxes(Tensor self, int axis0, int axis1) -> Tensor",
        .doc = "transpose under NumPy's name.",
        .compose = [](const Call& c) -> Results { return transpose(c.tensor(0), c.integer(1), c.integer(2)); },
        .examples = {{"[[1., 2.], [3., 4.]]; 0; 1", "[[1., 3.], [2., 4.]]"}},
        .samples = {"f(2, 3); 0; 1"},
    },
    {
        .sig = "movedim(Tensor self, int[] source, int[] destination) -> Tensor",
        .doc = "A view with the source dims at the destination places; the other dims keep their order.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const std::span<const int64_t> from = c.ints(1), to = c.ints(2);
          if (from.size() != to.size()) {
            throw Error(Code::bad_argument, "movedim: Invalid source or destination dims: source (" + to_string(from) +
                                                " dims) should contain the same number of dims as destination (" +
                                                to_string(to) + " dims)");
          }
          bool moved[kMaxDims] = {};
          int64_t at[kMaxDims];
          std::fill(std::begin(at), std::end(at), -1);
          for (size_t k = 0; k < from.size(); ++k) {
            const int s = wrap_dim(from[k], x.ndim()), d = wrap_dim(to[k], x.ndim());
            if (std::exchange(moved[s], true))
              throw Error(Code::bad_argument, "movedim: repeated dim in `source` (" + to_string(from) + ")");
            if (std::exchange(at[d], s) >= 0)
              throw Error(Code::bad_argument, "movedim: repeated dim in `destination` (" + to_string(to) + ")");
          }
          Shape order;
          for (int d = 0, next = 0; d < x.ndim(); ++d) {
            if (at[d] < 0) {
              while (moved[next]) ++next;
              at[d] = next++;
            }
            order.push_back(at[d]);
          }
          return permute(x, order);
        },
        .examples = {{"[[1., 2.], [3., 4.]]; 0; 1", "[[1., 3.], [2., 4.]]"}},
        .samples = {"f(2, 3, 4); 0; 2", "f(2, 3, 4); (0, -1); (1, 0)", "f(0, 2); 1; 0", "f(); 0; 0"},
    },
    {
        .sig = "squeeze(Tensor self, int[]? dim=None) -> Tensor",
        .doc = "A view without the dims of size 1, or without those of them that `dim` names.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          bool named[kMaxDims] = {};
          if (c.has(1)) {
            for (const int64_t given : c.ints(1)) {
              const int d = wrap_dim(given, x.ndim());
              if (std::exchange(named[d], true)) {
                throw Error(Code::bad_argument,
                            "dim " + std::to_string(d) + " appears multiple times in the list of dims");
              }
            }
          }
          Shape shape, strides;
          for (int d = 0; d < x.ndim(); ++d) {
            if (x.size(d) == 1 && (!c.has(1) || named[d])) continue;
            shape.push_back(x.size(d)), strides.push_back(x.strides()[static_cast<size_t>(d)]);
          }
          return c.cx.alias(x, shape, strides, x->offset);
        },
        .vjp = [](const Vjp& g) -> Grads { return {{reshape(g.dout(), Ints(g.shape(0)))}}; },
        .examples = {{"[[1., 2.]]", "[1., 2.]"}, {"[[[1.], [2.]]]; 2", "[[1., 2.]]"}},
        .samples = {"f(1, 3, 1)", "f(1, 3, 1); -1", "f(1, 3, 1); (0, 1)", "f(2, 3); 0", "f(); 0", "f(0, 1)"},
    },
    {
        .sig = "unsqueeze(Tensor self, int dim) -> Tensor",
        .doc = "A view with a new dim of size 1 before `dim`; negative dims count from behind the last.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const auto d = static_cast<size_t>(wrap_dim(c.integer(1), x.ndim() + 1));
          Shape shape(x.shape()), strides(x.strides());
          const int64_t stride = d < shape.size() ? shape[d] * strides[d] : 1;
          shape.insert(d, 1), strides.insert(d, stride);
          return c.cx.alias(x, shape, strides, x->offset);
        },
        .vjp = [](const Vjp& g) -> Grads { return {{squeeze(g.dout(), g.integer(1))}}; },
        .examples = {{"[1., 2.]; 0", "[[1., 2.]]"}, {"[1., 2.]; -1", "[[1.], [2.]]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); -1", "f(); 0", "f(0); 0"},
    },
    {
        .sig = "flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor",
        .doc = "The dims from start_dim to end_dim as one: a view where the strides allow it, else a copy.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int first = wrap_dim(c.integer(1), x.ndim()), last = wrap_dim(c.integer(2), x.ndim());
          if (first > last)
            throw Error(Code::bad_argument, "flatten() has invalid args: start_dim cannot come after end_dim");
          if (x.ndim() == 0) return reshape(x, {1});
          if (first == last) return x;
          Shape shape;
          for (int d = 0; d < x.ndim(); ++d) {
            if (d <= first || d > last)
              shape.push_back(x.size(d));
            else
              shape[static_cast<size_t>(first)] *= x.size(d);  // no more than a tensor has
          }
          return reshape(x, shape);
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "[1., 2., 3., 4.]"}},
        .samples = {"f(2, 3)", "f(2, 3, 2); 1", "f(2, 3, 2); 0; -2", "f()", "f(0, 3)"},
    },
    {
        .sig = "unflatten(Tensor self, int dim, int[] sizes) -> Tensor",
        .doc = "A view with one dim cut into several; one -1 is inferred.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const auto d = static_cast<size_t>(wrap_dim(c.integer(1), x.ndim()));
          if (c.ints(2).empty()) throw Error(Code::bad_argument, "unflatten: sizes must be non-empty");
          const int64_t size = x.ndim() == 0 ? 1 : x.shape()[d];
          Shape cut;
          try {
            cut = infer_shape(c.ints(2), size);
          } catch (const Error&) {
            throw Error(Code::shape_mismatch, "unflatten: Provided sizes " + to_string(c.ints(2)) +
                                                  " don't multiply up to the size of dim " + std::to_string(d) + " (" +
                                                  std::to_string(size) + ") in the input tensor");
          }
          Shape shape(x.shape().first(d));
          for (const int64_t s : cut) shape.push_back(s);
          for (size_t k = d + 1; k < x.shape().size(); ++k) shape.push_back(x.shape()[k]);
          return view(x, shape);
        },
        .examples = {{"[1., 2., 3., 4.]; 0; (2, -1)", "[[1., 2.], [3., 4.]]"}},
        .samples = {"f(6); 0; (2, 3)", "f(2, 6); -1; (3, -1)"},
    },
    {
        .sig = "slice(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
        .doc = "The view self[start:end:step] of one dim, with Python's rules.",
        .view = [](const Call& c) -> Results { return slice_at(c, c.tensor(0), 1); },
        .vjp = [](const Vjp& g) -> Grads {
          const auto part = [&](int k) { return g.given(k) ? std::optional(g.integer(k)) : std::nullopt; };
          return {{slice_backward(g.dout(), Ints(g.shape(0)), g.integer(1), part(2), part(3), g.integer(4))}};
        },
        .examples = {{"[1., 2., 3., 4.]; 0; 1; None; 2", "[2., 4.]"}},
        .samples = {"f(5); 0; 1; 4", "f(2, 5); -1; None; None; 2", "f(2, 3); 0; 1; -5", "f(0); 0"},
    },
    {
        .sig = "slice_backward(Tensor grad, int[] input_sizes, int dim, int? start, int? end, int step) -> Tensor",
        .doc = "The gradient of slice: grad where the view was, in zeros.",
        .compute = [](const Call& c) -> Results {
          return embedded(c, c.tensor(0), c.ints(1), [](const Call& b, const Tensor& x) { return slice_at(b, x, 2); });
        },
        .vjp = [](const Vjp& g) -> Grads {
          const auto part = [&](int k) { return g.given(k) ? std::optional(g.integer(k)) : std::nullopt; };
          return {{slice(g.dout(), g.integer(2), part(3), part(4), g.integer(5))}};
        },
        .examples = {{"[1., 2.]; (4); 0; 1; None; 2", "[0., 1., 0., 2.]"}},
        .samples = {"f(3); (5); 0; 1; 4; 1", "f(2, 3); (2, 5); -1; None; None; 2"},
    },
    {
        .sig = "narrow(Tensor self, int dim, int start, int length) -> Tensor",
        .doc = "The view of `length` places of one dim from `start` on; a negative start counts from the end.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.ndim() == 0) throw Error(Code::bad_argument, "narrow() cannot be applied to a 0-dim tensor.");
          const int dim = wrap_dim(c.integer(1), x.ndim());
          const int64_t size = x.size(dim), length = c.integer(3);
          int64_t start = c.integer(2);
          if (length < 0) throw Error(Code::bad_argument, "narrow(): length must be non-negative.");
          if (start < -size || start > size) {
            throw Error(Code::index_out_of_range, "start out of range (expected to be in range of [" +
                                                      std::to_string(-size) + ", " + std::to_string(size) +
                                                      "], but got " + std::to_string(start) + ")");
          }
          if (start < 0) start += size;
          if (length > size - start) {
            throw Error(Code::bad_argument, "start (" + std::to_string(start) + ") + length (" +
                                                std::to_string(length) + ") exceeds dimension size (" +
                                                std::to_string(size) + ").");
          }
          return slice(x, dim, start, start + length);
        },
        .examples = {{"[1., 2., 3., 4.]; 0; 1; 2", "[2., 3.]"}},
        .samples = {"f(2, 5); 1; 1; 3", "f(4); -1; -2; 2", "f(3); 0; 3; 0"},
    },
    {
        .sig = "select(Tensor self, int dim, int index) -> Tensor",
        .doc = "The view of one place of a dim, without the dim.",
        .view = [](const Call& c) -> Results { return select_at(c, c.tensor(0), 1); },
        .vjp = [](const Vjp& g) -> Grads {
          return {{select_backward(g.dout(), Ints(g.shape(0)), g.integer(1), g.integer(2))}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]; 1; -1", "[2., 4.]"}},
        .samples = {"f(2, 3); 0; 1", "f(2, 3); -1; -3", "f(3); 0; 2", "f(2, 0); 0; 1"},
    },
    {
        .sig = "select_backward(Tensor grad, int[] input_sizes, int dim, int index) -> Tensor",
        .doc = "The gradient of select: grad in its place, in zeros.",
        .compute = [](const Call& c) -> Results {
          return embedded(c, c.tensor(0), c.ints(1), [](const Call& b, const Tensor& x) { return select_at(b, x, 2); });
        },
        .vjp = [](const Vjp& g) -> Grads { return {{select(g.dout(), g.integer(2), g.integer(3))}}; },
        .examples = {{"[1., 2.]; (2, 2); 0; 1", "[[0., 0.], [1., 2.]]"}},
        .samples = {"f(3); (2, 3); 0; 1", "f(2); (2, 3); -1; -3"},
    },
    {
        .sig = "expand_as(Tensor self, Tensor other) -> Tensor",
        .doc = "expand to other's shape.",
        .compose = [](const Call& c) -> Results { return expand(c.tensor(0), Ints(c.tensor(1).shape())); },
        .examples = {{"[[1.], [2.]]; [[0, 0], [0, 0]]", "[[1., 1.], [2., 2.]]"}},
        .samples = {"f(2, 1); i2(2, 3)"},
    },
    {
        .sig = "view_as(Tensor self, Tensor other) -> Tensor",
        .doc = "view under other's shape.",
        .compose = [](const Call& c) -> Results { return view(c.tensor(0), Ints(c.tensor(1).shape())); },
        .by_strides = true,
        .examples = {{"[1., 2.]; [[0], [0]]", "[[1.], [2.]]"}},
        .samples = {"f(2, 3); i2(6)"},
    },
    {
        .sig = "reshape_as(Tensor self, Tensor other) -> Tensor",
        .doc = "reshape to other's shape.",
        .compose = [](const Call& c) -> Results { return reshape(c.tensor(0), Ints(c.tensor(1).shape())); },
        .examples = {{"[1., 2.]; [[0], [0]]", "[[1.], [2.]]"}},
        .samples = {"f(2, 3); i2(6)"},
    },
    {
        .sig = "broadcast_to(Tensor self, int[] size) -> Tensor",
        .doc = "expand under NumPy's name.",
        .compose = [](const Call& c) -> Results { return expand(c.tensor(0), Ints(c.ints(1))); },
        .examples = {{"[1., 2.]; (2, 2)", "[[1., 2.], [1., 2.]]"}},
        .samples = {"f(3); (2, 3)"},
    },
    {
        .sig = "broadcast_tensors(Tensor[] tensors) -> Tensor[]",
        .doc = "Each tensor expanded to the shape that all broadcast to.",
        .compose = [](const Call& c) -> Results {
          Shape shape;
          for (const Tensor& t : c.tensors(0)) shape = broadcast_shapes(shape, t.shape());
          std::vector<Tensor> all;
          for (const Tensor& t : c.tensors(0)) all.push_back(expand(t, shape));
          return all;
        },
        .examples = {{"[[1.], [2.]]; [3., 4.]", "[[1., 1.], [2., 2.]]; [[3., 4.], [3., 4.]]"}},
        .samples = {"f(2, 1); f(3)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kShapeOps = kRows;

}  // namespace gradwire::engine
