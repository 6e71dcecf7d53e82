// opgen OUTDIR FILE...: reads the `.sig`, `.inplace` and `.doc` literals of the rows in engine/ops/*.cpp from their
// source text and prints OUTDIR/{ops.h,ops.md,operators.json}. It reads text, because the rows' gradients are made of
// the functions that it prints.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "schema/dtype.h"
#include "schema/error.h"
#include "schema/signature.h"

namespace {

using namespace gradwire;
using std::string;

struct Row {
  Signature signature;
  string text, doc, file;
  bool inplace = false;  // on the derived row: it is one
};

[[noreturn]] void fail(const string& file, const string& why) {
  std::cerr << "opgen: " << file << ": " << why << "\n";
  std::exit(1);
}

// ---- reading ----

struct Token {
  enum Kind { word, text, other, end } kind = end;
  string value;
};

/// Enough of C++ to tell code from comments and strings.
class Lexer {
 public:
  Lexer(string file, string text) : file_(std::move(file)), text_(std::move(text)) {}

  Token next() {
    for (;;) {
      if (at_ >= text_.size()) return {};
      const char c = text_[at_];
      if (std::isspace(static_cast<unsigned char>(c))) {
        ++at_;
      } else if (starts("//")) {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (starts("/*")) {
        const size_t end = text_.find("*/", at_ + 2);
        at_ = end == string::npos ? text_.size() : end + 2;
      } else if (starts("R\"")) {
        return {Token::text, raw()};
      } else if (c == '"') {
        return {Token::text, quoted('"')};
      } else if (c == '\'') {
        quoted('\'');
        return {Token::other, "'"};
      } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
        return {Token::word, take([](char d) { return std::isalnum(static_cast<unsigned char>(d)) || d == '_'; })};
      } else if (std::isdigit(static_cast<unsigned char>(c))) {
        // 1'000 is a number, not a character
        return {Token::other,
                take([](char d) { return std::isalnum(static_cast<unsigned char>(d)) || d == '\'' || d == '.'; })};
      } else {
        ++at_;
        return {Token::other, string(1, c)};
      }
    }
  }

