#include "server/program.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/server/rig.h"

namespace gradwire::server {
namespace {

using Catch::Matchers::ContainsSubstring;
using Floats = std::vector<float>;

/// Writes programs as the JSON reader does.
class Maker {
 public:
  struct Value {  // an argument
    std::vector<Arg> args;
    std::vector<int64_t> ints;
    std::string text;  // of a text argument
  };
  static Value num(double v) {
    Value x;
    x.args.resize(1);
    x.args[0].kind = ArgKind::real, x.args[0].f = v;
    return x;
  }
  static Value integer(int64_t v) {
    Value x;
    x.args.resize(1);
    x.args[0].kind = ArgKind::integer, x.args[0].i = v;
    return x;
  }
  static Value flag(bool v) {
    Value x = integer(v);
    x.args[0].kind = ArgKind::boolean;
    return x;
  }
  static Value ints(std::vector<int64_t> v) {
    Value x;
    x.args.resize(1);
    x.args[0].kind = ArgKind::ints, x.args[0].count = static_cast<uint32_t>(v.size());
    x.ints = std::move(v);
    return x;
  }
  static Value text(std::string t) {
    Value x;
    x.args.resize(1);
    x.args[0].kind = ArgKind::text;
    x.text = std::move(t);
    return x;
  }
  Value name(const std::string& n) {
    Value x;
    x.args.push_back(ref(n));
    return x;
  }
  Value names(const std::vector<std::string>& list) {
    Value x;
    x.args.resize(1);
    x.args[0].kind = ArgKind::tensors, x.args[0].count = static_cast<uint32_t>(list.size());
    for (const auto& n : list) x.args.push_back(n.empty() ? Arg() : ref(n));
    return x;
  }

  Maker& input(std::string name, Floats v, bool requires_grad = false) {
    p.inputs.push_back(make_input(std::move(name), v, requires_grad));
    return *this;
  }
  static Program::Input make_input(std::string name, const Floats& v, bool requires_grad = false) {
    Program::Input i;
    i.name = std::move(name), i.shape = {static_cast<int64_t>(v.size())}, i.requires_grad = requires_grad;
    i.bytes.resize(v.size() * 4);
    if (!v.empty()) std::memcpy(i.bytes.data(), v.data(), i.bytes.size());
    return i;
  }
  Maker& step(std::string op, std::vector<Value> in, std::vector<std::optional<std::string>> outs = {},
              std::vector<std::pair<std::string, Value>> attrs = {}, std::optional<bool> grad_mode = {}) {
    Program::Step s;
    s.op = std::move(op), s.outs = std::move(outs), s.grad_mode = grad_mode;
    for (auto& v : in) s.positional.push_back(range(v));
    for (auto& [n, v] : attrs) s.named.emplace_back(n, range(v));
    p.steps.push_back(std::move(s));
    return *this;
  }
  Maker& fetch(std::vector<std::string> names) { return p.fetch = std::move(names), *this; }
  Maker& release(std::vector<std::string> names) { return p.release = std::move(names), *this; }
  std::shared_ptr<const Program> done() const { return std::make_shared<const Program>(p); }

  Program p;

