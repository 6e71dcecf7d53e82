#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "schema/error.h"
#include "server/program.h"
#include "server/service.h"

// Answers as JSON text, appended to `to`. Texts are made UTF-8; numbers read back to the same bits.

namespace gradwire::server::http {

inline constexpr size_t kMaxJsonAnswer = size_t{64} << 20;  // bytes; more travels in a binary format

void write_text(std::string& to, std::string_view text);
/// Shortest text that reads back to the same double; "NaN", "Infinity", "-Infinity" as strings.
void write_real(std::string& to, double v);
/// {"dtype", "shape", "data", "requires_grad"}, data nested as the shape is (flat over 24 dimensions or without
/// elements). Throws Error{too_large} where `to` would grow over kMaxJsonAnswer.
void write_tensor(std::string& to, const TensorValue&);
/// {"name", "dtype", "shape", "strides", "device", "requires_grad", "is_leaf", "grad_fn", "version", "bytes"}; no name
/// where it is empty.
void write_info(std::string& to, std::string_view name, const TensorInfo&);
/// {"tensors": {…}, "warnings": […]}
void write_result(std::string& to, const ProgramResult&);
/// The same, with each tensor written by `tensor`(to, name, value).
void write_result(std::string& to, const ProgramResult&,
                  const std::function<void(std::string&, std::string_view, const TensorValue&)>& tensor);
void write_session(std::string& to, const SessionInfo&);
/// {"code", "message", "step", "op"}
void write_error(std::string& to, const Error&);
/// {"error": {…}}
std::string error_body(const Error&);

}  // namespace gradwire::server::http
