#pragma once

#include <sys/types.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/distributed.h"
#include "client/gradwire.h"

// Ranks on gradwired processes of their own, as a cluster has them.

namespace gradwire::e2e {

namespace dist = gradwire::distributed;

/// A gradwired that hears its clients on a Unix socket, and its peers; killed at the end if it still runs.
class Server {
 public:
  struct Options {
    std::vector<std::string> before;  // words of a command that starts it: ip netns exec NAME
    std::string peer = "127.0.0.1:0";
    std::vector<std::string> more;
  };
  explicit Server(const Options&);
  Server() : Server(Options()) {}
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& unix_address() const { return unix_; }  // for clients
  const std::string& peer() const { return peer_; }          // HOST:PORT, for other servers
  pid_t pid() const { return pid_; }
  bool runs() const;
  void signal(int) const;
  /// Waits for its end: the exit status, or minus the signal. It is killed if that takes half a minute.
  int wait();
  /// It and its helpers.
  std::vector<pid_t> family() const;
  /// Descriptors that the server itself has open.
  size_t descriptors() const;

 private:
  pid_t pid_ = -1;
  std::string folder_, unix_, peer_;
};

/// What a rank's program threw, as "code: message"; empty: nothing.
using Said = std::vector<std::string>;
using Program = std::function<void(Session&, int rank)>;

/// Sessions on a server each, rank i on server i. Groups are made by `meet`.
class World {
 public:
  explicit World(int n, const Server::Options& = {});
  explicit World(std::vector<std::unique_ptr<Server>>);
  /// The servers that still run end in order, when they are asked to.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  int size() const { return static_cast<int>(servers.size()); }
  /// A new server and session in the place of rank i.
  void replace(int i, const Server::Options& = {});
  /// Runs the program for these ranks (all where none are named), each on a thread of its own.
  Said run(const Program&, const std::vector<int>& ranks = {});
  /// Makes the default group of these (all), in this order, by the address of the first; what they had they leave.
  void meet(const std::vector<int>& ranks = {}, std::chrono::milliseconds timeout = std::chrono::seconds(60));
  Session& session(int i) { return clients[static_cast<size_t>(i)].session(); }

  std::vector<std::unique_ptr<Server>> servers;
  std::vector<Client> clients;
};
inline Said fine(int n) { return Said(static_cast<size_t>(n)); }

/// All operations on all dtypes and strides, in the default group, against values that are computed here.
void all_operations(World&);

/// Catch2's checks are one thread's: what other threads find wrong, they throw.
inline void must(bool right, const std::string& what) {
  if (!right) throw Error(Code::internal, "wrong: " + what);
}
/// What f or the calls that it makes throw, as "code: message".
std::string error_of(Session&, const std::function<void()>& f);

}  // namespace gradwire::e2e
