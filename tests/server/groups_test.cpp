// Collectives as operators of sessions, among ranks of one server.
#include <thread>

#include "tests/server/groups_rig.h"

using namespace gradwire;
using namespace gradwire::server;

TEST_CASE("Every rank gets the same from all_reduce, whatever the operation", "[H20][H26]") {
  Ranks r(4);
  const auto reduced = [&](const std::string& op, const std::string& dtype) {
    return said(r.all(R"({"inputs":{"x":{"dtype":")" + dtype + R"(","data":[@V,@V]}},
                          "ops":[{"op":"all_reduce","in":["x"],"attrs":{"op":")" +
                      op + R"("}}],"fetch":["x"]})"));
  };
  CHECK(reduced("sum", "float32") == Said(4, "10 10"));
  CHECK(reduced("PRODUCT", "float64") == Said(4, "24 24"));
  CHECK(reduced("min", "int64") == Said(4, "1 1"));
  CHECK(reduced("MAX", "int8") == Said(4, "4 4"));
  CHECK(reduced("avg", "float32") == Said(4, "2.5 2.5"));
  CHECK(reduced("band", "int32") == Said(4, "0 0"));
  CHECK(reduced("bor", "uint8") == Said(4, "7 7"));
  CHECK(reduced("bxor", "int16") == Said(4, "4 4"));
  CHECK(reduced("bor", "float32") == Said(4, "bad_argument: Cannot use ReduceOp.BOR with non-integral dtype"));
  CHECK(reduced("mean", "float32") ==
        Said(4, "bad_argument: op should be a constant from torch.distributed.reduce_op, got 'mean'"));
}

TEST_CASE("A collective writes in place, counts a version, and works on any strides and on no elements", "[H20][A35]") {
  Ranks r(2);
  CHECK(said(r.all(R"({"inputs":{"x":{"data":[[1,2,3],[4,5,@V]]}},
    "ops":[{"op":"t","in":["x"],"out":"y"},{"op":"all_reduce","in":["y"],"out":"z"}],"fetch":["x"]})")) ==
        Said(2, "2 4 6 8 10 3"));
  auto info = wait<Result<TensorInfo>>([&](auto done) {
    Key key;
    key.name = "z";
    r.sessions[0]->describe(key, std::move(done));
  });
  REQUIRE(info);
  CHECK(info->version == 1);
  CHECK(said(r.all(R"({"inputs":{"e":{"shape":[0,3],"data":[]}},"ops":[{"op":"all_reduce","in":["e"]}],
    "fetch":["e"]})")) == Said(2, ""));
  CHECK(said(r.all(R"({"inputs":{"b":{"dtype":"bool","data":[true,false]}},
    "ops":[{"op":"all_reduce","in":["b"]},{"op":"cast","in":["b"],"attrs":{"dtype":"int64"},"out":"i"}],"fetch":["i"]})"))
            [0] == "1 0");
  // One element that stands for many cannot be written to.
  CHECK(said(r.all(R"({"inputs":{"x":{"data":[1]}},"ops":[{"op":"expand","in":["x",3],"out":"y"},
    {"op":"all_reduce","in":["y"]}]})"))[0]
            .find("more than one element of the written-to tensor") != std::string::npos);
}

