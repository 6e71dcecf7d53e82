#include "server/cluster/message.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace gradwire::server::cluster {

std::string random_bytes(size_t n) {
  std::string out(n, '\0');
  for (size_t have = 0; have < n;) {
    const ssize_t got = getrandom(out.data() + have, n - have, 0);
    if (got > 0) {
      have += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      throw Error(Code::unavailable, "the system gives no random bytes");
    }
  }
  return out;
}

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) std::memcpy(&id, random_bytes(sizeof id).data(), sizeof id);
  return id;
}

}  // namespace gradwire::server::cluster
