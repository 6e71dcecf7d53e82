#include <catch2/catch_test_macros.hpp>

#include <fstream>
#include <sstream>

#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

// What an example's right side stands for as results: numbers are 0-dim tensors.
std::vector<Tensor> results_of(Context& cx, const Literals& l) {
  std::vector<Tensor> out;
  for (const Bound& v : l.positional) {
    if (v.kind == ArgKind::tensor)
      out.push_back(*v.tensors);
    else if (v.kind == ArgKind::none)
      out.emplace_back();
    else
      out.push_back(cx.full({}, v.scalar(),
                            v.kind == ArgKind::boolean   ? DType::boolean
                            : v.kind == ArgKind::integer ? DType::int64
                                                         : cx.default_dtype));
  }
  return out;
}

std::string text_of(const char* path) {
  std::ifstream in(std::string(GRADWIRE_SOURCE) + path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '\n' || out.empty() || out.back() != ' ') out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

TEST_CASE("Every row is documented and can be called by its signature", "[registry][B32]") {
  for (const OpRow& row : catalogue()) {
    INFO(row.sig.full_name());
    REQUIRE(row.def->doc);
    const std::string_view doc = row.def->doc;
    CHECK(doc.size() > 10);
    CHECK(doc.ends_with('.'));
    CHECK(find_op(row.sig.full_name()) == &row);
    if (row.inplace) CHECK(row.name().ends_with('_'));
    CHECK((row.def->no_grad == nullptr || *row.def->no_grad != '\0'));
  }
}

TEST_CASE("Every row has samples", "[registry]") {
  Engine e;
  for (const OpRow& row : catalogue()) {
    INFO(row.sig.full_name());
    CHECK(row.def->samples.size() > 0);
    for (const std::string_view text : samples_of(row)) {
      INFO(text);
      if (row.inplace && parse_literals(e.cx, text)->positional[0].is_scalar()) continue;  // self must be a tensor
      CHECK_NOTHROW(Arguments(e.cx, row, text));
    }
  }
}

TEST_CASE("The examples of the reference hold", "[registry]") {
  Engine e;
  for (const OpRow& row : catalogue()) {
    if (row.inplace) continue;  // the examples are those of the ordinary form
    for (const Example& x : row.def->examples) {
      INFO(row.sig.full_name() << ": " << x.args << " -> " << x.results);
      const Arguments a(e.cx, row, x.args);
      const auto want = parse_literals(e.cx, x.results);
      const std::string fault = difference(flat(a.run(e.cx)), results_of(e.cx, *want), 1e-6, 1e-7);
      CHECK(fault == "");
    }
  }
}

TEST_CASE("The generated names, numbers and files are the registry's", "[registry]") {
  REQUIRE(catalogue().size() == static_cast<size_t>(kOperators));
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a over the signatures, as opgen computes it
  const std::string reference = one_line(text_of("/schema/ops.md")), json = text_of("/schema/operators.json");
  for (const OpRow& row : catalogue()) {
    INFO(row.sig.full_name());
    CHECK(std::string_view(kOperatorNames[row.id]) == row.sig.full_name());
    std::string text = row.def->sig;
    if (row.inplace && row.def->inplace) text.insert(text.find_first_of(".("), "_");
    for (const unsigned char c : text + "\n") hash = (hash ^ c) * 0x100000001b3ull;
    CHECK(json.find("\"signature\": \"" + text) != std::string::npos);
    if (!row.inplace) CHECK(reference.find(one_line(row.def->doc)) != std::string::npos);
  }
  CHECK(hash == kCatalogueHash);
}
