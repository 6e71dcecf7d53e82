#pragma once

#include <boost/json.hpp>
#include <functional>
#include <string>

#include "server/result.h"

namespace gradwire::conformance {

namespace json = boost::json;

enum class Verdict { right, wrong, unknown_operator };

/// Of an answer {"tensors": {name: tensor or null}} as JSON text, or an error, to case `c`; `why` says what is wrong.
Verdict judge(const json::object& c, const server::Result<std::string>& answer, std::string& why);

/// Answers a program's JSON text.
using Answer = std::function<server::Result<std::string>(std::string)>;

/// Catch2 checks over every case of a file of tests/conformance that has a program; `at_least` of them must be right:
/// fewer means that an operator has gone.
void check_file(const std::string& name, int at_least, const Answer&);

/// The files, and how many of each this catalogue knows.
struct File {
  const char* name;
  int at_least;
};
inline constexpr File kFiles[] = {{"elementwise", 176}, {"broadcasting", 189}, {"promotion", 816}, {"reductions", 131},
                                  {"shape", 53},        {"indexing", 57},      {"linalg", 39},     {"nn", 81},
                                  {"losses", 36},       {"creation", 26},      {"bugs", 109}};

}  // namespace gradwire::conformance