 private:
  bool starts(std::string_view s) const { return std::string_view(text_).substr(at_).starts_with(s); }
  template <class F> string take(F part) {
    const size_t begin = at_;
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  string quoted(char mark) {
    string s;
    for (++at_; at_ < text_.size() && text_[at_] != mark; ++at_) {
      if (text_[at_] == '\n') fail(file_, "a string without an end");
      if (text_[at_] != '\\') {
        s += text_[at_];
        continue;
      }
      const char c = text_[++at_];
      s += c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
    ++at_;
    return s;
  }
  string raw() {
    const size_t open = text_.find('(', at_);
    const string mark = ")" + text_.substr(at_ + 2, open - at_ - 2) + "\"";
    const size_t close = text_.find(mark, open);
    if (open == string::npos || close == string::npos) fail(file_, "a raw string without an end");
    const string s = text_.substr(open + 1, close - open - 1);
    at_ = close + mark.size();
    return s;
  }

  string file_, text_;
  size_t at_ = 0;
};

void read(const string& file, std::vector<Row>& rows) {
  std::ifstream in(file);
  if (!in) fail(file, "cannot be read");
  std::stringstream text;
  text << in.rdbuf();
  Lexer lexer(file, text.str());
  const size_t first = rows.size();
  for (Token t = lexer.next(); t.kind != Token::end;) {
    if (t.kind != Token::other || t.value != ".") {
      t = lexer.next();
      continue;
    }
    const Token field = lexer.next();
    t = lexer.next();
    if (field.kind != Token::word || (field.value != "sig" && field.value != "doc" && field.value != "inplace") ||
        t.value != "=")
      continue;
    t = lexer.next();
    if (field.value == "inplace") {
      if (rows.size() == first) fail(file, ".inplace before the first .sig");
      rows.back().inplace = t.value == "true";
      continue;
    }
    string value;
    bool any = false;
    for (; t.kind == Token::text; t = lexer.next()) value += t.value, any = true;
    if (!any) continue;
    if (field.value == "sig") {
      Row row;
      row.text = value.substr(std::min(value.find_first_not_of(' '), value.size())), row.file = file;
      try {
        row.signature = parse_signature(value);
      } catch (const Error& e) {
        fail(file, e.message());
      }
      rows.push_back(std::move(row));
    } else {
      if (rows.size() == first) fail(file, ".doc before the first .sig");
      rows.back().doc = value;
    }
  }
}

/// The catalogue: each row with `.inplace` is followed by the row `name_`.
std::vector<Row> catalogue(std::vector<Row> rows) {
  std::vector<Row> all;
  std::set<string> names;
  for (Row& r : rows) {
    if (r.doc.empty()) fail(r.file, r.signature.full_name() + " has no .doc");
    const bool twice = r.inplace;
    r.inplace = false;
    all.push_back(r);
    if (!names.insert(r.signature.full_name()).second) fail(r.file, r.signature.full_name() + " stands there twice");
    if (!twice) continue;
    Row in = r;
    in.inplace = true;
    in.text.insert(r.signature.name.size(), "_");
    in.signature.name += "_";
    in.doc = "In-place form of `" + r.signature.full_name() + "`.";
    if (!names.insert(in.signature.full_name()).second) fail(r.file, in.signature.full_name() + " stands there twice");
    all.push_back(std::move(in));
  }
  if (all.size() >= 0xFF00) fail("rows", "too many operators for the wire");
  return all;
}

uint64_t hash(const std::vector<Row>& rows) {
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a
  for (const Row& r : rows) {
    for (const unsigned char c : r.text + "\n") h = (h ^ c) * 0x100000001b3ull;
  }
  return h;
}

string replaced(string s, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = s.find(from, at)) != string::npos; at += to.size()) s.replace(at, from.size(), to);
  return s;
}

bool keyword(const string& name) {
  static const std::set<string> words = {
      "alignas",     "alignof",   "and",        "and_eq",    "asm",      "auto",         "bitand",
      "bitor",       "bool",      "break",      "case",      "catch",    "char",         "char8_t",
      "char16_t",    "char32_t",  "class",      "compl",     "concept",  "const",        "consteval",
      "constexpr",   "constinit", "const_cast", "continue",  "co_await", "co_return",    "co_yield",
      "decltype",    "default",   "delete",     "do",        "double",   "dynamic_cast", "else",
      "enum",        "explicit",  "export",     "extern",    "false",    "float",        "for",
      "friend",      "goto",      "if",         "inline",    "int",      "long",         "mutable",
      "namespace",   "new",       "noexcept",   "not",       "not_eq",   "nullptr",      "operator",
      "or",          "or_eq",     "private",    "protected", "public",   "register",     "reinterpret_cast",
      "requires",    "return",    "short",      "signed",    "sizeof",   "static",       "static_assert",
      "static_cast", "struct",    "switch",     "template",  "this",     "thread_local", "throw",
      "true",        "try",       "typedef",    "typeid",    "typename", "union",        "unsigned",
      "using",       "virtual",   "void",       "volatile",  "wchar_t",  "while",        "xor",
      "xor_eq"};
  return words.count(name) > 0;
}
string safe(const string& name) {
  static const std::set<string> taken = {"at", "out_", "M", "T", "m", "args", "o"};
  return keyword(name) || taken.count(name) ? name + "_" : name;
}
/// The operators float, bool, ... are float_, bool_, ... in C++, and so is bfloat16: the client's dtypes have its name.
/// optim.SGD is optim_SGD.
string function_name(const Signature& s) {
  return keyword(s.name) || dtype_from(s.name) ? s.name + "_" : replaced(s.name, ".", "_");
}

/// "max.dim" is max_dim in C++, and "add_.Tensor" is add_Tensor_.
string identifier(const Signature& s) {
  if (s.overload.empty()) return function_name(s);
  return s.name.back() == '_' ? s.name + s.overload + "_" : s.name + "_" + s.overload;
}

string number(double f) {
  if (f == __builtin_inf()) return "__builtin_inf()";
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, f);
    if (std::strtod(text, nullptr) == f) break;
  }
  const string s = text;
  return s.find_first_of(".e") == string::npos ? s + ".0" : s;
}

