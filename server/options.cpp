#include "server/options.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <variant>

namespace gradwire::server {
namespace {

using Member = std::variant<std::string Options::*, std::vector<std::string> Options::*, bool Options::*,
                            int Options::*, int64_t Options::*>;
struct Row {
  const char* flag;  // --flag, GRADWIRE_FLAG and the key of the config file
  Member member;
  const char* group;
  const char* help;
  int64_t min = 0, max = 0;  // of numbers
  bool bytes = false;        // "4GiB" is a number
};

constexpr const char *kListen = "Where it listens", *kSafety = "Who may come in", *kCompute = "Computing",
                     *kLimits = "Limits", *kGroups = "Groups of servers", *kRest = "The rest";
constexpr int64_t kMany = int64_t{1} << 60;

const Row kRows[] = {
    {"rpc", &Options::rpc, kListen, "ADDRESS:PORT for Cap'n Proto; port 0 takes a free one, \"off\" none"},
    {"http", &Options::http, kListen, "ADDRESS:PORT for HTTP and WebSocket"},
    {"probe", &Options::probe, kListen,
     "ADDRESS:PORT for /livez, /readyz and /metrics on a thread of their own (a free port where not set and --http has "
     "port 0)"},
    {"unix", &Options::unix_path, kListen, "a Unix socket for Cap'n Proto, for this user only"},
    {"allowed-host", &Options::allowed_hosts, kListen, "another name that the Host header may have (may be repeated)"},
    {"token-file", &Options::token_file, kSafety, "tokens of clients: id:role:sha256:expiry a line"},
    {"tls-cert", &Options::tls_cert, kSafety, "certificate chain, PEM"},
    {"tls-key", &Options::tls_key, kSafety, "its private key, PEM"},
    {"insecure-no-auth", &Options::insecure_no_auth, kSafety, "listen beyond loopback although anybody may come in"},
    {"insecure-no-tls", &Options::insecure_no_tls, kSafety, "listen beyond loopback although anybody may read along"},
    {"device", &Options::device, kCompute, "cpu, or cuda:N"},
    {"lanes", &Options::lanes, kCompute, "compute threads, which the sessions share", 1, 256},
    {"threads", &Options::threads, kCompute, "threads that one operator may use; 0: as many as there are cores", 0,
     1024},
    {"session-memory", &Options::session_memory, kLimits, "memory of a session that asks for no other limit", 1 << 20,
     kMany, true},
    {"server-memory", &Options::server_memory, kLimits,
     "memory of all sessions; what sessions ask for is promised out of it; 0: 80 % of what the machine or the cgroup "
     "has",
     0, kMany, true},
    {"session-tensors", &Options::session_tensors, kLimits, "tensors of a session", 1, 100000000},
    {"session-nodes", &Options::session_nodes, kLimits, "recorded operators (graph nodes) of a session", 1, 1000000000},
    {"max-sessions", &Options::max_sessions, kLimits, "sessions", 1, 1000000},
    {"max-connections", &Options::max_connections, kLimits, "connections", 1, 1000000},
    {"ttl-seconds", &Options::ttl_seconds, kLimits, "how long a session lives that nobody uses", 1, 604800},
    {"drain-seconds", &Options::drain_seconds, kLimits, "how long work in hand may take after SIGTERM", 0, 3600},
    {"peer", &Options::peer, kGroups, "ADDRESS:PORT for other servers, usually port 7422; not set: no groups"},
    {"peer-advertise", &Options::peer_advertise, kGroups,
     "HOST:PORT that other servers reach it by, where that is not --peer itself; port 0 stands for --peer's"},
    {"tls-ca", &Options::tls_ca, kGroups, "the authority, PEM, whose certificates servers show each other"},
    {"data-ports", &Options::data_ports, kGroups,
     "FIRST-LAST: the ports of the data planes (any free ones where not set)"},
    {"multicast", &Options::multicast, kGroups, "let groups meet by multicast: tcp://[ff15::1]:23456"},
    {"group-init", &Options::group_init, kGroups,
     "a group to join at start: tcp://HOST:PORT, tcp://MULTICAST:PORT, file:///PATH or env://"},
    {"group-world-size", &Options::group_world_size, kGroups, "ranks of that group", 1, 256},
    {"group-rank", &Options::group_rank, kGroups,
     "this server's rank there: a number, or \"ordinal\" for the one that the host's name ends with, as in a "
     "StatefulSet"},
    {"group-name", &Options::group_name, kGroups, "tells groups apart that meet at one place"},
    {"data-dir", &Options::data_dir, kRest, "a directory for what outlives the process"},
    {"log-level", &Options::log_level, kRest, "trace, debug, info, warning, error or off"},
};

constexpr const char* kFooter = R"(
Examples
  gradwired                                       on loopback: RPC 7420, HTTP 7421, probe 7423
  gradwired --http 127.0.0.1:0 --rpc off          HTTP only, on a free port: read it from standard output
  curl -s 127.0.0.1:7421/v1/info                  is it there?
  gradwired check-config gradwired.toml           says whether it would start, and why not
  gradwired drain --unix /run/gradwired.sock      asks a running server to take no new sessions
  gradwired routes                                lists the paths that HTTP has

When it is ready it prints one line of JSON with its addresses on standard output; logs go to standard error.
SIGTERM and SIGINT end it: work in hand is finished first. SIGUSR1 drains it: no new sessions, and /readyz fails.

Each option is also a variable of the environment (--session-memory: GRADWIRE_SESSION_MEMORY) and a key of the config
file (session-memory = "4GiB"). The command line comes first, then the config file, then the environment, where
GRADWIRE_CONFIG may name the file.)";

std::string variable(std::string flag) {
  for (char& c : flag) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "GRADWIRE_" + flag;
}

/// "4GiB", "512 MB", "1048576" -> bytes.
std::string to_bytes(const std::string& text) {
  std::string s = text;
  uint64_t n = 0;
  const CLI::AsSizeValue convert(false);
  const std::string problem = convert(s);
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (!problem.empty() || error != std::errc() || end != s.data() + s.size())
    throw CLI::ValidationError("'" + text + "' is no size: a number with B, KiB, MiB, GiB or TiB is");
  return s;
}

struct Address {
  std::string host;
  bool loopback = false;
};
std::optional<Address> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  Address a{text.substr(0, colon)};
  int port = -1;
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (error != std::errc() || stop != end || port < 0 || port > 65535) return std::nullopt;
  if (a.host.size() > 2 && a.host.front() == '[' && a.host.back() == ']') {
    a.host = a.host.substr(1, a.host.size() - 2);
    in6_addr six;
    if (inet_pton(AF_INET6, a.host.c_str(), &six) != 1) return std::nullopt;
    a.loopback = IN6_IS_ADDR_LOOPBACK(&six);
    return a;
  }
  in_addr four;
  if (inet_pton(AF_INET, a.host.c_str(), &four) != 1) return std::nullopt;
  a.loopback = ntohl(four.s_addr) >> 24 == 127;
  return a;
}

