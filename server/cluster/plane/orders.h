#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "schema/error.h"
#include "server/cluster/collective.h"
#include "server/cluster/plane/fd.h"

// What a server and its helper say to each other: fixed structs over a SOCK_SEQPACKET pair, one a packet, both ends of
// the same program. Every one is checked all the same: neither end may be taken down by the other's mistake.

namespace gradwire::server::cluster::plane {

inline constexpr size_t kText = 256;       // with its final zero
inline constexpr int kMaxRanks = 4096;     // of one group
inline constexpr size_t kMaxAreas = 4096;  // of one plane

enum class Step : uint32_t {
  prepare,  // text: host; rank, size, ports, timeout. Answered with the address
  peer,     // text: the address of `rank`. Not answered
  connect,  // text: the key; timeout. Answered when all pairs have proven themselves
  map,      // a memfd of `bytes` comes with it: area `area` from now on. Not answered
  unmap,    // Not answered
  run       // Answered when it is done
};

struct Order {
  Step step = Step::run;
  int32_t rank = -1, size = 0;
  int32_t first_port = 0, last_port = 0;
  uint32_t text_size = 0;
  uint64_t id = 0;  // the answer's
  uint64_t area = 0, bytes = 0;
  int64_t timeout_ms = 0;
  Collective what = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::float32;
  bool pairwise = false;  // send and recv with `tag`
  int32_t root = -1;
  int64_t count = 0;
  uint64_t tag = 0;
  char text[kText] = {};
};

struct Answer {
  uint64_t id = 0;
  int32_t failed = 0;  // else `text` is the result
  Code code = Code::internal;
  int32_t rank = -1;
  uint32_t text_size = 0;
  char text[kText] = {};
};
static_assert(std::is_trivially_copyable_v<Order> && std::is_trivially_copyable_v<Answer>);

/// What does not fit is cut off.
template <class Message> void set_text(Message& m, std::string_view text) {
  m.text_size = static_cast<uint32_t>(std::min(text.size(), kText - 1));
  std::copy_n(text.begin(), m.text_size, m.text);
  m.text[m.text_size] = '\0';
}
template <class Message> std::string text_of(const Message& m) {
  return std::string(m.text, std::min<size_t>(m.text_size, kText - 1));
}

enum class Sent { yes, full, gone };
/// Sends one packet, and a descriptor with it unless that is -1. Blocks only if the socket does.
Sent send_packet(int socket, const void* message, size_t size, int descriptor);
/// Takes one packet if there is one: 1, none yet: 0, and -1 where the other end is gone or the packet has another size.
int take_packet(int socket, void* message, size_t size, Fd* descriptor);

/// What is wrong with a run order for this rank of a group of `size`; nothing if it can be run. Counts and ranks are in
/// range afterwards, and `bytes_of` does not overflow.
std::optional<Error> wrong(const Terms&, bool pairwise, int rank, int size);
/// What tells one collective from another, and from its successors: messages of two that differ do not meet.
uint32_t fingerprint(const Terms&, uint32_t sequence);
/// The bytes that the area of such a run holds.
size_t bytes_of(const Terms&, int rank, int size);

}  // namespace gradwire::server::cluster::plane
