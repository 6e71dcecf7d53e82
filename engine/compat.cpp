// Shapes as the 0.2 release of PyTorch had them, for sessions that ask for it.
#include <algorithm>
#include <optional>

#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// "a and b", "a, b, and c"
std::string listed(const OpRow& row, const int* at, int n) {
  std::string names = row.sig.params[at[0]].name;
  for (int k = 1; k < n; ++k) names += (n > 2 ? k + 1 < n ? ", " : ", and " : " and ") + row.sig.params[at[k]].name;
  return names;
}

std::optional<Shape> broadcast(const Bound* args, const int* at, int n) {
  try {
    Shape s(args[at[0]].tensors->shape());
    for (int k = 1; k < n; ++k) s = broadcast_shapes(s, args[at[k]].tensors->shape());
    return s;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

bool Compat::*compat_flag(std::string_view name) {
  for (const CompatRow& r : kCompatRows) {
    if (name == r.name) return r.flag;
  }
  throw Error(Code::bad_argument, "there is no compat behaviour '" + std::string(name.substr(0, 64)) + "'");
}

void refuse_mixed_types(const OpRow& row, const Bound* args) {
  const Tensor* first = nullptr;
  for (int k = row.kernel && row.kernel->masked ? 1 : 0; k < row.def->pointwise; ++k) {
    if (args[k].kind != ArgKind::tensor || args[k].tensors->ndim() == 0) continue;
    const Tensor& t = *args[k].tensors;
    if (!first) first = &t;
    if (t.dtype() == first->dtype()) continue;
    throw Error(Code::dtype_mismatch,
                std::string("Expected object of type torch.") + gradwire::row(first->dtype()).torch +
                    "Tensor but found type torch." + gradwire::row(t.dtype()).torch + "Tensor for argument #" +
                    std::to_string(k + 1) + " '" + row.sig.params[static_cast<size_t>(k)].name + "'",
                row.name());
  }
}

void warn_of_keepdim(Context& cx, const OpRow& row, const Bound* args) {
  if (!args[row.keepdim].left_out || args[row.dim].kind == ArgKind::none) return;
  cx.warn(row.name(), "backwards compatibility: call to \"" + row.name() +
                          "\" uses default value for keepdim which has changed default to False.  "
                          "Consider passing as kwarg.");
}

bool old_shapes(Context& cx, const OpRow& row, const Bound* args, Bound* changed, Tensor (&held)[3]) {
  int at[3], n = 0;
  for (int k = 0; k < row.def->pointwise; ++k) {
    if (args[k].kind == ArgKind::tensor) at[n++] = k;
  }
  if (n < 2 || at[0] != 0) return false;
  const Tensor& self = *args[0].tensors;
  bool same_count = true, same_shape = true;
  for (int k = 1; k < n; ++k) {
    const Tensor& t = *args[at[k]].tensors;
    same_count = same_count && t.numel() == self.numel();
    same_shape = same_shape && std::ranges::equal(t.shape(), self.shape());
  }
  if (same_shape || self.numel() == 0) return false;

  std::copy_n(args, row.params, changed);
  bool any = false;
  const auto fall_back = [&](int k) {
    held[k] = reshape(*args[at[k]].tensors, Ints(self.shape()));
    changed[at[k]] = Bound(held[k]);
    any = true;
  };
  const auto warn = [&](std::string text) { cx.warn(row.name(), std::move(text)); };
  if (row.inplace && cx.compat.pointwise_fallback) {  // each operand by itself: self's shape is given
    for (int k = 1; k < n; ++k) {
      const Tensor& t = *args[at[k]].tensors;
      if (t.numel() != self.numel() || broadcasts_to(t.shape(), self.shape())) continue;
      warn(row.sig.params[at[k]].name +
           " is not broadcastable to self, but they have the same number of elements.  Falling back to deprecated "
           "pointwise behavior.");
      fall_back(k);
    }
    if (any) return true;
  }
  if (!same_count) return false;
  if (broadcast(args, at, n)) {
    if (cx.compat.broadcast_warning) {
      warn(listed(row, at, n) +
           " do not have the same shape, but are broadcastable, and have the same number of elements.  Changing "
           "behavior "
           "in a backwards incompatible manner to broadcasting rather than viewing as 1-dimensional.");
    }
  } else if (cx.compat.pointwise_fallback) {
    warn(listed(row, at, n) +
         " not broadcastable, but have the same number of elements.  Falling back to deprecated pointwise behavior.");
    for (int k = 1; k < n; ++k) fall_back(k);
  }
  return any;
}

}  // namespace gradwire::engine
