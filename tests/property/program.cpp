#include "tests/property/program.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/property/rows.h"

namespace gradwire::property {
namespace {

std::string variable(int64_t v) { return "v" + std::to_string(v); }

std::string real_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, v);
    if (std::strtod(text, nullptr) == v) break;
  }
  std::string s = text;
  if (s.find_first_of(".en") == std::string::npos) s += ".";
  return s;
}

std::string scalar_text(Scalar s) {
  if (s.kind == Category::boolean) return s.b ? "True" : "False";
  return s.kind == Category::integer ? std::to_string(s.i) : real_text(s.f);
}

std::string list_text(const Sizes& list, const char* open, const char* close, bool variables) {
  std::string s = open;
  for (size_t i = 0; i < list.size(); ++i)
    s += (i ? ", " : "") + (variables ? variable(list[i]) : std::to_string(list[i]));
  if (list.size() == 1 && *open == '(') s += ",";
  return s + close;
}

std::string nested(const Sizes& sizes, const std::function<std::string(size_t)>& one, size_t dim, size_t& at) {
  if (dim == sizes.size()) return one(at++);
  std::string s = "[";
  for (int64_t i = 0; i < sizes[dim]; ++i) s += (i ? ", " : "") + nested(sizes, one, dim + 1, at);
  return s + "]";
}

std::string item_text(const Item& item) {
  size_t at = 0;
  switch (item.kind) {
    case Item::integer:
      return std::to_string(item.at);
    case Item::boolean:
      return item.at ? "True" : "False";
    case Item::slice: {
      std::string s = (item.start ? std::to_string(*item.start) : "") + ":";
      if (item.stop) s += std::to_string(*item.stop);
      return item.step == 1 ? s : s + ":" + std::to_string(item.step);
    }
    case Item::ellipsis:
      return "...";
    case Item::newaxis:
      return "None";
    case Item::ints:
      return nested(
          item.sizes, [&](size_t i) { return std::to_string(item.values[i]); }, 0, at);
    case Item::bools:
      return nested(
          item.sizes, [&](size_t i) { return std::string(item.values[i] ? "True" : "False"); }, 0, at);
    default:
      return variable(item.at);
  }
}

std::string arg_text(const Arg& a) {
  switch (a.kind) {
    case Arg::none:
      return "None";
    case Arg::var:
      return variable(a.list[0]);
    case Arg::vars:
      return list_text(a.list, "[", "]", true);
    case Arg::scalar:
      return scalar_text(a.number);
    case Arg::ints:
      return list_text(a.list, "(", ")", false);
    case Arg::dtype:
      return name(a.type);
    case Arg::text:
      return "'" + a.words + "'";
    default: {
      std::string s = "{";
      for (size_t i = 0; i < a.items.size(); ++i) s += (i ? ", " : "") + item_text(a.items[i]);
      return s + "}";
    }
  }
}

Arg made(Arg::Kind kind, Sizes list = {}) {
  Arg a;
  a.kind = kind, a.list = std::move(list);
  return a;
}

}  // namespace

Arg Arg::of_var(int v) { return made(var, {v}); }
Arg Arg::of_vars(Sizes v) { return made(vars, std::move(v)); }
Arg Arg::of(Sizes v) { return made(ints, std::move(v)); }
Arg Arg::of(Scalar s) {
  Arg a = made(scalar);
  return a.number = s, a;
}
Arg Arg::of(DType t) {
  Arg a = made(dtype);
  return a.type = t, a;
}
Arg Arg::of(const char* s) {
  Arg a = made(text);
  return a.words = s, a;
}
Arg Arg::of(std::vector<Item> items) {
  Arg a = made(index);
  return a.items = std::move(items), a;
}

std::string text(const Num& n, DType t) {
  if (t == DType::boolean) return n.i ? "True" : "False";
  return is_floating(t) ? real_text(n.v) : std::to_string(n.i);
}

Sizes Step::reads() const {
  Sizes all;
  for (const Arg& a : args) {
    if (a.kind == Arg::var || a.kind == Arg::vars) all.insert(all.end(), a.list.begin(), a.list.end());
    for (const Item& item : a.items) {
      if (item.kind == Item::var) all.push_back(item.at);
    }
  }
  return all;
}

std::string call_name(const Step& s) {
  std::string name = s.row->name;
  name = name.substr(0, name.find('.'));
  return s.inplace && name.back() != '_' ? name + "_" : name;
}

std::string text(const Step& s) {
  std::string line = s.outs.empty() ? "" : list_text(s.outs, "", "", true) + " = ";
  if (!s.row) {
    const std::vector<Num> values = elements(s.literal);
    size_t at = 0;
    line += "tensor(" +
            nested(
                s.literal.shape, [&](size_t i) { return text(values[i], s.literal.dtype); }, 0, at) +
            ", dtype=" + name(s.literal.dtype);
    if (count(s.literal.shape) == 0) line += ", size=" + list_text(s.literal.shape, "(", ")", false);
    return line + (s.leaf ? ", requires_grad=True)" : ")");
  }
  line += call_name(s) + "(";
  const std::vector<std::string> names = names_of(*s.row);
  bool first = true, gap = false;
  for (size_t i = 0; i < s.args.size(); ++i) {
    if (s.args[i].kind == Arg::none) {
      gap = true;
      continue;
    }
    if (!first) line += ", ";
    first = false;
    if (gap || s.args[i].named) line += names[i] + "=";
    line += arg_text(s.args[i]);
  }
  return line + ")";
}

std::string text(const Program& p) {
  std::string all;
  for (const Step& s : p.steps) all += "  " + text(s) + "\n";
  return all;
}

std::vector<Array> Args::arrays(size_t i) const {
  std::vector<Array> all;
  for (const int64_t v : step_.args[i].list) all.push_back(at(v));
  return all;
}

Sizes Args::ints(size_t i) const {
  if (!has(i)) return {};
  if (step_.args[i].kind == Arg::scalar) return {integer(i)};
  return step_.args[i].list;
}

const Array& Args::at(int64_t var) const {
  const Array& a = env_.at(static_cast<size_t>(var));
  if (!a.valid()) throw Redraw{"a variable that is not there"};
  return a;
}

}  // namespace gradwire::property
