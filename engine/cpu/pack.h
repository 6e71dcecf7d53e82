#pragma once

#include <cstdint>

namespace gradwire::engine::cpu {

/// Rows and columns in memory; strides in bytes.
struct Plane {
  char* at;
  int64_t row, column;
};

/// to = from, elements of 1, 2, 4 or 8 bytes, any strides. `loose`: `to` is a buffer that is filled in order, whose
/// rows may be written up to 64 bytes past their end. `stream`: `to` is
/// larger than the caches; flush_stream() follows.
void copy_plane(int64_t bytes, const Plane& to, const Plane& from, int64_t rows, int64_t columns, bool loose,
                bool stream = false);

}  // namespace gradwire::engine::cpu
