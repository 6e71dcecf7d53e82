#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "schema/error.h"
#include "server/cluster/data_plane.h"

// A group whose ranks all live in this process, each with a data plane and a helper process of its own.

namespace gradwire::server::cluster::test {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

template <class R> struct Answer {
  std::shared_ptr<std::promise<Result<R>>> promise = std::make_shared<std::promise<Result<R>>>();
  std::future<Result<R>> future = promise->get_future();
  Done<Result<R>> done() {
    return [p = promise](Result<R> r) { p->set_value(std::move(r)); };
  }
  /// Fails the test rather than hang.
  Result<R> get(std::chrono::seconds limit = 60s) {
    REQUIRE(future.wait_for(limit) == std::future_status::ready);
    return future.get();
  }
};

inline const std::string kKey(32, 'k');

/// Children of this process, zombies included.
std::set<pid_t> children();
/// Waits, as far as `limit`, until there are no other children than these.
bool only_children(const std::set<pid_t>&, milliseconds limit = 5000ms);

/// What a rank says first to another.
std::string hello(int32_t from, int32_t to, int32_t lane);
/// Of the helper's Unix socket with this name (what follows the `@` of an address).
sockaddr_un abstract(const std::string& name, socklen_t& size);
/// Whether the other end closes within this time, and says nothing before.
bool hears_end(int fd, milliseconds limit);

struct Rank {
  std::unique_ptr<DataPlane> plane;
  pid_t helper = -1;
  std::string address;
};

/// How ranks reach each other: over a Unix socket, as ranks on one machine do, or over TCP, as if they were not.
enum class Way { near, far };

class Ranks {
 public:
  /// Prepared; connected too unless told otherwise.
  explicit Ranks(int size, DataPlaneOptions = {}, bool connected = true, milliseconds timeout = 20000ms,
                 Way = Way::near);
  Ranks(int size, Way way) : Ranks(size, {}, true, 20000ms, way) {}
  int size() const { return static_cast<int>(ranks.size()); }
  std::vector<std::string> addresses() const;
  std::vector<Answer<void>> connect(const std::string& key = kKey);
  /// `what` on one rank, with an area that holds these bytes.
  Answer<int> start(int rank, Terms, AreaPtr, milliseconds deadline = 30000ms);
  Answer<int> start(int rank, Terms, AreaPtr, uint64_t tag, milliseconds deadline = 30000ms);
  AreaPtr area(int rank, const std::vector<std::byte>&);
  /// The same terms on all ranks; `in[r]` goes in, what comes out is returned. Requires that it works.
  std::vector<std::vector<std::byte>> run(Terms, const std::vector<std::vector<std::byte>>& in);

  std::vector<Rank> ranks;

 private:
  Way way_;
};

}  // namespace gradwire::server::cluster::test
