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
inline constexpr File kFiles[] = {{"elementwise", 23}, {"broadcasting", 88}, {"promotion", 816}, {"reductions", 24},
                                  {"shape", 6},        {"indexing", 57},     {"linalg", 14},     {"nn", 3},
                                  {"losses", 9},       {"creation", 17},     {"bugs", 44}};

}  // namespace gradwire::conformance
