#include "server/http/json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "schema/error.h"

namespace gradwire::server::http {
namespace {

[[noreturn]] void fail(const std::string& why) { throw Error(Code::bad_json, why); }

}  // namespace

/// What Boost.JSON's parser calls. It gives numbers as text too: its own reading of reals is not exactly rounded.
struct DocHandler {
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1);
  static constexpr size_t max_string_size = size_t(-1);
  using error_code = boost::json::error_code;
  using string_view = boost::json::string_view;
  using Kind = Doc::Kind;

  DocHandler(Doc& d, std::string_view t) : doc(d), text(t) {}

  Doc::Node& add(Kind kind, uint32_t count = 0) {
    doc.nodes_.push_back(Doc::Node{kind, count, {0}});
    return doc.nodes_.back();
  }
  void value() {
    if (++values > kMaxJsonValues) {
      fail("more than " + std::to_string(kMaxJsonValues) + " values; numbers in bulk travel as application/x-npy");
    }
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_array_begin(error_code&) { return begin(Kind::array); }
  bool on_object_begin(error_code&) { return begin(Kind::object); }
  bool begin(Kind kind) {
    value();
    open.push_back(doc.nodes_.size());
    add(kind);
    return true;
  }
  bool on_array_end(size_t n, error_code&) {
    end(n);
    return true;
  }
  bool on_object_end(size_t n, error_code&) {
    refuse_equal_keys(end(n));
    return true;
  }
  size_t end(size_t n) {
    const size_t at = open.back();
    open.pop_back();
    doc.nodes_[at].count = static_cast<uint32_t>(n);
    doc.nodes_[at].at = doc.nodes_.size();
    return at;
  }
  void refuse_equal_keys(size_t object) {
    keys.clear();
    each_member(Doc::Ref(&doc, object), [&](std::string_view key, Doc::Ref) { keys.push_back(key); });
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) fail("the key \"" + std::string(twice->substr(0, 80)) + "\" stands twice in an object");
  }

  bool on_key_part(string_view s, size_t, error_code&) { return append(s); }
  bool on_string_part(string_view s, size_t, error_code&) { return append(s); }
  bool on_key(string_view s, size_t n, error_code&) { return string(s, n); }
  bool on_string(string_view s, size_t n, error_code&) {
    value();
    return string(s, n);
  }
  bool append(string_view s) {
    doc.chars_.append(s.data(), s.size());
    return true;
  }
  bool string(string_view s, size_t n) {
    append(s);
    add(Kind::string, static_cast<uint32_t>(n)).at = doc.chars_.size() - n;
    return true;
  }

  bool on_number_part(string_view s, error_code&) {
    number.append(s.data(), s.size());
    return true;
  }
  bool on_int64(int64_t, string_view s, error_code&) { return any_number(s); }
  bool on_uint64(uint64_t, string_view s, error_code&) { return any_number(s); }
  bool on_double(double, string_view s, error_code&) { return any_number(s); }
  bool any_number(string_view s) {
    value();
    std::string_view t(s.data(), s.size());
    if (!number.empty()) {
      number.append(t);
      t = number;
    }
    const char *first = t.data(), *last = first + t.size();
    const bool spelled_real = t.find_first_of(".eE") != std::string_view::npos;
    if (int64_t i = 0; !spelled_real && std::from_chars(first, last, i).ec == std::errc()) {
      add(Kind::integer).i = i;
    } else {
      double f = 0;
      if (std::from_chars(first, last, f).ec == std::errc::result_out_of_range) {
        f = std::strtod(std::string(t).c_str(), nullptr);  // tells too large from too small, which is zero or nearly so
        if (!std::isfinite(f)) {
          const bool inside = s.data() >= text.data() && s.data() <= text.data() + text.size();
          fail("number " + std::string(t.substr(0, 40)) + " is out of range" +
               (inside ? " at byte " + std::to_string(s.data() - text.data()) : ""));
        }
      }
      add(spelled_real ? Kind::real : Kind::big).f = f;
    }
    number.clear();
    return true;
  }
  bool on_bool(bool b, error_code&) {
    value();
    add(Kind::boolean).i = b;
    return true;
  }
  bool on_null(error_code&) {
    value();
    add(Kind::null);
    return true;
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

  Doc& doc;
  std::string_view text;
  size_t values = 0;
  std::vector<size_t> open;
  std::vector<std::string_view> keys;
  std::string number;
};

Doc::Doc(std::string_view text) {
  if (text.size() > kMaxJson) {
    throw Error(Code::too_large, "a JSON text of " + std::to_string(text.size()) + " bytes is over the limit of " +
                                     std::to_string(kMaxJson));
  }
  const auto parts =
      std::count_if(text.begin(), text.end(), [](char c) { return c == ',' || c == ':' || c == '[' || c == '{'; });
  nodes_.reserve(std::min<size_t>(static_cast<size_t>(parts) + 1, 2 * kMaxJsonValues));
  // A string is never longer than its text, so chars_ does not move and keys may be compared while reading.
  chars_.reserve(text.size());
  boost::json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::json::basic_parser<DocHandler> parser(options, *this, text);
  boost::json::error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) ec = boost::json::error::extra_data;
  if (ec) {
    const bool deep = ec == boost::json::error::too_deep;
    fail((deep ? "deeper than " + std::to_string(kMaxJsonDepth) + " levels" : ec.message()) + " at byte " +
         std::to_string(used));
  }
}

const char* describe(Doc::Kind k) {
  switch (k) {
    case Doc::Kind::null:
      return "null";
    case Doc::Kind::boolean:
      return "a boolean";
    case Doc::Kind::integer:
    case Doc::Kind::big:
      return "an integer";
    case Doc::Kind::real:
      return "a number";
    case Doc::Kind::string:
      return "a string";
    case Doc::Kind::array:
      return "a list";
    case Doc::Kind::object:
      return "an object";
  }
  return "a value";
}

}  // namespace gradwire::server::http
