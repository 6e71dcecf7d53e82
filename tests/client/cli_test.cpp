#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <algorithm>
#include <fstream>
#include <string>

using Catch::Matchers::ContainsSubstring;

namespace {

struct Ran {
  int status;
  std::string text;  // both outputs
};

/// Runs `gradwire ARGS`.
Ran gradwire(const std::string& args) {
  ::setenv("GRADWIRED", GRADWIRE_BIN "/gradwired", 1);
  FILE* pipe = ::popen((GRADWIRE_BIN "/gradwire " + args + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  Ran ran;
  char part[4096];
  while (const size_t n = ::fread(part, 1, sizeof part, pipe)) ran.text.append(part, n);
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

struct File {
  explicit File(const std::string& text) : name("/tmp/gradwire_cli_" + std::to_string(::getpid()) + ".json") {
    std::ofstream(name) << text;
  }
  ~File() { ::unlink(name.c_str()); }
  std::string name;
};

}  // namespace

TEST_CASE("gradwire --help teaches, with examples and exit codes", "[cli]") {
  const Ran ran = gradwire("--help");
  CHECK(ran.status == 0);
  CHECK_THAT(ran.text, ContainsSubstring("info") && ContainsSubstring("sessions") && ContainsSubstring("run") &&
                           ContainsSubstring("launch"));
  CHECK_THAT(ran.text, ContainsSubstring("Examples:") && ContainsSubstring("Exit status"));
  CHECK_THAT(gradwire("run --help").text, ContainsSubstring("FILE"));
  CHECK_THAT(gradwire("launch --help").text, ContainsSubstring("PROGRAM") && ContainsSubstring("MASTER_ADDR") &&
                                                 ContainsSubstring("Examples:") && ContainsSubstring("Exit status"));
}

TEST_CASE("gradwire info shows the server", "[cli]") {
  const Ran ran = gradwire("--server local info");
  CHECK(ran.status == 0);
  CHECK_THAT(ran.text, ContainsSubstring("devices    cpu") && ContainsSubstring("lanes"));
}

TEST_CASE("gradwire sessions lists all but its own", "[cli]") {
  const Ran ran = gradwire("--server local sessions");
  CHECK(ran.status == 0);
  CHECK_THAT(ran.text, ContainsSubstring("ID") && ContainsSubstring("TENSORS"));
  CHECK(std::count(ran.text.begin(), ran.text.end(), '\n') == 1);
}

TEST_CASE("gradwire run prints the answer of a program", "[cli]") {
  const File program(R"({"inputs": {"x": {"data": [1.0, 2.0], "requires_grad": true}},
    "ops": [{"op": "mul", "in": ["x", "x"], "out": "y"}, {"op": "sum", "in": ["y"], "out": "s"}, {"op": "backward", "in": ["s"]}],
    "fetch": ["s", "x.grad"]})");
  const Ran ran = gradwire("--server local run " + program.name);
  CHECK(ran.status == 0);
  CHECK_THAT(ran.text, ContainsSubstring("x.grad"));
  CHECK(gradwire("--server local run - < " + program.name).text == ran.text);
}

TEST_CASE("gradwire run tells what is wrong with a program", "[cli]") {
  const File program(R"({"ops": [{"op": "frobnicate", "in": [], "out": "y"}]})");
  const Ran ran = gradwire("--server local run " + program.name);
  CHECK(ran.status == 1);
  CHECK_THAT(ran.text, ContainsSubstring("unknown_operator") && ContainsSubstring("frobnicate"));
}

TEST_CASE("gradwire's exit status says what kind of failure it was", "[cli]") {
  CHECK(gradwire("").status == 2);
  CHECK(gradwire("dance").status == 2);
  CHECK(gradwire("run /no/such/file").status == 2);
  CHECK(gradwire("--server unix:/no/such/socket info").status == 3);
  CHECK(gradwire("--server nonsense info").status == 1);
}