TEST_CASE("broadcast, reduce, all_gather, gather, scatter and reduce_scatter give PyTorch's values",
          "[H19][H21][H22][H23][H24]") {
  Ranks r(4);
  const auto run = [&](const std::string& ops, const std::string& fetch) {
    return said(r.all(R"({"inputs":{"x":{"data":[@V]}},"ops":[)" + ops + R"(],"fetch":[")" + fetch + R"("]})"));
  };
  CHECK(run(R"({"op":"broadcast","in":["x",3]})", "x") == Said(4, "4"));
  CHECK(run(R"({"op":"reduce","in":["x",2]})", "x") == Said{"1", "2", "10", "4"});  // the others' stay as they are
  CHECK(run(R"({"op":"all_gather","in":["x"],"out":["a","b","c","d"]},{"op":"cat","in":["a","b","c","d"],"out":"y"})",
            "y") == Said(4, "1 2 3 4"));
  std::vector<std::future<Result<ProgramResult>>> started;
  for (int i = 0; i < 4; ++i) {
    started.push_back(r.start(
        i, R"({"ops":[{"op":"gather","in":["x"],"attrs":{"dst":1})" +
               std::string(i == 1 ? R"(,"out":["a","b","c","d"]},{"op":"cat","in":["a","b","c","d"],"out":"y"}],)"
                                  : "}],") +
               R"("fetch":[")" + (i == 1 ? "y" : "x") + R"("]})"));
  }
  CHECK(said(started[0].get()) == "1");
  CHECK(said(started[1].get()) == "1 2 3 4");
  CHECK(said(started[2].get()) == "3");
  CHECK(said(started[3].get()) == "4");

  started.clear();
  for (int i = 0; i < 4; ++i) {
    started.push_back(r.start(
        i, R"({"inputs":{"t":{"data":[-1]},"a":{"data":[0]},"b":{"data":[1]},"c":{"data":[4]},"d":{"data":[9]}},
          "ops":[{"op":"scatter","in":["t")" +
               std::string(i == 2 ? R"(,["a","b","c","d"]])" : "]") + R"(,"attrs":{"src":2}}],"fetch":["t"]})"));
  }
  for (int i = 0; i < 4; ++i) CHECK(said(started[static_cast<size_t>(i)].get()) == std::to_string(i * i));
  CHECK(said(r.all(R"({"inputs":{"t":{"data":[0]},"a":{"data":[1]},"b":{"data":[2]},"c":{"data":[@V]},"d":{"data":[3]}},
    "ops":[{"op":"reduce_scatter","in":["t",["a","b","c","d"]]}],"fetch":["t"]})")) == Said{"4", "8", "10", "12"});
  CHECK(run(R"({"op":"barrier"})", "x")[0] == "1");
  CHECK(run(R"({"op":"scatter","in":["x"],"attrs":{"src":@R}})", "x") ==
        Said(4, "bad_argument: scatter_list is a required argument in scatter source"));
  CHECK(run(R"({"op":"broadcast","in":["x",4]})", "x")[0] == "bad_argument: rank(4) is not member of group");
  CHECK(run(R"({"op":"reduce_scatter","in":["x",["x"]]})", "x")[0] ==
        "bad_argument: reduce_scatter: number of input tensors and group size does not match");
}

TEST_CASE("Messages go from rank to rank, from any rank too, and while other calls run", "[H15][H16][H17][H18]") {
  Ranks r(2);
  auto sent = r.start(0, R"({"inputs":{"x":{"data":[1,2,3]}},"ops":[{"op":"send","in":["x",1]}]})");
  CHECK(
      said(r.start(1, R"({"inputs":{"y":{"data":[0,0,0]}},"ops":[{"op":"recv","in":["y",0]}],"fetch":["y"]})").get()) ==
      "1 2 3");
  CHECK(sent.get());
  sent = r.start(1, R"({"inputs":{"x":{"data":[1,2,3]}},"ops":[{"op":"send","in":["x",0]}]})");
  CHECK(said(r.start(0, R"({"inputs":{"y":{"data":[0,0,0]}},"ops":[{"op":"recv","in":["y"],"out":"from"}],
    "fetch":["from"]})")
                 .get()) == "1");
  CHECK(sent.get());
  // Both send first, which would wait for ever without requests.
  CHECK(r.start(0, R"({"inputs":{"x":{"data":[1]},"y":{"data":[0]}},"ops":[{"op":"isend","in":["x",1],"out":"s"},
    {"op":"irecv","in":["y"],"out":"q"}]})")
            .get());
  CHECK(said(r.start(0, R"({"ops":[{"op":"isend","in":["x",0]}]})").get()) ==
        "bad_argument: cannot send tensor to process with same rank");
  CHECK(said(r.start(0, R"({"ops":[{"op":"irecv","in":["y",0]}]})").get()) ==
        "bad_argument: cannot receive tensor from process with same rank");
  auto zero = r.start(0, R"({"ops":[{"op":"wait","in":["s"],"out":"ws"}]})");
  auto one = r.start(1, R"({"inputs":{"x":{"data":[7]},"y":{"data":[0]}},"ops":[{"op":"isend","in":["x",0],"out":"s"},
    {"op":"irecv","in":["y",0],"out":"q"},{"op":"wait","in":["q"],"out":"from"},{"op":"wait","in":["s"],"out":"sent"},
    {"op":"is_completed","in":["q"],"out":"done"}],"fetch":["y"]})");
  CHECK(said(one.get()) == "1");
  CHECK(zero.get());
  CHECK(said(r.start(0, R"({"ops":[{"op":"wait","in":["q"],"out":"from"}],"fetch":["y"]})").get()) == "7");
  CHECK(said(r.start(0, R"({"ops":[{"op":"wait","in":["q"]}]})").get()) ==
        "bad_argument: there is no such request, or it has been waited for");
  // Sizes differ: both learn of it, and the group goes on.
  sent = r.start(0, R"({"inputs":{"x":{"data":[1,2,3]}},"ops":[{"op":"send","in":["x",1]}]})");
  CHECK(said(r.start(1, R"({"inputs":{"y":{"data":[0]}},"ops":[{"op":"recv","in":["y",0]}]})").get()) ==
        "group_mismatch: tensor sizes do not match");
  CHECK(said(sent.get()) == "group_mismatch: tensor sizes do not match");
  CHECK(said(r.all(R"({"ops":[{"op":"get_rank","out":"n"}],"fetch":["n"]})")) == Said{"0", "1"});
  CHECK(said(r.all(R"({"ops":[{"op":"get_world_size","out":"n"}],"fetch":["n"]})")) == Said(2, "2"));
}

