#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "engine/op.h"
#include "engine/registry.h"

namespace gradwire::engine {

/// Shape and dtype of a tensor that is not kept.
struct Meta {
  DType dtype;
  uint8_t ndim;
  const int64_t* dims() const { return reinterpret_cast<const int64_t*>(this + 1); }
  int64_t* dims() { return reinterpret_cast<int64_t*>(this + 1); }
  std::span<const int64_t> shape() const { return {dims(), ndim}; }
  uint64_t pad = 0;
};

/// A copy of a call's arguments in one block: tensors left out, lists behind the array.
struct Attrs {
  uint32_t bytes;
  int32_t count;
  Bound* args() { return reinterpret_cast<Bound*>(this + 1); }
};

/// What only some nodes have.
struct NodeSide {
  Meta** outs = nullptr;          // of results beyond the first
  Tensor* grads = nullptr;        // of results beyond the first, during backward
  TensorImpl** owners = nullptr;  // results that retain their gradient; not owned
  uint16_t count = 0;
};

/// One recorded operator, or a leaf. It refers to the nodes of its inputs; a later node has a larger sequence. One
/// block of the session's slab: this header, the edges, the saved tensors, their versions, the sizes of the first
/// result. Belongs to the Context's thread.
struct Node {
  int32_t refs;
  OpId op;
  uint16_t edge_count;
  uint8_t saved_count, ndim;
  DType dtype;    // of the first result
  uint8_t flags;  // Flag
  uint32_t outs;  // number of results
  uint64_t sequence;
  Node* next;         // in the list of the dead
  TensorImpl* grad_;  // what has arrived for the first result, during backward
  Attrs* attrs;       // null: all as the defaults
  Meta** metas;       // of the inputs that differ from the first result; null: none does
  union {
    NodeSide* side;     // of an operator
    TensorImpl* owner;  // of a leaf: the tensor that its gradient goes to; not owned
  };

  static constexpr OpId kLeaf = 0xFFFF;
  enum Flag : uint8_t { kFreed = 1, kNeeded = 2, kVisited = 4, kQueued = 8, kTarget = 16 };

  /// A node with the number of the result that it stands for, in one word.
  class Edge {
   public:
    Edge() = default;
    Edge(Node* n, uint32_t output) : bits_(reinterpret_cast<uintptr_t>(n) | uint64_t{output} << 48) {}
    Node* node() const { return reinterpret_cast<Node*>(bits_ & 0xFFFFFFFFFFFF); }
    uint32_t output() const { return static_cast<uint32_t>(bits_ >> 48); }

   private:
    uint64_t bits_ = 0;
  };
  static constexpr uint32_t kMaxOutputs = 65535;

  Edge* edges() { return reinterpret_cast<Edge*>(this + 1); }
  Tensor* saved() { return reinterpret_cast<Tensor*>(edges() + edge_count); }
  uint32_t* versions() { return reinterpret_cast<uint32_t*>(saved() + saved_count); }
  int64_t* dims() { return reinterpret_cast<int64_t*>(versions() + (saved_count + 1) / 2 * 2); }
  std::span<const int64_t> shape() { return {dims(), ndim}; }
  size_t block() const { return sizeof(Node) + edge_count * 8 + saved_count * 12 + (saved_count & 1) * 4 + ndim * 8; }
  bool is_leaf() const { return op == kLeaf; }

  /// Throws memory_limit when the session has as many nodes as it may.
  static Node* make(Context&, OpId, size_t edges, size_t saved, std::span<const int64_t> shape, DType);
  /// Ends one reference. Iterative: a graph of any depth on any stack.
  static void release(Context&, Node*);
  /// Forgets the saved tensors.
  void free_saved(Context&);
};
static_assert(sizeof(Node) == 64);

/// Asks for gradients of a leaf from here on. Throws dtype_mismatch unless it is floating.
void require_grad(const Tensor&);
/// Has a non-leaf keep its gradient; nothing to do for a leaf.
void retain_grad(const Tensor&);
/// Brings the node of a view up to date when its base's history was rewritten since.
void refresh(const Tensor&);
/// A view that was taken where nothing is recorded has no history: before it is written it gets its base's.
void inherit_history(const Tensor& view);
/// Marks `view` as a view of `base` (or of base's base).
void mark_view(const Tensor& view, const Tensor& base);

/// Records a call whose results are computed: they get its node. Throws not_differentiable where the row's constant
/// parameter requires grad.
void record(Context&, const OpRow&, const Bound* args, Results&);

/// The history of an in-place call. All that can fail happens in the constructor, before self is written: a call that
/// fails has no effect, and an argument that shares memory with self counts as changed.
class InplaceRecord {
 public:
  /// old_self is self as it was: its history, and its values where they are saved.
  InplaceRecord(Context&, const OpRow&, const Bound* args, const Tensor& old_self);
  ~InplaceRecord() { drop(); }
  InplaceRecord(const InplaceRecord&) = delete;
  /// After the write: self gets the new history, through its base where it is a view.
  void commit();

 private:
  void drop();
  Context& cx_;
  Tensor self_;
  Node *node_, *base_node_ = nullptr;
};
/// Whether any argument asks for a gradient.
bool wants_grad(const OpRow&, const Bound* args);
/// A tensor on the same storage with the same history, and a version of its own only where t has one; another object.
Tensor shallow(const Tensor& t, bool with_history);

/// "MulBackward0", as PyTorch names it.
std::string node_name(const Node&);

/// One backward pass or one grad() call, in steps.
class BackwardTask {
 public:
  /// For the rows `backward` and `grad`, with arguments that bind or check have passed. Throws as PyTorch does.
  BackwardTask(Context&, OpId, std::span<const Bound> args);
  ~BackwardTask() { clear(); }
  BackwardTask(const BackwardTask&) = delete;
  /// Runs nodes until done (true) or until stop() says so, which it asks between nodes (false). When it throws, nothing
  /// was accumulated that a local PyTorch would not have accumulated too, and the task is over.
  bool step(bool (*stop)(void*), void* arg);
  /// After a step that was not the last: whether it waits for other ranks, who wake the session.
  bool waiting() const { return waiting_; }
  Results take() { return std::move(results_); }

 private:
  void clear();
  std::vector<Node*> reach();
  void find_reducers(const std::vector<Node*>&);
  void mark_needed(std::vector<Node*>);
  void arrive(Node*, uint32_t output, Tensor grad);
  void visit(Node*);
  void accumulate(TensorImpl* leaf, const Tensor& grad);
  bool reduced();

  Context& cx_;
  bool waiting_ = false;
  bool retain_ = false, create_ = false, capture_ = false, pruned_ = false, allow_unused_ = false;
  std::vector<Node*> heap_;     // by sequence, largest first; holds a reference each
  std::vector<Node*> marked_;   // nodes whose flags must be cleared
  std::vector<Tensor> inputs_;  // grad(): whose gradients are wanted; backward(inputs=): which leaves accumulate
  std::vector<Tensor> captured_;
  std::vector<std::shared_ptr<Reducer>> reducers_;  // of the leaves that will be reached, in the order of sending
  std::unordered_map<Node*, uint32_t> due_;         // leaves with a reducer, and how many nodes they still wait for
  Results results_;
};
/// The rows that a session runs in steps.
bool is_backward(OpId);

}  // namespace gradwire::engine
