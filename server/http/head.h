#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The head of a request, checked as raw bytes before anything else looks at it. What two readers could frame in two
// ways is refused: a second request never comes out of a body. No Boost parser sees a byte before this has passed.

namespace gradwire::server::http {

inline constexpr size_t kMaxHead = 8192;    // bytes, with the empty line
inline constexpr size_t kMaxTarget = 4096;  // bytes
inline constexpr size_t kMaxFields = 100;

/// Who may be meant by Host and Origin: a browser page must not reach a loopback server by a name of its own.
struct HostRules {
  bool any = false;                // the probe listener: probes name the pod's address
  std::vector<std::string> hosts;  // in lower case, without ports; IPv6 in brackets
  /// The loopback names, the host of `bound` ("127.0.0.1:7421"; none where it is a wildcard) and `extra`.
  static HostRules make(std::string_view bound, std::span<const std::string> extra);
};

/// Views into the raw head, which outlives it.
struct Head {
  struct Field {
    std::string_view name, value;
  };
  std::string_view method, target;
  std::vector<Field> fields;
  std::vector<std::string> path;  // decoded segments: "/v1/info" is {"v1", "info"}; empty for "*"
  std::vector<std::pair<std::string, std::string>> query;  // decoded
  int minor = 1;                                           // of HTTP/1.x
  bool asterisk = false, keep_alive = true, expect_continue = false;
  std::optional<uint64_t> content_length;

  /// The value of the first field of this name (any case), or an empty text.
  std::string_view field(std::string_view name) const;
  /// True if a comma-separated field of this name holds this word (any case), as Connection and Upgrade do.
  bool has_word(std::string_view field, std::string_view word) const;
  /// The values of all fields of this name, joined by ", ".
  std::string joined(std::string_view name) const;
  const std::string* query_value(std::string_view key) const;
};

/// Looks for the end of a head in what has arrived; `scanned` is where the last look ended (0 at first). Returns the
/// head's size, or 0 where more must come. Throws Error{bad_request} for a bare line feed, {uri_too_long} and
/// {head_too_large} over the limits.
size_t find_head(std::string_view received, size_t& scanned);

/// Checks one whole head. Throws Error{bad_request, not_implemented, forbidden, bad_method, uri_too_long,
/// head_too_large}: the connection is then closed after the answer.
Head check_head(std::string_view raw, const HostRules& rules);

/// The offer that an Accept field (empty: anything) likes best, the first of equals; nothing if none.
std::optional<size_t> negotiate(std::string_view accept, std::span<const std::string_view> offers);

/// "Application/JSON; charset=utf-8" -> "application/json"
std::string media_type(std::string_view content_type);

bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace gradwire::server::http
