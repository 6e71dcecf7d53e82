// Tensors put together and taken apart.
#include "engine/apply.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::engine {

constinit const std::span<const OpDef> kJoinOps = {};

}  // namespace gradwire::engine
