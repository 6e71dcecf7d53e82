#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "schema/dtype.h"
#include "schema/shape.h"

// The safetensors format, https://huggingface.co/docs/safetensors: 8 bytes little-endian length, that many bytes of
// JSON, then the tensors' bytes without holes or overlaps.

namespace gradwire {

inline constexpr size_t kSafetensorsPrefix = 8;
inline constexpr size_t kMaxSafetensorsHead = 100'000'000;  // bytes of JSON, the format's own limit

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  size_t begin = 0, end = 0;  // bytes from the end of the head
};

struct SafetensorsHead {
  std::vector<SafetensorsEntry> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  size_t data_offset = 0;  // bytes of the length and the JSON
};

/// Bytes of the length and the JSON together, from the first 8 bytes of a file of `file_bytes`. Throws
/// Error{bad_tensor} where they do not fit into the file or the limit (of JSON bytes).
size_t safetensors_head_bytes(std::span<const std::byte> prefix, size_t file_bytes, size_t limit = kMaxSafetensorsHead);

/// Reads a whole head (safetensors_head_bytes() of the file), of a file of `file_bytes`. Throws Error{bad_tensor}
/// for bad JSON, equal names, unknown fields or dtypes, sizes that do not agree, holes, overlaps, and bytes that
/// belong to no tensor. What it allocates is a small multiple of the head.
SafetensorsHead parse_safetensors_head(std::span<const std::byte> head, size_t file_bytes);

/// The head of a file with these tensors' bytes after it, in this order; begin and end are not read. Its size is a
/// multiple of 8. Names, keys and values are UTF-8.
std::string safetensors_head(std::span<const SafetensorsEntry> tensors,
                             const std::map<std::string, std::string>& metadata = {});

}  // namespace gradwire
