#include "server/http/json_write.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "schema/utf8.h"
#include "schema/half.h"

namespace gradwire::server::http {
namespace {

void append_int(std::string& to, int64_t v) {
  char text[24];
  to.append(text, std::to_chars(text, text + sizeof text, v).ptr);
}

void append_ints(std::string& to, std::span<const int64_t> v) {
  to += '[';
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) to += ',';
    append_int(to, v[i]);
  }
  to += ']';
}

void append_bool(std::string& to, bool b) { to += b ? "true" : "false"; }

/// A finite number is spelled as a real: with '.' or an exponent, so that "-0.0" keeps its sign.
void append_spelled(std::string& to, const char* first, const char* last) {
  to.append(first, last);
  if (std::string_view(first, static_cast<size_t>(last - first)).find_first_of(".e") == std::string_view::npos)
    to += ".0";
}

bool append_special(std::string& to, double v) {
  if (std::isfinite(v)) return false;
  to += std::isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return true;
}

void append(std::string& to, double v) {
  if (append_special(to, v)) return;
  char text[32];
  append_spelled(to, text, std::to_chars(text, text + sizeof text, v).ptr);
}

void append(std::string& to, float v) {
  if (append_special(to, v)) return;
  char text[32];
  const char* end = std::to_chars(text, text + sizeof text, v).ptr;
  // Most readers go through a double; in the rare case where that rounds twice to another float, the double is sent.
  double through = 0;
  std::from_chars(text, end, through);
  if (static_cast<float>(through) != v) return append(to, static_cast<double>(v));
  append_spelled(to, text, end);
}

template <class T> T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void append_element(std::string& to, DType dtype, const std::byte* p) {
  switch (dtype) {
    case DType::boolean:
      return append_bool(to, *p != std::byte{0});
    case DType::uint8:
      return append_int(to, load<uint8_t>(p));
    case DType::int8:
      return append_int(to, load<int8_t>(p));
    case DType::int16:
      return append_int(to, load<int16_t>(p));
    case DType::int32:
      return append_int(to, load<int32_t>(p));
    case DType::int64:
      return append_int(to, load<int64_t>(p));
    case DType::float16:
      return append(to, static_cast<double>(half_to_float(load<uint16_t>(p))));  // exact: most readers compare doubles
    case DType::bfloat16:
      return append(to, static_cast<double>(bfloat16_to_float(load<uint16_t>(p))));
    case DType::float32:
      return append(to, load<float>(p));
    case DType::float64:
      return append(to, load<double>(p));
  }
}

/// How many of the innermost dimensions begin (or, for i + 1, have ended) at element i.
size_t borders(const Shape& shape, uint64_t i) {
  size_t n = 0;
  for (size_t d = shape.size(); d-- > 0; ++n) {
    const auto size = static_cast<uint64_t>(shape[d]);
    if (i % size) break;
    i /= size;
  }
  return n;
}

}  // namespace

void write_text(std::string& to, std::string_view s) {
  constexpr char kHex[] = "0123456789abcdef";
  to += '"';
  while (!s.empty()) {
    const char c = s[0];
    size_t n = utf8_length(s);
    if (n == 0) {
      to += "\xEF\xBF\xBD";
      n = 1;
    } else if (c == '"' || c == '\\') {
      (to += '\\') += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      to += "\\u00";
      (to += kHex[static_cast<uint8_t>(c) >> 4]) += kHex[c & 15];
    } else {
      to.append(s.substr(0, n));
    }
    s.remove_prefix(n);
  }
  to += '"';
}

void write_real(std::string& to, double v) { append(to, v); }

