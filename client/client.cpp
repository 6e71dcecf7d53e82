#include "client/client.h"

#include <algorithm>
#include <cstdlib>

#include "client/core.h"
#include "client/errors.h"
#include "client/link.h"

namespace gradwire {

namespace client {

/// What the handles of one client share.
struct Owner {
  std::shared_ptr<Link> link;
  Session session;

  ~Owner() {
    if (session) forget_default_session(session);
    session = Session();
    if (link) link->settle();
  }
};

}  // namespace client

client::Owner& Client::owner() const {
  if (!owner_) raise(Error(Code::closed, "this Client is not connected"));
  return *owner_;
}

Session& Client::session() const { return owner().session; }
Session Client::open(const SessionOptions& options) const { return Session(owner().link->open(options)); }
ServerInfo Client::info() const { return owner().link->info(); }
std::vector<SessionInfo> Client::sessions() const { return owner().link->sessions(); }
bool Client::cuda_is_available() const {
  return std::ranges::any_of(info().devices, [](const std::string& d) { return d.starts_with("cuda"); });
}

std::string Client::run_json(const std::string& program) const { return owner().link->run_json(program); }
const std::string& Client::address() const { return owner().link->address(); }

Client connect(std::string_view address, const ConnectOptions& options, uint64_t catalogue) {
  if (catalogue != kCatalogueHash)
    raise(Error(Code::internal, "this program was built with the headers of another libgradwire"));
  if (address.empty()) {
    const char* named = std::getenv("GRADWIRE_SERVER");
    address = named && *named ? named : "local";
  }
  Client c;
  c.owner_ = std::make_shared<client::Owner>();
  c.owner_->link = client::Link::connect(std::string(address), options);
  c.owner_->session = c.open(options.session);
  try {
    default_session();
  } catch (const Closed&) {
    set_default_session(c.owner_->session);
  }
  return c;
}

}  // namespace gradwire
