#pragma once

// What the server uses of the engine, in one place.

#include <memory>
#include <string>
#include <vector>

#include "engine/autograd.h"
#include "engine/registry.h"
#include "engine/tensor.h"

namespace gradwire::server::engine {

using namespace gradwire::engine;  // NOLINT: one name for both

/// "cpu" or "cuda:N"; throws bad_argument, or unavailable where the device is not there.
std::unique_ptr<Backend> make_backend(const std::string& device);
/// Of the operators' names and signatures, as schema/ops.h has it.
uint64_t catalogue_hash();
/// Full names in index order.
std::vector<std::string> operator_names();
std::string op_name(OpId);

}  // namespace gradwire::server::engine
