// What orders elements: sort, topk, and what picks by rank.
#include "engine/apply.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::engine {

constinit const std::span<const OpDef> kSortOps = {};

}  // namespace gradwire::engine
