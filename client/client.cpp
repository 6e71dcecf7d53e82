#include "client/client.h"

#include "client/core.h"
#include "client/errors.h"
#include "client/link.h"

namespace gradwire {

Session Client::open(const SessionOptions& options) {
  if (!link_) raise(Error(Code::closed, "this Client is not connected"));
  return Session(link_->open(options));
}

ServerInfo Client::info() const {
  if (!link_) raise(Error(Code::closed, "this Client is not connected"));
  return link_->info();
}

std::vector<SessionInfo> Client::sessions() const {
  if (!link_) raise(Error(Code::closed, "this Client is not connected"));
  return link_->sessions();
}

std::string Client::run_json(const std::string& program) const {
  if (!link_) raise(Error(Code::closed, "this Client is not connected"));
  return link_->run_json(program);
}

const std::string& Client::address() const {
  if (!link_) raise(Error(Code::closed, "this Client is not connected"));
  return link_->address();
}

Client connect(std::string_view address, const ConnectOptions& options) {
  Client c;
  c.link_ = client::Link::connect(std::string(address), options);
  c.session_ = c.open(options.session);
  try {
    default_session();
  } catch (const Closed&) {
    set_default_session(c.session_);
  }
  return c;
}

}  // namespace gradwire
