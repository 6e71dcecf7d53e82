#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::server {

/// An address to listen on: "127.0.0.1:7420", "[::1]:0"; empty: not at all. Port 0 takes a free one.
/// One row an option in options.cpp: its flag, its GRADWIRE_ variable, its key in the config file, its help.
struct Options {
  std::string rpc = "127.0.0.1:7420", http = "127.0.0.1:7421", probe = "127.0.0.1:7423";
  std::string unix_path;  // a Unix socket for RPC, mode 0600
  std::string device = "cpu", data_dir, token_file, tls_cert, tls_key, config;
  bool insecure_no_auth = false, insecure_no_tls = false;
  std::vector<std::string> allowed_hosts;  // beside the loopback names and the bound address
  int lanes = 2, threads = 0;              // 0: as many as there are cores
  int64_t session_memory = int64_t{1} << 30, server_memory = 0;  // bytes; 0: 80 % of what the machine or cgroup has
  int64_t session_tensors = 100000, session_nodes = 4000000;
  int64_t ttl_seconds = 300;
  int max_sessions = 10000, max_connections = 10000;
  std::string log_level = "info";
  int drain_seconds = 30;
};

}  // namespace gradwire::server
