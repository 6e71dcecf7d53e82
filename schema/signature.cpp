#include "schema/signature.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "schema/error.h"

namespace gradwire {
namespace {

constexpr std::pair<std::string_view, Type> kTypes[] = {
    {"Tensor", Type::tensor},
    {"Operand", Type::operand},
    {"Scalar", Type::scalar},
    {"int", Type::integer},
    {"float", Type::real},
    {"bool", Type::boolean},
    {"str", Type::str},
    {"dtype", Type::dtype},
    {"device", Type::device},
    {"Generator", Type::generator},
    {"Optimizer", Type::optimizer},
    {"Index", Type::index},
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Signature signature() {
    Signature s;
    s.name = word("an operator's name");
    if (s.name == "optim" && eat(".")) s.name += "." + word("an operator's name");  // torch.optim's are one name each
    if (eat(".")) s.overload = word("an overload's name");
    expect("(");
    if (!eat(")")) {
      bool keyword_only = false;
      do {
        if (eat("*")) {
          keyword_only = true;
          continue;
        }
        s.params.push_back(param());
        s.params.back().keyword_only = keyword_only;
        for (size_t i = 0; i + 1 < s.params.size(); ++i) {
          if (s.params[i].name == s.params.back().name) fail("a parameter's name of its own");
        }
      } while (eat(","));
      expect(")");
    }
    expect("->");
    if (eat("(")) {
      if (!eat(")")) {
        do {
          s.results.push_back(result(true));
        } while (eat(","));
        expect(")");
      }
    } else {
      s.results.push_back(result(false));
    }
    skip();
    if (at_ != text_.size()) fail("the end");
    return s;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error(Code::bad_argument, "signature '" + std::string(text_) + "': expected " + wanted + " at '" +
                                        std::string(text_.substr(at_)) + "'");
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool eat(std::string_view what) {
    skip();
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void expect(std::string_view what) {
    if (!eat(what)) fail("'" + std::string(what) + "'");
  }
  static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool digit(char c) { return c >= '0' && c <= '9'; }
  std::string word(const char* what) {
    skip();
    size_t end = at_;
    while (end < text_.size() && (letter(text_[end]) || (end > at_ && digit(text_[end])))) ++end;
    if (end == at_) fail(what);
    const std::string w(text_.substr(at_, end - at_));
    at_ = end;
    return w;
  }

  Param param() {
    Param p;
    const size_t start = at_;
    const std::string type = word("a type");
    const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& t) { return t.first == type; });
    if (row == std::end(kTypes)) at_ = start, fail("a type");
    p.type = row->second;
    if (eat("?")) {
      if (eat("["))
        p.element_optional = true, list(p);
      else
        p.optional = true;
    } else if (eat("[")) {
      list(p);
    }
    if (p.list && eat("?")) p.optional = true;
    p.name = word("a parameter's name");
    if (eat("=")) p.fallback = fallback(p);
    return p;
  }
  void list(Param& p) {
    p.list = true;
    if (eat("]")) return;
    const Default size = number();
    if (size.kind != ArgKind::integer || size.i < 1 || size.i > 64) fail("a list's length");
    p.list_size = static_cast<int>(size.i);
    expect("]");
  }

  Default fallback(const Param& p) {
    Default d;
    if (eat("'")) {
      const size_t end = text_.find('\'', at_);
      if (end == std::string_view::npos) fail("a closing quote");
      d.kind = ArgKind::text, d.text = text_.substr(at_, end - at_);
      at_ = end + 1;
    } else if (eat("[")) {
      d.kind = ArgKind::ints;
      if (!eat("]")) {
        do {
          const Default n = number();
          if (n.kind != ArgKind::integer) fail("an integer");
          d.ints.push_back(n.i);
        } while (eat(","));
        expect("]");
      }
    } else if (skip(); at_ < text_.size() && letter(text_[at_])) {
      const std::string w = word("a default");
      if (w == "None") {
        if (!p.optional) fail("'?' behind the type of a parameter that may be None");
      } else if (w == "True" || w == "False") {
        d.kind = ArgKind::boolean, d.i = w == "True";
      } else if (w == "inf") {
        d.kind = ArgKind::real, d.f = __builtin_inf();
      } else {
        d.kind = ArgKind::text, d.text = w;
      }
    } else {
      d = number();
    }
    if (!fits(p, d)) fail("a default that fits the type of '" + p.name + "' before this");
    return d;
  }
  static bool fits(const Param& p, const Default& d) {
    if (d.kind == ArgKind::none) return p.optional;
    if (d.kind == ArgKind::ints) return p.list && (p.type == Type::integer || d.ints.empty());
    switch (p.type) {
      case Type::integer:
        return d.kind == ArgKind::integer && (!p.list || p.list_size > 0);
      case Type::real:
        return d.kind == ArgKind::integer || d.kind == ArgKind::real;
      case Type::operand:
      case Type::scalar:
        return d.kind == ArgKind::integer || d.kind == ArgKind::real || d.kind == ArgKind::boolean;
      case Type::boolean:
        return d.kind == ArgKind::boolean;
      case Type::dtype:
        return d.kind == ArgKind::text && dtype_from(d.text);
      case Type::str:
      case Type::device:
        return d.kind == ArgKind::text;
      default:
        return false;
    }
  }
  Default number() {
    skip();
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    Default d;
    d.kind = ArgKind::integer;
    auto [i_end, i_error] = std::from_chars(begin, end, d.i);
    auto [f_end, f_error] = std::from_chars(begin, end, d.f);
    if (i_error != std::errc() && f_error != std::errc()) fail("a number");
    if (i_error != std::errc() || f_end > i_end) {
      if (f_error != std::errc()) fail("a number");
      d.kind = ArgKind::real, d.i = 0, at_ += static_cast<size_t>(f_end - begin);
    } else {
      d.f = 0, at_ += static_cast<size_t>(i_end - begin);
    }
    return d;
  }

  Result result(bool may_be_named) {
    Result r;
    if (word("a result's type") != "Tensor") fail("'Tensor' before this");
    if (eat("?")) r.optional = true;
    if (eat("[")) expect("]"), r.list = true;
    skip();
    if (may_be_named && at_ < text_.size() && letter(text_[at_])) r.name = word("a result's name");
    return r;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Signature parse_signature(std::string_view text) { return Parser(text).signature(); }

}  // namespace gradwire
