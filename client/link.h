#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "client/arrival.h"

namespace gradwire::client {

class Core;
class Local;

/// A connection to a server, owned by a thread of its own with an event loop. All methods may be called on any thread;
/// those with a timeout wait. Answers reach a Core on the network thread.
class Link {
 public:
  /// Connects and logs in.
  static std::shared_ptr<Link> connect(const std::string& address, const ConnectOptions&);
  ~Link();

  std::shared_ptr<Core> open(const SessionOptions&);
  /// There is something to send.
  void wake(Core&);
  /// Sends a tensor's bytes; the number that a kUpload call takes. `bytes` are not read after this returns.
  uint64_t upload(Core&, DType, std::span<const int64_t> shape, std::span<const std::byte> bytes, Timeout);
  void close(Core&, Timeout);
  /// Waits, for a short time at most, until what was recorded is answered: then nothing here holds a Core.
  void settle() noexcept;
  /// The Core is gone: ends its session, without waiting.
  void forget(uint64_t remote) noexcept;

  ServerInfo info();
  std::vector<SessionInfo> sessions();
  std::string run_json(const std::string& program);

  const std::string& address() const { return address_; }
  /// Where the server gives an operator another index: its index there, by ours; empty if all are the same.
  const std::vector<uint16_t>& operators() const { return operators_; }
  static constexpr uint16_t kUnknown = 0xFFFD;

  struct Impl;

 private:
  Link() = default;
  std::weak_ptr<Link> self_;
  std::shared_ptr<Impl> impl_;  // shared with the thread
  std::thread thread_;
  std::string address_;
  ConnectOptions options_;
  std::vector<uint16_t> operators_;
};

}  // namespace gradwire::client
