#include "tests/property/draw.h"

// Several tensors into one, and one into several.

namespace gradwire::property {

constinit const std::span<const Row> kJoin = {};

}  // namespace gradwire::property
