// Gradients that are averaged over the ranks while backward goes on.
#include "server/groups.h"
#include "tests/server/groups_rig.h"

using namespace gradwire;
using namespace gradwire::server;

namespace {

// A line fitted to this rank's points; w and b are leaves.
const std::string kModel = R"("inputs":{"w":{"data":[0.5],"requires_grad":true},"b":{"data":[0.0],"requires_grad":true},
  "x":{"data":[@V.0,2]}},)";
const std::string kLoss =
    R"({"op":"mul","in":["x","w"],"out":"y"},{"op":"add","in":["y","b"],"out":"z"},)"
    R"({"op":"mul","in":["z","z"],"out":"q"},{"op":"sum","in":["q"],"out":"loss"},{"op":"backward","in":["loss"]})";

}  // namespace

TEST_CASE("backward leaves the mean of all ranks' gradients", "[H32][H35]") {
  Ranks r(2);
  // d/dw of sum((xw)^2) is sum(2 w x^2) = sum(x^2): 1 + 4 and 4 + 4. d/db is sum(2 x w) = sum(x): 3 and 4.
  const std::string program = "{" + kModel + R"("ops":[{"op":"ddp","in":["w","b"],"attrs":{"bucket_bytes":4}},)" +
                              kLoss + R"(],"fetch":["w.grad"]})";
  CHECK(said(r.all(program)) == Said(2, "6.5"));
  CHECK(said(r.all(R"({"ops":[],"fetch":["b.grad"]})")) == Said(2, "3.5"));
  CHECK(r.cluster->seen().size() == 2);  // buckets of one parameter each
  // Gradients add up as they do without other ranks: what was averaged before is the same everywhere.
  CHECK(said(r.all("{\"ops\":[" + kLoss + R"(],"fetch":["w.grad"]})")) == Said(2, "13"));
  // Without travelling, and then the sum of both.
  CHECK(said(r.all(
            R"({"ops":[{"op":"zero_grad","in":["w","b"]},{"op":"ddp_sync","in":["w","b"],"attrs":{"enabled":false}},)" +
            kLoss + R"(,{"op":"ddp_sync","in":["w","b"],"attrs":{"enabled":true}}],"fetch":["w.grad"]})")) ==
        Said{"5", "8"});
  CHECK(said(r.all("{\"ops\":[" + kLoss + R"(],"fetch":["w.grad"]})")) == Said(2, "13"));
}

TEST_CASE("A parameter that a rank does not reach counts as zeros, and all have one bucket by default", "[H33]") {
  Ranks r(2);
  CHECK(said(r.all("{" + kModel + R"("ops":[{"op":"ddp","in":["w","b"]},{"op":"mul","in":["w",@V],"out":"l"},
    {"op":"sum","in":["l"],"out":"s"},{"op":"backward","in":["s"]}],"fetch":["b.grad"]})")) == Said(2, "0"));
  CHECK(said(r.all(R"({"ops":[],"fetch":["w.grad"]})")) == Said(2, "1.5"));
  CHECK(r.cluster->seen().size() == 1);
}

TEST_CASE("Gradients stay this rank's own where averaging fails, and the graph of a gradient is refused",
          "[H33][H36]") {
  Ranks r(2);
  const std::string program =
      "{" + kModel + R"("ops":[{"op":"ddp","in":["w","b"]},)" + kLoss + R"(],"fetch":["w.grad"]})";
  r.cluster->fail_next(Error(Code::unavailable, "rank 1 is gone"));
  CHECK(said(r.all(program)) == Said(2, "unavailable: rank 1 is gone"));
  CHECK(said(r.all(R"({"ops":[],"fetch":["w.grad"]})")) == Said{"5", "8"});
  const std::string twice = "{" + kModel + R"("ops":[{"op":"ddp","in":["w","b"]},{"op":"mul","in":["w","w"],"out":"l"},
    {"op":"backward","in":["l"],"attrs":{"create_graph":true}}]})";
  CHECK(said(r.all(twice)) == Said(2, "bad_argument: DistributedDataParallel only works with volatile gradients"));
  // grad() averages nothing.
  CHECK(said(r.all("{" + kModel + R"("ops":[{"op":"ddp","in":["w","b"]},{"op":"mul","in":["w",@V],"out":"l"},
    {"op":"grad","in":[["l"],["w"]],"out":["g"]}],"fetch":["g"]})")) == Said{"1", "2"});
  CHECK(said(r.all(R"({"inputs":{"x":{"data":[1]}},"ops":[{"op":"ddp","in":["x"]}]})"))[0].find(
            "DistributedDataParallel is not needed") != std::string::npos);
}