TEST_CASE("A collective that fails leaves its tensors as they were", "[H29][H36][T41]") {
  Ranks r(2);
  r.cluster->fail_next(Error(Code::unavailable, "rank 1 is gone"));
  const std::string program = R"({"inputs":{"x":{"data":[@V,2]}},"ops":[{"op":"all_reduce","in":["x"]}]})";
  CHECK(said(r.all(program)) == Said(2, "unavailable: rank 1 is gone"));
  CHECK(said(r.all(R"({"ops":[],"fetch":["x"]})")) == Said{"1 2", "2 2"});
  auto info = wait<Result<TensorInfo>>([&](auto done) {
    Key key;
    key.name = "x";
    r.sessions[1]->describe(key, std::move(done));
  });
  CHECK(info->version == 0);
  auto short_one = r.start(0, R"({"inputs":{"x":{"data":[1]}},"ops":[{"op":"all_reduce","in":["x"]}]})");
  const auto other = r.start(1, R"({"inputs":{"x":{"data":[1,2]}},"ops":[{"op":"all_reduce","in":["x"]}]})").get();
  CHECK(said(short_one.get()) == "group_mismatch: the ranks differ: 1 and 2 elements");
  REQUIRE(!other);
  CHECK(other.error().op() == "all_reduce");
  CHECK(other.error().step() == 0);
}

TEST_CASE("A collective that waits holds no lane", "[H2][H20]") {
  Ranks r(2, 1);
  const SessionPtr neighbour = r.rig.open();
  auto first = r.start(0, R"({"inputs":{"x":{"data":[1]}},"ops":[{"op":"all_reduce","in":["x"]}],"fetch":["x"]})");
  r.cluster->wait_for_started(1);
  const Answer a = run(*neighbour, BatchMaker(1).upload(1, {3}).fetch(1));
  CHECK(!a->error);
  auto second = r.start(1, R"({"inputs":{"x":{"data":[2]}},"ops":[{"op":"all_reduce","in":["x"]}],"fetch":["x"]})");
  CHECK(said(first.get()) == "3");
  CHECK(said(second.get()) == "3");
}

TEST_CASE("A batch that is cancelled while it waits for other ranks ends, and leaves the group", "[H36]") {
  Ranks r(2, 1);
  const uint16_t reduce = op(r.rig, "all_reduce");
  std::promise<Answer> promise;
  auto future = promise.get_future();
  r.sessions[0]->run(BatchMaker(1).upload(1, {3}).call(reduce, {BatchMaker::tensor(1)}, 2).b, 7,
                     [&](Answer a) { promise.set_value(std::move(a)); });
  r.cluster->wait_for_started(1);
  r.sessions[0]->cancel(1);
  const Answer a = future.get();
  REQUIRE(a->error);
  CHECK(a->error->code() == Code::cancelled);
  r.cluster->wait_for_left(1);
  CHECK(said(r.start(1, R"({"inputs":{"x":{"data":[2]}},"ops":[{"op":"all_reduce","in":["x"]}]})").get()) ==
        "unavailable: rank 0 has left the group");
  const Answer b = run(*r.sessions[0], BatchMaker(2, 2).call(reduce, {BatchMaker::tensor(1)}, 3));
  REQUIRE(b->error);
  CHECK(b->error->message() ==
        "Default process group has not been initialized, please make sure to call init_process_group.");
  const Answer c = run(*r.sessions[0], BatchMaker(3, 3).fetch(1));
  REQUIRE(!c->error);
  CHECK(floats(c->fetched[0].value) == std::vector<float>{3});
}