void write_tensor(std::string& to, const TensorValue& t) {
  const TensorInfo& info = t.info;
  to += "{\"dtype\":\"";
  to += name(info.dtype);
  to += "\",\"shape\":";
  append_ints(to, info.shape);
  to += ",\"data\":";
  const auto element = static_cast<size_t>(size_of(info.dtype));
  const uint64_t numel = t.bytes.size / element;
  const Shape shape = numel == 0 || info.shape.size() > 24 ? Shape{static_cast<int64_t>(numel)} : info.shape;
  if (numel > kMaxJsonAnswer / 2)
    throw Error(Code::too_large, "too large for JSON; ask for application/x-npy or application/vnd.safetensors");
  if (numel == 0) to += "[]";
  for (uint64_t i = 0; i < numel; ++i) {
    if (i) to += ',';
    to.append(borders(shape, i), '[');
    append_element(to, info.dtype, t.bytes.data + i * element);
    to.append(borders(shape, i + 1), ']');
    if (to.size() > kMaxJsonAnswer) {
      throw Error(Code::too_large, "an answer over " + std::to_string(kMaxJsonAnswer) +
                                       " bytes of JSON; ask for application/x-npy or application/vnd.safetensors");
    }
  }
  to += ",\"requires_grad\":";
  append_bool(to, info.requires_grad);
  to += '}';
}

void write_info(std::string& to, std::string_view name, const TensorInfo& t) {
  to += '{';
  if (!name.empty()) {
    to += "\"name\":";
    write_text(to, name);
    to += ',';
  }
  to += "\"dtype\":\"";
  to += gradwire::name(t.dtype);
  to += "\",\"shape\":";
  append_ints(to, t.shape);
  to += ",\"strides\":";
  append_ints(to, t.strides);
  to += ",\"device\":";
  write_text(to, t.device);
  to += ",\"requires_grad\":";
  append_bool(to, t.requires_grad);
  to += ",\"is_leaf\":";
  append_bool(to, t.is_leaf);
  to += ",\"grad_fn\":";
  if (t.grad_fn.empty()) {
    to += "null";
  } else {
    write_text(to, t.grad_fn);
  }
  to += ",\"version\":" + std::to_string(t.version) + ",\"bytes\":";
  append_int(to, t.bytes);
  to += '}';
}

void write_result(std::string& to, const ProgramResult& r) {
  write_result(to, r, [](std::string& t, std::string_view, const TensorValue& v) { write_tensor(t, v); });
}

void write_result(std::string& to, const ProgramResult& r,
                  const std::function<void(std::string&, std::string_view, const TensorValue&)>& tensor) {
  to += "{\"tensors\":{";
  std::unordered_set<std::string_view> seen;  // a name that is fetched twice is one key
  for (const auto& [name, value] : r.tensors) {
    if (!seen.insert(name).second) continue;
    if (seen.size() > 1) to += ',';
    write_text(to, name);
    to += ':';
    if (value) {
      tensor(to, name, *value);
    } else {
      to += "null";
    }
  }
  to += "},\"warnings\":[";
  for (size_t i = 0; i < r.warnings.size(); ++i) {
    const Warning& w = r.warnings[i];
    if (i) to += ',';
    to += "{\"message\":";
    write_text(to, w.message);
    if (w.step >= 0) to += ",\"step\":" + std::to_string(w.step);
    if (!w.op.empty()) {
      to += ",\"op\":";
      write_text(to, w.op);
    }
    to += '}';
  }
  to += "]}";
}

void write_session(std::string& to, const SessionInfo& s) {
  to += "{\"id\":";
  write_text(to, s.id);
  to += ",\"name\":";
  write_text(to, s.name);
  to += ",\"device\":";
  write_text(to, s.device);
  to += ",\"dtype\":\"";
  to += name(s.dtype);
  to += "\",\"tensors\":" + std::to_string(s.tensors) + ",\"bytes\":" + std::to_string(s.bytes) +
        ",\"peak_bytes\":" + std::to_string(s.peak_bytes) + ",\"memory_limit\":" + std::to_string(s.memory_limit) + ",\"ops_run\":" + std::to_string(s.ops_run) +
        ",\"age_seconds\":";
  append(to, s.age_seconds);
  to += '}';
}

void write_error(std::string& to, const Error& e) {
  to += "{\"code\":\"";
  to += name(e.code());
  to += "\",\"message\":";
  write_text(to, e.message());
  if (e.step() >= 0) to += ",\"step\":" + std::to_string(e.step());
  if (!e.op().empty()) {
    to += ",\"op\":";
    write_text(to, e.op());
  }
  to += '}';
}

std::string error_body(const Error& e) {
  std::string s = "{\"error\":";
  write_error(s, e);
  return s += '}';
}

}  // namespace gradwire::server::http