TEST_CASE("A backward that fails on one rank does not leave the others waiting", "[H32][H36]") {
  Ranks r(2);
  const auto begin = [](const char* more) {
    return R"({"inputs":{"w":{"data":[0.5],"requires_grad":true}},"ops":[{"op":"exp","in":["w"],"out":"u"})" +
           std::string(more) + "]}";
  };
  // What exp has saved is written to; its gradient comes after that of b, which is younger.
  CHECK(r.start(0, begin(R"(,{"op":"add_","in":["u",1],"no_grad":true})")).get());
  CHECK(r.start(1, begin("")).get());
  const Said said_of_both = said(r.all(R"({"inputs":{"b":{"data":[1.0],"requires_grad":true}},
    "ops":[{"op":"ddp","in":["w","b"],"attrs":{"bucket_bytes":4}},{"op":"mul","in":["b",@V],"out":"c"},
           {"op":"add","in":["u","c"],"out":"l"},{"op":"backward","in":["l"]}]})"));
  CHECK(said_of_both[0].starts_with("inplace_modified"));
  CHECK(said_of_both[1] == "unavailable: rank 0 has left the group");
  // Its own, not the mean of 1 and 2, though the bucket of b has arrived.
  CHECK(said(r.start(1, R"({"ops":[],"fetch":["b.grad"]})").get()) == "2");
  // It is told why it is in no group, until it joins one or asks for none.
  const std::string barrier = R"({"ops":[{"op":"barrier"}]})", destroy = R"({"ops":[{"op":"destroy_process_group"}]})";
  const std::string left =
      "unavailable: the process group 'world' is no more: this rank has left it, as a backward has failed before all "
      "of its gradients were sent";
  CHECK(said(r.start(0, barrier).get()) == left);
  CHECK(said(r.start(0, R"({"ops":[{"op":"is_initialized","out":"i"}],"fetch":["i"]})").get()) == "0");
  CHECK(r.start(0, destroy).get());
  CHECK(said(r.start(0, barrier).get()).starts_with("no_object: Default process group has not been initialized"));
}

TEST_CASE("Two models of one group are averaged each with itself, whichever a rank comes to first", "[H32][H33]") {
  // The gradients of a come first; rank 1 does not use the second of them, and all have one size.
  Ranks r(2);
  const auto leaf = [](const char* name) {
    return "\"" + std::string(name) + R"(":{"data":[0.5,0.5],"requires_grad":true})";
  };
  const auto term = [](const char* from, const char* leaf, int times, const char* to) {
    return R"({"op":"mul","in":[")" + std::string(leaf) + "\"," + std::to_string(times) + R"(],"out":"t"},)" +
           R"({"op":"add","in":[")" + from + R"(","t"],"out":")" + to + "\"},";
  };
  const auto program = [&](bool all) {
    return R"({"inputs":{)" + leaf("a1") + "," + leaf("a2") + "," + leaf("b1") + "," + leaf("b2") + R"(},"ops":[
      {"op":"ddp","in":["a1","a2"],"attrs":{"bucket_bytes":1}},{"op":"ddp","in":["b1","b2"],"attrs":{"bucket_bytes":1}},
      {"op":"mul","in":["b1",1000],"out":"l"},)" +
           term("l", "b2", 2000, "l") + term("l", "a1", 10, "l") + (all ? term("l", "a2", 20, "l") : "") +
           R"({"op":"sum","in":["l"],"out":"l"},{"op":"backward","in":["l"]}],"fetch":["a1.grad"]})";
  };
  auto zero = r.start(0, program(true)), one = r.start(1, program(false));
  CHECK(said(zero.get()) == "10 10");
  CHECK(said(one.get()) == "10 10");
  CHECK(said(r.all(R"({"ops":[],"fetch":["a2.grad"]})")) == Said(2, "10 10"));
  CHECK(said(r.all(R"({"ops":[],"fetch":["b1.grad"]})")) == Said(2, "1000 1000"));
  CHECK(said(r.all(R"({"ops":[],"fetch":["b2.grad"]})")) == Said(2, "2000 2000"));
}

