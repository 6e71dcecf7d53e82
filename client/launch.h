#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gradwire::client {

struct LaunchOptions {
  std::vector<std::string> servers;  // rank i works on server i; where there are more ranks, in turn
  int nproc = 0;                     // 0: one rank a server
  std::string master_addr;           // empty: the first server's host
  int master_port = 7422;
  std::chrono::milliseconds grace{10000};  // between the request to end and the end
  std::vector<std::string> command;
};

constexpr int kMaxRanks = 256;  // two pipes each have to fit into the usual 1,024 descriptors

/// "a,b:1,unix:c" as a list. Throws Error{bad_argument} for an entry that is no server's address.
std::vector<std::string> parse_servers(const std::string& list);

/// Runs the command once a rank, each in a process group of its own, with MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK,
/// LOCAL_RANK and GRADWIRE_SERVER in its environment and no standard input; passes on their output, line by line, as
/// "[rank] line" (a line of more than 64 KiB in pieces of that size), and returns when all are gone: 0, or the exit
/// status of the first that failed, 128 + n for signal n, 127 where there is no such program (126: it cannot be run).
///
/// When one fails the others get SIGTERM and, after the grace, SIGKILL; so they do when this process gets SIGINT,
/// SIGTERM, SIGHUP or SIGQUIT, which is passed on as it is (the second time: SIGKILL at once), and the exit status is
/// 128 + its number. What a rank leaves running in its process group has the grace to end. When this process is killed
/// the ranks are too.
///
/// Of a program with one thread. Takes over the signals named, SIGCHLD and SIGPIPE. Throws Error{bad_argument} for
/// options that do not fit each other.
int launch(const LaunchOptions&);

}  // namespace gradwire::client
