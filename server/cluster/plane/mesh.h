#pragma once

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "server/cluster/plane/fd.h"

namespace gradwire::server::cluster::plane {

/// The connections between the helpers of a group: for each pair of ranks one for collectives, and one for send and
/// recv, so that a message which waits to be taken holds up none of the other kind. They are TCP, or Unix sockets
/// between two of one user that share a network namespace: there an abstract name of one can be reached by the other.
inline constexpr int kLanes = 2;
/// What a greeting begins with: the version of all that follows.
inline constexpr std::array<char, 8> kMagic{'g', 'r', 'p', 'l', 'a', 'n', 'e', '2'};

/// Makes them. Whoever connects has two seconds to prove that he knows the group's key; who does not is dropped, and
/// harms nothing but the few microseconds he costs.
///
/// The higher rank connects to the lower:
///   -> magic, its rank, the other's rank, the lane, its nonce of 32 bytes
///   <- the other's nonce, HMAC-SHA256(key, "accept" + ranks, lane, kind of socket and nonces)
///   -> HMAC-SHA256(key, "connect" + ranks, lane, kind of socket and nonces)
///   <- one byte: proven. What follows is the transport's.
class Mesh {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Mesh(int rank, int size) : rank_(rank), size_(size) {}
  /// Listens on the host's first address, on the first free port of the range (0, 0: any free port). Returns the
  /// address in numbers: 127.0.0.1:7500, [::1]:7500, and behind an @ the Unix socket's name. Throws
  /// Error{unavailable}.
  std::string listen(const std::string& host, int first_port, int last_port);
  /// Connected, non-blocking sockets: lane * size + rank; none at the own. Throws Error{unavailable}, where a rank does
  /// not know the key too, and deadline_exceeded. Listens no more afterwards.
  std::vector<Fd> connect(const std::vector<std::string>& addresses, std::string_view key, Time deadline);

 private:
  int rank_, size_;
  Fd listener_, near_;
};

}  // namespace gradwire::server::cluster::plane