// ---- ops.h ----

struct Cpp {
  string type;     // of the function's parameter
  string kept;     // of the member of the named options
  bool of_tensor;  // the type depends on the tensor type
};

/// `tensor` is how the tensor type is written here.
Cpp cpp(const Row& row, const Param& p, const string& tensor) {
  const auto no = [&]() -> Cpp {
    fail(row.file, row.signature.full_name() + ": ops.h has no type for the parameter '" + p.name + "'");
  };
  const auto maybe = [&](const string& t) -> Cpp {
    const string s = p.optional ? "std::optional<" + t + ">" : t;
    return {s, s, false};
  };
  if (p.list) {
    switch (p.type) {
      case Type::integer:
        return p.optional ? Cpp{"OptionalInts", "Dims", false} : Cpp{"Ints", "Dims", false};
      case Type::real:
        return {"Floats", "Floats", false};
      case Type::tensor:
        return {"Tensors<" + tensor + ">", "TensorVector<" + tensor + ">", true};
      case Type::index:
        return {"Indices<" + tensor + ">", "Indices<" + tensor + ">", true};
      default:
        return no();
    }
  }
  switch (p.type) {
    case Type::tensor:
    case Type::generator:
    case Type::optimizer:
      return {"const " + tensor + "&", tensor, true};
    case Type::operand: {
      const string s = "Operand<" + tensor + ">", t = p.optional ? "std::optional<" + s + ">" : s;
      return {t, t, true};
    }
    case Type::scalar:
      return maybe("Scalar");
    case Type::integer:
      return maybe("int64_t");
    case Type::real:
      return maybe("double");
    case Type::boolean:
      return maybe(p.optional || p.fallback ? "bool" : "Flag");
    case Type::str:
      return maybe(p.optional || p.fallback ? "std::string_view" : "Text");
    case Type::device:
      return maybe("std::string_view");
    case Type::dtype:
      return maybe("DType");
    case Type::index:
      return no();
  }
  return no();
}

string default_of(const Param& p) {
  const Default& d = *p.fallback;
  switch (d.kind) {
    case ArgKind::boolean:
      return d.i ? "true" : "false";
    case ArgKind::integer:
      return p.type == Type::real ? number(static_cast<double>(d.i)) : std::to_string(d.i);
    case ArgKind::real:
      return number(d.f);
    case ArgKind::text:
      return p.type == Type::dtype ? "DType::" + (d.text == "bool" ? "boolean" : d.text) : "\"" + d.text + "\"";
    case ArgKind::ints: {
      string s = "{";
      for (size_t i = 0; i < d.ints.size(); ++i) s += (i ? ", " : "") + std::to_string(d.ints[i]);
      return s + "}";
    }
    default:
      return "{}";
  }
}

const char* const kAt = "std::source_location at = std::source_location::current()";