TEST_CASE("A session that is closed while it waits for other ranks ends, and so do their calls", "[H31][H36]") {
  Ranks r(2, 1);
  auto waits = r.start(0, R"({"inputs":{"x":{"data":[1]}},"ops":[{"op":"barrier"}]})");
  r.cluster->wait_for_started(1);
  CHECK(wait<Result<void>>([&](auto done) { r.sessions[0]->close(std::move(done)); }));
  CHECK(said(waits.get()) == "closed: the session is closed");
  CHECK(said(r.start(1, R"({"ops":[{"op":"barrier"}]})").get()) == "unavailable: rank 0 has left the group");
}

TEST_CASE("A rank that does not come ends the others' wait at the deadline", "[H12][H36]") {
  Ranks r(2, 1, std::chrono::milliseconds(50));
  CHECK(said(r.start(0, R"({"ops":[{"op":"barrier"}]})").get()) ==
        "deadline_exceeded: a rank did not take part in time");
}

TEST_CASE("Groups are made once, left, and made again", "[H2][H4][H31]") {
  Ranks r(1);
  const auto one = [&](const std::string& ops, const std::string& fetch = "") {
    return said(r.start(0, "{\"ops\":[" + ops + "],\"fetch\":[" + fetch + "]}").get());
  };
  CHECK(said(r.start(0, R"({"ops":[{"op":"is_initialized","out":"i"}],"fetch":["i"]})").get()) == "1");
  const std::string init =
      R"({"op":"init_process_group","in":[],"attrs":{"init_method":"env://","world_size":1,"rank":0,)"
      R"("environment":"RANK=0\nMASTER_PORT=1\n"},"out":"rank"})";
  CHECK(one(init) == "bad_argument: trying to initialize the default process group twice!");
  CHECK(one(R"({"op":"destroy_process_group"})") == "nothing");
  CHECK(one(R"({"op":"is_initialized","out":"i"})", "\"i\"") == "0");
  CHECK(one(R"({"op":"barrier"})") ==
        "no_object: Default process group has not been initialized, please make sure to call init_process_group.");
  CHECK(one(R"({"op":"barrier","attrs":{"group":"g"}})") == "no_object: there is no process group 'g'");
  CHECK(one(init, "\"rank\"") == "0");
  const auto seen = r.cluster->environments().back();
  REQUIRE(seen.size() == 2);
  CHECK(seen[1] == std::pair<std::string, std::string>("MASTER_PORT", "1"));
  CHECK(one(R"({"op":"destroy_process_group"},{"op":"init_process_group","attrs":{"backend":"tcp"}})") ==
        "bad_argument: Invalid distributed backend name: tcp");
  r.rig.service.use(nullptr);
  CHECK(one(init) == "unavailable: groups are off: start the server with --peer");
}

TEST_CASE("A group of some ranks counts them in order, and passes the others by", "[H27]") {
  Ranks r(4);
  const Said made = said(r.all(R"({"inputs":{"x":{"data":[@V]}},
    "ops":[{"op":"new_group","in":[[3,1]],"attrs":{"name":"odd"},"out":"n"}],"fetch":["n"]})"));
  CHECK(made == Said{"-1", "0", "-1", "1"});
  CHECK(said(r.all(R"({"ops":[{"op":"all_reduce","in":["x"],"attrs":{"group":"odd"}},
    {"op":"barrier","attrs":{"group":"odd"}}],"fetch":["x"]})")) == Said{"1", "6", "3", "6"});
  // Roots are ranks of the default group.
  CHECK(said(r.all(R"({"ops":[{"op":"add_","in":["x",@R]},
    {"op":"broadcast","in":["x",3],"attrs":{"group":"odd"}}],"fetch":["x"]})")) == Said{"1", "9", "5", "9"});
  CHECK(said(r.all(R"({"ops":[{"op":"broadcast","in":["x",0],"attrs":{"group":"odd"}}]})"))[1] ==
        "bad_argument: rank(0) is not member of group");
  const auto refused = [&](const std::string& ranks, const std::string& name = "g") {
    return said(
        r.start(0, R"({"ops":[{"op":"new_group","in":[[)" + ranks + R"(]],"attrs":{"name":")" + name + R"("}}]})")
            .get());
  };
  CHECK(refused("") == "bad_argument: cannot create empty group");
  CHECK(refused("0,4") == "bad_argument: array of ranks contains invalid rank, all ranks should be in range: [0, 3]");
  CHECK(refused("1,1") == "bad_argument: array of ranks contains a rank twice");
  CHECK(refused("1", "odd") == "bad_argument: the process group 'odd' is there already");
}

