#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <thread>

#include "tests/server/rig.h"

namespace gradwire::server {

int64_t resident() {
#if defined(GRADWIRE_ASAN) || defined(GRADWIRE_TSAN)
  return 0;  // a sanitizer keeps what was freed, to notice who still uses it; its own leak check stands in
#endif
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, mine = 0;
  in >> all >> mine;
  return mine * sysconf(_SC_PAGESIZE);
}

namespace {

using Floats = std::vector<float>;
Arg T(uint64_t id) { return BatchMaker::tensor(id); }

/// The values of a batch's fetches.
std::vector<Floats> values(const Answer& a) {
  if (a->error) throw *a->error;
  std::vector<Floats> all;
  for (const auto& f : a->fetched) all.push_back(floats(f.value));
  return all;
}
std::optional<Code> code(const Answer& a) { return a->error ? std::optional(a->error->code()) : std::nullopt; }

TEST_CASE("a session opened with arange_float counts in its default dtype", "[server][session][X1]") {
  Rig rig;
  for (const bool asked : {false, true}) {
    SessionOptions o;
    if (asked) o.compat = {"arange_float"};
    auto s = rig.open(o);
    const auto a = run(
        *s, BatchMaker(1).call(op(rig, "arange.start"), {BatchMaker::integer(2), BatchMaker::integer(6)}, 1).fetch(1));
    REQUIRE(!a->error);
    CHECK(a->fetched[0].value.info.dtype == (asked ? DType::float32 : DType::int64));
    if (asked) CHECK(values(a) == std::vector<Floats>{{2, 3, 4, 5}});
  }
}

TEST_CASE("a batch uploads, computes and fetches", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  const auto a = run(*s, BatchMaker(1)
                             .upload(1, {1, 2, 3})
                             .upload(2, {10, 20, 30})
                             .call(op(rig, "add"), {T(1), T(2)}, 3)
                             .fetch(3)
                             .fetch(1));
  CHECK(a->seq == 1);
  CHECK(values(a) == std::vector<Floats>{{11, 22, 33}, {1, 2, 3}});
  CHECK(a->fetched[0].value.info.shape == Shape{3});
  const auto info = run(*s, BatchMaker(2).fetch(3, Part::value, FetchKind::info));
  CHECK(info->fetched[0].present);
  CHECK(info->fetched[0].value.bytes.size == 0);
  CHECK(info->fetched[0].value.info.dtype == DType::float32);
  CHECK(s->info().tensors == 3);
  CHECK(s->info().ops_run == 1);
  CHECK(s->last_seq() == 2);
}

TEST_CASE("the most that a session has held outlives what it held", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  run(*s, BatchMaker(1).upload(1, std::vector<float>(1000, 1.f)));
  const int64_t held = s->info().bytes;
  run(*s, BatchMaker(2).release(1));
  CHECK(s->info().bytes < held);
  CHECK(s->info().peak_bytes >= held);
}

TEST_CASE("ids ascend and are never used again", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  run(*s, BatchMaker(1).upload(5, {1}).release(5));
  uint64_t seq = 2, epoch = 1;
  for (const uint64_t id : {uint64_t{5}, uint64_t{4}, uint64_t{1} << 63, ~uint64_t{0}}) {
    CAPTURE(id);
    const auto a = run(*s, BatchMaker(seq++, ++epoch).upload(id, {2}).fetch(id));
    CHECK(code(a) == Code::bad_program);
  }
  CHECK(!run(*s, BatchMaker(seq++, ++epoch).upload(6, {2}).fetch(6))->error);
  CHECK(code(run(*s, BatchMaker(seq++, ++epoch).upload(6, {2}))) == Code::bad_program);
}

TEST_CASE("after an error the rest of its epoch is skipped, but for releases", "[server][session][D]") {
  Rig rig;
  auto s = rig.open();
  const uint16_t add = op(rig, "add");
  run(*s, BatchMaker(1).upload(1, {1, 2}).upload(2, {1, 2, 3}).upload(3, {5, 5}));
  auto bad = BatchMaker(2);
  bad.call(add, {T(1), T(1)}, 4)
      .call(add, {T(1), T(2)}, 5)
      .at("user.cpp", 42)
      .call(add, {T(1), T(1)}, 6)
      .release(3)
      .fetch(4);
  const auto first = run(*s, bad);
  REQUIRE(first->error);
  CHECK(first->error->code() == Code::shape_mismatch);
  CHECK(first->error->op() == "add");
  CHECK(first->error->seq() == 2);
  CHECK(first->error->step() == 1);
  CHECK(first->error->where().file == "user.cpp");
  CHECK(first->error->where().line == 42);
  CHECK(first->fetched.empty());

  const auto later = run(*s, BatchMaker(3).upload(7, {1}).release(2).fetch(4));
  REQUIRE(later->error);  // the first error, not one of its own
  CHECK(later->error->seq() == 2);
  CHECK(later->error->step() == 1);
  CHECK(later->error->where().line == 42);

  // The next epoch finds the effects of the calls before the failing one, and the releases.
  const auto next = run(*s, BatchMaker(4, 2).fetch(4).fetch(1));
  CHECK(values(next) == std::vector<Floats>{{2, 4}, {1, 2}});
  CHECK(s->info().tensors == 2);
  for (uint64_t seq = 5; const uint64_t gone : {2, 3, 5, 6, 7}) {
    CHECK(code(run(*s, BatchMaker(seq, seq).fetch(gone))) == Code::no_tensor);
    ++seq;
  }
}

TEST_CASE("skipped calls drop the uploads that they would have taken", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  auto room = wait<Result<Room>>([&](auto done) { s->reserve(DType::float32, Shape{4}, std::move(done)); });
  REQUIRE(room);
  const uint64_t kept = s->hold(*room), dropped = s->hold(*room);
  auto m = BatchMaker(1);
  m.call(op(rig, "add"), {T(99), T(98)}, 1);
  Arg dtype, shape;
  dtype.kind = ArgKind::dtype, dtype.i = static_cast<int>(DType::float32);
  shape.kind = ArgKind::ints, shape.count = 1;
  m.b.ints.push_back(4);
  m.call(OpCall::kUpload, {dtype, shape, BatchMaker::integer(static_cast<int64_t>(dropped))}, 2);
  CHECK(code(run(*s, m)) == Code::no_tensor);
  CHECK(s->held(kept));
  CHECK(!s->held(dropped));
}

TEST_CASE("bulk uploads fill reserved room and become tensors by their number", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  auto room = wait<Result<Room>>([&](auto done) { s->reserve(DType::float32, Shape{2, 2}, std::move(done)); });
  REQUIRE(room);
  REQUIRE(room->size == 16);
  const Floats v{1, 2, 3, 4};
  std::memcpy(room->data, v.data(), 16);
  const uint64_t number = s->hold(std::move(*room));
  auto upload = [&](uint64_t seq, uint64_t out, std::vector<int64_t> dims) {
    BatchMaker m(seq, seq);
    Arg dtype, shape;
    dtype.kind = ArgKind::dtype, dtype.i = static_cast<int>(DType::float32);
    shape.kind = ArgKind::ints, shape.count = static_cast<uint32_t>(dims.size());
    m.b.ints = std::move(dims);
    m.call(OpCall::kUpload, {dtype, shape, BatchMaker::integer(static_cast<int64_t>(number))}, out).fetch(out);
    return run(*s, m);
  };
  const auto a = upload(1, 1, {2, 2});
  CHECK(values(a) == std::vector<Floats>{v});
  CHECK(a->fetched[0].value.info.shape == Shape{2, 2});
  CHECK(code(upload(2, 2, {2, 2})) == Code::bad_program);  // taken
  CHECK(!s->held(number));
}

TEST_CASE("a batch takes effect exactly once", "[server][session][T46]") {
  Rig rig;
  auto s = rig.open();
  const auto one = BatchMaker(1).upload(1, {1}).fetch(1);
  const auto first = run(*s, one, 11);
  REQUIRE(!first->error);
  CHECK(run(*s, one, 11) == first);  // from the window, not run again: the id would be in use
  CHECK(code(run(*s, one, 12)) == Code::bad_program);
  CHECK(code(run(*s, BatchMaker(3).upload(2, {1}))) == Code::bad_program);  // a gap
  CHECK(code(run(*s, BatchMaker(0))) == Code::bad_program);
  CHECK(s->last_seq() == 1);
  CHECK(!run(*s, BatchMaker(2, 1, 1).upload(2, {1}))->error);  // acknowledges 1
  CHECK(code(run(*s, one, 11)) == Code::bad_program);
  CHECK(code(run(*s, BatchMaker(3, 1, 3))) == Code::bad_program);  // acknowledges itself
  CHECK(!run(*s, BatchMaker(3, 1, 2))->error);
}

TEST_CASE("a repeat that comes before the answer waits for it", "[server][session][T46]") {
  Rig rig({}, 1);
  auto s = rig.open();
  const auto one = BatchMaker(1).upload(1, {1}).fetch(1);
  std::promise<Answer> a, b;
  s->run(one.b, 5, Done<Answer>([&](Answer r) { a.set_value(std::move(r)); }));
  s->run(one.b, 5, Done<Answer>([&](Answer r) { b.set_value(std::move(r)); }));
  CHECK(a.get_future().get() == b.get_future().get());
}

TEST_CASE("answers that nobody acknowledges are bounded", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  uint64_t seq = 1;
  while (seq <= 1024) REQUIRE(!run(*s, BatchMaker(seq++))->error);
  CHECK(code(run(*s, BatchMaker(seq))) == Code::overloaded);
  CHECK(s->last_seq() == 1024);
  CHECK(!run(*s, BatchMaker(seq, 1, 1000))->error);

  auto t = rig.open();
  REQUIRE(!run(*t, BatchMaker(1).upload(1, Floats(16 * 1024)))->error);
  seq = 2;
  std::optional<Code> refused;
  for (; seq <= 1000 && !refused; ++seq) refused = code(run(*t, BatchMaker(seq).fetch(1)));
  CHECK(refused == Code::overloaded);  // 8 MiB in pieces of 64 KiB
  CHECK(seq <= 132);
}

TEST_CASE("a fetched value can be read until it is acknowledged", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  run(*s, BatchMaker(1).upload(1, {4, 5}).fetch(1));
  auto bytes = s->fetched(1, 0);
  REQUIRE(bytes);
  CHECK(bytes->size == 8);
  CHECK(!s->fetched(1, 1));
  CHECK(!s->fetched(2, 0));
  run(*s, BatchMaker(2, 1, 1).release(1));
  CHECK(!s->fetched(1, 0));
  float v[2];
  std::memcpy(v, bytes->data, 8);  // who holds it still has it
  CHECK(v[1] == 5);
}

TEST_CASE("malformed batches are refused and change nothing", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  const uint16_t add = op(rig, "add");
  run(*s, BatchMaker(1).upload(1, {1}));
  uint64_t seq = 2;
  auto refused = [&](Batch b) {
    b.seq = seq, b.epoch = seq, b.acked = seq - 1;
    BatchMaker m(0);
    m.b = std::move(b);
    const auto a = run(*s, m);
    ++seq;
    REQUIRE(a->error);
    CHECK(s->info().tensors == 1);
    return a->error->code();
  };
  auto call = [&](uint16_t o, std::vector<Arg> args) {
    BatchMaker m(0);
    return m.call(o, std::move(args), 100 + seq).b;
  };
  auto arg = [](ArgKind k, uint32_t count, int64_t i = 0) {
    Arg a;
    a.kind = k, a.count = count, a.i = i;
    return a;
  };
  Batch b = call(add, {T(1)});
  b.args.clear();  // the call says one, the columns hold none
  CHECK(refused(b) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::tensors, 4000000000u)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::ints, 4000000000u)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::floats, 1)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::index, 7)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::text, 0, 0)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::text, 0, -1)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::dtype, 0, 10)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(ArgKind::slice, 7)})) == Code::bad_program);
  CHECK(refused(call(add, {arg(static_cast<ArgKind>(200), 0)})) == Code::bad_program);
  CHECK(refused(call(OpCall::kUpload, {T(1)})) == Code::bad_program);
  CHECK(refused(call(60000, {T(1), T(1)})) == Code::unknown_operator);
  b = call(add, {arg(ArgKind::index, 1)});
  b.args.push_back(arg(ArgKind::int_array, 2));
  b.args[0].count = 1, b.calls[0].args = 1;
  b.ints = {int64_t{1} << 40, int64_t{1} << 40};
  CHECK(refused(b) == Code::bad_program);
  b.ints = {-1, 5};
  CHECK(refused(b) == Code::bad_program);
  b = Batch();
  b.fetches.resize(5000);
  CHECK(refused(b) == Code::bad_program);
  Arg part = T(1);
  part.part = static_cast<Part>(9);
  CHECK(refused(call(add, {part, T(1)})) == Code::bad_program);
}

