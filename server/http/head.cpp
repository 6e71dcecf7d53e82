#include "server/http/head.h"

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <charconv>

#include "schema/error.h"

namespace gradwire::server::http {
namespace {

[[noreturn]] void bad(const std::string& why) { throw Error(Code::bad_request, why); }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
std::string lowered(std::string_view s) {
  std::string t(s);
  std::transform(t.begin(), t.end(), t.begin(), lower);
  return t;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z'); }
bool is_token(std::string_view s) {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return !s.empty() && std::all_of(s.begin(), s.end(),
                                   [&](char c) { return is_alnum(c) || marks.find(c) != std::string_view::npos; });
}
bool is_value(std::string_view s) {
  return std::all_of(s.begin(), s.end(),
                     [](char c) { return c == '\t' || (static_cast<uint8_t>(c) >= 0x20 && c != 0x7F); });
}
std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

/// Calls f with each trimmed part of a comma-separated text.
template <class F> void each_part(std::string_view s, char separator, F f) {
  while (true) {
    const size_t end = s.find(separator);
    f(trim(s.substr(0, end)));
    if (end == std::string_view::npos) return;
    s.remove_prefix(end + 1);
  }
}

/// "Example.com:80" -> "example.com"; throws for what is no host.
std::string host_name(std::string_view authority) {
  size_t end = 0;
  if (authority.starts_with('[')) {
    end = authority.find(']');
    if (end == std::string_view::npos) bad("Host is malformed");
    ++end;
    for (const char c : authority.substr(1, end - 2)) {
      if (!is_alnum(c) && c != ':' && c != '.') bad("Host is malformed");
    }
  } else {
    while (end < authority.size() &&
           (is_alnum(authority[end]) || authority[end] == '.' || authority[end] == '-' || authority[end] == '_')) {
      ++end;
    }
  }
  const std::string_view port = authority.substr(end);
  const bool good =
      end > 0 &&
      (port.empty() || (port[0] == ':' && port.size() <= 6 && std::all_of(port.begin() + 1, port.end(), is_digit)));
  if (!good) bad("Host is malformed");
  return lowered(authority.substr(0, end));
}

void check_host(std::string_view host, const HostRules& rules) {
  const std::string name = host_name(host);
  if (!rules.any && std::find(rules.hosts.begin(), rules.hosts.end(), name) == rules.hosts.end()) {
    throw Error(Code::forbidden, "this server does not answer to that Host; see the option allowed-hosts");
  }
}

void check_origin(std::string_view origin, std::string_view host, const HostRules& rules) {
  if (rules.any) return;
  for (std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && equal_ignoring_case(origin.substr(scheme.size()), host)) return;
  }
  throw Error(Code::forbidden, "requests from pages of another origin are refused");
}

void read_target(Head& head, std::string_view host) {
  if (head.target == "*") {
    if (head.method != "OPTIONS") bad("only OPTIONS may ask for *");
    head.asterisk = true;
    return;
  }
  const bool absolute = !head.target.starts_with('/');
  const boost::core::string_view text(head.target.data(), head.target.size());
  const auto parsed = absolute ? boost::urls::parse_absolute_uri(text) : boost::urls::parse_origin_form(text);
  if (!parsed) bad("the target is not a URL");
  const boost::urls::url_view& url = *parsed;
  if (absolute) {
    if (url.scheme_id() != boost::urls::scheme::http && url.scheme_id() != boost::urls::scheme::https)
      bad("the target's scheme is not http");
    if (url.has_userinfo()) bad("the target holds user information");
    const auto authority = url.encoded_host_and_port();
    if (!equal_ignoring_case({authority.data(), authority.size()}, host))
      bad("the target and Host name different hosts");
  }
  for (const auto& segment : url.segments()) head.path.emplace_back(segment.data(), segment.size());
  for (const auto& param : url.params()) {
    if (head.query_value(param.key)) bad("a query parameter stands twice");
    head.query.emplace_back(param.key, param.has_value ? param.value : "true");
  }
}

void read_request_line(Head& head, std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) bad("the request line is malformed");
  head.method = line.substr(0, first);
  head.target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(head.method)) bad("the method is malformed");
  if (head.target.size() > kMaxTarget)
    throw Error(Code::uri_too_long, "the target is over the limit of " + std::to_string(kMaxTarget) + " bytes");
  for (const char c : head.target) {
    if (static_cast<uint8_t>(c) <= 0x20 || static_cast<uint8_t>(c) >= 0x7F) bad("the target is not a URL");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") bad("only HTTP/1.1 and HTTP/1.0 are spoken here");
  head.minor = version.back() - '0';
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

HostRules HostRules::make(std::string_view bound, std::span<const std::string> extra) {
  HostRules rules;
  rules.hosts = {"localhost", "127.0.0.1", "[::1]"};
  for (const std::string& h : extra) rules.hosts.push_back(host_name(h));
  if (!bound.empty()) {
    const std::string host = host_name(bound);
    if (host != "0.0.0.0" && host != "[::]") rules.hosts.push_back(host);
  }
  return rules;
}

std::string_view Head::field(std::string_view name) const {
  for (const Field& f : fields) {
    if (equal_ignoring_case(f.name, name)) return f.value;
  }
  return {};
}

bool Head::has_word(std::string_view name, std::string_view word) const {
  bool found = false;
  for (const Field& f : fields) {
    if (!equal_ignoring_case(f.name, name)) continue;
    each_part(f.value, ',', [&](std::string_view part) { found |= equal_ignoring_case(part, word); });
  }
  return found;
}

std::string Head::joined(std::string_view name) const {
  std::string all;
  for (const Field& f : fields) {
    if (!equal_ignoring_case(f.name, name)) continue;
    if (!all.empty()) all += ", ";
    all += f.value;
  }
  return all;
}

const std::string* Head::query_value(std::string_view key) const {
  for (const auto& [k, v] : query) {
    if (k == key) return &v;
  }
  return nullptr;
}

size_t find_head(std::string_view received, size_t& scanned) {
  for (size_t i = scanned; i < received.size() && i < kMaxHead; ++i) {
    if (received[i] != '\n') continue;
    if (i == 0 || received[i - 1] != '\r') bad("a line ends with a bare line feed");
    if (i >= 3 && received[i - 2] == '\n') {
      scanned = 0;
      return i + 1;
    }
  }
  scanned = std::min(received.size(), kMaxHead);
  const size_t line = received.substr(0, kMaxHead).find('\n');
  // 32: the method, the version and the spaces around a target that fits
  if (line == std::string_view::npos && received.size() > kMaxTarget + 32) {
    throw Error(Code::uri_too_long, "the target is over the limit of " + std::to_string(kMaxTarget) + " bytes");
  }
  if (received.size() >= kMaxHead)
    throw Error(Code::head_too_large, "the head is over the limit of " + std::to_string(kMaxHead) + " bytes");
  return 0;
}

Head check_head(std::string_view raw, const HostRules& rules) {
  if (raw.size() > kMaxHead)
    throw Error(Code::head_too_large, "the head is over the limit of " + std::to_string(kMaxHead) + " bytes");
  if (!raw.ends_with("\r\n\r\n")) bad("the head has no end");
  raw.remove_suffix(2);
  Head head;
  head.fields.reserve(12);
  bool first = true;
  std::string_view host, origin;
  int hosts = 0, lengths = 0, origins = 0, expects = 0;
  bool coded = false;
  while (!raw.empty()) {
    const size_t end = raw.find("\r\n");
    if (end == std::string_view::npos) bad("a line of the head has no end");
    const std::string_view line = raw.substr(0, end);
    raw.remove_prefix(end + 2);
    if (!is_value(line)) bad("a control character in the head");
    if (first) {
      first = false;
      read_request_line(head, line);
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) bad("a field of the head is malformed");
    if (head.fields.size() == kMaxFields)
      throw Error(Code::head_too_large, "the head has more than " + std::to_string(kMaxFields) + " fields");
    const Head::Field f{line.substr(0, colon), trim(line.substr(colon + 1))};
    head.fields.push_back(f);
    if (equal_ignoring_case(f.name, "Host")) {
      ++hosts;
      host = f.value;
    } else if (equal_ignoring_case(f.name, "Content-Length")) {
      ++lengths;
      uint64_t n = 0;
      const char* last = f.value.data() + f.value.size();
      const bool digits = !f.value.empty() && std::all_of(f.value.begin(), f.value.end(), is_digit);
      const auto read = std::from_chars(f.value.data(), last, n);
      if (!digits || read.ec != std::errc() || n > INT64_MAX) bad("Content-Length is malformed");
      head.content_length = n;
    } else if (equal_ignoring_case(f.name, "Transfer-Encoding")) {
      coded = true;
    } else if (equal_ignoring_case(f.name, "Origin")) {
      ++origins;
      origin = f.value;
    } else if (equal_ignoring_case(f.name, "Expect")) {
      ++expects;
      if (!equal_ignoring_case(f.value, "100-continue")) bad("only 100-continue may be expected");
      head.expect_continue = head.minor > 0;
    }
  }
  if (coded)
    throw Error(Code::not_implemented, "Transfer-Encoding is not supported; send the body with a Content-Length");
  if (lengths > 1) bad("more than one Content-Length");
  if (hosts != 1) bad(hosts ? "more than one Host" : "Host is missing");
  if (origins > 1 || expects > 1) bad("a field of the head stands twice");
  check_host(host, rules);
  if (origins) check_origin(origin, host, rules);
  head.keep_alive = head.minor > 0 ? !head.has_word("Connection", "close") : head.has_word("Connection", "keep-alive");
  if (head.method == "CONNECT" || head.method == "TRACE") {
    throw Error(Code::bad_method, std::string(head.method) + " is not served here");
  }
  read_target(head, host);
  return head;
}

std::optional<size_t> negotiate(std::string_view accept, std::span<const std::string_view> offers) {
  if (trim(accept).empty()) return 0;
  std::optional<size_t> best;
  double best_q = 0;
  for (size_t i = 0; i < offers.size(); ++i) {
    const std::string_view offer = offers[i], type = offer.substr(0, offer.find('/'));
    double q = 0;
    int closest = -1;  // how exactly a range names the offer
    each_part(accept, ',', [&](std::string_view range) {
      double weight = 1;
      std::string_view name;
      bool at_name = true;
      each_part(range, ';', [&](std::string_view part) {
        if (at_name) {
          name = part;
        } else if (part.size() > 2 && lower(part[0]) == 'q' && part[1] == '=') {
          double w = 0;
          const auto read = std::from_chars(part.data() + 2, part.data() + part.size(), w);
          weight = read.ec == std::errc() && w >= 0 && w <= 1 ? w : 0;
        }
        at_name = false;
      });
      int fit = -1;
      if (equal_ignoring_case(name, offer)) {
        fit = 2;
      } else if (name == "*/*") {
        fit = 0;
      } else if (name.ends_with("/*") && equal_ignoring_case(name.substr(0, name.size() - 2), type)) {
        fit = 1;
      }
      if (fit > closest) {
        closest = fit;
        q = weight;
      }
    });
    if (q > best_q) {
      best_q = q;
      best = i;
    }
  }
  return best;
}

std::string media_type(std::string_view content_type) {
  return lowered(trim(content_type.substr(0, content_type.find(';'))));
}

}  // namespace gradwire::server::http
