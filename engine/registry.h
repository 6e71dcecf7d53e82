#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/op.h"
#include "schema/signature.h"

namespace gradwire::engine {

/// A row of the catalogue: a definition with what is derived from it. Immutable after the first use.
struct OpRow {
  const OpDef* def = nullptr;
  Signature sig;
  OpId id = 0;
  bool inplace = false;  // the derived form: writes into its first argument and returns it
  int params = 0;
  Bound defaults[kMaxParams];
  const Pointwise* kernel = nullptr;  // of pointwise rows
  int8_t save_in[kMaxParams];         // where parameter i stands in def->saves; -1: not saved
  int8_t save_out[3];
  int8_t dim = -1, keepdim = -1;    // these parameters of the reductions that `keepdim_warning` is about
  bool takes_list = false;          // its first parameter is a Tensor[]
  int list_at = -1;                 // which parameter is, at the start or behind texts and optimisers
  bool is_tensor[kMaxParams] = {};  // Tensor, Tensor? or Operand

  const std::string& name() const { return sig.name; }
};

/// The families in catalogue order; each row with an in-place form is followed by it.
std::span<const OpRow> catalogue();
/// By full name ("max.dim"); nothing if there is none.
const OpRow* find_op(std::string_view full_name);
/// The rows of a name ("max": max, max.dim, max.other), in catalogue order.
std::span<const OpRow* const> overloads(std::string_view name);

/// A call bound to a row: its arguments in order, and what they point to where binding had to make something.
struct BoundCall {
  OpId id = 0;
  int count = 0;
  Bound args[kMaxParams];
  std::vector<Tensor> gathered;
  std::vector<int64_t> loose;
};

/// Picks the first row of this name, in catalogue order, that all arguments fit, and puts them in order. Texts become
/// dtypes, "NaN" and "Infinity" numbers, where the parameter wants that. Several leading tensors are one Tensor[] where
/// the row begins with one, be it behind texts or an optimiser; several integers at the end are one int[] where that is
/// all that the row takes by position, beside a tensor. Throws unknown_operator, bad_argument in PyTorch's words.
void bind(std::string_view name, std::span<const Bound> positional,
          std::span<const std::pair<std::string_view, Bound>> named, BoundCall& call);
/// For calls by catalogue index: whether the arguments fit, converting them as bind does. Throws bad_argument.
void check(OpId, std::span<Bound> args);

/// Runs a call of any row; args may leave out trailing defaults. Errors name the operator.
Results call(Context&, OpId, std::span<const Bound> args);

extern const std::span<const OpDef> kUnaryOps, kCurvesOps, kBinaryOps, kTernaryOps, kCompareOps, kLogicOps,
    kActivationOps, kReduceOps, kScanOps, kSortOps, kShapeOps, kStridedOps, kDiagonalOps, kJoinOps, kTileOps, kIndexOps,
    kSelectOps, kMaskOps, kLinalgOps, kPadOps, kConvOps, kPoolOps, kUnpoolOps, kResampleOps, kNnOps, kChannelOps,
    kNormOps, kLossOps, kDistanceOps, kCreateOps, kRandomOps, kAutogradOps, kConvertOps, kOptimOps, kGroupOps,
    kCollectiveOps, kMessageOps;

}  // namespace gradwire::engine