TEST_CASE("Gradients may be kept over more steps than there are areas", "[H32][T24]") {
  Ranks r(2);
  CHECK(said(r.all(R"({"ops":[{"op":"full","in":[[20000],1.0],"out":"w"},{"op":"requires_grad_","in":["w"]},
    {"op":"ddp","in":["w"]},{"op":"sum","in":["w"],"out":"s"}],"fetch":["s"]})")) == Said(2, "20000"));
  for (int i = 0; i < 1100; ++i) {
    const Said step = said(r.all(R"({"ops":[{"op":"sum","in":["w"],"out":"s"},{"op":"backward","in":["s"]},
      {"op":"detach","in":["w.grad"],"out":"g)" +
                                 std::to_string(i) +
                                 R"("},{"op":"zero_grad","in":["w"],"attrs":{"set_to_none":true}}],"fetch":["s"]})"));
    REQUIRE(step == Said(2, "20000"));
  }
  CHECK(cluster::FakeHub::areas() <= 2 * static_cast<int>(Groups::kKept) + 2);
}

TEST_CASE("A backward that waits for other ranks holds no lane, and ends with its session", "[H32][H36]") {
  Ranks r(2, 1);
  const std::string program =
      "{" + kModel + R"("ops":[{"op":"ddp","in":["w","b"]},)" + kLoss + R"(],"fetch":["w.grad"]})";
  auto first = r.start(0, Ranks::written(program, 0));
  r.cluster->wait_for_started(1);
  const SessionPtr neighbour = r.rig.open();
  CHECK(!run(*neighbour, BatchMaker(1).upload(1, {3}).fetch(1))->error);
  auto second = r.start(1, Ranks::written(program, 1));
  CHECK(said(first.get()) == "6.5");
  CHECK(said(second.get()) == "6.5");
  first = r.start(0, Ranks::written("{\"ops\":[" + kLoss + "]}", 0));
  r.cluster->wait_for_started(1);
  CHECK(wait<Result<void>>([&](auto done) { r.sessions[0]->close(std::move(done)); }));
  CHECK(said(first.get()) == "closed: the session is closed");
  CHECK(said(r.start(1, "{\"ops\":[" + kLoss + "]}").get()) == "unavailable: rank 0 has left the group");
}

TEST_CASE("Parameters start as rank 0 has them, in one message", "[H32]") {
  Ranks r(3);
  CHECK(said(r.all(R"({"inputs":{"w":{"data":[@V.0],"requires_grad":true},"n":{"dtype":"int64","data":[@R,@V]}},
    "ops":[{"op":"broadcast_coalesced","in":["w","n"]},{"op":"detach","in":["w"],"out":"d"}],"fetch":["d"]})")) ==
        Said(3, "1"));
  CHECK(said(r.all(R"({"ops":[],"fetch":["n"]})")) == Said(3, "0 1"));
  CHECK(r.cluster->seen().size() == 1);
}
