#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/property/run.h"

namespace gradwire::property {
namespace {

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoll(text, nullptr, 10) : otherwise;
}

// Programs from `first` on; where one fails, it is made smaller and shown.
void check(int64_t programs, uint64_t seed, bool gradients) {
  int skipped = 0;
  const Rows rows = known_rows(skipped);
  Redraws redraws;
  std::map<std::string, int64_t> drawn;  // by name, in-place forms on their own
  for (const Known& k : rows) {
    if (!k.row->only_inplace) drawn[k.row->name] = 0;
    if (k.inplace) drawn[std::string(k.row->name) + " in place"] = 0;
  }
  const int64_t first = setting("GRADWIRE_FIRST", 0);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  for (int64_t i = first; i < first + programs; ++i) {
    const Program p = draw_program(rows, seed, static_cast<uint64_t>(i), gradients, redraws);
    for (const Step& s : p.steps) {
      if (s.row) ++drawn[std::string(s.row->name) + (s.inplace && !s.row->only_inplace ? " in place" : "")];
    }
    if (auto f = run(p)) {
      const Program small = shrunk(p, *f);
      // Catch2 would wrap the lines.
      std::printf("seed %llu, program %lld%s, shrunk from %zu to %zu lines:\n%s%s: %s\n",
                  static_cast<unsigned long long>(seed), static_cast<long long>(i), gradients ? " with gradients" : "",
                  p.steps.size(), small.steps.size(), text(small).c_str(), f->op.c_str(), f->what.c_str());
      FAIL(f->op << ": " << f->what);
    }
    if (terminal && i % 500 == 0) std::fprintf(stderr, "\r%lld programs ", static_cast<long long>(i));
  }
  if (terminal) std::fprintf(stderr, "\r");
  int64_t operators = 0;
  std::string missing;
  for (const auto& [name, times] : drawn) {
    operators += times;
    if (times == 0) missing += name + "; ";
    if (std::getenv("GRADWIRE_VERBOSE")) std::printf("%8lld %s\n", static_cast<long long>(times), name.c_str());
  }
  std::printf("%lld programs of %lld calls of %zu operators (%d skipped); %lld drawn again\n",
              static_cast<long long>(programs), static_cast<long long>(operators), rows.size(), skipped,
              static_cast<long long>(redraws.redrawn));
  if (programs >= 1000) CHECK(missing == "");
  CHECK(redraws.redrawn * 20 <= redraws.drawn);
}

}  // namespace

TEST_CASE("Random programs give what a naive interpreter gives") { check(2000, 3, false); }

TEST_CASE("Gradients of random programs are what the naive interpreter's derivatives say") { check(1000, 4, true); }

// By hand: GRADWIRE_PROGRAMS, GRADWIRE_SEED and GRADWIRE_FIRST choose which.
TEST_CASE("A hundred thousand random programs give what a naive interpreter gives", "[.campaign]") {
  check(setting("GRADWIRE_PROGRAMS", 100000), static_cast<uint64_t>(setting("GRADWIRE_SEED", 1)), false);
}
TEST_CASE("Gradients of a hundred thousand random programs are right", "[.campaign]") {
  check(setting("GRADWIRE_PROGRAMS", 100000), static_cast<uint64_t>(setting("GRADWIRE_SEED", 1)), true);
}

}  // namespace gradwire::property
