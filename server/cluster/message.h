#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "schema/error.h"
#include "server/cluster/collective.h"

namespace gradwire::server::cluster {

using Moment = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

inline constexpr uint32_t kMinVersion = 1, kMaxVersion = 1;
inline constexpr int kMaxRanks = 256;         // of a group
inline constexpr size_t kMaxBlob = 64 << 10;  // of one rank
inline constexpr size_t kMaxBlobs = 4 << 20;  // of all ranks
inline constexpr size_t kMaxText = 4 << 10;   // names and addresses
inline constexpr size_t kMaxPending = 1024;   // calls of one member that wait for the others
inline constexpr size_t kKeyBytes = 32;
inline constexpr Milliseconds kMaxPatience{int64_t{1} << 31};  // 24 days: more is as good as for ever

// What servers tell each other: schema/peer.capnp as plain structs, each field explained there.
struct Ping {};
struct Hello {
  uint32_t min_version = kMinVersion, max_version = kMaxVersion;
  std::string address;
};
struct Join {
  std::string meeting;
  int world_size = 0, rank = 0;
};
struct Retry {};
struct Seated {
  int rank = 0;
  std::vector<std::string> addresses;
};
struct Blob {
  std::string bytes;
};
struct Connect {
  std::vector<std::string> blobs;
  std::string key;
};
struct Connected {};
struct Formed {};
struct Call {
  uint64_t sequence = 0;
  Terms terms;
  Milliseconds patience{0};
  bool split = false;
  std::vector<int> ranks;
};
struct Verdict {
  uint64_t sequence = 0;
  bool pairwise = false;
  std::optional<Error> error;
  uint64_t tag = 0;
  int source = -1;
  uint64_t child = 0;
  int rank = -1, size = 0;
};
struct Failed {
  Error error;
};
struct Broken {
  Error error;
  bool left = false;
};
struct Leave {};

struct Message {
  uint64_t group = 0, epoch = 0;
  std::variant<Ping, Hello, Join, Retry, Seated, Blob, Connect, Connected, Formed, Call, Verdict, Failed, Broken, Leave>
      body;
};

/// One end of a way for messages, to another server or within this one. Lives on the cluster's loop, where it is also
/// destroyed: never within one of its own functions. Ends with its destruction.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual void send(Message) = 0;
  virtual bool is_open() const { return true; }
  /// The functions are called on the loop, never within send(); `on_end` at most once, and nothing after it.
  std::function<void(Message)> on_message;
  std::function<void(Error)> on_end;
};
using ChannelPtr = std::shared_ptr<Channel>;

/// Random bytes from the system. Throws Error{unavailable}.
std::string random_bytes(size_t);
uint64_t random_id();  // never 0

}  // namespace gradwire::server::cluster
