#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace gradwire::server {

/// An address to listen on: "127.0.0.1:7420", "[::1]:0"; empty or "off": not at all. Port 0 takes a free one.
/// One row an option in options.cpp: its flag, its GRADWIRE_ variable, its key in the config file, its help.
struct Options {
  std::string rpc = "127.0.0.1:7420", http = "127.0.0.1:7421", probe = "127.0.0.1:7423";
  std::string unix_path;                        // a Unix socket for RPC, mode 0600
  std::string peer, peer_advertise;             // for other servers; off unless given
  std::string data_ports;                       // "FIRST-LAST" as given: of the data planes of groups
  int data_first_port = 0, data_last_port = 0;  // as read; 0, 0: any free ones
  bool multicast = false;                       // rendezvous by multicast
  std::string group_init, group_name;           // the group that this server joins at start; empty: none
  int group_world_size = 0;
  std::string group_rank;    // as given: a number, or "ordinal": the one that this host's name ends with
  int group_rank_read = -1;  // as read; -1: the rendezvous gives one
  std::string device = "cpu", data_dir, token_file, tls_cert, tls_key, tls_ca, config;
  bool insecure_no_auth = false, insecure_no_tls = false;
  std::vector<std::string> allowed_hosts;                        // beside the loopback names and the bound address
  int lanes = 2, threads = 0;                                    // 0: as many as there are cores
  int64_t session_memory = int64_t{1} << 30, server_memory = 0;  // bytes; 0: 80 % of what the machine or cgroup has
  int64_t session_tensors = 100000, session_nodes = 4000000;
  int64_t ttl_seconds = 300;
  int max_sessions = 10000, max_connections = 10000;
  std::string log_level = "info";
  int drain_seconds = 30;
};

inline constexpr int kExitUsage = 64, kExitConfig = 78;  // as sysexits.h

enum class Command { serve, routes, drain };

/// What the command line asks for.
struct StartUp {
  Options options;
  Command command = Command::serve;
  int64_t drain_wait = 5000;  // milliseconds that `drain` waits after it has asked
  int exit_code = -1;         // not negative: end with it, after printing
  std::string out, err;       // for standard output and standard error
};
/// Reads the command line, the config file that it names, and the environment, in this order of precedence, and applies
/// the bind rule. The file may also be named by GRADWIRE_CONFIG. `env` is getenv, or a test's.
StartUp read_options(
    const std::vector<std::string>& args,
    const std::function<const char*(const char*)>& env = [](const char* n) { return std::getenv(n); });

/// The bind rule: an address outside of 127.0.0.0/8 and ::1 needs a token file, a certificate and its key, or the
/// switches that lift that. What is missing, for people; empty if nothing is.
std::string bind_problem(const Options&);

}  // namespace gradwire::server
