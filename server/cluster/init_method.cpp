#include "server/cluster/init_method.h"

#include <arpa/inet.h>

#include <charconv>
#include <string_view>

#include "server/cluster/message.h"

namespace gradwire::server::cluster {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(Code::bad_argument, why); }

std::optional<int> number(std::string_view text) {
  int v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

std::optional<std::string> variable(const JoinOptions& o, std::string_view name) {
  for (auto& [key, value] : o.environment) {
    if (key == name) return value;
  }
  return std::nullopt;
}
std::string required(const JoinOptions& o, const std::string& name) {
  if (auto v = variable(o, name)) return *v;
  refuse("failed to read the " + name + " environmental variable; maybe you forgot to set it?");
}

/// A number that the environment and the call may both give, if they agree.
int from_both(const JoinOptions& o, const std::string& name, const std::string& parameter, int given) {
  const auto text = variable(o, name);
  if (!text) {
    if (given != -1) return given;
    refuse(parameter + " is not set but it is required for env:// init method");
  }
  const auto value = number(*text);
  if (!value) refuse("the " + name + " environmental variable is '" + *text + "', which is no number");
  if (given != -1 && *value != given)
    refuse(parameter + " specified both as an environmental variable and to the initializer");
  return *value;
}

/// "?rank=0&world_size=4" behind an address; gives what the call has not.
void read_query(std::string_view query, Plan& plan) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
    const size_t equals = one.find('=');
    const std::string_view key = one.substr(0, equals);
    const auto value = equals == std::string_view::npos ? std::nullopt : number(one.substr(equals + 1));
    if (!value || (key != "rank" && key != "world_size"))
      refuse("tcp:// rendezvous: '" + std::string(one) + "' is not rank=N or world_size=N");
    int& place = key == "rank" ? plan.rank : plan.world_size;
    if (place != -1 && place != *value)
      refuse(std::string(key) + " specified both in the init method and to the initializer");
    place = *value;
  }
}

void check_numbers(const Plan& plan) {
  if (plan.world_size < 1 || plan.world_size > kMaxRanks)
    refuse("world_size is " + std::to_string(plan.world_size) + "; it can be 1 to " + std::to_string(kMaxRanks));
  if (plan.rank < -1) refuse("rank is " + std::to_string(plan.rank) + "; ranks begin with 0");
  // A rank that is too large is the master's to refuse, so that all learn of it; the master itself has none.
  if (plan.rank >= kMaxRanks)
    refuse("worker's rank(" + std::to_string(plan.rank) + ") is out of range: [0, " +
           std::to_string(plan.world_size - 1) + "]");
}

}  // namespace

std::string Address::text() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

bool Address::is_loopback() const {
  in_addr four;
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six;
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

bool Address::is_multicast() const {
  in_addr four;
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 28 == 14;
  in6_addr six;
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_MULTICAST(&six);
}

Address parse_address(const std::string& text) {
  static constexpr const char* kForm = "expected an address in format IP:PORT or HOSTNAME:PORT";
  Address a;
  size_t colon;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string::npos || close + 1 >= text.size() || text[close + 1] != ':') refuse(kForm);
    a.host = text.substr(1, close - 1);
    colon = close + 1;
    in6_addr six;
    if (inet_pton(AF_INET6, a.host.c_str(), &six) != 1) refuse(std::string(kForm) + ": '" + text + "' has no IPv6 one");
  } else {
    colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) refuse(kForm);
    a.host = text.substr(0, colon);
    if (a.host.find(':') != std::string::npos)
      refuse("IPv6 address in an incorrect format (maybe you forgot to add [ ])");
  }
  static constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  const auto port = number(std::string_view(text).substr(colon + 1));
  if (!port || *port < 0 || *port > 65535 || a.host.size() > 253 ||
      a.host.find_first_not_of(kNameLetters) != std::string::npos)
    refuse(std::string(kForm) + ", not '" + text.substr(0, 300) + "'");
  a.port = *port;
  return a;
}

Plan read_init_method(const JoinOptions& o) {
  if (o.timeout < Milliseconds(1)) refuse("the timeout is less than a millisecond");
  if (o.group_name.size() > kMaxText / 4) refuse("group_name is longer than 1 KiB");
  const std::string& url = o.init_method;
  const size_t mark = url.find("://");
  const std::string scheme = url.substr(0, mark == std::string::npos ? 0 : mark);
  std::string rest = mark == std::string::npos ? "" : url.substr(mark + 3);
  Plan plan;
  plan.rank = o.rank, plan.world_size = o.world_size;
  if (scheme == "env") {
    plan.rank = from_both(o, "RANK", "rank", o.rank);
    plan.world_size = from_both(o, "WORLD_SIZE", "world_size", o.world_size);
    if (!o.group_name.empty()) refuse("group_name is not supported in env:// init method");
    const std::string text = required(o, "MASTER_PORT");
    const auto port = number(text);
    if (!port || *port < 1 || *port > 65535)
      refuse("the MASTER_PORT environmental variable is '" + text + "', which is no port");
    plan.address.port = *port;
    const auto host = plan.rank == 0 ? variable(o, "MASTER_ADDR") : required(o, "MASTER_ADDR");
    if (host) {
      const bool bare_six = host->find(':') != std::string::npos && host->front() != '[';
      plan.address = parse_address((bare_six ? "[" + *host + "]" : *host) + ":" + text);
    }
  } else if (scheme == "tcp") {
    if (const size_t query = rest.find('?'); query != std::string::npos) {
      read_query(std::string_view(rest).substr(query + 1), plan);
      rest.resize(query);
    }
    while (!rest.empty() && rest.back() == '/') rest.pop_back();
    plan.address = parse_address(rest);
    if (plan.address.port == 0) refuse("tcp:// rendezvous: port 0 cannot be reached");
    if (plan.address.is_multicast()) {
      plan.kind = Plan::Kind::multicast;
    } else {
      if (plan.rank == -1)
        refuse("Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing");
      if (plan.world_size == -1)
        refuse("Error initializing torch.distributed using tcp:// rendezvous: world size parameter missing");
    }
  } else if (scheme == "file") {
    plan.kind = Plan::Kind::file, plan.path = rest;
    if (rest.empty() || rest.front() != '/' || rest.size() > kMaxText || rest.find('\0') != std::string::npos)
      refuse("Error initializing torch.distributed using file:// rendezvous: path missing");
  } else {
    refuse("No rendezvous handler for " + scheme + "://");
  }
  if (plan.world_size == -1) refuse("world_size is not set - it is required for `tcp://` and `file://` init methods");
  check_numbers(plan);
  return plan;
}

}  // namespace gradwire::server::cluster
