// History itself: what is recorded, cut, kept, and walked back; and copies of values.
#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kItself = "history is what it is about";

Results walk(const Call& c) {
  BackwardTask task(c.cx, c.row.id, {c.args, static_cast<size_t>(c.row.params)});
  if (!task.step(nullptr, nullptr))
    throw Error(Code::internal, "a backward that other ranks take part in runs in steps");
  return task.take();
}

constexpr OpDef kRows[] = {
    {
        .sig = "clone(Tensor self) -> Tensor",
        .doc = "A copy in row-major order; gradients go through.",
        .compute = [](const Call& c) -> Results { return copy_of(c.cx, c.tensor(0)); },
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout()}}; },
        .examples = {{"[1., 2.]", "[1., 2.]"}},
        .samples = {"f(2, 3)", "f()", "f(0)"},
    },
    {
        .sig = "contiguous(Tensor self) -> Tensor",
        .doc = "self where it is contiguous already, else a copy.",
        .compose = [](const Call& c) -> Results {
          return c.tensor(0)->contiguous ? c.tensor(0) : gradwire::clone(c.tensor(0));
        },
        .examples = {{"[1., 2.]", "[1., 2.]"}},
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "cast(Tensor self, dtype dtype) -> Tensor",
        .doc =
            "A copy in another dtype. Floating to integer truncates toward zero and wraps; NaN and infinities give 0.",
        .compute = [](const Call& c) -> Results {
          const Tensor out = c.cx.empty(c.tensor(0).shape(), c.args[1].dtype);
          c.cx.copy(out, c.tensor(0));
          return out;
        },
        .vjp = [](const Vjp& g) -> Grads { return {{g.dout()}}; },
        .examples = {{"[1.9, -1.9]; 'int64'", "[1, -1]"}},
        .samples = {"f(2, 3); 'float64'"},
    },
    {
        .sig = "to(Tensor self, dtype dtype, *, bool copy=False) -> Tensor",
        .doc = "self in another dtype: self itself where it has it already, unless copy is given.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.dtype() == c.args[1].dtype) return c.flag(2) ? gradwire::clone(x) : x;
          return cast(x, c.args[1].dtype);
        },
        .examples = {{"[1.9, -1.9]; 'int64'", "[1, -1]"}},
        .samples = {"f(2, 3); 'float64'"},
    },
    {
        .sig = "copy(Tensor self, Tensor src) -> Tensor",
        .inplace = true,
        .doc = "src's values, broadcast and converted, in self's shape and dtype.",
        .write =
            [](const Call& c, const Tensor& target) {
              Tensor src = c.tensor(1);
              if (!broadcasts_to(src.shape(), target.shape())) {
                throw Error(Code::shape_mismatch, "output with shape " + to_string(target.shape()) +
                                                      " doesn't match the broadcast shape " +
                                                      to_string(broadcast_shapes(target.shape(), src.shape())));
              }
              if (src->storage == target->storage) src = copy_of(c.cx, src);
              Shape strides(target.shape().size(), 0);
              expand_strides(src.shape(), src.strides(), target.shape(), strides.data());
              c.cx.copy(target, c.cx.alias(src, target.shape(), strides, src->offset));
            },
        .vjp = [](const Vjp& g) -> Grads {
          Grads d;
          if (g.needs(0)) d.at[0] = zeros_like(g.dout());
          if (g.needs(1)) d.at[1] = g.dout();
          return d;
        },
        .examples = {{"[1., 2.]; [5.]", "[5., 5.]"}},
        .samples = {"f(2, 3); f(3)", "f(2); f(2)"},
    },
    {
        .sig = "fill(Tensor self, Scalar value) -> Tensor",
        .inplace = true,
        .doc = "value everywhere, in self's shape and dtype.",
        .write =
            [](const Call& c, const Tensor& target) {
              char number[16];
              store_scalar(number, target.dtype(), c.scalar(1));  // refuses what does not fit
              const Tensor one = c.cx.full({}, c.scalar(1), target.dtype());
              const Shape strides(target.shape().size(), 0);
              c.cx.copy(target, c.cx.alias(one, target.shape(), strides, 0));
            },
        .vjp = [](const Vjp& g) -> Grads { return {{zeros_like(g.dout())}}; },
        .examples = {{"[1., 2.]; 5", "[5., 5.]"}},
        .samples = {"f(2, 3); 1.5"},
    },
    {
        .sig = "zero(Tensor self) -> Tensor",
        .inplace = true,
        .doc = "0 everywhere, in self's shape and dtype.",
        .write =
            [](const Call& c, const Tensor& target) {
              const Tensor one = c.cx.full({}, 0, target.dtype());
              c.cx.copy(target, c.cx.alias(one, target.shape(), Shape(target.shape().size(), 0), 0));
            },
        .vjp = [](const Vjp& g) -> Grads { return {{zeros_like(g.dout())}}; },
        .examples = {{"[1., 2.]", "[0., 0.]"}},
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "detach(Tensor self) -> Tensor",
        .doc = "self without history: shares storage and the count of in-place writes.",
        .compute = [](const Call& c) -> Results {
          Tensor t = shallow(c.tensor(0), false);
          return t;
        },
        .no_grad = kItself,
        .examples = {{"[1., 2.]", "[1., 2.]"}},
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "through(Tensor self) -> Tensor",
        .doc =
            "self, whose gradient counts as a function of self: for linear operators whose second derivative PyTorch "
            "gives as zeros rather than none.",
        .view = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          return c.cx.alias(x, x.shape(), x.strides(), x->offset);
        },
        .saves = {in(0)},
        .vjp = [](const Vjp& g) -> Grads { return {{constant_of(g.dout(), g.in(0))}}; },
        .examples = {{"[1., 2.]", "[1., 2.]"}},
        .samples = {"f(2, 3)", "f()"},
    },
    {
        .sig = "constant_of(Tensor grad, Tensor self) -> Tensor",
        .doc = "grad, as a function of self that does not change with it: its derivative for self is zeros.",
        .view = [](const Call& c) -> Results {
          const Tensor& g = c.tensor(0);
          return c.cx.alias(g, g.shape(), g.strides(), g->offset);
        },
        .vjp = [](const Vjp& g) -> Grads {
          return {{g.dout(), g.needs(1) ? g.cx.full(g.shape(1), 0, g.dtype(1)) : Tensor()}};
        },
        .examples = {{"[1., 2.]; [5.]", "[1., 2.]"}},
        .samples = {"f(2, 3); f(2, 3)"},
    },
    {
        .sig = "data(Tensor self) -> Tensor",
        .doc = "As detach, but with a count of writes of its own: autograd does not notice what is written through it.",
        .compute = [](const Call& c) -> Results {
          Tensor t = shallow(c.tensor(0), false);
          auto* fresh = new (c.cx.pool.take(sizeof(Version))) Version{1, 0};
          if (t->own_version) --t->own_version->refs;  // another holds it: it was copied from one that lives
          t->own_version = fresh;
          return t;
        },
        .no_grad = kItself,
        .examples = {{"[1., 2.]", "[1., 2.]"}},
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "requires_grad_(Tensor self, bool requires_grad=True) -> Tensor",
        .doc = "Has autograd record what is made of self from here on. Floating leaves only.",
        .compute = [](const Call& c) -> Results {
          const Tensor& t = c.tensor(0);
          if (c.flag(1)) {
            if (!t.requires_grad()) require_grad(t);
          } else if (!t.is_leaf()) {
            throw Error(Code::bad_argument,
                        "you can only change requires_grad flags of leaf variables. If you want to use a computed "
                        "variable in a subgraph that doesn't require differentiation use "
                        "var_no_grad = var.detach().");
          } else if (Node* n = std::exchange(t->node, nullptr)) {
            n->owner = nullptr;
            Node::release(c.cx, n);
          }
          return t;
        },
        .no_grad = kItself,
        .samples = {"f(2)", "f(2); False"},
    },
    {
        .sig = "Variable(Tensor data, bool requires_grad=False, bool volatile=False) -> Tensor",
        .doc = "data as a leaf, sharing its storage: for programs of the time when variables wrapped tensors. volatile "
               "warns and has no effect.",
        .compute = [](const Call& c) -> Results {
          if (c.flag(2)) {
            c.cx.warn("Variable", "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.");
          }
          Tensor t = shallow(c.tensor(0), false);
          if (c.flag(1)) require_grad(t);
          return t;
        },
        .no_grad = kItself,
        .examples = {{"[1., 2.]; requires_grad=True", "[1., 2.]"}},
        .samples = {"f(2, 3)", "f(2); True"},
    },
    {
        .sig = "set_compat(str name, bool enabled=True) -> ()",
        .doc =
            "Turns an older behaviour of the session on or off: arange_float, pointwise_fallback, broadcast_warning, "
            "keepdim_warning, no_type_promotion or integer_division.",
        .compute = [](const Call& c) -> Results {
          c.cx.compat.*compat_flag(c.text(0)) = c.flag(1);
          return {};
        },
        .no_grad = kItself,
        .samples = {"'arange_float'; False"},
    },
    {
        .sig = "is_compat(str name) -> Tensor",
        .doc = "Whether an older behaviour of the session is on.",
        .compute = [](const Call& c) -> Results {
          return c.cx.full({}, c.cx.compat.*compat_flag(c.text(0)), DType::boolean);
        },
        .no_grad = kItself,
        .examples = {{"'keepdim_warning'", "False"}},
        .samples = {"'arange_float'"},
    },
    {
        .sig = "retain_grad(Tensor self) -> ()",
        .doc = "Has a tensor that is no leaf keep its gradient in .grad.",
        .compute = [](const Call& c) -> Results {
          refresh(c.tensor(0));
          retain_grad(c.tensor(0));
          return {};
        },
        .no_grad = kItself,
        .samples = {"f(2)"},
    },
    {
        .sig = "set_grad(Tensor self, Tensor? grad) -> ()",
        .doc = "Assigns .grad, or drops it with None.",
        .compute = [](const Call& c) -> Results {
          const Tensor& t = c.tensor(0);
          if (c.has(1)) {
            const Tensor& g = c.tensor(1);
            if (!std::ranges::equal(g.shape(), t.shape()))
              throw Error(Code::shape_mismatch, "assigned grad has data of a different size");
            if (g.dtype() != t.dtype()) throw Error(Code::dtype_mismatch, "assigned grad has data of a different type");
            if (g.get() == t.get()) throw Error(Code::bad_argument, "can't assign Variable as its own grad");
          }
          extra(t).grad = c.has(1) ? c.tensor(1) : Tensor();
          return {};
        },
        .no_grad = kItself,
        .samples = {"f(2); f(2)", "f(2); None"},
    },
    {
        .sig = "zero_grad(Tensor[] tensors, *, bool set_to_none=False) -> ()",
        .doc =
            "Sets the gradients of these tensors to zero, in place and without history; with set_to_none drops them.",
        .compute = [](const Call& c) -> Results {
          for (const Tensor& t : c.tensors(0)) {
            if (!t->extra || !t->extra->grad) continue;
            Tensor& g = t->extra->grad;
            if (c.flag(1)) {
              g = Tensor();
              continue;
            }
            if (g->node && !g->node->is_leaf()) g = shallow(g, false);
            const GradMode mode(c.cx, false);
            zero_(g);
          }
          return {};
        },
        .no_grad = kItself,
        .samples = {"f(2); f(3)", "f(2); set_to_none=True"},
    },
    {
        .sig = "backward(Tensor self, Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False, "
               "Tensor[]? inputs=None) -> ()",
        .doc =
            "Adds the gradient of self to the .grad of the leaves that it was made of (only of `inputs` if given). A "
            "tensor of several "
            "elements needs `gradient`. Frees what was saved unless retain_graph, which is create_graph if not given.",
        .compute = walk,
        .no_grad = kItself,
        .samples = {"f()", "f(2); f(2)"},
    },
    {
        .sig = "grad(Tensor[] outputs, Tensor[] inputs, Tensor?[]? grad_outputs=None, bool? retain_graph=None, bool "
               "create_graph=False, bool allow_unused=False) -> Tensor[]",
        .doc = "The gradients of the outputs with respect to the inputs; .grad stays as it is. With create_graph they "
               "can be "
               "differentiated again. An input that plays no part is an error, or with allow_unused gives none.",
        .compute = walk,
        .no_grad = kItself,
        .samples = {"f(); inputs=f()", "f(2); inputs=f(2); grad_outputs=f(2); allow_unused=True"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kAutogradOps = kRows;

}  // namespace gradwire::engine
