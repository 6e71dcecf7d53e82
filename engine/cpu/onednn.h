#pragma once

#include <cstdint>

#include "engine/kernels.h"

// float32 convolutions on oneDNN. Tensors come and go in rows (N, C, ...); oneDNN chooses the layouts in which it
// computes, and they are copied into those and back inside the call.

namespace gradwire::engine::cpu {

/// Bytes that run_onednn works in. Negative where oneDNN has no kernel of machine code for these sizes, or is not built
/// in: they are not for it. `l` is as the kernel's, with its results and inputs not yet read.
int64_t onednn_scratch(ConvPass, const Launch& l);

/// The convolution; l.out[1] has the bytes that onednn_scratch asked for. False, with nothing done, where that was
/// negative.
bool run_onednn(ConvPass, const Launch& l);

}  // namespace gradwire::engine::cpu
