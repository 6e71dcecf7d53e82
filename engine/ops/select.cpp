// Elements picked and placed by index tensors or masks along a dim.
#include "engine/apply.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::engine {

constinit const std::span<const OpDef> kSelectOps = {};

}  // namespace gradwire::engine
