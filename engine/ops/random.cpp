// Drawn numbers.
#include "engine/apply.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::engine {

constinit const std::span<const OpDef> kRandomOps = {};

}  // namespace gradwire::engine