 private:
  Arg ref(const std::string& n) {
    const Key k = key_of(n);
    Arg a;
    a.kind = ArgKind::tensor, a.part = k.part;
    a.id = static_cast<uint64_t>(std::find(p.names.begin(), p.names.end(), k.name) - p.names.begin());
    if (a.id == p.names.size()) p.names.push_back(k.name);
    return a;
  }
  Program::Range range(Value& v) {
    const Program::Range r{static_cast<uint32_t>(p.args.size()), static_cast<uint32_t>(p.ints.size())};
    if (v.args[0].kind == ArgKind::text) v.args[0].i = static_cast<int64_t>(p.texts.size()), p.texts.push_back(v.text);
    p.args.insert(p.args.end(), v.args.begin(), v.args.end());
    p.ints.insert(p.ints.end(), v.ints.begin(), v.ints.end());
    return r;
  }
};

Result<ProgramResult> run(Session& s, const Maker& m, std::vector<Program::Input> feeds = {}) {
  return wait<Result<ProgramResult>>([&](auto done) { s.run(m.done(), std::move(feeds), std::move(done)); });
}
/// A fetched tensor's values; nothing for null.
std::optional<Floats> got(const Result<ProgramResult>& r, const std::string& name) {
  if (!r) throw r.error();
  for (const auto& [n, v] : (*r).tensors) {
    if (n == name) return v ? std::optional(floats(*v)) : std::nullopt;
  }
  throw Error(Code::no_tensor, name);
}

TEST_CASE("a program computes, differentiates, fetches and releases", "[server][program][D3]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("x", {1, 2, 3}, true)
      .step("mul", {m.name("x"), m.name("x")}, {"y"})
      .step("sum", {m.name("y")}, {"loss"})
      .step("backward", {m.name("loss")})
      .fetch({"loss", "x.grad", "x", "loss"})
      .release({"y"});
  const auto r = run(*s, m);
  REQUIRE(r);
  CHECK((*r).tensors.size() == 3);  // a name that is fetched twice is there once
  CHECK(got(r, "loss") == Floats{14});
  CHECK(got(r, "x.grad") == Floats{2, 4, 6});
  CHECK((*r).warnings.empty());
  // Names stay until released.
  Maker again;
  again.step("mul", {again.name("x.grad"), Maker::integer(10)}, {"z"}).fetch({"z", "x.grad"});
  CHECK(got(run(*s, again), "z") == Floats{20, 40, 60});
  Maker gone;
  gone.step("mul", {gone.name("y"), gone.name("y")}, {"q"});
  CHECK(run(*s, gone).error().code() == Code::no_tensor);
}

TEST_CASE("an error says step and operator, keeps what came before and runs nothing after", "[server][program]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("a", {1, 2}).input("b", {1, 2, 3});
  m.step("add", {m.name("a"), m.name("a")}, {"c"})
      .step("add", {m.name("a"), m.name("b")}, {"d"})
      .step("add", {m.name("a"), m.name("a")}, {"e"});
  m.fetch({"c"}).release({"a"});
  const auto r = run(*s, m);
  REQUIRE(!r);
  CHECK(r.error().code() == Code::shape_mismatch);
  CHECK(r.error().step() == 1);
  CHECK(r.error().op() == "add");
  CHECK(got(run(*s, Maker().fetch({"c", "a"})), "c") == Floats{2, 4});
  CHECK(run(*s, Maker().fetch({"e"})).error().code() == Code::no_tensor);
  Maker unknown;
  unknown.step("no_such_operator", {unknown.name("a")}, {"x"});
  CHECK(run(*s, unknown).error().code() == Code::unknown_operator);
  CHECK(run(*s, unknown).error().op() == "no_such_operator");
  Maker broken;
  broken.step("add", {broken.name("a"), broken.name("a")}, {"before"})
      .step("add", {broken.name("a"), broken.name("a")}, {"after"});
  broken.p.steps[1].broken = Error(Code::bad_program, "that is no index");
  CHECK(run(*s, broken).error().step() == 1);
  CHECK(run(*s, Maker().fetch({"before"})));
  CHECK(!run(*s, Maker().fetch({"after"})));
}

TEST_CASE("overwriting a name changes no tensor that another name holds", "[server][program]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("x", {1, 2});
  m.step("add_", {m.name("x"), Maker::integer(1)}, {"same"})
      .step("mul", {m.name("x"), Maker::integer(10)}, {"x"})
      .step("add_", {m.name("same"), Maker::integer(1)})
      .fetch({"x", "same"});
  const auto r = run(*s, m);
  CHECK(got(r, "x") == Floats{20, 30});
  CHECK(got(r, "same") == Floats{3, 4});
}

TEST_CASE("gradients that do not exist are null, unknown names are errors", "[server][program]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("x", {1, 2}, true).input("unused", {3}, true);
  m.step("sum", {m.name("x")}, {"l"})
      .step("grad", {}, {"gx", "gu"},
            {{"outputs", m.names({"l"})}, {"inputs", m.names({"x", "unused"})}, {"allow_unused", Maker::flag(true)}})
      .fetch({"gx", "gu", "x.grad"});
  const auto r = run(*s, m);
  REQUIRE(r);
  CHECK(got(r, "gx") == Floats{1, 1});
  CHECK(got(r, "gu") == std::nullopt);
  CHECK(got(r, "x.grad") == std::nullopt);
  CHECK(run(*s, Maker().fetch({"nothing"})).error().code() == Code::no_tensor);
  Maker use;
  use.step("add", {use.name("gu"), Maker::integer(1)}, {"y"});
  CHECK(run(*s, use).error().code() == Code::no_tensor);
  CHECK(run(*s, Maker().release({"gu"})));
  CHECK(run(*s, Maker().release({"gu"})).error().code() == Code::no_tensor);
}

TEST_CASE("grad mode belongs to the step", "[server][program][D23][D26]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("x", {2}, true);
  m.step("mul", {m.name("x"), m.name("x")}, {"a"}, {}, false)
      .step("mul", {m.name("x"), m.name("x")}, {"b"})
      .fetch({"a", "b"});
  const auto r = run(*s, m);
  REQUIRE(r);
  CHECK(!(*r).tensors[0].second->info.requires_grad);
  CHECK((*r).tensors[1].second->info.requires_grad);
  CHECK((*r).tensors[1].second->info.grad_fn == "MulBackward0");
}

TEST_CASE("results and their names must agree; null drops a result", "[server][program]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("x", {1, 2}).step("add", {m.name("x"), m.name("x")}, {"a", "b"});
  CHECK(run(*s, m).error().code() == Code::bad_program);
  Maker two;
  two.input("x", {1, 2}, true).step("sum", {two.name("x")}, {"l"});
  two.step("grad", {}, {std::nullopt}, {{"outputs", two.names({"l"})}, {"inputs", two.names({"x"})}});
  CHECK(run(*s, two));
  CHECK(s->info().tensors == 2);
  Maker reserved;
  reserved.input("x", {1}).step("add", {reserved.name("x"), Maker::integer(1)}, {"x.grad"});
  CHECK(run(*s, reserved).error().code() == Code::bad_argument);
}

TEST_CASE("texts stand for numbers and dtypes where those are expected", "[server][program]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.step("full", {}, {"inf"}, {{"size", Maker::ints({2})}, {"fill_value", Maker::text("-Infinity")}})
      .step("zeros", {}, {"z"}, {{"size", Maker::ints({3})}, {"dtype", Maker::text("int64")}})
      .fetch({"inf", "z"});
  const auto r = run(*s, m);
  REQUIRE(r);
  CHECK(got(r, "inf") == Floats(2, -std::numeric_limits<float>::infinity()));
  CHECK((*r).tensors[1].second->info.dtype == DType::int64);
}

TEST_CASE("a stored program runs with what it is fed", "[server][program]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("w", {10, 10}).step("mul", {m.name("x"), m.name("w")}, {"y"}).fetch({"y"});
  m.p.declared_inputs = {"x"};
  auto define = [&](const std::string& name) {
    return wait<Result<void>>([&](auto done) { s->define(name, m.done(), std::move(done)); });
  };
  auto call = [&](const std::string& name, std::vector<Program::Input> feeds, std::vector<std::string> fetch = {}) {
    return wait<Result<ProgramResult>>(
        [&](auto done) { s->run_defined(name, std::move(feeds), std::move(fetch), std::move(done)); });
  };
  CHECK(define("step"));
  CHECK(!define("a/b"));
  CHECK(call("nothing", {}).error().code() == Code::no_program);
  CHECK(got(call("step", {Maker::make_input("x", {1, 2})}), "y") == Floats{10, 20});
  CHECK(got(call("step", {Maker::make_input("x", {3, 4})}), "y") == Floats{30, 40});
  CHECK(got(call("step", {Maker::make_input("x", {3, 4}), Maker::make_input("w", {1, 1})}, {"w", "x"}), "w") ==
        Floats{1, 1});
  CHECK(call("step", {}).error().code() == Code::bad_program);
  CHECK(call("step", {Maker::make_input("x", {1, 2}), Maker::make_input("q", {1})}).error().code() ==
        Code::bad_program);
  CHECK(call("step", {Maker::make_input("x", {1, 2}), Maker::make_input("x", {1, 2})}).error().code() ==
        Code::bad_program);
  auto drop = [&] { return wait<Result<void>>([&](auto done) { s->drop_program("step", std::move(done)); }); };
  CHECK(drop());
  CHECK(drop().error().code() == Code::no_program);
}

TEST_CASE("an input whose bytes do not fit its shape is refused", "[server][program]") {
  Rig rig;
  auto s = rig.open();
  Maker m;
  m.input("x", {1, 2});
  m.p.inputs[0].shape = {3};
  CHECK(run(*s, m).error().code() == Code::bad_tensor);
  m.p.inputs[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  CHECK(!run(*s, m));
  CHECK(s->info().tensors == 0);
}

TEST_CASE("a chain of 100,000 steps differentiates in pieces, and another session is served between",
          "[server][program][T22][T23]") {
  Options o;
  o.session_tensors = 10;
  Rig rig(o, 1);
  auto s = rig.open(), other = rig.open();
  Maker m;
  m.input("x", {1}, true).step("mul", {m.name("x"), Maker::integer(1)}, {"y"});
  for (int i = 0; i < 100000; ++i) m.step("add", {m.name("y"), Maker::integer(0)}, {"y"});
  m.step("backward", {m.name("y")}).fetch({"x.grad"}).release({"y"});
  std::atomic<bool> ended{false};
  std::promise<Result<ProgramResult>> result;
  s->run(m.done(), {}, Done<Result<ProgramResult>>([&](auto r) { ended = true, result.set_value(std::move(r)); }));
  int served = 0;
  for (uint64_t seq = 1; !ended; ++seq) {
    REQUIRE(!run(*other, BatchMaker(seq, 1, seq - 1).upload(seq, {1}).release(seq))->error);
    ++served;
  }
  CHECK(served > 3);
  CHECK(got(result.get_future().get(), "x.grad") == Floats{1});
}

TEST_CASE("the same seed gives the same numbers, and sessions do not share theirs", "[server][program]") {
  Rig rig;
  SessionOptions seeded;
  seeded.seed = 5;
  auto draw = [&](SessionPtr s) {
    Maker m;
    m.step("rand", {}, {"r"}, {{"size", Maker::ints({4})}}).fetch({"r"});
    return *got(run(*s, m), "r");
  };
  const auto a = rig.open(seeded), b = rig.open(seeded), c = rig.open(), d = rig.open();
  const Floats first = draw(a);
  CHECK(first == draw(b));
  CHECK(first != draw(a));
  CHECK(draw(c) != draw(d));
}

TEST_CASE("an operator that needs more than the session may have fails and changes nothing",
          "[server][program][T21][T24]") {
  Rig rig;
  SessionOptions o;
  o.memory_limit = int64_t{4} << 20;
  auto s = rig.open(o);
  Maker m;
  m.step("zeros", {}, {"a"}, {{"size", Maker::ints({100000})}})
      .step("zeros", {}, {"b"}, {{"size", Maker::ints({10000000})}});
  const auto r = run(*s, m);
  REQUIRE(!r);
  CHECK(r.error().code() == Code::memory_limit);
  CHECK(r.error().step() == 1);
  CHECK(s->info().tensors == 1);
  CHECK(s->info().bytes <= int64_t{4} << 20);
  CHECK(run(*s, Maker().release({"a"})));
  CHECK(s->info().bytes < 100000);
}

}  // namespace
}  // namespace gradwire::server