/// One operator's text in ops.h.
class Function {
 public:
  explicit Function(const Row& row)
      : row_(row), s_(row.signature), id_(identifier(s_)), options_(id_), name_(function_name(s_)) {
    if (options_.back() == '_') options_.pop_back();  // the in-place form takes the same ones
    options_ += "_options";
    const Param* first = s_.params.empty() ? nullptr : &s_.params.front();
    if (first && first->type == Type::operand && !first->list && !first->optional)
      kind_ = one;
    else if (first && (first->type == Type::tensor || first->type == Type::optimizer) && !first->optional)
      kind_ = first->list ? many : one;
    else
      kind_ = maker;
    // What a list of tensors is for may stand before it: einsum("ij,jk", {a, b}).
    while (lead_ < s_.params.size() && s_.params[lead_].type == Type::str && !s_.params[lead_].fallback) ++lead_;
    const Param* list = lead_ < s_.params.size() ? &s_.params[lead_] : nullptr;
    if (kind_ == maker && list && list->type == Type::tensor && list->list && !list->optional)
      kind_ = many;
    else
      lead_ = 0;
    for (const Param& p : s_.params) {
      if (p.type == Type::generator && kind_ == maker) continue;
      if (kind_ == maker && (p.type == Type::tensor || p.type == Type::operand) && !p.fallback)
        fail(row.file, s_.full_name() + ": its first parameter must be a Tensor");
    }
    for (const Param& p : s_.params)
      optional_ |= p.fallback.has_value(), templated_ |= p.fallback && cpp(row, p, "T").of_tensor;
    changes_self_ = kind_ == one && s_.name.back() == '_' && s_.results.size() == 1 && !s_.results[0].list;
  }

  bool is_method() const {
    return kind_ == one && s_.params.front().name == "self" && s_.params.front().type != Type::optimizer;
  }

  /// `printed` holds the names of the options that have been printed.
  void print(std::ostream& out, std::set<string>& printed) const {
    if (optional_ && printed.insert(options_).second) options(out);
    const string result = result_of("T");
    if (kind_ == maker) {
      const string t = "typename M::Tensor";
      const string answer = changes_self_ ? "void" : result_of(t);
      out << "template <Maker M>\n"
          << answer << " " << name_ << "(M& m, " << params(t, 0, "M") << kAt << ") {\n"
          << call("m", "M::Tensor") << "}\n";
      out << "template <class D = void>\nauto " << name_ << "(" << params(default_tensor(), 0, "D") << kAt
          << ") {\n  return " << name_ << "(DefaultMaker<D>::get(), " << names(0, "") << "at);\n}\n";
      if (optional_) {
        out << "template <Maker M>\n"
            << answer << " " << name_ << "(M& m, " << required(t, 0) << options_type(t) << " o, " << kAt
            << ") {\n  return " << name_ << "(m, " << names(0, "o.") << "at);\n}\n";
        out << "template <class D = void>\nauto " << name_ << "(" << required(default_tensor(), 0)
            << options_type(default_tensor()) << " o, " << kAt << ") {\n  return " << name_
            << "(DefaultMaker<D>::get(), " << names(0, "o.") << "at);\n}\n";
      }
      return;
    }
    const string t = "std::type_identity_t<T>", name = first();
    if (kind_ == one) {
      out << "template <Handle T>\n"
          << answer_of("T") << name_ << "(const T& " << name << ", " << params("T", 1, "T") << kAt << ") {\n"
          << call(name + ".maker()", "T") << "}\n";
      if (optional_)
        out << "template <Handle T>\n"
            << answer_of("T") << name_ << "(const T& " << name << ", " << required(t, 1) << options_type("T") << " o, "
            << kAt << ") {\n  return " << name_ << "(" << name << ", " << names(1, "o.") << "at);\n}\n";
      return;
    }
    string lead, leading;
    for (size_t i = 0; i < lead_; ++i) {
      lead += cpp(row_, s_.params[i], t).type + " " + safe(s_.params[i].name) + ", ";
      leading += safe(s_.params[i].name) + ", ";
    }
    out << "template <Handle T>\n"
        << result << " " << name_ << "(" << lead << "std::span<const T> " << name << ", " << params("T", lead_ + 1, "T")
        << kAt << ") {\n"
        << call("maker_of(" + name + ", \"" + s_.name + "\")", "T") << "}\n";
    if (optional_)
      out << "template <Handle T>\n"
          << result << " " << name_ << "(" << lead << "std::span<const T> " << name << ", " << required(t, lead_ + 1)
          << options_type("T") << " o, " << kAt << ") {\n  return " << name_ << "(" << leading << name << ", "
          << names(lead_ + 1, "o.") << "at);\n}\n";
    // A list, a vector and a lone tensor, which a span's deduction does not take.
    const string from[][2] = {
        {"std::initializer_list<T>", "std::span<const T>(" + name + ".begin(), " + name + ".size())"},
        {"const std::vector<T>&", "std::span<const T>(" + name + ")"},
        {"const T&", "std::span<const T>(&" + name + ", 1)"}};
    for (const auto& f : from) {
      out << "template <Handle T>\n"
          << result << " " << name_ << "(" << lead << f[0] << " " << name << ", " << params("T", lead_ + 1, "T") << kAt
          << ") {\n  return " << name_ << "(" << leading << f[1] << ", " << names(lead_ + 1, "") << "at);\n}\n";
      if (optional_)
        out << "template <Handle T>\n"
            << result << " " << name_ << "(" << lead << f[0] << " " << name << ", " << required(t, lead_ + 1)
            << options_type("T") << " o, " << kAt << ") {\n  return " << name_ << "(" << leading << f[1] << ", "
            << names(lead_ + 1, "o.") << "at);\n}\n";
    }
  }

