#include "engine/registry.h"

#include <algorithm>
#include <unordered_map>

namespace gradwire::engine {
namespace {

struct Catalogue {
  std::vector<OpRow> rows;
  std::unordered_map<std::string, OpId> by_full_name;
  std::vector<const OpRow*> by_name;  // sorted; rows of one name in catalogue order
};

Bound default_value(const Param& p, const Default& d) {
  switch (d.kind) {
    case ArgKind::boolean:
      return Bound(Scalar(d.i != 0));
    case ArgKind::integer:
      return p.type == Type::real ? Bound(Scalar(static_cast<double>(d.i))) : Bound(Scalar(d.i));
    case ArgKind::real:
      return Bound(Scalar(d.f));
    case ArgKind::text:
      return Bound(std::string_view(d.text));
    case ArgKind::ints:
      return Bound(std::span<const int64_t>(d.ints));
    default:
      return Bound();
  }
}

/// The reductions over a dim that once kept it by default.
constexpr std::string_view kOnceKept[] = {"sum", "prod", "mean",   "std",  "var",     "norm",
                                          "max", "min",  "median", "mode", "kthvalue"};

OpRow make_row(const OpDef& def, const Signature& sig) {
  OpRow row;
  row.def = &def;
  row.sig = sig;
  row.params = static_cast<int>(sig.params.size());
  if (row.params > kMaxParams) throw Error(Code::internal, sig.name + " has more than kMaxParams parameters");
  const int ways = (def.pointwise > 0) + (def.compute != nullptr) + (def.write != nullptr) + (def.view != nullptr) +
                   (def.compose != nullptr);
  const int grads = (def.vjp != nullptr) + (def.compose != nullptr) + (def.no_grad != nullptr);
  if (ways != 1 || grads != 1)
    throw Error(Code::internal, sig.name + ": a row has one way to compute and one gradient");
  for (int i = 0; i < row.params; ++i) {
    const Param& p = sig.params[i];
    row.is_tensor[i] = !p.list && (p.type == Type::tensor || p.type == Type::operand);
  }
  if (std::ranges::find(kOnceKept, sig.name) != std::end(kOnceKept)) {
    for (int i = 0; i < row.params; ++i) {
      if (sig.params[i].name == "dim") row.dim = static_cast<int8_t>(i);
      if (sig.params[i].name == "keepdim") row.keepdim = static_cast<int8_t>(i);
    }
  }
  row.takes_list = row.params > 0 && sig.params[0].list && sig.params[0].type == Type::tensor;
  std::fill(std::begin(row.save_in), std::end(row.save_in), -1);
  std::fill(std::begin(row.save_out), std::end(row.save_out), -1);
  for (int k = 0; k < def.saves.count; ++k) {
    const Save& s = def.saves.at[k];
    (s.is_out ? row.save_out : row.save_in)[s.index] = static_cast<int8_t>(k);
  }
  row.inplace = def.write && sig.name.ends_with('_');  // an in-place form alone, without the ordinary one
  if (def.pointwise > 0) {
    row.kernel = find_pointwise(sig.name);
    if (!row.kernel && !def.choose) throw Error(Code::internal, sig.name + ": no functor of this name");
  }
  int behind = 0;  // of texts and optimisers
  while (behind < row.params && (sig.params[behind].type == Type::str || sig.params[behind].type == Type::optimizer) &&
         !sig.params[behind].fallback)
    ++behind;
  if (behind < row.params && sig.params[behind].list && sig.params[behind].type == Type::tensor) row.list_at = behind;
  return row;
}

const Catalogue& all() {
  static const Catalogue c = [] {
    Catalogue c;
    for (std::span<const OpDef> family :
         {kUnaryOps,   kCurvesOps,  kBinaryOps, kTernaryOps,    kCompareOps,  kLogicOps,  kActivationOps, kReduceOps,
          kScanOps,    kSortOps,    kShapeOps,  kStridedOps,    kDiagonalOps, kJoinOps,   kTileOps,       kIndexOps,
          kSelectOps,  kMaskOps,    kLinalgOps, kPadOps,        kConvOps,     kPoolOps,   kUnpoolOps,     kResampleOps,
          kNnOps,      kChannelOps, kNormOps,   kLossOps,       kDistanceOps, kCreateOps, kRandomOps,     kAutogradOps,
          kConvertOps, kOptimOps,   kGroupOps,  kCollectiveOps, kMessageOps}) {
      for (const OpDef& def : family) {
        const Signature sig = parse_signature(def.sig);
        c.rows.push_back(make_row(def, sig));
        if (def.inplace) {
          OpRow form = make_row(def, sig);
          form.sig.name += "_";
          form.sig.params[0].type = Type::tensor;  // an Operand that is a number cannot be written
          form.inplace = true;
          c.rows.push_back(std::move(form));
        }
      }
    }
    for (size_t i = 0; i < c.rows.size(); ++i) {
      OpRow& row = c.rows[i];
      row.id = static_cast<OpId>(i);
      for (int k = 0; k < row.params; ++k) {  // they point into the row's own signature, which stays where it is
        if (!row.sig.params[k].fallback) continue;
        row.defaults[k] = default_value(row.sig.params[k], *row.sig.params[k].fallback);
        row.defaults[k].left_out = true;
      }
      c.by_full_name.emplace(row.sig.full_name(), row.id);
      c.by_name.push_back(&row);
    }
    std::ranges::stable_sort(c.by_name, {}, &OpRow::name);
    return c;
  }();
  return c;
}

}  // namespace

std::span<const OpRow> catalogue() { return all().rows; }

const OpRow* find_op(std::string_view full_name) {
  const auto at = all().by_full_name.find(std::string(full_name));
  return at == all().by_full_name.end() ? nullptr : &all().rows[at->second];
}

std::span<const OpRow* const> overloads(std::string_view name) {
  return std::ranges::equal_range(all().by_name, name, {},
                                  [](const OpRow* r) -> std::string_view { return r->name(); });
}

}  // namespace gradwire::engine
