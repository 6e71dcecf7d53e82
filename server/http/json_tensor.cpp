#include "server/http/json_tensor.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "schema/checked_bytes.h"
#include "schema/error.h"
#include "schema/half.h"

namespace gradwire::server::http {
namespace {

using Kind = Doc::Kind;

[[noreturn]] void fail(const std::string& why) { throw Error(Code::bad_tensor, why); }

/// The three numbers that JSON has no spelling for.
std::optional<double> non_finite(std::string_view s) {
  if (s == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (s == "Infinity") return std::numeric_limits<double>::infinity();
  if (s == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

bool decimal(std::string_view s, int64_t& out) {
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), out);
  return error == std::errc() && end == s.data() + s.size();
}

/// One pass over `data`: checks its nesting against the shape and puts every number into its place, where `to` has
/// places.
class Filler {
 public:
  Filler(Doc::Ref data, DType dtype, const Shape& shape, std::vector<std::byte>& to)
      : data_(data), dtype_(dtype), shape_(shape), to_(to) {}

  void run() {
    std::vector<int64_t> left;  // of the open lists: elements to come
    Doc::Ref at = data_;
    const Doc::Ref end = data_.next();
    for (; !(at == end); at = at.following()) {
      while (!left.empty() && left.back() == 0) left.pop_back();
      const size_t depth = left.size();
      if (depth) --left.back();
      if (depth < shape_.size()) {
        if (!at.is(Kind::array)) {
          fail(place(left) + ": expected a list of length " + std::to_string(shape_[depth]) + " at dim " +
               std::to_string(depth) + ", got " + describe(at.kind()));
        }
        if (static_cast<int64_t>(at.size()) != shape_[depth]) {
          fail(place(left) + ": expected sequence of length " + std::to_string(shape_[depth]) + " at dim " +
               std::to_string(depth) + " (got " + std::to_string(at.size()) + ")");
        }
        left.push_back(static_cast<int64_t>(at.size()));
      } else if (const auto why = put(at); !why.empty()) {
        fail(place(left) + ": " + why);
      }
    }
  }

 private:
  /// "data[1][0]": the element that was read last.
  std::string place(const std::vector<int64_t>& left) const {
    std::string s = "data";
    for (size_t d = 0; d < left.size(); ++d) s += "[" + std::to_string(shape_[d] - left[d] - 1) + "]";
    return s;
  }
  template <class T> void store(T v) {
    if (to_.empty()) return;
    std::memcpy(to_.data() + offset_, &v, sizeof v);
    offset_ += sizeof v;
  }
  template <class T> std::string put_integer(Doc::Ref v) {
    const auto out_of_range = [&] { return std::string("value is out of range for ") + name(dtype_); };
    int64_t i = 0;
    if (v.is(Kind::integer)) {
      i = v.integer();
    } else if (v.is(Kind::boolean)) {
      i = v.boolean();
    } else if (v.is(Kind::big)) {
      return out_of_range();
    } else if (v.is(Kind::real)) {
      const double f = v.real();
      if (f != std::trunc(f)) return std::string("fractional value for dtype ") + name(dtype_);
      if (f < -0x1p63 || f >= 0x1p63) return out_of_range();
      i = static_cast<int64_t>(f);
    } else if (v.is(Kind::string) && decimal(v.text(), i)) {  // from writers whose numbers end at 2^53
    } else if (v.is(Kind::string) && non_finite(v.text())) {
      return std::string("\"") + std::string(v.text()) + "\" has no value in dtype " + name(dtype_);
    } else {
      return std::string("expected a number, got ") + describe(v.kind());
    }
    if (i < std::numeric_limits<T>::min() || i > std::numeric_limits<T>::max()) return out_of_range();
    store(static_cast<T>(i));
    return {};
  }
  std::string put_real(Doc::Ref v) {
    double f = 0;
    if (v.is_number()) {
      f = v.real();
    } else if (v.is(Kind::boolean)) {
      f = v.boolean();
    } else if (const auto special = v.is(Kind::string) ? non_finite(v.text()) : std::nullopt) {
      f = *special;
    } else {
      return std::string("expected a number, \"NaN\", \"Infinity\" or \"-Infinity\", got ") + describe(v.kind());
    }
    if (dtype_ == DType::float64) {
      store(f);
    } else if (dtype_ == DType::float32) {
      store(static_cast<float>(f));
    } else {
      const float single = static_cast<float>(f);
      store(dtype_ == DType::float16 ? float_to_half(single) : float_to_bfloat16(single));
    }
    return {};
  }
  std::string put_boolean(Doc::Ref v) {
    if (v.is(Kind::boolean)) {
      store(static_cast<uint8_t>(v.boolean()));
    } else if (v.is_number()) {
      store(static_cast<uint8_t>(v.real() != 0));
    } else {
      return std::string("expected a boolean, got ") + describe(v.kind());
    }
    return {};
  }
  /// What is wrong with this value; empty if nothing.
  std::string put(Doc::Ref v) {
    switch (dtype_) {
      case DType::boolean:
        return put_boolean(v);
      case DType::uint8:
        return put_integer<uint8_t>(v);
      case DType::int8:
        return put_integer<int8_t>(v);
      case DType::int16:
        return put_integer<int16_t>(v);
      case DType::int32:
        return put_integer<int32_t>(v);
      case DType::int64:
        return put_integer<int64_t>(v);
      default:
        return put_real(v);
    }
  }

  Doc::Ref data_;
  DType dtype_;
  const Shape& shape_;
  std::vector<std::byte>& to_;
  size_t offset_ = 0;
};

/// As torch.tensor: any real makes the default dtype, else any integer int64, else any bool bool.
DType infer(Doc::Ref data, DType floating) {
  bool integers = false, booleans = false;
  const Doc::Ref end = data.next();
  for (Doc::Ref at = data; !(at == end); at = at.following()) {
    switch (at.kind()) {
      case Kind::integer:
      case Kind::big:
        integers = true;
        break;
      case Kind::boolean:
        booleans = true;
        break;
      case Kind::array:
        break;
      default:
        return floating;
    }
  }
  return integers ? DType::int64 : booleans ? DType::boolean : floating;
}

Shape nesting(Doc::Ref data) {
  Shape shape;
  for (; data.is(Kind::array); data = data.first()) {
    shape.push_back(static_cast<int64_t>(data.size()));
    if (data.size() == 0) break;
  }
  return shape;
}

}  // namespace

DType read_dtype(Doc::Ref v) {
  if (!v.is(Kind::string)) fail(std::string("dtype must be a string, got ") + describe(v.kind()));
  const auto dtype = dtype_from(v.text());
  if (!dtype) fail("unknown dtype '" + std::string(v.text().substr(0, 40)) + "'");
  return *dtype;
}

Shape read_shape(Doc::Ref v, DType dtype) {
  if (!v.is(Kind::array)) fail(std::string("shape must be a list of integers, got ") + describe(v.kind()));
  Shape shape;
  if (v.size() > kMaxDims) fail("a tensor has at most " + std::to_string(kMaxDims) + " dimensions");
  for (const Doc::Ref n : v.parts()) {
    if (!n.is(Kind::integer)) {
      fail("shape[" + std::to_string(shape.size()) + "] must be a non-negative integer, got " + describe(n.kind()));
    }
    shape.push_back(n.integer());
  }
  checked_bytes(dtype, shape);
  return shape;
}

Program::Input read_tensor(Doc::Ref v, DType floating) {
  if (!v.is(Kind::object))
    fail(std::string("a tensor is an object with dtype, shape and data, got ") + describe(v.kind()));
  std::optional<Doc::Ref> dtype, shape, data;
  Program::Input t;
  each_member(v, [&](std::string_view key, Doc::Ref value) {
    if (key == "dtype") {
      dtype = value;
    } else if (key == "shape") {
      shape = value;
    } else if (key == "data") {
      data = value;
    } else if (key == "requires_grad") {
      if (!value.is(Kind::boolean)) fail("requires_grad must be true or false");
      t.requires_grad = value.boolean();
    } else {
      fail("unknown field '" + std::string(key.substr(0, 40)) + "' of a tensor");
    }
  });
  if (!data) fail("a tensor needs data");
  t.dtype = dtype && !dtype->is(Kind::null) ? read_dtype(*dtype) : infer(*data, floating);
  const bool given = shape && !shape->is(Kind::null);
  t.shape = given ? read_shape(*shape, t.dtype) : nesting(*data);
  const size_t bytes = checked_bytes(t.dtype, t.shape);
  const auto element = static_cast<size_t>(size_of(t.dtype));

  const bool list = data->is(Kind::array);
  const bool flat = given && list && t.shape.size() != 1 && (data->size() == 0 || !data->first().is(Kind::array));
  if (flat && data->size() != bytes / element) {
    fail("shape '" + to_string(t.shape) + "' is invalid for input of size " + std::to_string(data->size()));
  }
  // Every element takes a value of the text: what is allocated is bounded by what was sent, before it is allocated.
  const Doc::Ref end = data->next();
  size_t values = 0;
  for (Doc::Ref at = *data; !(at == end); at = at.following()) values += !at.is(Kind::array);
  const Shape walk = flat ? Shape{static_cast<int64_t>(bytes / element)} : t.shape;
  if (bytes / element > values) {
    Filler(*data, t.dtype, walk, t.bytes).run();  // names the place, and stores nothing
    fail("shape '" + to_string(t.shape) + "' is invalid for input of size " + std::to_string(values));
  }
  t.bytes.resize(bytes);
  Filler(*data, t.dtype, walk, t.bytes).run();
  return t;
}

}  // namespace gradwire::server::http
