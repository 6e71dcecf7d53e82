#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/nn/state_dict.h"
#include "client/tensor.h"
#include "schema/safetensors.h"

// Files of tensors: https://huggingface.co/docs/safetensors, what Python's safetensors reads and writes.

namespace gradwire {

using Metadata = std::map<std::string, std::string>;

/// Writes the tensors' values under their names, in this order. The file is whole or as it was before: the bytes go to
/// a file beside it that takes its place at the end, once they are on the disk. Throws Error{bad_argument} for equal or
/// odd names, Error{unavailable} where the file system refuses.
void save_file(const std::string& path, const nn::StateDict<Tensor>& tensors, const Metadata& = {});

/// The tensors of a file, in the order of their bytes. All of it is checked before the first tensor is made. Throws
/// Error{bad_tensor} for a file that breaks the format, Error{unavailable} where it cannot be read.
nn::StateDict<Tensor> load_file(Session&, const std::string& path);
nn::StateDict<Tensor> load_file(const std::string& path);

namespace client {

/// A file that takes its name only by commit(); without it nothing is left.
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::string path, std::span<const SafetensorsEntry>, const Metadata&);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();
  /// The bytes of the next tensor.
  void write(std::span<const std::byte>);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string path_, temporary_;
  int fd_ = -1;
};

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  SafetensorsReader(const SafetensorsReader&) = delete;
  ~SafetensorsReader();
  const SafetensorsHead& head() const { return head_; }
  /// The bytes of one tensor of the head.
  std::vector<std::byte> read(const SafetensorsEntry&) const;

 private:
  std::vector<std::byte> bytes(size_t offset, size_t count) const;
  std::string path_;
  int fd_ = -1;
  SafetensorsHead head_;
};

}  // namespace client
}  // namespace gradwire
