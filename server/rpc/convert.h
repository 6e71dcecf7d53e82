#pragma once

#include <vector>

#include "schema/gradwire.capnp.h"
#include "schema/op_call.h"
#include "server/result.h"
#include "server/service.h"

/// Between the messages and the plain structs of the service. What comes in is checked for form here: counts, kinds,
/// ranges and sums; what it means is the session's matter.
namespace gradwire::server {

inline constexpr uint32_t kMaxCalls = 65536;   // of a batch; texts and lines too
inline constexpr uint32_t kMaxFetches = 8192;  // of a batch: their answer is written in one go
inline constexpr uint32_t kMaxArgs = 1 << 20;  // of a batch; ints too
inline constexpr size_t kMaxTexts = 8 << 20;   // bytes of all texts of a batch

struct NumberedBatch {
  Batch batch;
  uint64_t digest = 0;  // of everything but acked, from the columns
};
/// bad_program, at the call that is wrong.
Result<NumberedBatch> read_batch(wire::Batch::Reader);
/// A 64-bit hash of a batch, without `acked`. Tells repeats from mistakes; keeps no secret.
uint64_t digest_of(const Batch&);

/// bad_argument for a dtype or a shape that no tensor can have.
Result<DType> read_dtype(uint8_t);
Result<Shape> read_shape(capnp::List<int64_t>::Reader);
Result<SessionOptions> read_options(wire::SessionOptions::Reader);

void write(wire::Error::Builder, const Error&);
void write(wire::TensorInfo::Builder, const TensorInfo&);
void write(wire::SessionInfo::Builder, const SessionInfo&);
void write(wire::ServerInfo::Builder, const ServerInfo&, bool operators);
/// Values over kInlineValue, and those beyond kInlineSum in all, stay out: their size tells that they must be read.
void write(wire::Outcome::Builder, const Outcome&);
/// About how large the message becomes.
capnp::MessageSize size_of(const Outcome&);

/// What was thrown, as an Error: never a text of a library. Call within a catch.
Error caught_error(Code malformed) noexcept;

}  // namespace gradwire::server