/// "off" is empty and "localhost" is 127.0.0.1 from here on.
void normalise(std::string& address) {
  if (address == "off") address.clear();
  if (address.starts_with("localhost:")) address.replace(0, 9, "127.0.0.1");
}

}  // namespace

std::string bind_problem(const Options& o) {
  const std::pair<const char*, const std::string*> listeners[] = {
      {"--rpc", &o.rpc}, {"--http", &o.http}, {"--probe", &o.probe}, {"--peer", &o.peer}};
  std::string open, open_peer;
  for (const auto& [flag, text] : listeners) {
    if (text->empty()) continue;
    const auto a = parse_address(*text);
    if (!a) return std::string(flag) + " " + *text + ": not an address like 127.0.0.1:7420 or [::1]:0";
    if (a->loopback) continue;
    std::string& all = text == &o.peer ? open_peer : open;
    all += (all.empty() ? "" : ", ") + std::string(flag) + " " + *text;
  }
  if (o.tls_cert.empty() != o.tls_key.empty())
    return "--tls-cert and --tls-key go together: " + std::string(o.tls_cert.empty() ? "--tls-cert" : "--tls-key") +
           " is missing";
  if (!o.tls_ca.empty() && o.tls_cert.empty()) return "--tls-ca goes with --tls-cert and --tls-key";
  std::string missing;
  if (!open.empty() && o.token_file.empty() && !o.insecure_no_auth)
    missing += "\n  --token-file FILE          so that only your clients come in";
  if (!open.empty() && o.tls_cert.empty() && !o.insecure_no_tls)
    missing += "\n  --tls-cert FILE --tls-key FILE   so that nobody reads along";
  if (!missing.empty())
    return open + " is reachable from other machines, and this is missing:" + missing +
           "\nThe switches --insecure-no-auth and --insecure-no-tls lift this, for networks where everyone may run "
           "code on this machine.";
  const bool mutual = !o.tls_cert.empty() && !o.tls_ca.empty();
  if (!open_peer.empty() && !mutual && !o.insecure_no_tls)
    return open_peer +
           " is reachable from other machines, and this is missing:"
           "\n  --tls-cert FILE --tls-key FILE --tls-ca FILE   so that only your servers come in\n"
           "The switch --insecure-no-tls lifts this, for networks where everyone may run code on this "
           "machine.";
  if (!o.peer.empty() && !o.tls_cert.empty() && o.tls_ca.empty())
    return "servers among themselves need --tls-ca beside --tls-cert and --tls-key";
  const bool only_peers = !o.peer.empty() && (open.empty() || o.insecure_no_tls);  // are protected, as they should be
  if (!o.token_file.empty() || (!o.tls_cert.empty() && !only_peers))
    return "this build checks no tokens and speaks no TLS with clients: it serves them on loopback addresses and Unix "
           "sockets only.\nIt does not start with --token-file, or with --tls-cert and --tls-key where there is no "
           "--peer, which would promise a protection that is not there.";
  return {};
}

