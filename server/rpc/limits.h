#pragma once

#include "schema/wire_stream.h"

namespace gradwire::server {

/// What one connection may ask of the server. The sizes and times of frames are in wire::StreamLimits.
struct RpcLimits {
  wire::StreamLimits open;  // after login
  wire::StreamLimits closed{.frame_bytes = 64 << 10,
                            .segments = 8,
                            .queued_bytes = 1 << 10,
                            .frame_time = 5 * kj::SECONDS,
                            .stall_time = 5 * kj::SECONDS,
                            .idle_time = 5 * kj::SECONDS};  // before
  kj::Duration login_time = 5 * kj::SECONDS;                // from the connection to the login
  kj::Duration parting_time = 200 * kj::MILLISECONDS;       // to say why a connection ends
  uint32_t questions = 1024;                                // calls without an end
  uint32_t questions_before_login = 16;                     // a client may send its first calls in one flight
  uint32_t capabilities = 16;                               // in the parameters of one call
  uint32_t sessions = 4096;                                 // capabilities of sessions a connection holds
  size_t in_flight = 16 << 20;                              // bytes of calls in work: above it nothing is read
  int connections_per_address = 256;                        // loopback and Unix sockets apart
  int connections_before_login = 512;                       // of all addresses
};

inline constexpr size_t kInlineValue = 64 << 10;  // larger fetched values are read in pieces
inline constexpr size_t kInlineSum = 1 << 20;     // of all the values in one outcome
inline constexpr size_t kPiece = 1 << 20;         // of an upload or of a fetched value, at most

}  // namespace gradwire::server
