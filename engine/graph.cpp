// The life of graphs: nodes are made, recorded and freed here. Nothing recurses: a chain of any length goes on any
// stack.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <new>

#include "engine/autograd.h"
#include "engine/optimizer.h"
#include "engine/reducer.h"
#include "engine/shape.h"

namespace gradwire::engine {

/// What has died and is not freed yet, in two lists threaded through the dead themselves.
struct Graveyard {
  explicit Graveyard(Context& context) : cx(context) {}
  Context& cx;
  Node* nodes = nullptr;
  TensorImpl* tensors = nullptr;

  void drop(TensorImpl* t) {
    if (t && --t->refs == 0) t->cx = reinterpret_cast<Context*>(std::exchange(tensors, t));
  }
  void drop(Tensor& t) { drop(t.take()); }
  void drop(Node* n) {
    if (n && --n->refs == 0) n->next = std::exchange(nodes, n);
  }

  void empty() {
    while (nodes || tensors) {
      if (TensorImpl* t = tensors) {
        tensors = reinterpret_cast<TensorImpl*>(t->cx);
        bury(t);
      } else {
        Node* n = std::exchange(nodes, nodes->next);
        bury(n);
      }
    }
  }

  void forget_owner(Node* n, const TensorImpl* t) {
    if (n->is_leaf()) {
      if (n->owner == t) n->owner = nullptr;
    } else if (t->retains_grad && n->side) {
      for (uint16_t i = 0; i < n->side->count; ++i) {
        if (n->side->owners && n->side->owners[i] == t) n->side->owners[i] = nullptr;
      }
    }
  }

  void bury(TensorImpl* t) {
    if (--t->storage->refs == 0) Storage::drop(t->storage);
    if (t->own_version && --t->own_version->refs == 0) cx.pool.give(t->own_version, sizeof(Version));
    if (Node* n = t->node) {
      forget_owner(n, t);
      drop(n);
    }
    if (Extra* e = t->extra) {
      (e->prev ? e->prev->next : cx.extras_) = e->next;
      if (e->next) e->next->prev = e->prev;
      if (e->reducer) {
        e->reducer->forget(e->reducer_slot);
        e->reducer.reset();
      }
      drop(e->grad);
      drop(e->base);
      if (e->optimizer) {
        e->optimizer->each_tensor([this](Tensor& held) { drop(held); });
        delete e->optimizer;
      }
      cx.pool.give(e, sizeof(Extra));
    }
    cx.pool.give(t, TensorImpl::block(t->ndim));
  }

