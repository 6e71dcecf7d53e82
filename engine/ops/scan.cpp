// Running sums and products along a dim.
#include "engine/apply.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::engine {

constinit const std::span<const OpDef> kScanOps = {};

}  // namespace gradwire::engine