TEST_CASE("A group of the server's own is one session's at a time", "[H3][H28]") {
  cluster::FakeCluster cluster;
  Rig rig;
  rig.service.use(&cluster);
  cluster::JoinOptions o;
  o.world_size = 1, o.rank = 0;
  auto group = wait<Result<cluster::GroupPtr>>([&](auto done) { cluster.join(o, std::move(done)); });
  REQUIRE(group);
  rig.service.attach_group("world", std::move(*group));
  const uint16_t barrier = op(rig, "barrier");
  const SessionPtr a = rig.open(), b = rig.open();
  CHECK(!run(*a, BatchMaker(1).call(barrier, {}, 0))->error);
  const Answer refused = run(*b, BatchMaker(1).call(barrier, {}, 0));
  REQUIRE(refused->error);
  CHECK(refused->error->message() == "the server's group 'world' is in use by another session");
  wait<Result<void>>([&](auto done) { a->close(std::move(done)); });
  CHECK(!run(*b, BatchMaker(2, 2).call(barrier, {}, 0))->error);
}

TEST_CASE("A session that ends within a call of the server's own group ends the group", "[H3][H28][H31]") {
  Ranks r(0);
  r.sessions = {r.rig.open(), r.rig.open(), r.rig.open()};  // rank 0, rank 1, and who comes after it
  cluster::JoinOptions o;
  o.init_method = "tcp://fake", o.world_size = 2, o.rank = 1;
  std::promise<Result<cluster::GroupPtr>> made;
  r.cluster.join(o, [&](Result<cluster::GroupPtr> g) { made.set_value(std::move(g)); });
  REQUIRE(r.join(0, 2, std::chrono::minutes(5)).get());
  r.rig.service.attach_group("world", std::move(*made.get_future().get()));
  const auto close = [&] { wait<Result<void>>([&](auto done) { r.sessions[1]->close(std::move(done)); }); };
  const std::string sum = R"({"inputs":{"x":{"data":[@V]}},"ops":[{"op":"all_reduce","in":["x"]}],"fetch":["x"]})";
  // Not what is over, waited for or not.
  auto sent = r.start(1, R"({"inputs":{"x":{"data":[7]}},"ops":[{"op":"isend","in":["x",0],"out":"q"}]})");
  CHECK(said(r.start(0, R"({"inputs":{"x":{"data":[0]}},"ops":[{"op":"recv","in":["x",1]}],"fetch":["x"]})").get()) ==
        "7");
  CHECK(sent.get());
  close();
  auto first = r.start(0, Ranks::written(sum, 0)), second = r.start(2, Ranks::written(sum, 2));
  CHECK(said(first.get()) == "4");
  CHECK(said(second.get()) == "4");
  wait<Result<void>>([&](auto done) { r.sessions[2]->close(std::move(done)); });
  r.sessions[1] = r.rig.open(), r.sessions[2] = r.rig.open();

  SECTION("a call that it waits for") {
    auto waits = r.start(1, Ranks::written(sum, 1));
    r.cluster->wait_for_started(1);
    close();
    CHECK(said(waits.get()) == "closed: the session is closed");
  }
  SECTION("a request that it never waits for") {
    CHECK(r.start(1, R"({"inputs":{"x":{"data":[0]}},"ops":[{"op":"irecv","in":["x",0],"out":"q"}]})").get());
    close();
  }
  SECTION("a request, left by name") {
    CHECK(r.start(1, R"({"inputs":{"x":{"data":[0]}},"ops":[{"op":"irecv","in":["x",0],"out":"q"},
      {"op":"destroy_process_group"}]})")
              .get());
  }
  SECTION("a backward that fails between its calls") {
    const auto program = [](const char* spoil) {
      return R"({"inputs":{"w":{"data":[0.5],"requires_grad":true},"b":{"data":[1.0],"requires_grad":true}},
        "ops":[{"op":"exp","in":["w"],"out":"u"},)" +
             std::string(spoil) + R"({"op":"ddp","in":["w","b"],"attrs":{"bucket_bytes":4}},
        {"op":"add","in":["u","b"],"out":"l"},{"op":"backward","in":["l"]}]})";
    };
    auto other = r.start(0, program(""));
    CHECK(said(r.start(1, program(R"({"op":"add_","in":["u",1],"no_grad":true},)")).get())
              .starts_with("inplace_modified"));
    CHECK(said(other.get()) == "unavailable: rank 1 has left the group");
    close();
  }
  SECTION("a group of some ranks") {
    auto waits = r.start(1, R"({"ops":[{"op":"new_group","in":[[0,1]],"attrs":{"name":"g"},"out":"n"}]})");
    r.cluster->wait_for_split(1);
    close();
    CHECK(said(waits.get()) == "closed: the session is closed");
  }
  r.cluster->wait_for_left(1);
  CHECK(said(r.start(0, Ranks::written(sum, 0)).get()) == "unavailable: rank 1 has left the group");
  CHECK(said(r.start(2, Ranks::written(sum, 2)).get()) ==
        "no_object: Default process group has not been initialized, please make sure to call init_process_group.");
}