  void print_method(std::ostream& out) const {
    // A template, so that the one with the named options wins: see As.
    out << (optional_ ? "  template <class = void>\n" : "");
    out << "  " << answer_of("T") << name_ << "(" << params("T", 1, "") << kAt
        << ") const {\n    return gradwire::" << name_ << "(self(), " << names(1, "") << "at);\n  }\n";
    if (optional_)
      out << "  " << answer_of("T") << name_ << "(" << required("T", 1) << options_type("T") << " o, " << kAt
          << ") const {\n    return gradwire::" << name_ << "(self(), " << names(1, "o.") << "at);\n  }\n";
  }

 private:
  string first() const { return safe(s_.params[lead_].name); }
  static string default_tensor() { return "typename DefaultMaker<D>::Tensor"; }
  string options_type(const string& t) const { return options_ + (templated_ ? "<" + t + ">" : ""); }

  string result_of(const string& t) const {
    if (s_.results.empty()) return "void";
    if (s_.results.size() > 1) return "std::array<" + t + ", " + std::to_string(s_.results.size()) + ">";
    return s_.results[0].list ? "std::vector<" + t + ">" : t;
  }
  string answer_of(const string& t) const { return (changes_self_ ? "const " + t + "&" : result_of(t)) + " "; }

  void options(std::ostream& out) const {
    if (templated_) out << "template <class T>\n";
    out << "struct " << options_ << " {\n  [[no_unique_address]] Named named_{};\n";
    for (const Param& p : s_.params) {
      if (!p.fallback) continue;
      const string value = default_of(p);
      out << "  " << cpp(row_, p, "T").kept << " " << safe(p.name) << (value == "{}" ? "{}" : " = " + value) << ";\n";
    }
    out << "};\n";
  }
  /// All but the first `from` parameters, each as As<deduced, type>, or plain where `deduced` is empty.
  string params(const string& tensor, size_t from, const string& deduced) const {
    string s;
    for (size_t i = from; i < s_.params.size(); ++i) {
      const Param& p = s_.params[i];
      const string type = cpp(row_, p, tensor).type;
      s += (deduced.empty() ? type : "As<" + deduced + ", " + type + ">") + " " + safe(p.name);
      s += (p.fallback ? " = " + default_of(p) : "") + ", ";
    }
    return s;
  }
  string required(const string& tensor, size_t from) const {
    string s;
    for (size_t i = from; i < s_.params.size(); ++i) {
      if (!s_.params[i].fallback) s += cpp(row_, s_.params[i], tensor).type + " " + safe(s_.params[i].name) + ", ";
    }
    return s;
  }
  string names(size_t from, const string& options) const {
    string s;
    for (size_t i = from; i < s_.params.size(); ++i) {
      const Param& p = s_.params[i];
      const string name = (p.fallback ? options : "") + safe(p.name);
      const bool maybe = p.fallback && !options.empty() && p.optional && p.list && p.type == Type::tensor;
      s += (maybe ? "kept(" + name + ")" : name) + ", ";
    }
    return s;
  }
  string call(const string& maker, const string& tensor) const {
    string list;
    for (const Param& p : s_.params)
      list += (list.empty() ? "" : ", ") + ("to_value<" + tensor + ">(" + safe(p.name) + ")");
    string s;
    if (kind_ == many) {
      const string n = "to_value<T>(" + first() + ")";
      list.replace(list.find(n), n.size(), "Value<T>(" + first() + ")");
    }
    string args = "args";
    if (s_.params.empty())
      args = "{}";
    else
      s = "  const Value<" + string(tensor == "T" ? "T" : "typename M::Tensor") + "> args[] = {" +
          (tensor == "T" ? list : replaced(list, "<M::Tensor>", "<typename M::Tensor>")) + "};\n";
    const string end = "(op::" + id_ + ", at, " + args + ");\n";
    if (changes_self_) return s + "  " + maker + ".none" + end + "  return " + first() + ";\n";
    if (s_.results.empty()) return s + "  " + maker + ".none" + end;
    if (s_.results.size() > 1)
      return s + "  return " + maker + ".template several<" + std::to_string(s_.results.size()) + ">" + end;
    return s + "  return " + maker + (s_.results[0].list ? ".list" : ".one") + end;
  }

