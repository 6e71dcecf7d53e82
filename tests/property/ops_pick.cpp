#include "tests/property/draw.h"

// Elements by number or by rank.

namespace gradwire::property {

constinit const std::span<const Row> kPicking = {};

}  // namespace gradwire::property
