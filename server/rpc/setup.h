#pragma once

#include <functional>
#include <string_view>

#include "server/rpc/limits.h"

namespace gradwire::server {

/// What main() leaves as it is, and tests change.
struct RpcSetup {
  RpcLimits limits;
  std::function<void(std::string_view method)> before_call;  // on the loop, before each call; may throw
};

}  // namespace gradwire::server