  const Row& row_;
  const Signature& s_;
  string id_, options_, name_;
  enum { one, many, maker } kind_ = maker;
  size_t lead_ = 0;  // how many parameters stand before the list of tensors
  bool optional_ = false, templated_ = false, changes_self_ = false;
};

struct Symbol {
  const char *symbol, *name, *swapped;  // swapped: what `2 op x` is where the row's first parameter is a Tensor
};
constexpr Symbol kBinary[] = {{"+", "add", "add"},
                              {"-", "sub", nullptr},
                              {"*", "mul", "mul"},
                              {"/", "div", nullptr},
                              {"<", "lt", "gt"},
                              {">", "gt", "lt"},
                              {"<=", "le", "ge"},
                              {">=", "ge", "le"},
                              {"==", "eq", "eq"},
                              {"!=", "ne", "ne"},
                              {"%", "remainder", nullptr},
                              {"&", "bitwise_and", nullptr},
                              {"|", "bitwise_or", nullptr},
                              {"^", "bitwise_xor", nullptr},
                              {"<<", "bitwise_left_shift", nullptr},
                              {">>", "bitwise_right_shift", nullptr}};

/// For C++, where two functions whose arguments may all be left out are ambiguous: an overload whose parameters begin
/// as those of the first row of its name must be given all of these, and the first one that tells it apart.
std::vector<Row> distinct(std::vector<Row> rows) {
  for (Row& r : rows) {
    std::vector<Param>& mine = r.signature.params;
    const auto first = std::ranges::find(rows, r.signature.name, [](const Row& q) { return q.signature.name; });
    if (&*first == &r) continue;
    const std::vector<Param>& theirs = first->signature.params;
    size_t at = 0;
    while (at < mine.size() && at < theirs.size() && mine[at].name == theirs[at].name &&
           mine[at].type == theirs[at].type && mine[at].list == theirs[at].list)
      ++at;
    if (at == mine.size() || !mine[at].fallback) continue;
    for (size_t i = 0; i <= at; ++i) mine[i].fallback.reset();
  }
  return rows;
}