namespace {

/// "7430-7439".
std::string read_data_ports(Options& o) {
  if (o.data_ports.empty()) return {};
  const char *begin = o.data_ports.data(), *end = begin + o.data_ports.size();
  const auto [dash, first_error] = std::from_chars(begin, end, o.data_first_port);
  if (first_error == std::errc() && dash != end && *dash == '-') {
    const auto [stop, error] = std::from_chars(dash + 1, end, o.data_last_port);
    if (error == std::errc() && stop == end && o.data_first_port > 0 && o.data_first_port <= o.data_last_port &&
        o.data_last_port <= 65535)
      return {};
  }
  return "--data-ports " + o.data_ports + ": not two ports like 7430-7439";
}

/// The number at the end of a name like "gradwire-3"; -1 if there is none.
int ordinal_of(const std::string& host) {
  const std::string name = host.substr(0, host.find('.'));
  const size_t dash = name.rfind('-');
  int n = -1;
  if (dash == std::string::npos) return -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + dash + 1, end, n);
  return error == std::errc() && stop == end && n >= 0 ? n : -1;
}

std::string read_group(Options& o, const std::string& host) {
  const bool more = o.group_world_size != 0 || !o.group_rank.empty() || !o.group_name.empty();
  if (o.group_init.empty()) return more ? "--group-world-size, --group-rank and --group-name go with --group-init" : "";
  if (o.peer.empty()) return "--group-init needs --peer, so that other servers reach this one";
  if (o.group_rank == "ordinal") {
    o.group_rank_read = ordinal_of(host);
    if (o.group_rank_read < 0)
      return "--group-rank ordinal: the host's name is '" + host +
             "', which does not end with a number like gradwire-3";
  } else if (!o.group_rank.empty()) {
    const char* end = o.group_rank.data() + o.group_rank.size();
    const auto [stop, error] = std::from_chars(o.group_rank.data(), end, o.group_rank_read);
    if (error != std::errc() || stop != end || o.group_rank_read < 0)
      return "--group-rank " + o.group_rank + ": neither a rank nor \"ordinal\"";
  }
  if (o.group_world_size != 0 && o.group_rank_read >= o.group_world_size)
    return "--group-rank " + std::to_string(o.group_rank_read) + " is out of range: [0, " +
           std::to_string(o.group_world_size - 1) + "]";
  return {};
}

/// What CLI11 cannot be left alone with: it reads whatever opens to its end, and needs memory with the square of how
/// deep the sections of a name are. Nothing where the file may be read.
std::string config_fault(const std::string& path) {
  constexpr size_t kBytes = size_t{256} << 10, kName = 128;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};  // it says so
  struct stat s {};
  const bool file = ::fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
  std::string text(kBytes + 1, '\0');
  size_t have = 0;
  for (ssize_t n = 1; file && n > 0 && have < text.size(); have += static_cast<size_t>(std::max<ssize_t>(n, 0)))
    n = ::read(fd, text.data() + have, text.size() - have);
  ::close(fd);
  if (!file) return "the config file " + path + " is not a file";
  if (have > kBytes) return "the config file " + path + " has more than " + std::to_string(kBytes) + " bytes";
  text.resize(have);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t name = line.find('=');
    if (std::min(name, line.size()) > kName && line.find_first_not_of(" \t") != line.find('#'))
      return "a name in the config file " + path + " has more than " + std::to_string(kName) + " bytes";
  }
  return {};
}

