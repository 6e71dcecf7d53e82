#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/session.h"
#include "schema/ops.h"

namespace gradwire {

struct ConnectOptions {
  std::string token{};                   // as the server's token file knows it
  std::chrono::milliseconds timeout{0};  // of each wait for an answer; 0: none
  std::chrono::milliseconds connect_timeout{10000};
  SessionOptions session{};                // the default session
  std::vector<std::string> server_args{};  // "local": more options of the gradwired that is started
};

struct ServerInfo {
  std::string version;
  std::vector<std::string> devices;
  uint64_t catalogue_hash = 0;
  uint32_t threads = 0, lanes = 0;
};

struct SessionInfo {
  std::string id, name, device;
  int64_t tensors = 0, bytes = 0, memory_limit = 0;
  uint64_t ops_run = 0;
  double age_seconds = 0;
  int64_t peak_bytes = 0;  // the most that it has held at a time
};

namespace client {
struct Owner;
}

/// A connection to a server, and a first session on it. A copy is a second handle; the connection ends with the last
/// handle, session and tensor of it. May be used from any thread.
class Client {
 public:
  Client() = default;
  /// The session that `connect` opened.
  Session& session() const;
  /// One more.
  Session open(const SessionOptions& = {}) const;
  ServerInfo info() const;
  /// Whether the server has a GPU: `x.to(client.cuda_is_available() ? "cuda:0" : "cpu")`.
  bool cuda_is_available() const;
  std::vector<SessionInfo> sessions() const;
  /// Runs a program in the notation of the HTTP interface, in a session of its own, and returns the answer's JSON text.
  std::string run_json(const std::string& program) const;
  const std::string& address() const;

 private:
  friend Client connect(std::string_view, const ConnectOptions&, uint64_t);
  client::Owner& owner() const;
  std::shared_ptr<client::Owner> owner_;
};

/// Connects to "host:port", "unix:PATH" or "local" (starts a gradwired of its own, which ends with the client: the
/// program in $GRADWIRED, beside this executable, or in $PATH). "" is what $GRADWIRE_SERVER says, as `gradwire launch`
/// sets it, or "local" where that is not set. Its session becomes the default one if there is none. Throws
/// `unavailable`, `unauthenticated`, `bad_argument` or `deadline_exceeded`. The last argument is that of the headers: a
/// library of another version refuses them.
Client connect(std::string_view address, const ConnectOptions& = {}, uint64_t catalogue = kCatalogueHash);

}  // namespace gradwire
