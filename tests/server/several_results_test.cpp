// Operators with several results over HTTP: names, dropped results, and the warnings that come back.
#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

#include "server/http/json_program.h"
#include "tests/server/rig.h"

namespace gradwire::server {
namespace {

namespace json = boost::json;

json::object answer_to(const std::string& program) {
  Rig rig;
  const auto run = http::make_run_json(rig.service);
  const auto answer = wait<Result<std::string>>([&](auto done) { run(program, std::move(done)); });
  if (!answer) throw answer.error();
  return json::parse(*answer).as_object();
}
std::string data_of(const json::object& answer, const char* name) {
  return json::serialize(answer.at("tensors").at(name).at("data"));
}

TEST_CASE("a program names the results of an operator that has two", "[server][http][several]") {
  const auto a = answer_to(R"({"inputs":{"x":{"data":[[1.0,5.0,2.0],[6.0,4.0,3.0]],"requires_grad":true}},
    "ops":[{"op":"max","in":["x"],"attrs":{"dim":1},"out":["v","i"]},
           {"op":"sum","in":["v"],"out":"s"},{"op":"backward","in":["s"]},
           {"op":"sort","in":["x",1,true],"out":["t",null]},
           {"op":"topk","in":["x",1],"out":[null,"k"]}],
    "fetch":["v","i","x.grad","t","k"]})");
  CHECK(data_of(a, "v") == "[5E0,6E0]");
  CHECK(data_of(a, "i") == "[1,0]");
  CHECK(data_of(a, "x.grad") == "[[0E0,1E0,0E0],[1E0,0E0,0E0]]");
  CHECK(data_of(a, "t") == "[[5E0,2E0,1E0],[6E0,4E0,3E0]]");
  CHECK(data_of(a, "k") == "[[1],[0]]");
}

TEST_CASE("a program that names another number of results is refused", "[server][http][several]") {
  CHECK_THROWS_AS(answer_to(R"({"inputs":{"x":{"data":[1.0,2.0]}},
    "ops":[{"op":"sort","in":["x"],"out":["a","b","c"]}]})"),
                  Error);
}

TEST_CASE("the form of max is chosen by its arguments", "[server][http][several]") {
  const auto a = answer_to(R"({"inputs":{"x":{"data":[1.0,4.0]},"y":{"data":[3.0,2.0]}},
    "ops":[{"op":"max","in":["x"],"out":"all"},{"op":"max","in":["x","y"],"out":"both"},
           {"op":"max","in":["x",0],"out":["v","i"]}],
    "fetch":["all","both","v","i"]})");
  CHECK(data_of(a, "all") == "4E0");
  CHECK(data_of(a, "both") == "[3E0,4E0]");
  CHECK(data_of(a, "v") == "4E0");
  CHECK(data_of(a, "i") == "1");
}

}  // namespace
}  // namespace gradwire::server
