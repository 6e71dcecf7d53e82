#include "schema/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "schema/checked_bytes.h"
#include "schema/error.h"
#include "schema/utf8.h"

namespace gradwire {
namespace {

[[noreturn]] void fail(const std::string& why) { throw Error(Code::bad_tensor, "safetensors: " + why); }

struct Word {
  const char* name;
  DType dtype;
};
constexpr Word kWords[] = {{"BOOL", DType::boolean}, {"U8", DType::uint8},      {"I8", DType::int8},
                           {"I16", DType::int16},    {"I32", DType::int32},     {"I64", DType::int64},
                           {"F16", DType::float16},  {"BF16", DType::bfloat16}, {"F32", DType::float32},
                           {"F64", DType::float64}};

std::string clip(std::string_view s) {
  std::string t(1, '\'');
  return t.append(s.substr(0, 60)).append(1, '\'');
}

void append_utf8(std::string& to, uint32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xC0 | c >> 6);
    to += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    to += static_cast<char>(0xE0 | c >> 12);
    to += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    to += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    to += static_cast<char>(0xF0 | c >> 18);
    to += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    to += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    to += static_cast<char>(0x80 | (c & 0x3F));
  }
}

/// The JSON of a head, which is never more than three deep: one function a level.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  void read(SafetensorsHead& head) {
    if (text_.empty() || text_[0] != '{') fail("the head must begin with '{'");
    bool metadata = false;
    members([&](std::string key) {
      if (key == "__metadata__") {
        if (metadata) fail("two __metadata__");
        metadata = true;
        members([&](std::string k) {
          if (!head.metadata.emplace(k, string()).second) fail("the key " + clip(k) + " stands twice");
        });
      } else {
        head.tensors.push_back(entry(std::move(key)));
      }
    });
    skip();
    if (!text_.empty()) fail("text after the head's object");
  }

 private:
  void skip() {
    size_t n = 0;
    while (n < text_.size() && (text_[n] == ' ' || text_[n] == '\n' || text_[n] == '\r' || text_[n] == '\t')) ++n;
    text_.remove_prefix(n);
  }
  bool take(char c) {
    skip();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "' in the head");
  }
  template <class F> void members(F member) {
    expect('{');
    if (take('}')) return;
    do {
      std::string key = string();
      expect(':');
      member(std::move(key));
    } while (take(','));
    expect('}');
  }
  uint32_t hex4() {
    uint32_t v = 0;
    if (text_.size() < 4) fail("a \\u escape is cut");
    for (int i = 0; i < 4; ++i) {
      const char c = text_[i];
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) fail("a \\u escape is not hexadecimal");
      v = v * 16 + static_cast<uint32_t>(d);
    }
    text_.remove_prefix(4);
    return v;
  }
  void escape(std::string& to) {
    if (text_.empty()) fail("a string has no end");
    const char c = text_[0];
    text_.remove_prefix(1);
    constexpr std::string_view from = "\"\\/bfnrt", meaning = "\"\\/\b\f\n\r\t";
    if (const size_t i = from.find(c); i != std::string_view::npos) {
      to += meaning[i];
      return;
    }
    if (c != 'u') fail("unknown escape in a string");
    uint32_t v = hex4();
    if (v >= 0xD800 && v < 0xDC00) {
      if (!text_.starts_with("\\u")) fail("a lone surrogate in a string");
      text_.remove_prefix(2);
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("a lone surrogate in a string");
      v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
    } else if (v >= 0xDC00 && v <= 0xDFFF) {
      fail("a lone surrogate in a string");
    }
    append_utf8(to, v);
  }
  std::string string() {
    expect('"');
    std::string s;
    for (;;) {
      if (text_.empty()) fail("a string has no end");
      const char c = text_[0];
      if (c == '"') break;
      if (static_cast<uint8_t>(c) < 0x20) fail("a control character in a string");
      if (c == '\\') {
        text_.remove_prefix(1);
        escape(s);
        continue;
      }
      const size_t n = utf8_length(text_);
      if (n == 0) fail("a string is not UTF-8");
      s.append(text_.substr(0, n));
      text_.remove_prefix(n);
    }
    text_.remove_prefix(1);
    return s;
  }
  int64_t integer() {
    skip();
    size_t n = 0;
    int64_t v = 0;
    while (n < text_.size() && text_[n] >= '0' && text_[n] <= '9') {
      if (__builtin_mul_overflow(v, int64_t{10}, &v) || __builtin_add_overflow(v, int64_t{text_[n] - '0'}, &v)) {
        fail("a number of the head is too large");
      }
      ++n;
    }
    if (n == 0 || (n > 1 && text_[0] == '0')) fail("expected a non-negative integer in the head");
    text_.remove_prefix(n);
    return v;
  }
  template <class F> void elements(F element) {
    expect('[');
    if (take(']')) return;
    do {
      element(integer());
    } while (take(','));
    expect(']');
  }
  SafetensorsEntry entry(std::string key) {
    SafetensorsEntry e;
    e.name = std::move(key);
    bool dtype = false, shape = false, offsets = false;
    members([&](std::string field) {
      if (field == "dtype" && !dtype) {
        dtype = true;
        const std::string word = string();
        const auto* w =
            std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& k) { return word == k.name; });
        if (w == std::end(kWords)) fail("dtype " + clip(word) + " of " + clip(e.name) + " is not one of ours");
        e.dtype = w->dtype;
      } else if (field == "shape" && !shape) {
        shape = true;
        elements([&](int64_t n) {
          if (e.shape.size() == kMaxDims) fail("more than " + std::to_string(kMaxDims) + " dimensions");
          e.shape.push_back(n);
        });
      } else if (field == "data_offsets" && !offsets) {
        offsets = true;
        int n = 0;
        elements([&](int64_t v) {
          if (n == 2) fail("data_offsets has more than two numbers");
          (n++ == 0 ? e.begin : e.end) = static_cast<size_t>(v);
        });
        if (n != 2) fail("data_offsets needs two numbers");
      } else {
        fail("unexpected field " + clip(field) + " of " + clip(e.name));
      }
    });
    if (!dtype || !shape || !offsets) fail(clip(e.name) + " needs dtype, shape and data_offsets");
    return e;
  }

  std::string_view text_;
};

