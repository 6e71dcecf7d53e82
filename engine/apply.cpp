#include "engine/apply.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "engine/autograd.h"
#include "engine/kernels.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr int64_t kSmall = 32768;  // elements; below it one thread runs a flat row at once

bool same_shape(const Tensor& a, const Tensor& b) { return std::ranges::equal(a.shape(), b.shape()); }

constexpr int64_t kZeros[kMaxDims] = {};

// The operands of a pointwise call, at the dtype in which it computes.
struct Operands {
  int count = 0;
  DType compute{};                 // of the numbers
  Tensor tensor[3];                // empty for a number
  alignas(16) char number[3][16];  // its value
  int64_t strides[3][kMaxDims];

  /// What a kernel sees of operand k at the shape of the output.
  View view(int k, const View& out) {
    View v = out;
    if (!tensor[k]) {
      v.data = number[k], v.strides = kZeros, v.dtype = compute;
      return v;
    }
    const Tensor& t = tensor[k];
    expand_strides(t.shape(), t.strides(), {out.shape, static_cast<size_t>(out.ndim)}, strides[k]);
    v.data = t.data(), v.dtype = t.dtype(), v.strides = strides[k];
    return v;
  }
};

Error refuse(const OpRow& row, Code code, std::string text) { return Error(code, std::move(text), row.name()); }

// In which dtype a row computes, before its own rule: promotion over its operands (`where` leaves out its condition).
DType promoted(Context& cx, const OpRow& row, const Bound* args) {
  Promotion p;
  for (int k = row.kernel && row.kernel->masked ? 1 : 0; k < row.def->pointwise; ++k) {
    if (args[k].kind == ArgKind::tensor)
      p.add(*args[k].tensors);
    else if (args[k].kind != ArgKind::none)
      p.add(args[k].scalar(), cx.default_dtype);
  }
  return p.result();
}

void run(Context& cx, const Pointwise& kernel, DType compute, const View& out, Operands& in, const void* functor) {
  const int64_t n = out.numel();
  if (n == 0) return;
  View views[4] = {out};
  bool flat = n < kSmall && cx.on_cpu &&
              is_contiguous({out.shape, static_cast<size_t>(out.ndim)}, {out.strides, static_cast<size_t>(out.ndim)});
  Row r{};
  for (int k = 0; k < in.count; ++k) {
    const Tensor& t = in.tensor[k];
    if (t && t.numel() != 1) {
      flat = flat && t->contiguous && t.numel() == n;
      r.step[k] = 1;
    }
    if (flat) r.in[k] = t ? t.data() : in.number[k];
  }
  if (flat) {
    r.out = out.data, r.n = n;
    kernel.cpu[static_cast<int>(compute)](functor, r);
    return;
  }
  for (int k = 0; k < in.count; ++k) views[k + 1] = in.view(k, out);
  cx.backend.run(kernel, compute, {views, static_cast<size_t>(in.count) + 1}, functor);
}

// The kernel of a call, its parameters and dtypes, and its operands converted to what it computes in.
struct Plan {
  const Pointwise* kernel = nullptr;
  Chosen chosen;
  DTypes dtypes{};
  Operands in;

  Plan(Context& cx, const OpRow& row, const Bound* args) {
    const Call call(cx, row, args);
    const DType p = promoted(cx, row, args);
    dtypes = row.def->dtype ? row.def->dtype(call, p) : DTypes{p, p};
    kernel = row.kernel;
    if (row.def->choose) {
      chosen = row.def->choose(call);
      if (chosen.functor) kernel = find_pointwise(chosen.functor);
    }
    if (!kernel->cpu[static_cast<int>(dtypes.compute)]) {
      throw refuse(row, Code::dtype_mismatch,
                   "\"" + row.name() + "\" not implemented for '" + gradwire::row(dtypes.compute).torch + "'");
    }
    in.count = row.def->pointwise, in.compute = dtypes.compute;
    for (int k = 0; k < in.count; ++k) {
      const bool condition = k == 0 && kernel->masked;
      const DType want = condition ? DType::boolean : dtypes.compute;
      if (args[k].kind == ArgKind::tensor) {
        const Tensor& t = *args[k].tensors;
        in.tensor[k] = t.dtype() == want ? t : cx.contiguous(t, want);
      } else if (args[k].kind == ArgKind::none) {
        in.tensor[k] = in.tensor[0];  // self stands in for what is left out
      } else if (cx.on_cpu) {
        (kernel->masked ? store_scalar : wrap_scalar)(in.number[k], want, args[k].scalar());
      } else {
        in.tensor[k] = cx.full({}, args[k].scalar(), want);
      }
    }
  }
};

