#pragma once

#include <string>
#include <vector>

#include "server/http/connection.h"
#include "server/http/exchange.h"
#include "server/http/session_use.h"

namespace gradwire::server::http {

inline constexpr const char* kSubprotocol = "gradwire.v1";

struct WsAnswer {
  struct Frame {
    std::string head;  // of a safetensors file
    Bytes bytes;
  };
  std::string text;
  std::vector<Frame> frames;  // one a fetched tensor, where the request asked for "encoding": "binary"
};

/// The conversation of rest-api.md section 5, one text frame after the other: a request is {"id", KIND: …}, where KIND
/// is
///   run          a program
///   run_program  a stored program's name beside "inputs" and "fetch", or {"name", "inputs", "fetch"}
///   put          {"name", "tensor"}, or tensors by their names
///   get          a name, or {"name", "part"}
///   release      a name, or a list of names
class WsProtocol final : public Turn {
 public:
  /// Throws Error{no_session}.
  WsProtocol(Shared& shared, const std::string& session)
      : Turn(shared.service, shared.scribe, shared.gate), session_(shared.service, session) {}
  /// {"id", "result"} or {"id", "error"}; never throws.
  Async<WsAnswer> answer(const std::string& request);
  Async<void> flush() override { co_return; }

 private:
  struct Request;
  Async<void> carry_out(Request&, WsAnswer&);
  Async<TensorInfo> put(Program::Input);

  SessionUse session_;
};

}  // namespace gradwire::server::http
