#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradwire::server::http {

inline constexpr size_t kMaxJson = size_t{16} << 20;  // bytes of a text
inline constexpr size_t kMaxJsonDepth = 32;
inline constexpr size_t kMaxJsonValues = 1'000'000;

/// A JSON text as a flat list of values, each before its parts: 16 bytes a value and a key. Numbers keep what their
/// spelling says: `2` is an integer, `2.0` and `2e0` are reals, exactly rounded.
class Doc {
 public:
  enum class Kind : uint8_t { null, boolean, integer, big, real, string, array, object };
  class Ref;
  class Range;

  /// Throws Error{bad_json} with the place: bad syntax or UTF-8, deeper than kMaxJsonDepth, more values than
  /// kMaxJsonValues, equal keys in an object, a number outside the range of double.
  explicit Doc(std::string_view text);
  Ref root() const;

 private:
  friend struct DocHandler;
  struct Node {
    Kind kind;
    uint32_t count;  // elements, members, or bytes of a string
    union {
      int64_t i;
      double f;
      uint64_t at;  // of a string: where in chars_; of an array or object: the node after it
    };
  };
  std::vector<Node> nodes_;
  std::string chars_;
};

/// A value of a Doc, as long as the Doc lives.
class Doc::Ref {
 public:
  Ref(const Doc* doc, size_t at) : doc_(doc), at_(at) {}
  Kind kind() const { return node().kind; }
  bool is(Kind k) const { return node().kind == k; }
  /// integer, big or real
  bool is_number() const { return is(Kind::integer) || is(Kind::big) || is(Kind::real); }
  bool boolean() const { return node().i != 0; }
  int64_t integer() const { return node().i; }                                                  // of an integer
  double real() const { return is(Kind::integer) ? static_cast<double>(node().i) : node().f; }  // of a number
  std::string_view text() const { return {doc_->chars_.data() + node().at, node().count}; }
  size_t size() const { return node().count; }
  Ref first() const { return {doc_, at_ + 1}; }
  Ref next() const { return {doc_, is(Kind::array) || is(Kind::object) ? node().at : at_ + 1}; }
  /// The node after this one in the text, be it a part of it or not.
  Ref following() const { return {doc_, at_ + 1}; }
  /// For `for`: the elements of an array; the keys and values of an object, in turn.
  Range parts() const;
  bool operator==(const Ref& r) const { return at_ == r.at_; }

 private:
  const Node& node() const { return doc_->nodes_[at_]; }
  const Doc* doc_;
  size_t at_;
};

class Doc::Range {
 public:
  struct Iterator {
    Ref at;
    const Ref& operator*() const { return at; }
    Iterator& operator++() { return at = at.next(), *this; }
    bool operator!=(const Iterator& i) const { return !(at == i.at); }
  };
  explicit Range(Ref r) : first_(r.first()), end_(r.next()) {}
  Iterator begin() const { return {first_}; }
  Iterator end() const { return {end_}; }

 private:
  Ref first_, end_;
};
inline Doc::Ref Doc::root() const { return {this, 0}; }
inline Doc::Range Doc::Ref::parts() const { return Range(*this); }

/// "a number", "a list", ... for messages.
const char* describe(Doc::Kind);

/// Calls f(key, value) for every member of an object.
template <class F> void each_member(Doc::Ref object, F f) {
  for (Doc::Ref at = object.first(); !(at == object.next());) {
    const Doc::Ref value = at.next();
    f(at.text(), value);
    at = value.next();
  }
}

}  // namespace gradwire::server::http