Shape result_shape(const OpRow& row, const Bound* args) {
  Shape shape;
  bool first = true;
  for (int k = 0; k < row.def->pointwise; ++k) {
    if (args[k].kind != ArgKind::tensor) continue;
    const std::span<const int64_t> s = args[k].tensors->shape();
    if (first)
      shape = Shape(s);
    else if (!std::ranges::equal(s, std::span<const int64_t>(shape)))
      shape = broadcast_shapes(shape, s);
    first = false;
  }
  return shape;
}

// The most frequent case on the shortest way: contiguous operands of one shape and dtype, and numbers that do not
// promote, in one row of the kernel. Says no where anything else is needed.
bool pointwise_flat(Context& cx, const OpRow& row, const Bound* args, Results& r) {
  const int n = row.def->pointwise;
  if (!cx.on_cpu || n > 2) return false;
  const Tensor* like = nullptr;
  for (int k = 0; k < n; ++k) {
    if (args[k].kind != ArgKind::tensor) continue;
    const Tensor& t = *args[k].tensors;
    if (!t->contiguous) return false;
    if (!like) {
      like = &t;
    } else if (t.dtype() != like->dtype() || t->ndim != (*like)->ndim ||
               !std::equal(t->dims(), t->dims() + t->ndim, (*like)->dims())) {
      return false;
    }
  }
  if (!like || (*like)->numel >= kSmall || (*like)->numel == 0) return false;
  const DType dtype = like->dtype();
  const Call call(cx, row, args);
  const Pointwise* kernel = row.kernel;
  const DTypes types = row.def->dtype ? row.def->dtype(call, dtype) : DTypes{dtype, dtype};
  Chosen chosen;
  if (row.def->choose && (chosen = row.def->choose(call)).functor) kernel = find_pointwise(chosen.functor);
  const RowKernel run = kernel->cpu[static_cast<int>(dtype)];
  if (types.compute != dtype || !run) return false;
  alignas(16) char number[2][16];
  Row line{};
  for (int k = 0; k < n; ++k) {
    if (args[k].kind == ArgKind::tensor) {
      line.in[k] = args[k].tensors->data(), line.step[k] = 1;
    } else {
      const Scalar s = args[k].scalar();
      if (s.kind > category(dtype) || (s.kind == Category::integer && dtype == DType::boolean)) return false;
      wrap_scalar(number[k], dtype, s);
      line.in[k] = number[k];
    }
  }
  r.at[0] = cx.empty_like(*like, types.result);
  line.out = r.at[0]->storage->data(), line.n = (*like)->numel;
  run(&chosen.params, line);
  return true;
}

Results pointwise(Context& cx, const OpRow& row, const Bound* args) {
  Results r;
  if (pointwise_flat(cx, row, args, r)) return r;
  const Shape shape = result_shape(row, args);
  Plan plan(cx, row, args);
  r = Results(cx.empty(shape, plan.dtypes.result));
  run(cx, *plan.kernel, plan.dtypes.compute, r.at[0].view(), plan.in, &plan.chosen.params);
  return r;
}

// ---- in place ----

bool overlap(const Tensor& a, const Tensor& b) {
  if (a->storage != b->storage) return false;
  const auto x = extent_of(a.shape(), a.strides(), a->offset), y = extent_of(b.shape(), b.strides(), b->offset);
  return x && y && x->first <= y->last && y->first <= x->last;
}

