#pragma once

#include "engine/kernels.h"

namespace gradwire::engine::cuda {

/// A float32 convolution by cuDNN, in full float32 and with the same bits each time. False, with nothing done, where
/// cuDNN is not built in or has no such way for these sizes.
bool run_cudnn(ConvPass, const Launch&);

}  // namespace gradwire::engine::cuda
