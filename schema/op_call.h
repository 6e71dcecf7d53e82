#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "schema/dtype.h"
#include "schema/shape.h"

namespace gradwire {

/// A number that is no tensor: in promotion it counts by its category only.
struct Scalar {
  Category kind = Category::integer;
  union {
    bool b;
    int64_t i = 0;
    double f;
  };
  constexpr Scalar() = default;
  template <class T>
    requires std::is_arithmetic_v<T>
  constexpr Scalar(T v) {  // NOLINT: numbers are scalars
    if constexpr (std::is_same_v<T, bool>)
      kind = Category::boolean, b = v;
    else if constexpr (std::is_integral_v<T>)
      kind = Category::integer, i = static_cast<int64_t>(v);
    else
      kind = Category::floating, f = static_cast<double>(v);
  }
  constexpr double real() const {
    return kind == Category::floating ? f : kind == Category::integer ? static_cast<double>(i) : (b ? 1.0 : 0.0);
  }
  /// Meaningless for a floating scalar.
  constexpr int64_t integer() const { return kind == Category::integer ? i : b; }
};

/// Which part of an entry of a session's table a reference means.
enum class Part : uint8_t { value, grad };

/// The kinds of arguments on the wire. The numbers travel: append only.
enum class ArgKind : uint8_t {
  none,      // an optional argument left out; in an index list: a new axis
  boolean,   // i: 0 or 1
  integer,   // i
  real,      // f
  text,      // i: which of Batch::texts (str, device, and over HTTP dtype names)
  dtype,     // i: a DType
  tensor,    // id, part; optimisers, programs and generators too
  tensors,   // count: that many args follow, each `tensor` or `none`
  ints,      // count: that many of Batch::ints
  floats,    // count: that many of Batch::ints, each the bits of a double
  bools,     // count: that many of Batch::ints, each 0 or 1
  index,     // count: that many args follow: integer, boolean, none, slice, ellipsis, int_array, bool_array, tensor
  slice,     // count: bits 1, 2, 4 = start, stop, step are present; takes three of Batch::ints
  ellipsis,  //
  int_array, // an index list: count = number of dimensions; takes the sizes, then the values, of Batch::ints
  bool_array
};

/// One argument, 16 bytes. Lists are flat: their elements follow, in the args or in the ints of the batch.
struct Arg {
  ArgKind kind = ArgKind::none;
  Part part = Part::value;
  uint32_t count = 0;
  union {
    int64_t i = 0;
    double f;
    uint64_t id;
  };
};
static_assert(sizeof(Arg) == 16);

/// One call of a batch. `args` top-level arguments (with what belongs to them) are next in Batch::args: a full
/// positional list in the order of the row's signature, shorter lists end in defaults.
struct OpCall {
  static constexpr uint16_t kRelease = 0xFFFF;  // as op: forget the entry `out`; carried out even when skipped
  static constexpr uint16_t kUpload = 0xFFFE;   // as op: `out` is a new tensor. Args: dtype, ints (shape), text (its bytes,
                                                // row-major, up to 64 KiB) or integer (an upload's number), boolean
                                                // (requires_grad)
  uint16_t op = 0;        // catalogue index
  bool grad_mode = true;  // the client's scope at the time of the call
  uint8_t args = 0;
  uint32_t line = 0;      // which of Batch::lines, counted from 1; 0: unknown
  uint64_t out = 0;       // results take the ids from here upward; 0: nobody wants them
};

/// What the client wants back after the calls.
enum class FetchKind : uint8_t { value, info };
struct Fetch {
  uint64_t id = 0;
  Part part = Part::value;
  FetchKind kind = FetchKind::value;
};

/// A list of calls that travels as one message, and runs in order. Plain columns: filling and reading it costs no
/// allocation a call.
struct Batch {
  uint64_t seq = 0;    // counts the batches of a session from 1, without gaps, over any connection
  uint64_t acked = 0;  // answers up to here have arrived: the server forgets them
  uint64_t epoch = 0;  // +1 after each error that the client has seen
  std::vector<OpCall> calls;
  std::vector<Arg> args;
  std::vector<int64_t> ints;
  std::vector<std::string> texts;  // bytes
  struct Line {
    uint32_t file = 0;  // which of texts
    uint32_t line = 0;
  };
  std::vector<Line> lines;
  std::vector<Fetch> fetches;

  void clear() { calls.clear(), args.clear(), ints.clear(), texts.clear(), lines.clear(), fetches.clear(); }
};

/// What is known of a tensor without its values.
struct TensorInfo {
  DType dtype = DType::float32;
  Shape shape, strides;
  std::string device;     // "cpu", "cuda:0"
  bool requires_grad = false, is_leaf = true;
  std::string grad_fn;    // the operator that made it, as "MulBackward0"; empty for a leaf
  uint64_t version = 0;
  int64_t bytes = 0;      // of its storage
  int64_t count = -1;     // of a list result: how many entries it has; -1: a single tensor
};

/// Warnings are data: they come back with the answer.
struct Warning {
  std::string op, message;
  int64_t step = -1;
  std::string file{};  // the line of the client's program that made the call, where it is known
  uint32_t line = 0;
};

}  // namespace gradwire
