#pragma once

#include <cstdint>

#include "engine/cpu/half.h"

// Rows of plain values, by this machine's instructions (Highway; see rows.cpp).

namespace gradwire::engine::cpu {

/// Streaming stores reach other threads only after this.
void flush_stream();
void copy_row(void* to, const void* from, int64_t bytes, bool stream);

/// n elements. The arrays do not overlap.
void to_float(const float16*, float*, int64_t n);
void to_float(const bfloat16*, float*, int64_t n);
void from_float(const float*, float16*, int64_t n);
void from_float(const float*, bfloat16*, int64_t n);

}  // namespace gradwire::engine::cpu