void check_inplace(Context& cx, const OpRow& row, const Tensor& self) {
  if (overlaps_itself(self.shape(), self.strides())) {
    throw refuse(
        row, Code::bad_argument,
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
  }
  if (!cx.grad_mode) return;
  if (self->node && self->node->is_leaf()) {
    throw refuse(row, Code::leaf_inplace, "a leaf Variable that requires grad is being used in an in-place operation.");
  }
  const Extra* e = self->extra;
  if (e && e->base && e->base->node && e->base->node->is_leaf()) {
    throw refuse(row, Code::leaf_inplace,
                 "a view of a leaf Variable that requires grad is being used in an in-place operation.");
  }
  if (e && e->multi_view && self->node) {
    throw refuse(row, Code::bad_argument,
                 "Output " + std::to_string(e->output) + " of " + node_name(*self->node) +
                     " is a view and is being modified inplace. "
                     "This view is the output of a function that returns multiple views. Such functions do not allow "
                     "the output views to "
                     "be modified inplace. You should replace the inplace operation by an out-of-place one.");
  }
}

void check_cast(const OpRow& row, DType result, DType target) {
  if (category(result) > category(target)) {
    throw refuse(row, Code::dtype_mismatch,
                 std::string("result type ") + gradwire::row(result).torch +
                     " can't be cast to the desired output type " + gradwire::row(target).torch);
  }
}

// What the vjp of an in-place form needs of self as it was: its history, and its values where they are saved.
Tensor old_self(Context& cx, const OpRow& row, const Bound* args, const Tensor& self) {
  const int slot = row.save_in[0];
  bool values = slot >= 0;
  if (values) {
    const int j = row.def->saves.at[slot].if_needs;
    values = j < 0 || (args[j].kind == ArgKind::tensor && (*args[j].tensors)->node);
  }
  Tensor old = values ? copy_of(cx, self) : shallow(self, false);
  if (self->node) {
    old->node = self->node, ++self->node->refs;
    if (self->extra && self->extra->output) extra(old).output = self->extra->output;
  }
  return old;
}

Results inplace(Context& cx, const OpRow& row, const Bound* args) {
  const Tensor self = *args[0].tensors;
  wants_grad(row, args);  // brings views up to date
  check_inplace(cx, row, self);
  if (row.def->compose) {  // computed whole, then copied
    const Tensor made = std::move(row.def->compose(Call(cx, row, args)).at[0]);
    if (!std::ranges::equal(made.shape(), self.shape())) {
      throw refuse(row, Code::shape_mismatch,
                   "output with shape " + to_string(self.shape()) + " doesn't match the broadcast shape " +
                       to_string(made.shape()));
    }
    check_cast(row, made.dtype(), self.dtype());
    return copy_(self, made);
  }
  if (cx.grad_mode) inherit_history(self);
  // What is written into integers or bool has no gradient.
  const bool recording = is_floating(self.dtype()) && wants_grad(row, args) && cx.grad_mode && row.def->vjp;
  if (row.def->pointwise > 0) {
    const Shape shape = result_shape(row, args);
    if (!std::ranges::equal(std::span<const int64_t>(shape), self.shape())) {
      throw refuse(
          row, Code::shape_mismatch,
          "output with shape " + to_string(self.shape()) + " doesn't match the broadcast shape " + to_string(shape));
    }
    Plan plan(cx, row, args);
    check_cast(row, plan.dtypes.result, self.dtype());
    for (int k = 1; k < row.def->pointwise; ++k) {
      if (args[k].kind != ArgKind::tensor) continue;
      const Tensor& t = *args[k].tensors;
      const bool identical =
          same_shape(t, self) && t->offset == self->offset && std::ranges::equal(t.strides(), self.strides());
      if (!identical && overlap(t, self)) {
        throw refuse(row, Code::bad_argument,
                     "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                     "single memory "
                     "location. Please clone() the tensor before performing the operation.");
      }
    }
    std::optional<InplaceRecord> history;
    if (recording) history.emplace(cx, row, args, old_self(cx, row, args, self));
    if (plan.dtypes.result == self.dtype()) {
      const View out = out_view(self);
      run(cx, *plan.kernel, plan.dtypes.compute, out, plan.in, &plan.chosen.params);
    } else {
      const Tensor made = cx.empty(shape, plan.dtypes.result);
      run(cx, *plan.kernel, plan.dtypes.compute, made.view(), plan.in, &plan.chosen.params);
      cx.copy(self, made);
    }
    bump_version(self);
    if (history) history->commit();
    return self;
  }
  std::optional<InplaceRecord> history;
  if (recording) history.emplace(cx, row, args, old_self(cx, row, args, self));
  {
    const GradMode mode(cx, false);
    row.def->write(Call(cx, row, args), self);
  }
  bump_version(self);
  if (history) history->commit();
  return self;
}

}  // namespace

std::span<const int64_t> Call::ints(int i) const {
  const Bound& v = args[i];
  return v.kind == ArgKind::integer ? std::span<const int64_t>(&v.i, 1) : std::span<const int64_t>(v.ints, v.count);
}

