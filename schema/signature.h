#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/op_call.h"

namespace gradwire {

/// The types of the signature language, PyTorch's words.
enum class Type : uint8_t {
  tensor, operand, scalar, integer, real, boolean, str, dtype, device, generator, optimizer, index
};

/// A default, of the kind that its parameter takes: none (`None`), boolean, integer, real, text, ints.
struct Default {
  ArgKind kind = ArgKind::none;
  int64_t i = 0;  // of boolean and integer
  double f = 0;
  std::string text;
  std::vector<int64_t> ints;
};

struct Param {
  std::string name;
  Type type = Type::tensor;
  bool list = false;              // `[]`
  int list_size = 0;              // 2 in `int[2]`: one int stands for all; 0: any length
  bool optional = false;          // `?` behind all: None is allowed
  bool element_optional = false;  // `Tensor?[]`
  bool keyword_only = false;      // after `*`
  std::optional<Default> fallback;  // the default; without one the argument must be given
};

struct Result {
  std::string name;  // empty where the signature gives none
  bool list = false, optional = false;
};

/// sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor
struct Signature {
  std::string name, overload;  // "max.dim" is {"max", "dim"}, "optim.SGD" is {"optim.SGD", ""}
  std::vector<Param> params;
  std::vector<Result> results;  // one unnamed for `-> Tensor`, several for `-> (Tensor values, Tensor indices)`, none for `-> ()`
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
};

/// Throws Error{bad_argument} that quotes the text from the place where it stops making sense.
Signature parse_signature(std::string_view text);

}  // namespace gradwire
