#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gradwire {

/// What can go wrong, all of it: the same over RPC and HTTP. The numbers travel on the wire: append only.
enum class Code : uint8_t {
  bad_json,
  bad_tensor,
  bad_program,
  unknown_operator,
  bad_argument,
  bad_request,
  unauthenticated,
  forbidden,
  no_session,
  no_tensor,
  no_grad,
  no_program,
  no_object,
  no_route,
  bad_method,
  not_acceptable,
  slow_request,
  length_required,
  too_large,
  uri_too_long,
  unsupported_media_type,
  head_too_large,
  not_implemented,
  version_conflict,
  graph_freed,
  closed,
  cancelled,
  group_mismatch,
  shape_mismatch,
  dtype_mismatch,
  device_mismatch,
  index_out_of_range,
  no_grad_fn,
  not_differentiable,
  inplace_modified,
  leaf_inplace,
  singular,
  data_loss,
  too_many_requests,
  overloaded,
  draining,
  unavailable,
  deadline_exceeded,
  memory_limit,
  internal,
};
inline constexpr int kCodes = static_cast<int>(Code::internal) + 1;

struct CodeRow {
  const char* name;
  int http;  // status
};

inline constexpr CodeRow kCodeRows[kCodes] = {
    {"bad_json", 400},           {"bad_tensor", 400},
    {"bad_program", 400},        {"unknown_operator", 400},
    {"bad_argument", 400},       {"bad_request", 400},
    {"unauthenticated", 401},    {"forbidden", 403},
    {"no_session", 404},         {"no_tensor", 404},
    {"no_grad", 404},            {"no_program", 404},
    {"no_object", 404},          {"no_route", 404},
    {"bad_method", 405},         {"not_acceptable", 406},
    {"slow_request", 408},       {"length_required", 411},
    {"too_large", 413},          {"uri_too_long", 414},
    {"unsupported_media_type", 415}, {"head_too_large", 431},
    {"not_implemented", 501},    {"version_conflict", 409},
    {"graph_freed", 409},        {"closed", 409},
    {"cancelled", 409},          {"group_mismatch", 409},
    {"shape_mismatch", 422},     {"dtype_mismatch", 422},
    {"device_mismatch", 422},    {"index_out_of_range", 422},
    {"no_grad_fn", 422},         {"not_differentiable", 422},
    {"inplace_modified", 422},   {"leaf_inplace", 422},
    {"singular", 422},           {"data_loss", 422},
    {"too_many_requests", 429},  {"overloaded", 503},
    {"draining", 503},           {"unavailable", 503},
    {"deadline_exceeded", 504},  {"memory_limit", 507},
    {"internal", 500},
};

constexpr const char* name(Code c) { return kCodeRows[static_cast<int>(c)].name; }
constexpr int http_status(Code c) { return kCodeRows[static_cast<int>(c)].http; }
constexpr std::optional<Code> code_from(std::string_view text) {
  for (int i = 0; i < kCodes; ++i) {
    if (text == kCodeRows[i].name) return static_cast<Code>(i);
  }
  return std::nullopt;
}

/// A place in the user's program.
struct Where {
  std::string file;
  uint32_t line = 0;  // 0: unknown
};

/// An error as data and as an exception: one type travels and is thrown. The messages use PyTorch's wording where
/// PyTorch has a well-known one.
class Error : public std::exception {
 public:
  Error() = default;
  Error(Code code, std::string message, std::string op = {}) : code_(code), message_(std::move(message)), op_(std::move(op)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  /// The operator that failed; empty if none.
  const std::string& op() const { return op_; }
  /// The line of the user's program whose call failed.
  const Where& where() const { return where_; }
  /// The batch (0: none) and the call within the batch, or the step of a program (-1: none).
  uint64_t seq() const { return seq_; }
  int64_t step() const { return step_; }

  Error& at(uint64_t seq, int64_t step) { return seq_ = seq, step_ = step, *this; }
  Error& at(Where where) { return where_ = std::move(where), *this; }
  Error& of(std::string op) { return op_ = std::move(op), *this; }

 private:
  Code code_ = Code::internal;
  std::string message_, op_;
  Where where_;
  uint64_t seq_ = 0;
  int64_t step_ = -1;
};

/// The class of one code: `catch (const gradwire::ErrorOf<Code::shape_mismatch>&)`.
template <Code C>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(Error e) : Error(std::move(e)) {}
};

}  // namespace gradwire
