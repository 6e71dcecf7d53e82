#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradwire {

/// The element types of tensors. The numbers travel on the wire: append only.
enum class DType : uint8_t { boolean, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64 };
inline constexpr int kDTypes = 10;

/// Promotion looks at the category first: bool < integer < floating.
enum class Category : uint8_t { boolean, integer, floating };

struct DTypeRow {
  const char* name;   // as users write it
  const char* torch;  // as PyTorch's messages name it: "Float" in "result type Float can't be cast to ..."
  int64_t bytes;
  Category category;
};

inline constexpr DTypeRow kDTypeRows[kDTypes] = {
    {"bool", "Bool", 1, Category::boolean},      {"uint8", "Byte", 1, Category::integer},
    {"int8", "Char", 1, Category::integer},      {"int16", "Short", 2, Category::integer},
    {"int32", "Int", 4, Category::integer},      {"int64", "Long", 8, Category::integer},
    {"float16", "Half", 2, Category::floating},  {"bfloat16", "BFloat16", 2, Category::floating},
    {"float32", "Float", 4, Category::floating}, {"float64", "Double", 8, Category::floating},
};

constexpr const DTypeRow& row(DType t) { return kDTypeRows[static_cast<int>(t)]; }
constexpr const char* name(DType t) { return row(t).name; }
/// Bytes of one element.
constexpr int64_t size_of(DType t) { return row(t).bytes; }
constexpr Category category(DType t) { return row(t).category; }
constexpr bool is_floating(DType t) { return category(t) == Category::floating; }

/// "float32" -> DType::float32; nothing for any other text.
constexpr std::optional<DType> dtype_from(std::string_view text) {
  for (int i = 0; i < kDTypes; ++i) {
    if (text == kDTypeRows[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace gradwire
