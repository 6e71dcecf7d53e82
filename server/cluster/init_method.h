#pragma once

#include <optional>
#include <string>

#include "server/cluster/group.h"

namespace gradwire::server::cluster {

/// "host:port", "[::1]:7422".
struct Address {
  std::string host;  // without brackets
  int port = 0;
  std::string text() const;
  bool is_loopback() const;   // 127.0.0.0/8, ::1, localhost
  bool is_multicast() const;  // 224.0.0.0/4, ff00::/8
};
/// Throws Error{bad_argument} with PyTorch's texts.
Address parse_address(const std::string&);

/// What an init_method asks for, with the rank and size that it, the call or the environment has.
struct Plan {
  enum class Kind : uint8_t { tcp, multicast, file } kind = Kind::tcp;
  Address address;  // tcp: host may be empty for rank 0 of env://
  std::string path;
  int rank = -1, world_size = -1;  // -1: not given, where it need not be
};
/// Throws Error{bad_argument} for what is missing, out of range or unknown.
Plan read_init_method(const JoinOptions&);

}  // namespace gradwire::server::cluster
