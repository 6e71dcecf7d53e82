#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/context.h"
#include "tests/engine/literal.h"

// Properties that every row of the catalogue has, as functions: each answers with what is wrong, or with nothing.

namespace gradwire::engine {

/// The samples of a row as a list.
std::vector<std::string_view> samples_of(const OpRow&);

/// How `got` differs from `want` in count, dtype, shape or values; relative and absolute tolerance.
std::string difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double rtol, double atol);

/// The same values in another layout.
enum class Layout { contiguous, transposed, sliced };
Tensor laid_out(const Tensor& t, Layout);

/// A leaf with t's values.
Tensor leaf_like(const Tensor& t);

/// The gradient of the sample's results (weighted by gradients that are passed in, so that no other operator takes
/// part) with respect to each drawn floating input, against central differences: eps 1e-6, atol 1e-5, rtol 1e-3. Also
/// with only one input at a time requiring grad, and asking for one at a time.
std::string first_gradient_fault(Context&, const Arguments&);
/// The gradient of that gradient, with respect to the inputs and to the passed-in gradients, likewise.
std::string second_gradient_fault(Context&, const Arguments&);

/// All samples of a row; the first fault.
std::string first_gradient_fault(Context&, const OpRow&);
std::string second_gradient_fault(Context&, const OpRow&);

/// Whether gradients can flow through the row's results: it has a vjp, or is made of operators.
bool has_gradient(const OpRow&);

/// The operators that stand in the graph of what a sample of the row gives.
std::vector<bool> recorded_by(Context&, const OpRow&);

/// A row with another definition for as long as this lives; its in-place form too.
class ChangedRow {
 public:
  /// Starts with a copy of the row's own definition; call apply() after changing it.
  explicit ChangedRow(const OpRow&);
  ~ChangedRow();
  ChangedRow(const ChangedRow&) = delete;
  OpDef def;
  void apply();
  /// apply() with a vjp that adds 1 to every element of one gradient (of a Tensor[]: of each).
  void break_vjp(int gradient);
  /// How often a broken gradient was handed out.
  static int breaks;

 private:
  void set(const OpDef*);
  std::vector<OpRow*> rows_;
  const OpDef* original_;
};

}  // namespace gradwire::engine
