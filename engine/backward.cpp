#include <algorithm>
#include <new>

#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/reducer.h"
#include "engine/shape.h"

namespace gradwire::engine {
namespace {

bool earlier(const Node* a, const Node* b) { return a->sequence < b->sequence; }

bool alone(const Tensor& t) { return t->refs == 1 && t->storage->refs == 1 && t->contiguous && !t->extra; }

std::string torch_size(std::span<const int64_t> s) { return "torch.Size(" + to_string(s) + ")"; }

// What broadcasting repeated is summed, in shape and dtype of the input.
Tensor fit(Context& cx, Tensor g, std::span<const int64_t> shape, DType dtype) {
  if (!std::ranges::equal(g.shape(), shape))
    g = broadcasts_to(shape, g.shape()) ? sum_to(cx, g, shape) : expand_to(cx, g, shape);
  return g.dtype() == dtype ? g : convert(cx, g, dtype);
}

std::span<const int64_t> shape_of(Node& n, size_t k) { return n.metas && n.metas[k] ? n.metas[k]->shape() : n.shape(); }
DType dtype_of(Node& n, size_t k) { return n.metas && n.metas[k] ? n.metas[k]->dtype : n.dtype; }

}  // namespace

const Tensor& Vjp::dout(int i) const {
  if (!douts_[i]) {
    Meta* m = i > 0 ? node.side->outs[i] : nullptr;
    douts_[i] = cx.full(m ? m->shape() : node.shape(), 0, m ? m->dtype : node.dtype);
  }
  return douts_[i];
}

namespace {
void check_version(const Tensor& t, uint32_t then, const std::string& whence) {
  if (t.version() == then) return;
  throw Error(
      Code::inplace_modified,
      std::string(
          "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.") +
          row(t.dtype()).torch + "Tensor " + to_string(t.shape()) + "]" + whence + " is at version " +
          std::to_string(t.version()) + "; expected version " + std::to_string(then) + " instead");
}

const Tensor& saved(const Vjp& g, int slot, const char* what, int i) {
  Node& n = g.node;
  if (slot < 0)
    throw Error(Code::internal,
                g.row.name() + ": the vjp reads " + what + "(" + std::to_string(i) + "), which the row does not save");
  const Tensor& t = n.saved()[slot];
  if (!t) {
    if (n.flags & Node::kFreed) {
      throw Error(Code::graph_freed,
                  "Trying to backward through the graph a second time, but the buffers have already been freed. "
                  "Specify retain_graph=True when calling backward the first time.");
    }
    throw Error(Code::internal,
                g.row.name() + ": the vjp reads " + what + "(" + std::to_string(i) + "), which this call did not save");
  }
  const bool is_out = g.row.def->saves.at[slot].is_out;
  const Node* from = is_out ? &n : t->node;
  std::string whence;
  if (t.version() != n.versions()[slot] && from && !from->is_leaf()) {
    whence = ", which is output " + std::to_string(is_out ? i : static_cast<int>(t->extra ? t->extra->output : 0)) +
             " of " + node_name(*from) + ",";
  }
  check_version(t, n.versions()[slot], whence);
  return t;
}
}  // namespace

const Tensor& Vjp::in(int i) const { return saved(*this, row.save_in[i], "in", i); }

bool Vjp::has_in(int i) const {
  return row.save_in[i] < 0 || (node.flags & Node::kFreed) || node.saved()[row.save_in[i]];  // in() says what is wrong
}

Operand<Tensor> Vjp::operand(int i) const {
  if (node.attrs && node.attrs->args()[i].is_scalar()) return Operand<Tensor>(node.attrs->args()[i].scalar());
  return Operand<Tensor>(in(i));
}

// A saved result has no node, which would be a circle: it gets it back for as long as the vjp looks at it.
const Tensor& Vjp::out(int i) const {
  const Tensor& t = saved(*this, row.save_out[i], "out", i);
  if (!cx.grad_mode || !is_floating(t.dtype())) return t;
  Tensor& again = outs_[i];
  if (!again) {
    again = shallow(t, false);
    again->node = &node, ++node.refs;
    if (i > 0) extra(again).output = static_cast<uint32_t>(i);
  }
  return again;
}

bool Vjp::needs(int i, int k) const {
  const int e = row.takes_list ? k : i;
  if (e >= node.edge_count) return false;
  Node* to = node.edges()[e].node();
  return to && (!pruned_ || (to->flags & (Node::kNeeded | Node::kTarget)));
}
const Bound* Vjp::args() const { return node.attrs ? node.attrs->args() : row.defaults; }
std::span<const int64_t> Vjp::ints(int i) const {
  const Bound& v = args()[i];
  return v.kind == ArgKind::integer ? std::span<const int64_t>(&v.i, 1) : std::span<const int64_t>(v.ints, v.count);
}
std::span<const IndexItem<Tensor>> Vjp::index(int i) const {
  const std::span<const IndexItem<Tensor>> items{args()[i].index, args()[i].count};
  for (const auto& item : items) {
    if (item.kind == ArgKind::tensor) check_version(item.tensor, static_cast<uint32_t>(item.integer), {});
  }
  return items;
}
std::span<const int64_t> Vjp::shape(int i, int k) const { return shape_of(node, row.takes_list ? k : i); }
DType Vjp::dtype(int i, int k) const { return dtype_of(node, row.takes_list ? k : i); }
std::span<const int64_t> Vjp::out_shape() const { return node.shape(); }

bool is_backward(OpId id) {
  static const OpId a = find_op("backward")->id, b = find_op("grad")->id;
  return id == a || id == b;
}

BackwardTask::BackwardTask(Context& cx, OpId id, std::span<const Bound> given) : cx_(cx) {
  const OpRow& row = catalogue()[id];
  Bound args[kMaxParams];
  for (int i = 0; i < row.params; ++i) args[i] = i < static_cast<int>(given.size()) ? given[i] : row.defaults[i];
  capture_ = row.takes_list;  // grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
  const Bound& inputs = capture_ ? args[1] : args[4];
  const Bound& gradients = capture_ ? args[2] : args[1];
  const std::span<const Tensor> roots =
      capture_ ? std::span(args[0].tensors, args[0].count) : std::span(args[0].tensors, 1);
  const std::span<const Tensor> outer = gradients.kind == ArgKind::none ? std::span<const Tensor>()
                                        : gradients.kind == ArgKind::tensor
                                            ? std::span(gradients.tensors, 1)
                                            : std::span(gradients.tensors, gradients.count);
  create_ = args[capture_ ? 4 : 3].b;
  const Bound& retain = args[capture_ ? 3 : 2];
  retain_ = retain.kind == ArgKind::none ? create_ : retain.b;
  allow_unused_ = capture_ && args[5].b;
  if (!outer.empty() && outer.size() != roots.size()) {
    throw Error(Code::bad_argument,
                "got " + std::to_string(roots.size()) + " tensors and " + std::to_string(outer.size()) + " gradients");
  }
  pruned_ = inputs.kind == ArgKind::tensors;
  if (pruned_) inputs_.assign(inputs.tensors, inputs.tensors + inputs.count);
  if (pruned_ && inputs_.empty()) {
    throw Error(Code::bad_argument,
                capture_ ? "grad requires non-empty inputs." : "'inputs' argument to backward() cannot be empty.");
  }
  try {
    for (const Tensor& t : inputs_) {
      refresh(t);
      if (!t->node) throw Error(Code::no_grad_fn, "One of the differentiated Tensors does not require grad");
      t->node->flags |= Node::kTarget;
      ++t->node->refs;
      marked_.push_back(t->node);
    }
    captured_.resize(inputs_.size());
    for (size_t i = 0; i < roots.size(); ++i) {
      const Tensor& root = roots[i];
      refresh(root);
      if (!root->node) {
        throw Error(Code::no_grad_fn,
                    "element " + std::to_string(i) + " of tensors does not require grad and does not have a grad_fn");
      }
      Tensor g = i < outer.size() ? outer[i] : Tensor();
      if (!g) {
        if (root.numel() != 1)
          throw Error(Code::shape_mismatch, "grad can be implicitly created only for scalar outputs");
        g = cx.full(root.shape(), 1, root.dtype());
      } else if (!std::ranges::equal(g.shape(), root.shape())) {
        throw Error(Code::shape_mismatch, "Mismatch in shape: grad_output[" + std::to_string(i) + "] has a shape of " +
                                              torch_size(g.shape()) + " and output[" + std::to_string(i) +
                                              "] has a shape of " + torch_size(root.shape()) + ".");
      } else if (g.dtype() != root.dtype()) {
        const GradMode mode(cx, create_);
        g = convert(cx, g, root.dtype());
      }
      arrive(root->node, root->extra ? root->extra->output : 0, std::move(g));
    }
    std::vector<Node*> nodes;
    const bool reduces = !cx.reducers.empty() && !capture_;
    if (pruned_ || reduces) nodes = reach();
    if (reduces) find_reducers(nodes);
    if (pruned_) mark_needed(std::move(nodes));
  } catch (...) {
    clear();
    throw;
  }
}

void BackwardTask::clear() {
  for (const auto& r : std::exchange(reducers_, {})) r->abandon();
  for (Node* n : std::exchange(marked_, {})) {
    n->flags &= ~(Node::kNeeded | Node::kTarget | Node::kVisited);
    Node::release(cx_, n);
  }
  for (Node* n : std::exchange(heap_, {})) {
    n->flags &= ~Node::kQueued;
    Tensor(std::exchange(n->grad_, nullptr));
    if (!n->is_leaf() && n->side && n->side->grads) {
      for (uint16_t i = 0; i < n->side->count; ++i) n->side->grads[i] = Tensor();
    }
    Node::release(cx_, n);
  }
}

// The leaves whose gradients other ranks wait for: they go out as soon as they are known, not when all older nodes have
// run; from the model that was attached last to the first, whatever comes first here, as all ranks have it.
void BackwardTask::find_reducers(const std::vector<Node*>& nodes) {
  const auto reducer = [this](Node* n) -> std::shared_ptr<Reducer> {
    const bool leaf = n && n->is_leaf() && n->owner && n->owner->extra && (!pruned_ || n->flags & Node::kTarget);
    const std::shared_ptr<Reducer> r = leaf ? n->owner->extra->reducer : nullptr;
    return r && r->enabled ? r : nullptr;
  };
  std::vector<std::shared_ptr<Reducer>> found;
  for (Node* n : nodes) {
    if (auto r = reducer(n)) {
      due_[n];
      if (std::ranges::find(found, r) == found.end()) found.push_back(std::move(r));
    }
  }
  if (found.empty()) return;
  if (create_) throw Error(Code::bad_argument, "DistributedDataParallel only works with volatile gradients");
  for (Node* n : nodes) {
    for (int k = 0; k < n->edge_count; ++k) {
      if (const auto leaf = due_.find(n->edges()[k].node()); leaf != due_.end()) ++leaf->second;
    }
  }
  for (auto r = cx_.reducers.rbegin(); r != cx_.reducers.rend(); ++r) {
    const auto here = std::ranges::find_if(found, [&](const auto& f) { return f.get() == *r; });
    if (here != found.end()) reducers_.push_back(*here);
  }
  for (const auto& r : reducers_) r->begin(due_);
}

/// All nodes that this pass may come to; they stay while it lasts.
std::vector<Node*> BackwardTask::reach() {
  std::vector<Node*> order, stack(heap_);
  while (!stack.empty()) {
    Node* n = stack.back();
    stack.pop_back();
    if (n->flags & Node::kVisited) continue;
    n->flags |= Node::kVisited;
    ++n->refs;
    marked_.push_back(n);
    order.push_back(n);
    for (int k = 0; k < n->edge_count; ++k) {
      if (Node* to = n->edges()[k].node(); to && !(to->flags & Node::kVisited)) stack.push_back(to);
    }
  }
  return order;
}

// Which nodes lead to an input: only their gradients are worth computing.
void BackwardTask::mark_needed(std::vector<Node*> order) {
  std::sort(order.begin(), order.end(), earlier);
  for (Node* n : order) {
    for (int k = 0; k < n->edge_count; ++k) {
      Node* to = n->edges()[k].node();
      if (to && (to->flags & (Node::kNeeded | Node::kTarget))) n->flags |= Node::kNeeded;
    }
  }
}

void BackwardTask::arrive(Node* n, uint32_t output, Tensor grad) {
  if (!(n->flags & Node::kQueued)) {
    n->flags |= Node::kQueued;
    ++n->refs;
    heap_.push_back(n);
    std::push_heap(heap_.begin(), heap_.end(), earlier);
  }
  Tensor had;
  if (output == 0) {
    had = Tensor(std::exchange(n->grad_, nullptr));
  } else {
    NodeSide* s = n->side;
    if (!s->grads) {
      s->grads = static_cast<Tensor*>(cx_.pool.take(s->count * sizeof(Tensor)));
      std::uninitialized_value_construct_n(s->grads, s->count);
    }
    had = std::exchange(s->grads[output], Tensor());
  }
  if (had) {
    if (!create_ && alone(had)) {
      add_into(cx_, had, grad);
      grad = std::move(had);
    } else {
      const GradMode mode(cx_, create_);
      grad = add_grads(cx_, had, grad);
    }
  }
  if (output == 0)
    n->grad_ = grad.take();
  else
    n->side->grads[output] = std::move(grad);
}

void BackwardTask::accumulate(TensorImpl* to, const Tensor& grad) {
  ++to->refs;
  const Tensor t(to);
  Extra& e = extra(t);
  Tensor& have = e.grad;
  if (!have) {
    // Nobody else may see this gradient change later.
    if (create_) {
      const GradMode mode(cx_, true);
      have = clone(cx_, grad);
    } else {
      have = alone(grad) ? grad : copy_of(cx_, grad);
    }
  } else if (create_) {
    const GradMode mode(cx_, true);
    have = add_grads(cx_, have, grad);
  } else {
    add_into(cx_, have, grad);
    bump_version(have);
  }
  if (!e.reducer || std::ranges::find(reducers_, e.reducer) == reducers_.end()) return;
  e.reducer->arrived(e.reducer_slot);
  for (const auto& r : reducers_) {
    if (!r->pump()) break;  // the later ones wait for it
  }
}

// Whether the gradients of all ranks are averaged, where that was asked for.
bool BackwardTask::reduced() {
  if (!waiting_) {
    for (const auto& r : reducers_) r->flush();
  }
  waiting_ = !std::ranges::all_of(reducers_, [](const auto& r) { return r->done(); });
  if (waiting_) return false;
  struct Drop {
    const std::vector<std::shared_ptr<Reducer>> all;
    ~Drop() {
      for (const auto& r : all) r->drop();
    }
  } drop{std::exchange(reducers_, {})};
  for (const auto& r : drop.all) r->prepare();
  for (const auto& r : drop.all) r->commit();
  return true;
}

void BackwardTask::visit(Node* n) {
  Tensor first(std::exchange(n->grad_, nullptr));
  if (n->flags & Node::kTarget) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& t = inputs_[i];
      if (t->node != n) continue;
      const uint32_t output = t->extra ? t->extra->output : 0;
      const Tensor& g = output == 0 ? first : n->side->grads ? n->side->grads[output] : captured_[i];
      if (!g) continue;
      if (capture_)
        captured_[i] = g;
      else
        accumulate(t.get(), g);
    }
  }
  if (n->is_leaf()) {
    if (!pruned_ && n->owner && first) accumulate(n->owner, first);
    return;
  }
  std::vector<Tensor> many;
  if (n->outs > 1) {
    many.resize(n->outs);
    for (uint32_t i = 1; i < n->outs && n->side->grads; ++i) many[i] = std::exchange(n->side->grads[i], Tensor());
    many[0] = first;
  }
  const std::span<Tensor> douts = n->outs > 1 ? std::span<Tensor>(many) : std::span<Tensor>(&first, 1);
  if (n->side && n->side->owners && !capture_) {
    for (uint16_t i = 0; i < n->side->count; ++i) {
      TensorImpl* owner = n->side->owners[i];
      // An input of backward() has accumulated already.
      const bool had = owner && std::ranges::any_of(inputs_, [owner](const Tensor& t) { return t.get() == owner; });
      if (owner && douts[i] && !had) accumulate(owner, douts[i]);
    }
  }
  if (pruned_ && !(n->flags & Node::kNeeded)) return;
  if (n->flags & Node::kFreed) {
    throw Error(Code::graph_freed,
                "Trying to backward through the graph a second time, but the buffers have already been freed. "
                "Specify retain_graph=True when calling backward the first time.");
  }
  const OpRow& row = catalogue()[n->op];
  const GradMode mode(cx_, create_);
  const Vjp g(cx_, *n, row, douts, pruned_);
  Grads grads;
  try {
    grads = row.def->vjp(g);
  } catch (Error& e) {
    if (e.op().empty()) e.of(row.name());
    throw;
  }
  for (int k = 0; k < n->edge_count; ++k) {
    Node* to = n->edges()[k].node();
    if (!to || !g.needs(k, k)) continue;
    Tensor& one = row.takes_list ? grads.list[k] : grads.at[k];
    if (!one) continue;
    arrive(to, n->edges()[k].output(), fit(cx_, std::move(one), shape_of(*n, k), dtype_of(*n, k)));
    one = Tensor();
  }
  if (!retain_) n->free_saved(cx_);
  for (int k = 0; k < n->edge_count && !due_.empty(); ++k) {
    const auto leaf = due_.find(n->edges()[k].node());
    if (leaf != due_.end() && --leaf->second == 0) visit(leaf->first);
  }
}

bool BackwardTask::step(bool (*stop)(void*), void* arg) {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), earlier);
    Node* n = heap_.back();
    heap_.pop_back();
    n->flags &= ~Node::kQueued;
    struct Release {
      Context& cx;
      Node* n;
      ~Release() { Node::release(cx, n); }
    } release{cx_, n};
    visit(n);
    if (stop && !heap_.empty() && stop(arg)) return false;
  }
  if (!reducers_.empty() && !reduced()) return false;
  if (capture_) {
    for (const Tensor& t : captured_) {
      if (!t && !allow_unused_) {
        throw Error(Code::no_grad_fn,
                    "One of the differentiated Tensors appears to not have been used in the graph. "
                    "Set allow_unused=True if this is the desired behavior.");
      }
    }
    results_ = Results(std::move(captured_));
  }
  return true;
}

}  // namespace gradwire::engine
