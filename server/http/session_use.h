#pragma once

#include <string_view>

#include "schema/error.h"
#include "server/service.h"

namespace gradwire::server::http {

/// A session for the time of a request or a WebSocket: its lease is renewed, and does not end meanwhile.
class SessionUse {
 public:
  /// Throws Error{no_session}: the same for ids that never were and ids of others.
  SessionUse(Service& service, std::string_view id) : session_(service.find(id)) {
    if (!session_) throw Error(Code::no_session, "there is no such session");
    session_->attach();
    session_->touch();
  }
  SessionUse(const SessionUse&) = delete;
  ~SessionUse() {
    session_->touch();
    session_->detach();
  }
  Session* operator->() const { return session_.get(); }

 private:
  SessionPtr session_;
};

}  // namespace gradwire::server::http
