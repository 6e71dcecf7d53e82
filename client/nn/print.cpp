#include <algorithm>
#include <charconv>
#include <cmath>

#include "client/nn/tree.h"
#include "schema/shape.h"

namespace gradwire::nn {

std::string py(double v) {
  if (!std::isfinite(v)) return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
  // The fewest digits that read back as v, laid out as Python does: an exponent below 1e-4 and from 1e16 on.
  char text[32];
  const std::string digits(text, std::to_chars(text, text + sizeof text, v, std::chars_format::scientific).ptr);
  const size_t e = digits.find('e');
  const int exponent = std::stoi(digits.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return digits;
  std::string s(text, std::to_chars(text, text + sizeof text, v, std::chars_format::fixed).ptr);
  return s.find('.') == s.npos ? s + ".0" : s;
}

std::string py_number(double v) {
  const std::string s = py(v);
  return s.ends_with(".0") ? s.substr(0, s.size() - 2) : s;
}

std::string py_tuple(std::span<const int64_t> v) {
  std::string s = "(";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  return s + (v.size() == 1 ? ",)" : ")");
}

std::string py_size(std::span<const int64_t> v) { return v.size() == 1 ? std::to_string(v[0]) : py_tuple(v); }

namespace tree {
namespace {

std::string indented(const std::string& text, size_t depth) {
  std::string s;
  for (const char c : text) {
    s += c;
    if (c == '\n') s.append(2 * depth, ' ');
  }
  return s;
}

std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  for (size_t i = s.size(); i > 3; i -= 3) s.insert(i - 3, ",");
  return s;
}

}  // namespace

std::string print(const Node& root) {
  struct Open {
    const Node* node;
    size_t next;
  };
  std::string s;
  std::vector<Open> open;
  size_t printed = 0;
  const auto enter = [&](const Node& n) {
    const size_t depth = open.size() + 1;
    s += n.kind + "(";
    const bool lines = !n.children.empty() || n.extra.find('\n') != std::string::npos;
    if (!n.extra.empty()) s += (lines ? "\n" + std::string(2 * depth, ' ') : "") + indented(n.extra, depth);
    open.push_back({&n, 0});
  };
  enter(root);
  while (!open.empty()) {
    Open& o = open.back();
    const size_t depth = open.size();
    if (o.next < o.node->children.size() && ++printed < kMaxVisits) {
      const auto& [name, c] = o.node->children[o.next++];
      s += "\n" + std::string(2 * depth, ' ') + "(" + name + "): ";
      enter(*c);
      continue;
    }
    if (!o.node->children.empty() || o.node->extra.find('\n') != std::string::npos)
      s += "\n" + std::string(2 * (depth - 1), ' ');
    s += ")";
    open.pop_back();
  }
  return s;
}

std::string summary(const std::string& kind, std::span<const Row> rows, const Totals& t) {
  size_t left = 0, middle = 0, right = 0;
  const auto name = [](const Row& r) { return (r.path.empty() ? "" : r.path + " ") + "(" + r.kind + ")"; };
  for (const Row& r : rows) {
    left = std::max(left, name(r).size());
    middle = std::max(middle, r.tensors.size());
    right = std::max(right, grouped(r.count).size());
  }
  std::string s = kind + "\n";
  const auto pad = [](const std::string& text, size_t width) {
    return std::string(width - std::min(width, text.size()), ' ');
  };
  for (const Row& r : rows) {
    const std::string n = name(r), count = grouped(r.count);
    s += "  " + n + pad(n, left) + "  " + r.tensors + pad(r.tensors, middle) + "  " + pad(count, right) + count + "\n";
  }
  return s + "Parameters: " + grouped(t.parameters) + " (" + grouped(t.trainable) +
         " trainable); buffers: " + grouped(t.buffers) + "; bytes: " + grouped(t.bytes) + "\n";
}

}  // namespace tree
}  // namespace gradwire::nn