  void bury(Node* n) {
    for (int k = 0; k < n->saved_count; ++k) drop(n->saved()[k]);
    drop(std::exchange(n->grad_, nullptr));
    for (int k = 0; k < n->edge_count; ++k) drop(n->edges()[k].node());
    auto give_meta = [this](Meta* m) {
      if (m) cx.pool.give(m, sizeof(Meta) + m->ndim * sizeof(int64_t));
    };
    if (n->metas) {
      for (int k = 0; k < n->edge_count; ++k) give_meta(n->metas[k]);
      cx.pool.give(n->metas, n->edge_count * sizeof(Meta*));
    }
    if (Attrs* a = n->attrs) {
      for (int k = 0; k < a->count; ++k) {
        const Bound& v = a->args()[k];
        if (v.kind == ArgKind::index) std::destroy_n(const_cast<IndexItem<Tensor>*>(v.index), v.count);
      }
      cx.pool.give(a, a->bytes);
    }
    if (!n->is_leaf() && n->side) {
      NodeSide* s = n->side;
      for (uint16_t i = 0; i < s->count; ++i) {
        if (s->outs) give_meta(s->outs[i]);
        if (s->grads) drop(s->grads[i]);
      }
      if (s->outs) cx.pool.give(s->outs, s->count * sizeof(Meta*));
      if (s->grads) cx.pool.give(s->grads, s->count * sizeof(Tensor));
      if (s->owners) cx.pool.give(s->owners, s->count * sizeof(TensorImpl*));
      cx.pool.give(s, sizeof(NodeSide));
    }
    --cx.nodes_;
    cx.pool.give(n, n->block());
  }
};

void Tensor::free(TensorImpl* t) {
  Graveyard g(*t->cx);
  g.bury(t);
  g.empty();
}

void Node::release(Context& cx, Node* n) {
  Graveyard g(cx);
  g.drop(n);
  g.empty();
}

void Node::free_saved(Context& cx) {
  if (saved_count == 0) return;
  flags |= kFreed;
  Graveyard g(cx);
  for (int k = 0; k < saved_count; ++k) g.drop(saved()[k]);
  g.empty();
}

Context::~Context() {
  // Gradients made with create_graph may lead back to their own tensors.
  for (Extra* e = extras_; e;) {
    if (!e->grad && !e->base) {
      e = e->next;
      continue;
    }
    Tensor grad = std::exchange(e->grad, Tensor()), base = std::exchange(e->base, Tensor());
    grad = base = Tensor();  // may free e, and others
    e = extras_;
  }
  pool.release();
}

Node* Node::make(Context& cx, OpId op, size_t edges, size_t saved, std::span<const int64_t> shape, DType dtype) {
  if (cx.nodes_ >= cx.limits().nodes) {
    throw Error(Code::memory_limit, "the autograd graph has reached the session's limit of " +
                                        std::to_string(cx.limits().nodes) + " nodes; release results, or use no_grad");
  }
  Node head{};
  head.refs = 1, head.op = op, head.edge_count = static_cast<uint16_t>(edges);
  head.saved_count = static_cast<uint8_t>(saved), head.ndim = static_cast<uint8_t>(shape.size());
  head.dtype = dtype, head.outs = 1;
  Node* n = new (cx.pool.take(head.block())) Node(head);
  n->sequence = cx.sequence_++;
  ++cx.nodes_;
  std::uninitialized_value_construct_n(n->edges(), edges);
  std::uninitialized_value_construct_n(n->saved(), saved);
  std::uninitialized_fill_n(n->versions(), saved, 0u);
  std::uninitialized_copy_n(shape.data(), shape.size(), n->dims());
  return n;
}

Extra& extra(const Tensor& t) {
  if (!t->extra) {
    Context& cx = *t->cx;
    t->extra = new (cx.pool.take(sizeof(Extra))) Extra;
    t->extra->next = cx.extras_;
    if (cx.extras_) cx.extras_->prev = t->extra;
    cx.extras_ = t->extra;
  }
  return *t->extra;
}

Tensor grad_of(const Tensor& t) { return t->extra ? t->extra->grad : Tensor(); }

Tensor shallow(const Tensor& t, bool with_history) {
  Context& cx = *t->cx;
  auto* p = static_cast<TensorImpl*>(cx.pool.take(TensorImpl::block(t->ndim)));
  std::memcpy(static_cast<void*>(p), t.get(), TensorImpl::block(t->ndim));
  p->refs = 1, p->extra = nullptr, p->retains_grad = p->saved = false;
  ++p->storage->refs;
  if (p->own_version) ++p->own_version->refs;
  if (!with_history) p->node = nullptr;
  if (p->node) ++p->node->refs;
  Tensor copy(p);
  if (p->node && t->extra && t->extra->output) extra(copy).output = t->extra->output;
  return copy;
}

void require_grad(const Tensor& t) {
  if (!is_floating(t.dtype())) {
    throw Error(Code::dtype_mismatch, "only Tensors of floating point dtype can require gradients");
  }
  if (t->node) return;
  t->node = Node::make(*t->cx, Node::kLeaf, 0, 0, t.shape(), t.dtype());
  t->node->owner = t.get();
}

namespace {

Meta* make_meta(Context& cx, std::span<const int64_t> shape, DType dtype) {
  auto* m =
      new (cx.pool.take(sizeof(Meta) + shape.size() * sizeof(int64_t))) Meta{dtype, static_cast<uint8_t>(shape.size())};
  std::copy(shape.begin(), shape.end(), m->dims());
  return m;
}

bool same(const Bound& a, const Bound& b) {
  if (a.kind != b.kind || a.count != b.count) return false;
  switch (a.kind) {
    case ArgKind::none:
      return true;
    case ArgKind::boolean:
      return a.b == b.b;
    case ArgKind::dtype:
      return a.dtype == b.dtype;
    default:
      return a.i == b.i;  // numbers by their bits, lists by where they are
  }
}

// One block: the arguments, then what their lists hold.
Attrs* copy_attrs(Context& cx, const OpRow& row, const Bound* args) {
  bool any = false;
  size_t bytes = sizeof(Attrs) + row.params * sizeof(Bound);
  for (int i = 0; i < row.params; ++i) {
    const Bound& v = args[i];
    if (v.kind == ArgKind::tensor || v.kind == ArgKind::tensors) continue;
    any = any || !same(v, row.defaults[i]);
    if (v.kind == ArgKind::ints || v.kind == ArgKind::floats || v.kind == ArgKind::bools) bytes += v.count * 8;
    if (v.kind == ArgKind::text) bytes += (v.count + 7) / 8 * 8;
    if (v.kind == ArgKind::index) bytes += v.count * sizeof(IndexItem<Tensor>);
  }
  if (!any) return nullptr;
  auto* a = new (cx.pool.take(bytes)) Attrs{static_cast<uint32_t>(bytes), row.params};
  char* at = reinterpret_cast<char*>(a->args() + row.params);
  for (int i = 0; i < row.params; ++i) {
    Bound& v = *new (&a->args()[i]) Bound(args[i]);
    switch (v.kind) {
      case ArgKind::tensor:
      case ArgKind::tensors:
        v.tensors = nullptr;  // the edges know them
        break;
      case ArgKind::ints:
      case ArgKind::floats:
      case ArgKind::bools:
        if (v.count) std::memcpy(at, args[i].ints, v.count * 8);
        v.ints = reinterpret_cast<const int64_t*>(at), at += v.count * 8;
        break;
      case ArgKind::text:
        std::memcpy(at, args[i].text, v.count);
        v.text = at, at += (v.count + 7) / 8 * 8;
        break;
      case ArgKind::index:
        std::uninitialized_copy_n(args[i].index, v.count, reinterpret_cast<IndexItem<Tensor>*>(at));
        for (uint32_t k = 0; k < v.count; ++k) {  // what Vjp::index compares
          auto& item = reinterpret_cast<IndexItem<Tensor>*>(at)[k];
          if (item.kind == ArgKind::tensor) item.integer = item.tensor.version();
        }
        v.index = reinterpret_cast<const IndexItem<Tensor>*>(at), at += v.count * sizeof(IndexItem<Tensor>);
        break;
      default:
        break;
    }
  }
  return a;
}

template <class F> void each_input(const OpRow& row, const Bound* args, F f) {
  if (row.takes_list) {
    for (uint32_t k = 0; k < args[0].count; ++k) f(static_cast<int>(k), args[0].tensors[k]);
    return;
  }
  for (int i = 0; i < row.params; ++i) {
    if (row.is_tensor[i] && args[i].kind == ArgKind::tensor) f(i, *args[i].tensors);
  }
}

}  // namespace

bool wants_grad(const OpRow& row, const Bound* args) {
  bool wants = false;
  each_input(row, args, [&](int, const Tensor& t) {
    if (!t) return;
    if (t->extra) refresh(t);
    wants = wants || t->node;
  });
  return wants;
}

namespace {

// The node of a call, with everything in place but that its results do not have it yet. For an in-place call old_self
// is self as it was, and the one result is still to be written and counted.
Node* build(Context& cx, const OpRow& row, const Bound* args, std::span<const Tensor> outs, const Tensor& old_self) {
  if (const int c = row.def->constant; c >= 0 && args[c].kind == ArgKind::tensor && (*args[c].tensors)->node) {
    throw Error(Code::not_differentiable, "The function '" + row.name() +
                                              "' is not differentiable with respect to argument '" +
                                              row.sig.params[c].name + "'. This input cannot have requires_grad True.");
  }
  size_t edge_count = 0;
  each_input(row, args, [&](int k, const Tensor&) { edge_count = static_cast<size_t>(k) + 1; });
  if (edge_count > 65535) throw Error(Code::bad_argument, row.name() + "(): more than 65535 tensors", row.name());
  const Saves& saves = row.def->saves;
  const Tensor& first = outs[0];
  Node* n = Node::make(cx, row.id, edge_count, saves.count, first.shape(), first.dtype());
  struct Undo {  // until everything is in place
    Context& cx;
    Node* n;
    ~Undo() {
      if (n) Node::release(cx, n);
    }
  } undo{cx, n};
  n->outs = static_cast<uint32_t>(outs.size());
  each_input(row, args, [&](int k, const Tensor& given) {
    const Tensor& t = old_self && k == 0 ? old_self : given;
    if (t->node) {
      ++t->node->refs;
      n->edges()[k] = Node::Edge(t->node, t->extra ? t->extra->output : 0);
    }
    if (t.dtype() != first.dtype() || !std::ranges::equal(t.shape(), first.shape())) {
      if (!n->metas) {
        n->metas = static_cast<Meta**>(cx.pool.take(edge_count * sizeof(Meta*)));
        std::fill_n(n->metas, edge_count, nullptr);
      }
      n->metas[k] = make_meta(cx, t.shape(), t.dtype());
    }
  });
  n->attrs = copy_attrs(cx, row, args);
  for (int k = 0; k < saves.count; ++k) {
    const Save& s = saves.at[k];
    if (s.if_needs >= 0 && (s.if_needs >= n->edge_count || !n->edges()[s.if_needs].node())) continue;
    Tensor kept;
    if (s.is_out) {
      // Its own node must not hold it: that is a circle.
      if (s.index < outs.size() && outs[s.index]) kept = shallow(outs[s.index], false);
    } else if (args[s.index].kind == ArgKind::tensor) {
      const Tensor& t = old_self && s.index == 0 ? old_self : *args[s.index].tensors;
      // A leaf's .grad, a view's base, or a history that this in-place call is about to rewrite, may lead back here.
      const bool risky = (t->node && t->node->is_leaf()) || t->retains_grad || (t->extra && t->extra->base) ||
                         (old_self && t->storage == first->storage);
      kept = risky ? shallow(t, true) : t;
      if (!risky) t->saved = true;
    }
    if (kept) n->versions()[k] = kept.version() + (s.is_out && old_self ? 1 : 0);
    n->saved()[k] = std::move(kept);
  }
  if (outs.size() > 1) {
    auto* side = n->side = new (cx.pool.take(sizeof(NodeSide))) NodeSide;
    side->outs = static_cast<Meta**>(cx.pool.take(outs.size() * sizeof(Meta*)));
    std::fill_n(side->outs, outs.size(), nullptr);
    side->count = static_cast<uint16_t>(outs.size());
    for (size_t i = 1; i < outs.size(); ++i) side->outs[i] = make_meta(cx, outs[i].shape(), outs[i].dtype());
  }
  return std::exchange(undo.n, nullptr);
}

// Room on a node for a result that retains its gradient.
void make_owners(Context& cx, Node* n) {
  if (!n->side) {
    n->side = new (cx.pool.take(sizeof(NodeSide))) NodeSide;
    n->side->count = 1;
  }
  NodeSide* s = n->side;
  if (s->owners) return;
  s->owners = static_cast<TensorImpl**>(cx.pool.take(s->count * sizeof(TensorImpl*)));
  std::fill_n(s->owners, s->count, nullptr);
}

}  // namespace

void record(Context& cx, const OpRow& row, const Bound* args, Results& results) {
  std::span<Tensor> outs = results.is_list ? std::span<Tensor>(results.list) : std::span<Tensor>(results.at);
  while (!results.is_list && outs.size() > 1 && !outs.back()) outs = outs.first(outs.size() - 1);
  if (outs.empty() || outs.size() > Node::kMaxOutputs) return;
  for (size_t i = 1; i < outs.size(); ++i) {
    if (outs[i]) extra(outs[i]).output = static_cast<uint32_t>(i);
  }
  Node* n = build(cx, row, args, outs, Tensor());
  int32_t owned = 0;
  for (const Tensor& t : outs) {
    if (t && is_floating(t.dtype())) t->node = n, ++owned;
  }
  n->refs += owned;
  Node::release(cx, n);
}

void mark_view(const Tensor& view, const Tensor& base) {
  const Tensor root = base->extra && base->extra->base ? base->extra->base : base;
  Extra& b = extra(root);
  b.has_views = true;
  Extra& v = extra(view);
  v.base_history = b.history;
  v.base = root;
}

namespace {

// A node of strided_view or as_strided_scatter, made here because it takes the place of a history.
Node* strided_node(Context& cx, const Tensor& view, std::span<const Tensor> in, const Tensor& like) {
  static const OpRow* const rows[] = {find_op("strided_view"), find_op("as_strided_scatter")};
  const OpRow& row = *rows[in.size() - 1];
  const Tensor& base = in[0];
  const auto g = within(base.shape(), base.strides(), base->offset, view.shape(), view.strides(), view->offset);
  if (!g)
    throw Error(Code::not_differentiable,
                "an in-place operation on a view that runs across the rows of its base has no gradient here");
  Bound args[kMaxParams];
  int k = 0;
  for (const Tensor& t : in) args[k++] = Bound(t);
  args[k++] = Bound(view.shape());
  if (in.size() == 1) args[k++] = Bound(view.strides()), args[k++] = Bound(Scalar(view->offset));
  args[k++] = Bound(std::span<const int64_t>(g->strides));
  args[k] = Bound(Scalar(g->offset));
  Results r(shallow(like, false));
  record(cx, row, args, r);
  return std::exchange(r.at[0]->node, nullptr);
}

void set_node(Context& cx, const Tensor& t, Node* n, uint32_t output) {
  if (Node* old = std::exchange(t->node, n)) {
    if (t->retains_grad && old->side) {
      for (uint16_t i = 0; i < old->side->count; ++i) {
        if (old->side->owners && old->side->owners[i] == t.get()) old->side->owners[i] = nullptr;
      }
    }
    Node::release(cx, old);
  }
  if (t->extra || output) extra(t).output = output;
  if (t->retains_grad) {
    t->retains_grad = false;
    retain_grad(t);
  }
}

}  // namespace

void retain_grad(const Tensor& t) {
  Context& cx = *t->cx;
  Node* n = t->node;
  if (!n) throw Error(Code::no_grad_fn, "can't retain_grad on Tensor that has requires_grad=False");
  if (n->is_leaf() || t->retains_grad) return;
  make_owners(cx, n);
  n->side->owners[t->extra ? t->extra->output : 0] = t.get();
  t->retains_grad = true;
}

void refresh(const Tensor& t) {
  Extra* e = t->extra;
  if (!e || !e->base || e->base_history == e->base->extra->history) return;
  Context& cx = *t->cx;
  e->base_history = e->base->extra->history;
  if (!e->base->node) return;
  const Tensor base = e->base;
  set_node(cx, t, strided_node(cx, t, {&base, 1}, t), 0);
}

void inherit_history(const Tensor& t) {
  Extra* e = t->extra;
  if (!e || !e->base || t->node || !e->base->node) return;
  const Tensor base = e->base;
  set_node(*t->cx, t, strided_node(*t->cx, t, {&base, 1}, t), 0);
  e->base_history = base->extra->history;
}

namespace {

// Before t's history becomes n, which follows from nodes that may keep t for their vjps: there a copy with t's present
// history takes its place, or the graph would hold itself.
void break_circle(const Tensor& t, Node* n) {
  if (!t->saved) return;
  // Beyond t's present node there is none: when that was made this was done already.
  std::vector<Node*> met, stack = {n};
  struct Unmark {
    std::vector<Node*>& met;
    ~Unmark() {
      for (Node* m : met) m->flags &= ~Node::kVisited;
    }
  } unmark{met};
  while (!stack.empty()) {
    Node* m = stack.back();
    stack.pop_back();
    if (m->flags & Node::kVisited) continue;
    met.push_back(m);
    m->flags |= Node::kVisited;
    for (int k = 0; k < m->saved_count; ++k) {
      if (m->saved()[k].get() == t.get()) m->saved()[k] = shallow(t, true);
    }
    for (int k = 0; k < m->edge_count; ++k) {
      if (Node* to = m->edges()[k].node(); to && to != t->node && !(to->flags & Node::kVisited)) stack.push_back(to);
    }
  }
}

}  // namespace

InplaceRecord::InplaceRecord(Context& cx, const OpRow& row, const Bound* args, const Tensor& old_self)
    : cx_(cx), self_(*args[0].tensors), node_(build(cx, row, args, {&self_, 1}, old_self)) {
  try {
    if (self_->retains_grad) make_owners(cx, node_);
    break_circle(self_, node_);
    if (!self_->extra || !self_->extra->base) return;
    const Tensor base = self_->extra->base, written = shallow(self_, false);
    written->node = node_, ++node_->refs;
    const Tensor in[] = {base, written};
    base_node_ = strided_node(cx, self_, in, base);
    if (base->retains_grad) make_owners(cx, base_node_);
    break_circle(base, base_node_);
  } catch (...) {
    drop();
    throw;
  }
}

void InplaceRecord::drop() {
  if (node_) Node::release(cx_, std::exchange(node_, nullptr));
  if (base_node_) Node::release(cx_, std::exchange(base_node_, nullptr));
}

void InplaceRecord::commit() {
  set_node(cx_, self_, std::exchange(node_, nullptr), 0);
  Extra* e = self_->extra;
  if (!e) return;
  if (!e->base) {
    ++e->history;
    return;
  }
  const Tensor base = e->base;
  set_node(cx_, base, std::exchange(base_node_, nullptr), 0);
  e->base_history = ++base->extra->history;
}

std::string node_name(const Node& n) {
  if (n.is_leaf()) return "AccumulateGrad";
  std::string text;
  bool up = true;
  for (const char c : catalogue()[n.op].name()) {
    if (c == '_') {
      up = true;
    } else {
      text += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      up = false;
    }
  }
  return text + "Backward0";
}

}  // namespace gradwire::engine
