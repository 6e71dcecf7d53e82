#pragma once

#include <string>
#include <vector>

#include "engine/tensor.h"
#include "tests/property/program.h"

namespace gradwire::property {

/// What is wrong with the gradients of a program that has run on both sides; empty: nothing.
std::string wrong_gradients(const Program&, const std::vector<Array>& env, const std::vector<engine::Tensor>& tensors);

}  // namespace gradwire::property