TEST_CASE("A session that nobody uses ends with its lease while it waits for other ranks", "[H31][H36][T45]") {
  cluster::FakeCluster cluster;
  std::promise<Result<ProgramResult>> promise;
  TestClock clock;
  Metrics metrics;
  Executor executor(clock, metrics, 1, 1);
  Options options;
  options.ttl_seconds = 10;
  Service service(options, executor, clock, metrics);
  service.use(&cluster);
  const SessionPtr session = *service.open({});
  cluster::JoinOptions o;
  o.world_size = 1, o.rank = 0;
  REQUIRE(wait<Result<GroupInfo>>([&](auto done) { session->join_group("world", o, std::move(done)); }));
  cluster->hold();
  session->attach();
  session->run(http::read_program(http::Doc(R"({"ops":[{"op":"barrier"}]})").root(), DType::float32, http::Use::run),
               {}, [&](Result<ProgramResult> r) { promise.set_value(std::move(r)); });
  cluster->wait_for_started(1);
  clock.advance(std::chrono::seconds(11));
  service.sweep();
  CHECK(service.find(session->id()) != nullptr);  // a client waits for it
  session->detach();
  service.sweep();
  CHECK(service.find(session->id()) != nullptr);  // the lease begins
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (service.find(session->id()) && std::chrono::steady_clock::now() < until) {
    clock.advance(std::chrono::seconds(11));  // its call may have been on the way to its wait
    service.sweep();
    std::this_thread::yield();
  }
  REQUIRE(service.find(session->id()) == nullptr);
  CHECK(said(promise.get_future().get()) == "closed: the session is closed");
  cluster->wait_for_left(1);
}

TEST_CASE("What a session exchanges at a time is bounded by its memory limit", "[H36][T24]") {
  cluster::FakeCluster cluster;
  Rig rig;
  rig.service.use(&cluster);
  SessionOptions small;
  small.memory_limit = 1 << 20;
  const SessionPtr s = rig.open(small);
  cluster::JoinOptions o;
  o.world_size = 1, o.rank = 0;
  REQUIRE(wait<Result<GroupInfo>>([&](auto done) { s->join_group("world", o, std::move(done)); }));
  cluster->hold();
  BatchMaker m(1);
  m.upload(1, std::vector<float>(100000));
  for (uint64_t i = 0; i < 3; ++i) m.call(op(rig, "irecv"), {BatchMaker::tensor(1)}, 2 + i);
  const Answer a = run(*s, m);
  REQUIRE(a->error);
  CHECK(a->error->code() == Code::memory_limit);
  CHECK(a->error->step() == 3);
}
