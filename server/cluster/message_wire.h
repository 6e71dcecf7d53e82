#pragma once

#include "schema/peer.capnp.h"
#include "server/cluster/message.h"

namespace gradwire::server::cluster {

void write(wire::PeerMessage::Builder, const Message&);
/// Checks form: numbers of kinds, sizes of texts and lists. Throws Error{bad_request} or kj::Exception.
Message read(wire::PeerMessage::Reader);

}  // namespace gradwire::server::cluster
