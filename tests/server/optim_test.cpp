// Optimisers by HTTP.
#include <catch2/catch_test_macros.hpp>

#include "tests/server/http_support.h"

using namespace gradwire::server;
using namespace gradwire::server::http_test;

TEST_CASE("A program makes an optimiser, steps, changes its rate and steps again", "[http][F1][F12]") {
  Site site;
  Peer peer(site);
  const std::string session = open_session(peer);
  const Reply r = peer.ask("POST", session + "/run", R"({
    "inputs": {"w": {"dtype": "float64", "data": [1, -2], "requires_grad": true},
               "b": {"dtype": "float64", "data": [3], "requires_grad": true}},
    "ops": [
      {"op": "optim.SGD", "in": [["w"]], "attrs": {"lr": 0.5, "momentum": 0.5}, "out": "opt"},
      {"op": "optim.add_param_group", "in": ["opt", ["b"]], "attrs": {"lr": 0.25}},
      {"op": "add", "in": ["w", "b"], "out": "y"},
      {"op": "sum", "in": ["y"], "out": "loss"},
      {"op": "backward", "in": ["loss"]},
      {"op": "optim.step", "in": ["opt"]},
      {"op": "optim.zero_grad", "in": ["opt"]},
      {"op": "optim.set", "in": ["opt"], "attrs": {"lr": 1, "group": 0}},
      {"op": "add", "in": ["w", "b"], "out": "y"},
      {"op": "sum", "in": ["y"], "out": "loss"},
      {"op": "backward", "in": ["loss"]},
      {"op": "optim.step", "in": ["opt"]}
    ],
    "fetch": ["w", "b", "opt", "w.grad"]})");
  CHECK(r.status == 200);
  INFO(r.body);
  CHECK(r.body.find(R"("w":{"dtype":"float64","shape":[2],"data":[-1.0,-4.0])") != std::string::npos);
  CHECK(r.body.find(R"("b":{"dtype":"float64","shape":[1],"data":[1.75])") != std::string::npos);
  CHECK(r.body.find(R"("opt":{"dtype":"int64","shape":[],"data":2)") != std::string::npos);
  CHECK(r.body.find(R"("w.grad":{"dtype":"float64","shape":[2],"data":[1.0,1.0])") != std::string::npos);

  // What stands for it can be looked at and released like any entry; then it is gone.
  CHECK(peer.ask("GET", session + "/tensors/opt").body.find(R"("data":2)") != std::string::npos);
  CHECK(peer.ask("GET", session + "/tensors/opt?part=info").status == 200);
  CHECK(peer.ask("GET", session + "/tensors/opt?part=grad").status == 404);
  CHECK(peer.ask("DELETE", session + "/tensors/opt").status == 204);
  const Reply gone = peer.ask("POST", session + "/run", R"({"ops": [{"op": "optim.step", "in": ["opt"]}]})");
  CHECK(gone.status == 404);
  CHECK(code_of(gone.body) == "no_tensor");
}

TEST_CASE("A stored program finds the session's optimiser at each run", "[http][F3]") {
  Site site;
  Peer peer(site);
  const std::string session = open_session(peer);
  REQUIRE(peer.ask("POST", session + "/run", R"({
    "inputs": {"w": {"dtype": "float64", "data": [0], "requires_grad": true}},
    "ops": [{"op": "optim.SGD", "in": ["w"], "attrs": {"lr": 0.5}, "out": "opt"}]})")
              .status == 200);
  REQUIRE(peer.ask("PUT", session + "/programs/train", R"({
    "inputs": ["x"],
    "ops": [{"op": "optim.zero_grad", "in": [{"optimizer": "opt"}]},
            {"op": "mul", "in": ["w", "x"], "out": "y"}, {"op": "sum", "in": ["y"], "out": "loss"},
            {"op": "backward", "in": ["loss"]}, {"op": "optim.step", "in": ["opt"]}],
    "fetch": ["w"], "release": ["y", "loss"]})")
              .status < 300);
  const std::string feeds = R"({"inputs": {"x": {"dtype": "float64", "data": [2]}}})";
  CHECK(peer.ask("POST", session + "/programs/train/run", feeds).body.find(R"("data":[-1.0])") != std::string::npos);
  CHECK(peer.ask("POST", session + "/programs/train/run", feeds).body.find(R"("data":[-2.0])") != std::string::npos);
  // Another optimiser under the same name.
  REQUIRE(peer.ask("POST", session + "/run", R"({
    "ops": [{"op": "optim.SGD", "in": ["w"], "attrs": {"lr": 5}, "out": "opt"}]})")
              .status == 200);
  CHECK(peer.ask("POST", session + "/programs/train/run", feeds).body.find(R"("data":[-12.0])") != std::string::npos);
}

