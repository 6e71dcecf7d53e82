#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

using Catch::Matchers::ContainsSubstring;

namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& p) {
  std::ifstream in(p);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

/// Runs opgen on a file with these rows; what it printed, or its complaint.
struct Run {
  explicit Run(const std::string& rows) {
    static int n = 0;
    dir = fs::temp_directory_path() / ("opgen_test_" + std::to_string(::getpid()) + "_" + std::to_string(n++));
    fs::create_directories(dir);
    std::ofstream(dir / "rows.cpp") << rows;
    status = std::system((std::string(GRADWIRE_BIN "/opgen ") + dir.string() + " " + (dir / "rows.cpp").string() +
                          " 2> " + (dir / "complaint").string())
                             .c_str());
    complaint = text_of(dir / "complaint");
  }
  ~Run() { fs::remove_all(dir); }
  std::string file(const char* name) const { return text_of(dir / name); }
  fs::path dir;
  int status;
  std::string complaint;
};

}  // namespace

TEST_CASE("opgen reads rows among comments, strings and code, and derives the in-place ones", "[opgen]") {
  const Run run(text_of(GRADWIRE_SOURCE "/tests/schema/rows.txt"));
  REQUIRE(run.status == 0);
  const std::string h = run.file("ops.h");
  CHECK_THAT(h, ContainsSubstring("inline constexpr uint16_t add = 0;"));
  CHECK_THAT(h, ContainsSubstring("inline constexpr uint16_t add_ = 1;"));
  CHECK_THAT(h, ContainsSubstring("inline constexpr uint16_t max_dim = "));
  CHECK_THAT(h, !ContainsSubstring("not this one"));
  CHECK_THAT(h, ContainsSubstring("std::array<T, 2> max("));
  CHECK_THAT(run.file("ops.md"), ContainsSubstring("self + alpha * other, elementwise."));
  CHECK_THAT(run.file("operators.json"), ContainsSubstring(R"("name": "max", "overload": "dim")"));
  CHECK_THAT(run.file("operators.json"), ContainsSubstring(R"("name": "optim.SGD", "overload": "")"));
  CHECK_THAT(h, ContainsSubstring("void optim_step(const T& self, "));
  CHECK_THAT(h, ContainsSubstring("T optim_SGD(std::span<const T> params, "));
  CHECK_THAT(run.file("operators.json"), ContainsSubstring(R"("doc": "The sum \"over\" dims.")"));
}

TEST_CASE("opgen's catalogue hash changes with any signature", "[opgen]") {
  const auto hash = [](const char* sig) {
    const Run run(std::string("{.sig = \"") + sig + "\", .doc = \"d\"}");
    const std::string h = run.file("ops.h");
    const size_t at = h.find("kCatalogueHash = ");
    REQUIRE(at != std::string::npos);
    return h.substr(at, h.find(';', at) - at);
  };
  CHECK(hash("f(Tensor a) -> Tensor") == hash("f(Tensor a) -> Tensor"));
  CHECK(hash("f(Tensor a) -> Tensor") != hash("f(Tensor b) -> Tensor"));
}

TEST_CASE("opgen refuses rows that make no sense", "[opgen]") {
  const auto refuses = [](const char* rows, const char* why) {
    const Run run(rows);
    CHECK(run.status != 0);
    CHECK_THAT(run.complaint, ContainsSubstring(why));
  };
  refuses(R"({.sig = "f(Tensr a) -> Tensor", .doc = "d"})", "expected a type");
  refuses(R"({.sig = "f(Tensor a) -> Tensor"})", "f has no .doc");
  refuses(R"({.sig = "f(Tensor a) -> Tensor", .doc = "d"}, {.sig = "f(Tensor b) -> Tensor", .doc = "d"})", "twice");
  refuses(R"({.sig = "f(int n, Tensor a) -> Tensor", .doc = "d"})", "first parameter must be a Tensor");
}