void append_quoted(std::string& to, std::string_view s) {
  to += '"';
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      to += '\\';
      to += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      to += "\\u00";
      to += kHex[static_cast<uint8_t>(c) >> 4];
      to += kHex[c & 15];
    } else {
      to += c;
    }
  }
  to += '"';
}

}  // namespace

size_t safetensors_head_bytes(std::span<const std::byte> prefix, size_t file_bytes, size_t limit) {
  if (prefix.size() < kSafetensorsPrefix) fail("the file is too short");
  uint64_t n = 0;
  for (size_t i = 8; i-- > 0;) n = n << 8 | std::to_integer<uint64_t>(prefix[i]);
  if (n < 2) fail("the head is empty");
  if (n > limit) fail("a head of " + std::to_string(n) + " bytes is over the limit of " + std::to_string(limit));
  if (file_bytes < kSafetensorsPrefix || n > file_bytes - kSafetensorsPrefix) {
    fail("a head of " + std::to_string(n) + " bytes does not fit into the file");
  }
  return kSafetensorsPrefix + static_cast<size_t>(n);
}

SafetensorsHead parse_safetensors_head(std::span<const std::byte> head, size_t file_bytes) {
  const size_t all = safetensors_head_bytes(head.first(std::min(head.size(), kSafetensorsPrefix)), file_bytes);
  if (head.size() != all) fail("the head is cut");
  SafetensorsHead result;
  Reader(std::string_view(reinterpret_cast<const char*>(head.data()), all).substr(kSafetensorsPrefix)).read(result);
  result.data_offset = all;

  auto& tensors = result.tensors;
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const auto& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    fail("the name " + clip(*twice) + " stands twice");
  }
  for (const auto& t : tensors) {
    if (t.begin > t.end || t.end - t.begin != checked_bytes(t.dtype, t.shape)) {
      fail("data_offsets of " + clip(t.name) + " do not agree with its dtype and shape");
    }
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  size_t at = 0;
  for (const auto& t : tensors) {
    if (t.begin != at) fail(std::string(t.begin < at ? "overlapping bytes at " : "a hole before ") + clip(t.name));
    at = t.end;
  }
  if (at != file_bytes - all) fail("the file does not end where the last tensor ends");
  return result;
}

std::string safetensors_head(std::span<const SafetensorsEntry> tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":";
    char before = '{';
    for (const auto& [key, value] : metadata) {
      json += before;
      append_quoted(json, key);
      json += ':';
      append_quoted(json, value);
      before = ',';
    }
    json += '}';
  }
  size_t at = 0;
  for (const auto& t : tensors) {
    if (at || json.size() > 1) json += ',';
    append_quoted(json, t.name);
    const auto* w =
        std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& k) { return k.dtype == t.dtype; });
    const size_t bytes = checked_bytes(t.dtype, t.shape);
    json += std::string(":{\"dtype\":\"") + w->name + "\",\"shape\":" + to_string(t.shape) + ",\"data_offsets\":[" +
            std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
    at += bytes;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string head;
  for (int i = 0; i < 8; ++i) head += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return head + json;
}

}  // namespace gradwire