TEST_CASE("Optimisers and tensors are not taken for each other", "[http][F13]") {
  Site site;
  Peer peer(site);
  const std::string session = open_session(peer);
  REQUIRE(peer.ask("POST", session + "/run", R"({
    "inputs": {"w": {"data": [1.5], "requires_grad": true}},
    "ops": [{"op": "optim.Adam", "in": [["w"]], "attrs": {"betas": [0, 0.9]}, "out": "opt"},
            {"op": "optim.Rprop", "in": ["w"], "attrs": {"step_sizes": [0, 1]}}]})")
              .status == 200);
  for (const char* step :
       {R"({"op": "add", "in": ["w", "opt"]})", R"({"op": "cat", "in": [["w", "opt"]]})",
        R"({"op": "optim.step", "in": ["w"]})", R"({"op": "optim.SGD", "in": [["opt"]], "attrs": {"lr": 1}})",
        R"({"op": "optim.Adam", "in": [["w"]], "attrs": {"betas": [1.0, 0.9]}})",
        R"({"op": "clone", "in": ["opt"], "out": "c"})"}) {
    const Reply r = peer.ask("POST", session + "/run", std::string(R"({"ops": [)") + step + "]}");
    INFO(r.body);
    CHECK(r.status == 400);
    CHECK(code_of(r.body) == "bad_argument");
  }
  const Reply unknown = peer.ask("POST", session + "/run", R"({"ops": [{"op": "optim.LBFGS", "in": [["w"]]}]})");
  CHECK(code_of(unknown.body) == "unknown_operator");
}

TEST_CASE("State is saved and loaded by name", "[http][F14]") {
  Site site;
  Peer peer(site);
  const std::string session = open_session(peer);
  const Reply r = peer.ask("POST", session + "/run", R"({
    "inputs": {"w": {"dtype": "float64", "data": [1], "requires_grad": true}},
    "ops": [
      {"op": "optim.SGD", "in": ["w"], "attrs": {"lr": 0.5, "momentum": 0.5}, "out": "opt"},
      {"op": "sum", "in": ["w"], "out": "loss"}, {"op": "backward", "in": ["loss"]},
      {"op": "optim.step", "in": ["opt"]},
      {"op": "optim.state", "in": ["opt"], "out": ["options", "count", "buffer"]},
      {"op": "optim.step", "in": ["opt"]},
      {"op": "optim.load_state", "in": ["opt", ["options", "count", "buffer"]]},
      {"op": "optim.step", "in": ["opt"]}
    ],
    "fetch": ["w", "options", "count", "buffer"]})");
  INFO(r.body);
  CHECK(r.status == 200);
  CHECK(r.body.find(R"("data":[-1.0])") != std::string::npos);  // 1 - .5 - .75 - .75
  CHECK(r.body.find(R"("data":[1.0,0.5,0.5,0.0,0.0,0.0,0.0])") != std::string::npos);
  CHECK(r.body.find(R"("count":{"dtype":"float64","shape":[1],"data":[1.0])") != std::string::npos);
}
