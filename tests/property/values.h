#pragma once

#include <vector>

#include "engine/tensor.h"
#include "tests/property/array.h"

// Values of the interpreter as tensors of the engine, and back, without the engine's own conversions.

namespace gradwire::property {

engine::Tensor upload(engine::Context&, const Array&);
/// Read through the tensor's sizes and strides by the interpreter's loops.
std::vector<Num> download(const engine::Tensor&);

}  // namespace gradwire::property
