#include "engine/io/npy.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "engine/io/layout.h"
#include "schema/checked_bytes.h"
#include "schema/error.h"

namespace gradwire::engine::io {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;

[[noreturn]] void fail(const std::string& why) { throw Error(Code::bad_tensor, "npy: " + why); }

struct Descr {
  const char* code;
  DType dtype;
};
constexpr Descr kDescrs[] = {{"b1", DType::boolean}, {"u1", DType::uint8},   {"i1", DType::int8},
                             {"i2", DType::int16},   {"i4", DType::int32},   {"i8", DType::int64},
                             {"f2", DType::float16}, {"f4", DType::float32}, {"f8", DType::float64}};

/// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class Reader {
 public:
  Reader(std::string_view text, bool old) : text_(text), old_(old) {}

  void read(NpyHead& head) {
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        descr = true;
        read_descr(quoted(), head);
      } else if (key == "fortran_order" && !order) {
        order = true;
        head.fortran = boolean();
      } else if (key == "shape" && !shape) {
        shape = true;
        read_shape(head.shape);
      } else {
        fail("unexpected key '" + std::string(key.substr(0, 40)) + "'");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!descr || !order || !shape) fail("the head needs descr, fortran_order and shape");
    if (text_.find_first_not_of(" \n") != std::string_view::npos) fail("text after the dictionary");
  }

 private:
  void skip() {
    while (!text_.empty() && text_[0] == ' ') text_.remove_prefix(1);
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
  std::string_view quoted() {
    const char quote = take('\'') ? '\'' : take('"') ? '"' : '\0';
    if (quote == '\0') fail("expected a string in the head (structured and object arrays are not read)");
    const size_t end = text_.find(quote);
    if (end == std::string_view::npos) fail("a string of the head has no end");
    const std::string_view s = text_.substr(0, end);
    if (s.find('\\') != std::string_view::npos) fail("a string of the head has an escape");
    text_.remove_prefix(end + 1);
    return s;
  }
  bool boolean() {
    skip();
    for (std::string_view word : {"True", "False"}) {
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return word == "True";
      }
    }
    fail("fortran_order must be True or False");
  }
  void read_descr(std::string_view s, NpyHead& head) {
    const char order = s.empty() ? '\0' : s[0];
    const bool marked = order == '<' || order == '>' || order == '|' || order == '=';
    const std::string_view code = marked ? s.substr(1) : s;
    for (const Descr& d : kDescrs) {
      if (code != d.code) continue;
      if (order == '|' && size_of(d.dtype) > 1) break;
      head.dtype = d.dtype;
      head.big_endian = order == '>';
      return;
    }
    if (code.starts_with("O")) fail("object arrays are not read");
    fail("dtype '" + std::string(s.substr(0, 40)) + "' is not one of this server's");
  }
  int64_t integer() {
    skip();
    size_t n = 0;
    int64_t v = 0;
    while (n < text_.size() && text_[n] >= '0' && text_[n] <= '9') {
      if (__builtin_mul_overflow(v, int64_t{10}, &v) || __builtin_add_overflow(v, int64_t{text_[n] - '0'}, &v)) {
        fail("a dimension is too large");
      }
      ++n;
    }
    if (n == 0) fail("a dimension must be a non-negative integer");
    if (n > 1 && text_[0] == '0') fail("a dimension begins with 0");
    text_.remove_prefix(n);
    if (old_ && !text_.empty() && text_[0] == 'L') text_.remove_prefix(1);  // written by Python 2
    return v;
  }
  void read_shape(Shape& shape) {
    expect('(');
    bool comma = false;
    while (!take(')')) {
      if (!shape.empty() && !comma) fail("expected ',' in the shape");
      if (shape.size() == kMaxDims) fail("more than " + std::to_string(kMaxDims) + " dimensions");
      shape.push_back(integer());
      comma = take(',');
    }
    if (shape.size() == 1 && !comma) fail("the shape must be a tuple");
  }

  std::string_view text_;
  bool old_;
};

uint32_t byte_at(std::span<const std::byte> b, size_t i) { return std::to_integer<uint32_t>(b[i]); }

/// Bytes before the dictionary: 10 for version 1, 12 after it.
size_t fixed_bytes(std::span<const std::byte> prefix) { return byte_at(prefix, 6) == 1 ? 10 : 12; }

}  // namespace

size_t npy_head_bytes(std::span<const std::byte> prefix) {
  if (prefix.size() < kNpyPrefix) fail("the file is too short");
  if (std::memcmp(prefix.data(), kMagic, kMagicSize) != 0) fail("the file does not begin with \\x93NUMPY");
  const uint32_t major = byte_at(prefix, 6), minor = byte_at(prefix, 7);
  if (major < 1 || major > 3 || minor != 0) {
    fail("version " + std::to_string(major) + "." + std::to_string(minor) + " is not known");
  }
  size_t n = byte_at(prefix, 8) | byte_at(prefix, 9) << 8;
  if (major > 1) n |= byte_at(prefix, 10) << 16 | byte_at(prefix, 11) << 24;
  const size_t all = fixed_bytes(prefix) + n;
  if (all > kMaxNpyHead) fail("a head of " + std::to_string(n) + " bytes is over the limit of 10000");
  if (all < kNpyPrefix) fail("the head is too short");
  return all;
}

NpyHead parse_npy_head(std::span<const std::byte> head) {
  const size_t all = npy_head_bytes(head.first(std::min(head.size(), kNpyPrefix)));
  if (head.size() != all) fail("the head is cut");
  const size_t fixed = fixed_bytes(head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + fixed, all - fixed);
  if (!text.ends_with('\n')) fail("the head does not end with a newline");
  NpyHead result;
  Reader(text, byte_at(head, 6) < 3).read(result);
  result.data_offset = all;
  result.data_bytes = checked_bytes(result.dtype, result.shape);
  return result;
}

std::string npy_head(DType dtype, std::span<const int64_t> shape) {
  const char* code = nullptr;
  for (const Descr& d : kDescrs) {
    if (d.dtype == dtype) code = d.code;
  }
  if (!code) fail("the format has no bfloat16");
  std::string text = "{'descr': '";
  text += size_of(dtype) == 1 ? '|' : '<';
  text += code;
  text += "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  text += shape.size() == 1 ? ",), }" : "), }";
  const size_t unpadded = kMagicSize + 4 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  std::string head(kMagic, kMagicSize);
  head += '\x01';
  head += '\0';
  head += static_cast<char>(text.size() & 0xFF);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

}  // namespace gradwire::engine::io