namespace {

// A call with all its arguments.
Results perform(Context& cx, const OpRow& row, const Bound* args) {
  try {
    if (row.inplace) return inplace(cx, row, args);
    const OpDef& def = *row.def;
    const Call c(cx, row, args);
    if (def.compose) return def.compose(c);
    const bool recording = def.vjp && wants_grad(row, args) && cx.grad_mode;
    Results r;
    if (def.pointwise > 0) {
      r = pointwise(cx, row, args);
    } else {
      const GradMode mode(cx, false);
      if (def.write) {
        r = Results(copy_of(cx, c.tensor(0)));
        def.write(c, r.at[0]);
      } else {
        r = def.compute ? def.compute(c) : def.view(c);
      }
    }
    if (recording) record(cx, row, args, r);
    if (def.view) {
      const Tensor& base = *args[0].tensors;
      for (Tensor& t : r.is_list ? std::span<Tensor>(r.list) : std::span<Tensor>(r.at)) {
        if (t && t->storage == base->storage && t.get() != base.get()) {
          mark_view(t, base);
          t->extra->multi_view = r.is_list || (base->extra && base->extra->multi_view);
        }
      }
    }
    return r;
  } catch (Error& e) {
    // Who calls a row that uses others knows its name only; but what backward walks has names of its own.
    if (e.op().empty() || !is_backward(row.id)) e.of(row.sig.name);
    throw;
  }
}

}  // namespace

Results call(Context& cx, OpId id, std::span<const Bound> given) {
  const OpRow& row = catalogue()[id];
  const Bound* args = given.data();
  alignas(Bound) char filled[kMaxParams * sizeof(Bound)];
  if (static_cast<int>(given.size()) < row.params) {  // defaults stand in for what was left out
    auto* all = reinterpret_cast<Bound*>(filled);
    std::uninitialized_copy(given.begin(), given.end(), all);
    std::uninitialized_copy(row.defaults + given.size(), row.defaults + row.params, all + given.size());
    args = all;
  }
  if (cx.compat != Compat{}) {
    if (cx.compat.keepdim_warning && row.keepdim >= 0) warn_of_keepdim(cx, row, args);
    if (cx.compat.no_type_promotion && row.def->pointwise > 1) refuse_mixed_types(row, args);
    if (row.def->since_0_2 && (cx.compat.pointwise_fallback || cx.compat.broadcast_warning)) {
      Bound changed[kMaxParams];
      Tensor held[3];
      return perform(cx, row, old_shapes(cx, row, args, changed, held) ? changed : args);
    }
  }
  return perform(cx, row, args);
}

Tensor Context::one(OpId id, std::source_location, std::span<const Bound> args) {
  return std::move(call(*this, id, args).at[0]);
}
std::vector<Tensor> Context::list(OpId id, std::source_location, std::span<const Bound> args) {
  return std::move(call(*this, id, args).list);
}
void Context::fill(OpId id, std::source_location, std::span<const Bound> args, std::span<Tensor> out) {
  Results r = call(*this, id, args);
  std::ranges::move(std::span(r.at).first(out.size()), out.begin());
}
void Context::none(OpId id, std::source_location, std::span<const Bound> args) { call(*this, id, args); }

Tensor sum_to(Context& cx, const Tensor& t, std::span<const int64_t> shape) {
  const size_t more = t.shape().size() - shape.size();
  Shape dims;
  for (size_t d = 0; d < t.shape().size(); ++d) {
    if (d < more || (shape[d - more] == 1 && t.shape()[d] != 1)) dims.push_back(static_cast<int64_t>(d));
  }
  (void)cx;
  Tensor s = dims.empty() ? t : sum(t, dims, true);
  return more > 0 ? reshape(s, Ints(shape)) : s;
}

Tensor expand_to(Context&, const Tensor& t, std::span<const int64_t> shape) { return expand(t, Ints(shape)); }
Tensor convert(Context&, const Tensor& t, DType dtype) { return cast(t, dtype); }
Tensor add_grads(Context&, const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor clone(Context&, const Tensor& t) { return gradwire::clone(t); }

namespace {
void run_into(Context& cx, const Tensor& into, const Pointwise& kernel, const Tensor& a, const Tensor& b) {
  Operands in;
  in.count = 2;
  in.tensor[0] = a, in.tensor[1] = b;
  const Chosen::Params none;  // an address to take the functor from, which has no members
  run(cx, kernel, into.dtype(), out_view(into), in, &none);
}
}  // namespace

void add_into(Context& cx, const Tensor& into, const Tensor& t) {
  static const Pointwise* const kernel = find_pointwise("add");
  run_into(cx, into, *kernel, into, t);
}

void scale_into(Context& cx, const Tensor& into, const Tensor& t, double factor) {
  static const Pointwise* const kernel = find_pointwise("mul");
  run_into(cx, into, *kernel, t, cx.full({}, factor, t.dtype()));
}

}  // namespace gradwire::engine
