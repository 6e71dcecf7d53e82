#pragma once

#include <chrono>
#include <string>

namespace gradwire::client {

/// A connected, non-blocking stream socket to "host:port" or "unix:PATH". Throws Error{unavailable} or {bad_argument}.
int connect_socket(const std::string& address, std::chrono::milliseconds timeout);

}  // namespace gradwire::client