string ops_h(const std::vector<Row>& all_rows) {
  const std::vector<Row> rows = distinct(all_rows);
  std::ostringstream out;
  out << "// Generated by opgen from the rows in engine/ops; do not edit.\n// clang-format off\n#pragma "
         "once\n\n#include "
         "\"schema/args.h\"\n\n"
         "// One function an operator, for engine::Tensor and for the client's Tensor; ops.md says what each does.\n\n"
         "namespace gradwire {\n\n";
  out << "inline constexpr uint64_t kCatalogueHash = " << hash(all_rows)
      << "ull;\ninline constexpr int kOperators = " << rows.size()
      << ";\n/// By index.\ninline constexpr const char* kOperatorNames[kOperators] = {\n";
  for (const Row& r : rows) out << "    \"" << r.signature.full_name() << "\",\n";
  out << "};\n\n/// The catalogue indices.\nnamespace op {\n";
  std::set<string> ids, names;
  for (size_t i = 0; i < rows.size(); ++i) {
    const string id = identifier(rows[i].signature);
    if (!ids.insert(id).second) fail(rows[i].file, "two operators are called " + id + " in ops.h");
    out << "inline constexpr uint16_t " << id << " = " << i << ";\n";
    names.insert(rows[i].signature.full_name());
  }
  out << "}  // namespace op\n\n";
  std::set<string> printed;
  for (const Row& r : rows) {
    Function(r).print(out, printed);
    out << "\n";
  }
  out << "/// The operators as methods and symbols of a tensor type T, which derives from Methods<T>.\ntemplate <class "
         "T>\nclass Methods {\n"
         " public:\n";
  for (const Row& r : rows) {
    const Function f(r);
    if (f.is_method()) f.print_method(out);
  }
  if (names.count("index"))
    out << "  T operator[](Indices<T> indices) const { return gradwire::index(self(), indices, indices.at()); }\n";
  if (names.count("neg")) out << "  friend T operator-(Operand<T> a) { return gradwire::neg(a.tensor(), a.at()); }\n";
  if (names.count("bitwise_not"))
    out << "  friend T operator~(Operand<T> a) { return gradwire::bitwise_not(a.tensor(), a.at()); }\n";
  const auto first_is_operand = [&](const string& name) {
    for (const Row& r : rows) {
      if (r.signature.full_name() == name) return r.signature.params.at(0).type == Type::operand;
    }
    return false;
  };
  for (const Symbol& b : kBinary) {
    if (!names.count(b.name)) continue;
    out << "  friend T operator" << b.symbol << "(Operand<T> a, Operand<T> b) {\n";
    if (b.swapped && !first_is_operand(b.name))
      out << "    if (!a.is_tensor()) return binary(op::" << b.swapped << ", b, a);\n";
    out << "    return binary(op::" << b.name << ", a, b);\n  }\n";
    const string in = string(b.name) + "_";
    if (string(" + - * / % & | ^ << >> ").find(" " + string(b.symbol) + " ") != string::npos && names.count(in))
      out << "  friend const T& operator" << b.symbol
          << "=(const T& a, Operand<T> b) {\n    const Value<T> args[] = {Value<T>(a), b.value()};\n"
          << "    a.maker().none(op::" << in << ", b.at(), args);\n    return a;\n  }\n";
  }
  out << "\n protected:\n  ~Methods() = default;\n\n private:\n  const T& self() const { return static_cast<const "
         "T&>(*this); }\n};\n\n}  // namespace gradwire\n";
  return out.str();
}

// ---- ops.md and operators.json ----

string ops_md(const std::vector<Row>& rows) {
  std::ostringstream out;
  out << "# Operators\n\n<!-- Generated by opgen from the rows in engine/ops; do not edit. -->\n\n"
      << "Signatures are in PyTorch's words: `Operand` is a Tensor or a number, `Optimizer` what `optim.SGD` and the "
         "like "
         "give;\n"
         "what follows `*` goes by name only. A line with `name_` means that the operator has an in-place form, with "
         "the "
         "same\nparameters, that writes into `self`. In C++ `optim.SGD` is `optim_SGD`, or the class `optim::SGD` of "
         "the "
         "SDK.\n";
  string last;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    if (r.inplace) continue;
    if (r.signature.name != last) out << "\n## " << r.signature.name << "\n";
    last = r.signature.name;
    out << "\n```\n" << r.text << "\n```\n\n" << r.doc << "\n";
    if (i + 1 < rows.size() && rows[i + 1].inplace)
      out << "\nIn place: `" << rows[i + 1].signature.full_name() << "`.\n";
  }
  return out.str();
}

