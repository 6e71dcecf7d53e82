#include "tests/conformance/cases.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <vector>

namespace gradwire::conformance {
namespace {

double number(const json::value& v) {
  if (v.is_string()) {
    const std::string_view s = v.as_string();
    return s == "NaN" ? NAN : s == "Infinity" ? INFINITY : s == "-Infinity" ? -INFINITY : std::stod(std::string(s));
  }
  if (v.is_bool()) return v.as_bool();
  return v.to_number<double>();
}

void flatten(const json::value& v, std::vector<json::value>& out) {
  if (!v.is_array()) return out.push_back(v);
  for (const json::value& x : v.as_array()) flatten(x, out);
}

bool none(const json::value& want) { return want.is_null() || (want.is_object() && want.as_object().contains("none")); }

/// What is wrong with a tensor; empty if nothing.
std::string compare(const json::value* got, const json::value& want, double abs, double rel) {
  if (none(want)) return !got || got->is_null() ? "" : "expected no tensor";
  if (!got || got->is_null()) return "no tensor";
  const json::object &g = got->as_object(), &w = want.as_object();
  if (g.at("dtype") != w.at("dtype"))
    return "dtype " + json::serialize(g.at("dtype")) + ", want " + json::serialize(w.at("dtype"));
  if (g.at("shape") != w.at("shape"))
    return "shape " + json::serialize(g.at("shape")) + ", want " + json::serialize(w.at("shape"));
  std::vector<json::value> a, b;
  flatten(g.at("data"), a);
  if (w.contains("data")) {
    flatten(w.at("data"), b);
  } else {
    b.assign(a.size(), w.at("fill"));
  }
  if (a.size() != b.size()) return std::to_string(a.size()) + " values, want " + std::to_string(b.size());
  const std::string_view dtype = w.at("dtype").as_string();
  const bool floating = dtype.starts_with("float") || dtype.starts_with("bfloat");
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = number(a[i]), y = number(b[i]);
    const bool ok = std::isnan(y) ? std::isnan(x)
                    : floating
                        ? x == y || (std::isfinite(x) && std::isfinite(y) && std::abs(x - y) <= abs + rel * std::abs(y))
                    : a[i].is_int64() && b[i].is_int64() ? a[i].as_int64() == b[i].as_int64()
                                                         : x == y;
    if (!ok) return "element " + std::to_string(i) + " is " + json::serialize(a[i]) + ", want " + json::serialize(b[i]);
  }
  return "";
}

}  // namespace

Verdict judge(const json::object& c, const server::Result<std::string>& answer, std::string& why) {
  const json::object& expect = c.at("expect").as_object();
  const json::object alt = c.contains("alt") && c.at("alt").is_object() ? c.at("alt").as_object() : json::object();
  if (!answer && answer.error().code() == Code::unknown_operator) return Verdict::unknown_operator;
  if (expect.contains("error")) {
    why = "no error";
    if (!answer && answer.error().code() == Code::internal) why = answer.error().message();
    return !answer && answer.error().code() != Code::internal ? Verdict::right : Verdict::wrong;
  }
  if (!answer) {
    why = answer.error().message();
    return alt.contains("error") && http_status(answer.error().code()) < 500 ? Verdict::right : Verdict::wrong;
  }
  double abs = 1e-9, rel = 1e-9;
  if (c.contains("tol") && c.at("tol").is_object()) {
    abs = c.at("tol").at("abs").to_number<double>(), rel = c.at("tol").at("rel").to_number<double>();
  }
  const json::value parsed = json::parse(*answer);
  const json::object& tensors = parsed.at("tensors").as_object();
  auto check = [&](const json::object& option) -> std::string {
    for (const auto& [name, want] : option) {
      if (name == "error" || name == "behaviour") return "expected an error";
      const std::string bad = compare(tensors.if_contains(name), want, abs, rel);
      if (!bad.empty()) return std::string(name) + ": " + bad;
    }
    return "";
  };
  why = check(expect);
  return why.empty() || (!alt.empty() && check(alt).empty()) ? Verdict::right : Verdict::wrong;
}

void check_file(const std::string& name, int at_least, const Answer& ask) {
  std::ifstream in(std::string(GRADWIRE_SOURCE "/tests/conformance/") + name + ".jsonl");
  REQUIRE(in);
  int right = 0, unknown = 0, without = 0;
  for (std::string line; std::getline(in, line);) {
    const json::value parsed = json::parse(line);
    const json::object& c = parsed.as_object();
    if (!c.contains("program") || c.at("program").is_null() || c.contains("big")) {
      ++without;
      continue;
    }
    std::string why;
    const Verdict v = judge(c, ask(json::serialize(c.at("program"))), why);
    INFO(c.at("id").as_string().c_str() << ": " << why);
    CHECK(v != Verdict::wrong);
    right += v == Verdict::right, unknown += v == Verdict::unknown_operator;
  }
  INFO(name << ": " << right << " right, " << unknown << " with operators that do not exist yet, " << without
            << " without a program");
  CHECK(right >= at_least);
}

}  // namespace gradwire::conformance
