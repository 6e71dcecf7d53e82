#pragma once

#include "engine/op.h"

// What the engine does with tensors beneath the rows. Those marked "history" record themselves like any operator.

namespace gradwire::engine {

/// PyTorch's promotion: tensors with dimensions before 0-dim tensors before numbers; a lower rank only counts where its
/// category is higher.
DType promote(DType a, DType b);
class Promotion {
 public:
  void add(const Tensor& t) { join(t.ndim() > 0 ? dims_ : zero_dim_, t.dtype()); }
  void add(Scalar s, DType default_dtype);
  DType result() const;

 private:
  struct Slot {
    DType dtype = DType::boolean;
    bool any = false;
  };
  static void join(Slot& s, DType t) { s = {s.any ? promote(s.dtype, t) : t, true}; }
  Slot dims_, zero_dim_, numbers_;
};

/// v as one element of dtype t. Throws bad_argument where an integer does not fit an integer type.
void store_scalar(void* to, DType t, Scalar v);
/// The same for a number beside a tensor, as PyTorch has it: an integer that does not fit wraps.
void wrap_scalar(void* to, DType t, Scalar v);

Tensor sum_to(Context&, const Tensor& t, std::span<const int64_t> shape);     // history
Tensor expand_to(Context&, const Tensor& t, std::span<const int64_t> shape);  // history
Tensor convert(Context&, const Tensor& t, DType);                             // history
Tensor add_grads(Context&, const Tensor& a, const Tensor& b);                 // history
Tensor clone(Context&, const Tensor& t);                                      // history
/// A contiguous copy without history.
Tensor copy_of(Context&, const Tensor& t);
/// into += t, the bytes only; both have one shape and dtype.
void add_into(Context&, const Tensor& into, const Tensor& t);
/// into = t * factor, likewise; floating.
void scale_into(Context&, const Tensor& into, const Tensor& t, double factor);
void bump_version(const Tensor&);
/// The bytes of t as an output: copied first where someone outside holds them.
View out_view(const Tensor& t);

/// A pointwise row of the 0.2 release under the `compat` switches pointwise_fallback and broadcast_warning: warns, and
/// where shapes do not broadcast but have the same number of elements, gives the later operands the first one's shape.
/// Answers whether it did, in `changed`, whose new tensors are in `held`.
bool old_shapes(Context&, const OpRow&, const Bound* args, Bound* changed, Tensor (&held)[3]);
/// `compat` no_type_promotion: throws where operands with dims have several dtypes.
void refuse_mixed_types(const OpRow&, const Bound* args);
/// `compat` keepdim_warning, for a reduction over a dim that was given no keepdim.
void warn_of_keepdim(Context&, const OpRow&, const Bound* args);

/// Runs a kernel; the views are made of the tensors.
void launch(Context&, const Kernel&, std::initializer_list<View> out, std::initializer_list<View> in,
            const void* params = nullptr);

}  // namespace gradwire::engine