string quoted(const string& s) {
  string q = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\')
      q += '\\', q += c;
    else if (c == '\n')
      q += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20)
      q += ' ';
    else
      q += c;
  }
  return q + "\"";
}

const char* type_name(Type t) {
  switch (t) {
    case Type::tensor:
      return "Tensor";
    case Type::operand:
      return "Operand";
    case Type::scalar:
      return "Scalar";
    case Type::integer:
      return "int";
    case Type::real:
      return "float";
    case Type::boolean:
      return "bool";
    case Type::str:
      return "str";
    case Type::dtype:
      return "dtype";
    case Type::device:
      return "device";
    case Type::generator:
      return "Generator";
    case Type::optimizer:
      return "Optimizer";
    case Type::index:
      return "Index";
  }
  return "";
}

string json_default(const Default& d) {
  switch (d.kind) {
    case ArgKind::boolean:
      return d.i ? "true" : "false";
    case ArgKind::integer:
      return std::to_string(d.i);
    case ArgKind::real:
      return d.f == __builtin_inf() ? "\"inf\"" : number(d.f);
    case ArgKind::text:
      return quoted(d.text);
    case ArgKind::ints: {
      string s = "[";
      for (size_t i = 0; i < d.ints.size(); ++i) s += (i ? ", " : "") + std::to_string(d.ints[i]);
      return s + "]";
    }
    default:
      return "null";
  }
}

string operators_json(const std::vector<Row>& rows) {
  std::ostringstream out;
  out << "[";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    const Signature& s = r.signature;
    out << (i ? ",\n" : "\n") << "{\"index\": " << i << ", \"name\": " << quoted(s.name)
        << ", \"overload\": " << quoted(s.overload) << ", \"signature\": " << quoted(r.text)
        << ", \"doc\": " << quoted(r.doc) << ", \"inplace\": " << (r.inplace ? "true" : "false") << ",\n \"params\": [";
    for (size_t k = 0; k < s.params.size(); ++k) {
      const Param& p = s.params[k];
      string type = type_name(p.type);
      if (p.element_optional) type += "?";
      if (p.list) type += "[" + (p.list_size ? std::to_string(p.list_size) : "") + "]";
      if (p.optional) type += "?";
      out << (k ? ", " : "") << "{\"name\": " << quoted(p.name) << ", \"type\": " << quoted(type);
      if (p.fallback) out << ", \"default\": " << json_default(*p.fallback);
      if (p.keyword_only) out << ", \"keyword_only\": true";
      out << "}";
    }
    out << "],\n \"results\": [";
    for (size_t k = 0; k < s.results.size(); ++k) {
      const gradwire::Result& p = s.results[k];
      out << (k ? ", " : "") << "{\"name\": " << quoted(p.name) << ", \"type\": \"Tensor" << (p.optional ? "?" : "")
          << (p.list ? "[]" : "") << "\"}";
    }
    out << "]}";
  }
  out << "\n]\n";
  return out.str();
}

void write(const string& file, const string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) fail(file, "cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: opgen OUTDIR FILE...\n"
                 "Prints ops.h, ops.md and operators.json from the rows in the files, in their order.\n";
    return 2;
  }
  std::vector<Row> rows;
  for (int i = 2; i < argc; ++i) read(argv[i], rows);
  rows = catalogue(std::move(rows));
  const string out = string(argv[1]) + "/";
  write(out + "ops.h", ops_h(rows));
  write(out + "ops.md", ops_md(rows));
  write(out + "operators.json", operators_json(rows));
}
