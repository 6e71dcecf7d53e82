#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gradwire {

/// Length of the well-formed UTF-8 sequence at the start of s; 0 if there is none (also for overlong forms and
/// surrogates).
inline size_t utf8_length(std::string_view s) {
  const auto at = [&](size_t i) { return i < s.size() ? static_cast<uint8_t>(s[i]) : uint8_t{0}; };
  const auto tail = [&](size_t i) { return (at(i) & 0xC0) == 0x80; };
  if (s.empty()) return 0;
  const uint8_t a = at(0), b = at(1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if ((a == 0xE0 && b < 0xA0) || (a == 0xED && b > 0x9F)) return 0;
    return tail(1) && tail(2) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    if ((a == 0xF0 && b < 0x90) || (a == 0xF4 && b > 0x8F)) return 0;
    return tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace gradwire