std::string host_name(const std::function<const char*(const char*)>& env) {
  if (const char* name = env("HOSTNAME"); name && *name) return name;
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

StartUp read_options(const std::vector<std::string>& args, const std::function<const char*(const char*)>& env) {
  StartUp s;
  Options& o = s.options;
  CLI::App app(
      "gradwired: tensors and autograd graphs in sessions, computed for clients over Cap'n Proto RPC and HTTP.",
      "gradwired");
  app.footer(kFooter);
  std::vector<std::pair<const Row*, CLI::Option*>> made;
  for (const Row& row : kRows) {
    CLI::Option* option = std::visit(
        [&](auto member) -> CLI::Option* {
          auto& value = o.*member;
          using T = std::decay_t<decltype(value)>;
          const std::string flag = "--" + std::string(row.flag);
          if constexpr (std::is_same_v<T, bool>) {
            return app.add_flag(flag, value, row.help);
          } else {
            CLI::Option* opt = app.add_option(flag, value, row.help);
            if constexpr (std::is_arithmetic_v<T>) {
              if (row.bytes) opt->transform(to_bytes);
              opt->check(CLI::Range(row.min, row.max, "NUMBER"));
            }
            if constexpr (!std::is_same_v<T, std::vector<std::string>>) opt->capture_default_str();
            return opt;
          }
        },
        row.member);
    option->group(row.group);
    made.emplace_back(&row, option);
  }
  const char* file = env("GRADWIRE_CONFIG");
  const std::string config = file ? file : "";
  app.set_config("--config", config, "a file with these options as keys (TOML or INI)", !config.empty())
      ->check(CLI::Validator(config_fault, ""))
      ->group(kRest);
  app.allow_config_extras(CLI::config_extras_mode::error);
  CLI::App* check =
      app.add_subcommand("check-config", "FILE: say whether the server would start, and start nothing")->fallthrough();
  CLI::App* routes = app.add_subcommand("routes", "list the method and path of each HTTP route, and start nothing");
  CLI::App* drain =
      app.add_subcommand("drain", "ask the server on --unix PATH to take no new sessions; then wait")->fallthrough();
  drain->add_option("--wait", s.drain_wait, "how long to wait, for those who send clients here to notice")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, int64_t>{{"ms", 1}, {"s", 1000}, {"m", 60000}},
                                        CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME"))
      ->check(CLI::Range(int64_t{0}, int64_t{3600000}, "TIME"));
  app.set_version_flag("--version", "gradwired 0.1.0");
  const bool checks_file = args.size() > 1 && args[0] == "check-config" && !args[1].starts_with('-');
  try {
    if (const std::string fault = config.empty() ? "" : config_fault(config); !fault.empty())
      throw CLI::ValidationError(fault);
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    if (checks_file) reversed[args.size() - 2].insert(0, "--config=");
    app.parse(reversed);
    for (auto& [row, option] : made) {
      const char* text = option->count() ? nullptr : env(variable(row->flag).c_str());
      if (!text || !*text) continue;
      option->add_result(text);
      option->run_callback();
    }
  } catch (const CLI::Success&) {
    s.exit_code = 0;
    s.out = app.get_option("--version")->count() ? "gradwired 0.1.0\n" : app.help();
    return s;
  } catch (const CLI::Error& e) {
    s.exit_code = checks_file ? kExitConfig : kExitUsage;
    s.err = "gradwired: " + std::string(e.what()) + "\nRun `gradwired --help` for the options.\n";
    return s;
  }
  if (routes->parsed() || drain->parsed()) {
    s.command = routes->parsed() ? Command::routes : Command::drain;
    return s;
  }
  for (std::string* a : {&o.rpc, &o.http, &o.probe, &o.peer}) normalise(*a);
  // Servers that take free ports run side by side: the probe must not be the one place where they meet.
  const bool probe_set = app.get_option("--probe")->count() > 0;
  if (!probe_set && o.http.ends_with(":0")) o.probe = "127.0.0.1:0";
  if (o.threads == 0) o.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  static constexpr const char* kLevels[] = {"trace", "debug", "info", "warning", "error", "off"};
  std::string problem = bind_problem(o);
  if (problem.empty() && std::find(std::begin(kLevels), std::end(kLevels), o.log_level) == std::end(kLevels))
    problem = "--log-level " + o.log_level + ": not one of trace, debug, info, warning, error, off";
  if (problem.empty()) problem = read_data_ports(o);
  if (problem.empty()) problem = read_group(o, host_name(env));
  if (problem.empty() && o.rpc.empty() && o.http.empty() && o.unix_path.empty())
    problem = "nothing to listen on: --rpc, --http and --unix are all off";
  if (!problem.empty()) {
    s.exit_code = kExitConfig;
    s.err = "gradwired does not start: " + problem + "\n";
  } else if (check->parsed()) {
    s.exit_code = 0;
    s.out = "gradwired would start: rpc " + (o.rpc.empty() ? "off" : o.rpc) + ", http " +
            (o.http.empty() ? "off" : o.http) + ", probe " + (o.probe.empty() ? "off" : o.probe) +
            (o.peer.empty() ? "" : ", peer " + o.peer) + (o.unix_path.empty() ? "" : ", unix " + o.unix_path) + "\n";
  }
  return s;
}

}  // namespace gradwire::server
