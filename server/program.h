#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schema/error.h"
#include "schema/op_call.h"
#include "server/result.h"

namespace gradwire::server {

/// Bytes that anybody may read on any thread for as long as `hold` lives: a snapshot, never a live tensor.
struct Bytes {
  std::shared_ptr<const void> hold;
  const std::byte* data = nullptr;
  size_t size = 0;
};

/// A tensor outside its session: contiguous, row-major, little-endian.
struct TensorValue {
  TensorInfo info;
  Bytes bytes;
};

/// Memory of a session, charged to it, that an upload may fill on any thread before it becomes a tensor.
struct Room {
  std::shared_ptr<void> hold;
  std::byte* data = nullptr;
  size_t size = 0;
  DType dtype = DType::float32;
  Shape shape;
};

/// An entry of a session: by its name (HTTP) or its id (RPC; HTTP shows unnamed ones as "#41").
struct Key {
  std::string name;
  uint64_t id = 0;  // used when the name is empty
  Part part = Part::value;
};
/// "w" -> the entry w; "w.grad" -> its gradient; "#41" -> the entry 41.
Key key_of(std::string_view text);

/// A program in the notation of rest-api.md, checked for form, with its names still names. Arguments are args of
/// op_call.h whose `tensor` ids are numbers of `names`; a range of `args` is one argument with what belongs to it.
/// Immutable once made.
struct Program {
  struct Range {
    uint32_t first = 0, ints = 0;  // the argument's first arg, and the first of the ints it takes
  };
  struct Step {
    std::string op;
    std::vector<Range> positional;
    std::vector<std::pair<std::string, Range>> named;
    std::vector<std::optional<std::string>> outs;  // nothing: that result is dropped
    std::optional<bool> grad_mode;
    std::optional<Error> broken;  // found while reading it: thrown when its turn comes, after the steps before it
  };
  struct Input {
    std::string name;
    DType dtype = DType::float32;
    Shape shape;
    std::vector<std::byte> bytes;
    bool requires_grad = false;
  };
  std::vector<Input> inputs;
  std::vector<std::string> names;  // what `tensor` args mean, each without ".grad" (that is the arg's part)
  std::vector<std::string> texts;
  std::vector<Arg> args;
  std::vector<int64_t> ints;
  std::vector<Step> steps;
  std::vector<std::string> fetch, release;
  std::vector<std::string> declared_inputs;  // of a stored program: names that every run must feed
};

/// What a run fetched, in order; nothing where a gradient does not exist.
struct ProgramResult {
  std::vector<std::pair<std::string, std::optional<TensorValue>>> tensors;
  std::vector<Warning> warnings;
};

}  // namespace gradwire::server