TEST_CASE("a cancelled batch stops between two calls", "[server][session][T47]") {
  Rig rig({}, 1);
  auto s = rig.open();
  const uint16_t add = op(rig, "add");
  run(*s, BatchMaker(1).upload(1, Floats(100000)));
  // The queue is held up by a batch whose answer is waited for while the next one is cancelled.
  BatchMaker slow(2), next(3);
  for (uint64_t i = 0; i < 3000; ++i) slow.call(add, {T(1), T(1)}, 0);
  next.upload(10, {1});
  std::promise<Answer> first, second;
  s->run(slow.b, 0, Done<Answer>([&](Answer r) { first.set_value(std::move(r)); }));
  s->run(next.b, 0, Done<Answer>([&](Answer r) { second.set_value(std::move(r)); }));
  s->cancel(3);
  s->cancel(3);
  s->cancel(77);
  CHECK(!first.get_future().get()->error);
  CHECK(code(second.get_future().get()) == Code::cancelled);
  s->cancel(3);
  CHECK(!run(*s, BatchMaker(4, 2))->error);
}

TEST_CASE("a full queue answers `overloaded`, and the batch may be sent again", "[server][session]") {
  Rig rig({}, 1, {.tasks = 2});
  auto s = rig.open();
  run(*s, BatchMaker(1).upload(1, Floats(100000)));
  auto busy = [&](uint64_t seq) {
    BatchMaker m(seq);
    for (int i = 0; i < 2000; ++i) m.call(op(rig, "add"), {T(1), T(1)}, 0);
    return m;
  };
  // The place of the batch before is free soon after its answer: until then the next is refused, at once.
  auto start = [&](uint64_t seq) {
    for (;;) {
      auto promise = std::make_shared<std::promise<Answer>>();
      auto future = promise->get_future();
      s->run(busy(seq).b, 0, Done<Answer>([promise](Answer r) { promise->set_value(std::move(r)); }));
      if (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return future;
      if (code(future.get()) != Code::overloaded) throw std::runtime_error("answered at once");
    }
  };
  auto a = start(2), b = start(3);
  CHECK(code(run(*s, BatchMaker(4))) == Code::overloaded);
  CHECK(wait<Result<TensorValue>>([&](auto done) { s->get(Key{"x"}, std::move(done)); }).error().code() ==
        Code::overloaded);
  CHECK(s->last_seq() == 3);
  CHECK(!a.get()->error);
  CHECK(!b.get()->error);
  std::optional<Code> again;
  do again = code(run(*s, BatchMaker(4)));
  while (again == Code::overloaded);
  CHECK(!again);
}

TEST_CASE("what is queued when the service and then the executor end is answered", "[server][session]") {
  auto rig = std::make_unique<Rig>(Options{}, 1);
  auto s = rig->open();
  run(*s, BatchMaker(1).upload(1, Floats(100000)));
  std::vector<std::future<Answer>> answers;
  for (uint64_t seq = 2; seq < 10; ++seq) {
    BatchMaker m(seq);
    for (int i = 0; i < 1000; ++i) m.call(op(*rig, "add"), {T(1), T(1)}, 0);
    auto p = std::make_shared<std::promise<Answer>>();
    answers.push_back(p->get_future());
    s->run(m.b, 0, Done<Answer>([p](Answer r) { p->set_value(std::move(r)); }));
  }
  s.reset();
  rig.reset();
  int closed = 0;
  for (auto& a : answers) closed += code(a.get()) == Code::closed;
  CHECK(closed > 0);
}

TEST_CASE("closing answers what is queued with `closed`", "[server][session]") {
  Rig rig({}, 1);
  auto s = rig.open();
  run(*s, BatchMaker(1).upload(1, Floats(1000)));
  std::vector<std::future<Answer>> answers;
  for (uint64_t seq = 2; seq < 50; ++seq) {
    BatchMaker m(seq);
    for (int i = 0; i < 1000; ++i) m.call(op(rig, "add"), {T(1), T(1)}, 0);
    auto p = std::make_shared<std::promise<Answer>>();
    answers.push_back(p->get_future());
    s->run(m.b, 0, Done<Answer>([p](Answer r) { p->set_value(std::move(r)); }));
  }
  CHECK(wait<Result<void>>([&](auto done) { s->close(std::move(done)); }));
  int closed = 0;
  for (auto& a : answers) {
    REQUIRE(a.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
    closed += code(a.get()) == Code::closed;
  }
  CHECK(closed > 0);
  CHECK(rig.service.find(s->id()) == nullptr);
  CHECK(code(run(*s, BatchMaker(50))) == Code::closed);
  CHECK(wait<Result<TensorValue>>([&](auto done) { s->get(Key{"x"}, std::move(done)); }).error().code() ==
        Code::closed);
  CHECK(wait<Result<void>>([&](auto done) { s->close(std::move(done)); }).error().code() == Code::closed);
  CHECK(s->info().bytes == 0);
  CHECK(s->info().tensors == 0);
}

TEST_CASE("tensors are put, described, listed and released by name", "[server][session]") {
  Rig rig;
  auto s = rig.open();
  auto put = [&](const std::string& name, Floats v) {
    auto room = wait<Result<Room>>(
        [&](auto done) { s->reserve(DType::float32, Shape{static_cast<int64_t>(v.size())}, std::move(done)); });
    std::memcpy(room->data, v.data(), v.size() * 4);
    return wait<Result<TensorInfo>>([&](auto done) { s->put(key_of(name), std::move(*room), true, std::move(done)); });
  };
  auto get = [&](const std::string& name) {
    return wait<Result<TensorValue>>([&](auto done) { s->get(key_of(name), std::move(done)); });
  };
  REQUIRE(put("layer1.weight", {1, 2}));
  CHECK(put("w", {3})->requires_grad);
  CHECK(floats(*get("layer1.weight")) == Floats{1, 2});
  REQUIRE(put("w", {4, 5}));
  CHECK(floats(*get("w")) == Floats{4, 5});
  CHECK(get("w.grad").error().code() == Code::no_grad);
  CHECK(get("v").error().code() == Code::no_tensor);
  CHECK(get("v.grad").error().code() == Code::no_tensor);
  for (const std::string& bad : std::vector<std::string>{"", "a/b", "a\nb", "x.grad", std::string(256, 'a')}) {
    CAPTURE(bad);
    CHECK(!put(bad, {1}));
  }
  run(*s, BatchMaker(1).upload(41, {7}));
  auto list =
      wait<Result<std::vector<std::pair<std::string, TensorInfo>>>>([&](auto done) { s->list(std::move(done)); });
  REQUIRE(list->size() == 3);
  CHECK((*list)[0].first == "layer1.weight");
  CHECK((*list)[1].first == "w");
  CHECK((*list)[2].first == "#41");
  CHECK(floats(*get("#41")) == Floats{7});
  auto release = [&](const std::string& name) {
    return wait<Result<void>>([&](auto done) { s->release(key_of(name), std::move(done)); });
  };
  CHECK(release("w"));
  CHECK(release("#41"));
  CHECK(release("w").error().code() == Code::no_tensor);
  CHECK(release("#41").error().code() == Code::no_tensor);
  CHECK(s->info().tensors == 1);
}

TEST_CASE("a session may hold a limited number of tensors", "[server][session]") {
  Options o;
  o.session_tensors = 3;
  Rig rig(o);
  auto s = rig.open();
  CHECK(!run(*s, BatchMaker(1).upload(1, {1}).upload(2, {1}).upload(3, {1}))->error);
  CHECK(code(run(*s, BatchMaker(2).upload(4, {1}))) == Code::memory_limit);
  CHECK(!run(*s, BatchMaker(3, 2).release(1).upload(5, {1}))->error);
}

TEST_CASE("keys say names, gradients and numbers", "[server][session]") {
  CHECK(key_of("w").name == "w");
  CHECK(key_of("w.grad").name == "w");
  CHECK(key_of("w.grad").part == Part::grad);
  CHECK(key_of("#41").id == 41);
  CHECK(key_of("#41").name.empty());
  CHECK(key_of("#41.grad").part == Part::grad);
  CHECK(key_of("#x").name == "#x");
  CHECK(key_of("#99999999999999999999999").name == "#99999999999999999999999");
  CHECK(key_of("#").name == "#");
}

}  // namespace
}  // namespace gradwire::server
