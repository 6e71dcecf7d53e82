#include "server/http/json_program.h"

#include <bit>
#include <limits>
#include <map>
#include <optional>

#include "schema/utf8.h"
#include "schema/error.h"
#include "server/http/json_tensor.h"
#include "server/http/json_write.h"
#include "server/http/names.h"
#include "server/http/scribe.h"
#include "server/service.h"

namespace gradwire::server::http {
namespace {

using Kind = Doc::Kind;

[[noreturn]] void fail(const std::string& why) { throw Error(Code::bad_program, why); }

std::string quoted(std::string_view s) {
  std::string t(1, '\'');
  return t.append(s.substr(0, 80)).append(1, '\'');
}

bool is_non_finite(Doc::Ref v) {
  return v.is(Kind::string) && (v.text() == "NaN" || v.text() == "Infinity" || v.text() == "-Infinity");
}

std::string checked_name(Doc::Ref v, const char* what) {
  if (!v.is(Kind::string)) fail(std::string(what) + " must be a name, got " + describe(v.kind()));
  if (const char* fault = name_fault(v.text())) fail(std::string(what) + " " + quoted(v.text()) + ": " + fault);
  return std::string(v.text());
}

std::vector<std::string> strings(Doc::Ref v, const char* what) {
  if (!v.is(Kind::array)) fail(std::string(what) + " must be a list of names, got " + describe(v.kind()));
  std::vector<std::string> names;
  names.reserve(v.size());
  for (const Doc::Ref e : v.parts()) {
    if (!e.is(Kind::string)) {
      fail(std::string(what) + "[" + std::to_string(names.size()) + "] must be a name, got " + describe(e.kind()));
    }
    names.emplace_back(e.text());
  }
  return names;
}

std::vector<Program::Input> read_inputs(Doc::Ref v, DType floating, std::vector<std::string>* declared) {
  std::vector<Program::Input> inputs;
  if (v.is(Kind::null)) return inputs;
  if (declared && v.is(Kind::array)) {
    for (const Doc::Ref e : v.parts()) declared->push_back(checked_name(e, "inputs"));
    return inputs;
  }
  if (!v.is(Kind::object)) fail(std::string("inputs must be an object of tensors, got ") + describe(v.kind()));
  each_member(v, [&](std::string_view key, Doc::Ref value) {
    if (const char* fault = name_fault(key)) fail("inputs " + quoted(key) + ": " + fault);
    if (declared && (value.is(Kind::null) || (value.is(Kind::object) && value.size() == 0))) {
      declared->emplace_back(key);
      return;
    }
    try {
      inputs.push_back(read_tensor(value, floating));
    } catch (const Error& e) {
      const char* how = declared ? "; what every run gives is declared by its name: \"inputs\": [\"x\"]" : "";
      throw Error(e.code(), "inputs " + quoted(key) + ": " + e.message() + how);
    }
    inputs.back().name = key;
  });
  return inputs;
}

/// One element of "ops", and its arguments as flat args.
class StepReader {
 public:
  explicit StepReader(Program& p) : p_(p) {}

  void read(Doc::Ref v, Program::Step& step) {
    if (!v.is(Kind::object)) fail(std::string("a step must be an object, got ") + describe(v.kind()));
    std::optional<Doc::Ref> in, attrs, out, mode;
    bool off = false;
    each_member(v, [&](std::string_view key, Doc::Ref value) {
      if (key == "op") {
        if (!value.is(Kind::string)) fail(std::string("op must be a string, got ") + describe(value.kind()));
        step.op = value.text();
      } else if (key == "in") {
        in = value;
      } else if (key == "attrs") {
        attrs = value;
      } else if (key == "out") {
        out = value;
      } else if (key == "grad_mode" || key == "no_grad") {
        if (mode) fail("grad_mode and no_grad exclude each other");
        mode = value;
        off = key == "no_grad";
      } else {
        fail("unknown field " + quoted(key) + " of a step");
      }
    });
    if (step.op.empty()) fail("a step needs op");
    if (mode && !mode->is(Kind::null)) {
      if (!mode->is(Kind::boolean)) fail(std::string(off ? "no_grad" : "grad_mode") + " must be true or false");
      // "no_grad": false says nothing, as in `with nullcontext()`.
      if (!off || mode->boolean()) step.grad_mode = off ? false : mode->boolean();
    }
    if (in && !in->is(Kind::null)) {
      if (!in->is(Kind::array)) fail(std::string("in must be a list, got ") + describe(in->kind()));
      for (const Doc::Ref e : in->parts()) step.positional.push_back(positional(e));
    }
    if (attrs && !attrs->is(Kind::null)) {
      if (!attrs->is(Kind::object)) fail(std::string("attrs must be an object, got ") + describe(attrs->kind()));
      const bool indexing = step.op == "index" || step.op == "index_put" || step.op == "index_put_";
      each_member(*attrs, [&](std::string_view key, Doc::Ref value) {
        try {
          step.named.emplace_back(key, named(value, indexing && key == "index"));
        } catch (const Error& e) {
          throw Error(e.code(), "attrs." + std::string(key.substr(0, 80)) + ": " + e.message());
        }
      });
    }
    if (out && !out->is(Kind::null)) outs(*out, step);
  }

 private:
  Program::Range here() const { return {static_cast<uint32_t>(p_.args.size()), static_cast<uint32_t>(p_.ints.size())}; }
  Arg& add(ArgKind kind) {
    p_.args.push_back(Arg{});
    p_.args.back().kind = kind;
    return p_.args.back();
  }
  void add_count(ArgKind kind, size_t n) { add(kind).count = static_cast<uint32_t>(n); }

  void tensor(std::string_view name) {
    Arg& arg = add(ArgKind::tensor);
    constexpr std::string_view kGrad = ".grad";
    if (name.size() > kGrad.size() && name.ends_with(kGrad)) {
      arg.part = Part::grad;
      name.remove_suffix(kGrad.size());
    }
    if (name.empty()) fail("a tensor's name is empty");
    const auto [at, fresh] = numbers_.try_emplace(std::string(name), p_.names.size());
    if (fresh) p_.names.emplace_back(name);
    arg.id = at->second;
  }
  void tensors(Doc::Ref list) {
    add_count(ArgKind::tensors, list.size());
    for (const Doc::Ref e : list.parts()) {
      if (e.is(Kind::string)) {
        tensor(e.text());
      } else if (e.is(Kind::null)) {
        add(ArgKind::none);
      } else {
        fail(std::string("a list of tensors holds names, got ") + describe(e.kind()));
      }
    }
  }
  void number(Doc::Ref v) {
    switch (v.kind()) {
      case Kind::boolean:
        add(ArgKind::boolean).i = v.boolean();
        break;
      case Kind::integer:
        add(ArgKind::integer).i = v.integer();
        break;
      case Kind::real:
        add(ArgKind::real).f = v.real();
        break;
      default:
        fail("an integer is outside the range of int64");
    }
  }
  void text(Doc::Ref v) {
    add(ArgKind::text).i = static_cast<int64_t>(p_.texts.size());
    p_.texts.emplace_back(v.text());
  }
  /// {"tensor": …}, {"tensors": […]}, {"generator": …}
  void object(Doc::Ref v) {
    if (v.size() == 1) {
      const std::string_view key = v.first().text();
      const Doc::Ref value = v.first().next();
      if ((key == "tensor" || key == "generator" || key == "optimizer") && value.is(Kind::string))
        return tensor(value.text());
      if (key == "tensor" && value.is(Kind::null)) return void(add(ArgKind::none));
      if (key == "tensors" && value.is(Kind::array)) return tensors(value);
    }
    fail("an object here is {\"tensor\": name}, {\"tensors\": [names]} or {\"generator\": name}");
  }
  void one(Doc::Ref v, bool strings_are_tensors) {
    switch (v.kind()) {
      case Kind::null:
        add(ArgKind::none);
        break;
      case Kind::string:
        strings_are_tensors ? tensor(v.text()) : text(v);
        break;
      case Kind::object:
        object(v);
        break;
      default:
        number(v);
    }
  }

  Program::Range positional(Doc::Ref v) {
    const Program::Range r = here();
    if (!v.is(Kind::array)) {
      one(v, true);
    } else if (holds_a_name(v)) {
      tensors(v);
    } else {
      list(v);
    }
    return r;
  }
  Program::Range named(Doc::Ref v, bool index) {
    const Program::Range r = here();
    if (index && !(v.is(Kind::object) && v.size() == 1 && v.first().text() == "tensors")) {
      // x[1] is x[1,]
      const size_t n = v.is(Kind::array) ? v.size() : 1;
      add_count(ArgKind::index, n);
      if (v.is(Kind::array)) {
        for (const Doc::Ref e : v.parts()) index_item(e);
      } else {
        index_item(v);
      }
    } else if (v.is(Kind::array)) {
      list(v);
    } else {
      one(v, false);
    }
    return r;
  }

  static bool holds_a_name(Doc::Ref list) {
    for (const Doc::Ref e : list.parts()) {
      if (e.is(Kind::string)) return true;
    }
    return false;
  }

  /// A list of one kind of numbers becomes ints, floats or bools; anything else that an index list may hold, that.
  void list(Doc::Ref v) {
    size_t integers = 0, reals = 0, booleans = 0;
    for (const Doc::Ref e : v.parts()) {
      integers += e.is(Kind::integer);
      reals += e.is(Kind::real) || e.is(Kind::big) || is_non_finite(e);
      booleans += e.is(Kind::boolean);
    }
    const size_t n = v.size();
    if (booleans && booleans == n) {
      add_count(ArgKind::bools, n);
      for (const Doc::Ref e : v.parts()) p_.ints.push_back(e.boolean());
    } else if (integers == n) {
      add_count(ArgKind::ints, n);
      for (const Doc::Ref e : v.parts()) p_.ints.push_back(e.integer());
    } else if (integers + reals == n) {
      add_count(ArgKind::floats, n);
      for (const Doc::Ref e : v.parts()) p_.ints.push_back(std::bit_cast<int64_t>(real(e)));
    } else {
      add_count(ArgKind::index, n);
      for (const Doc::Ref e : v.parts()) index_item(e);
    }
  }
  static double real(Doc::Ref v) {
    if (v.is_number()) return v.real();
    constexpr double inf = std::numeric_limits<double>::infinity();
    return v.text() == "NaN" ? std::numeric_limits<double>::quiet_NaN() : v.text() == "Infinity" ? inf : -inf;
  }

  void index_item(Doc::Ref v) {
    switch (v.kind()) {
      case Kind::null:
        add(ArgKind::none);
        return;
      case Kind::boolean:
      case Kind::integer:
        number(v);
        return;
      case Kind::array:
        array(v);
        return;
      case Kind::string:
        if (v.text() != "...") fail("a string in an index is \"...\", got " + quoted(v.text()));
        add(ArgKind::ellipsis);
        return;
      case Kind::object: {
        if (v.size() == 1 && v.first().text() == "slice") return slice(v.first().next());
        if (v.size() == 1 && v.first().text() == "tensor") return object(v);
        fail("an object in an index is {\"slice\": [start, stop, step]} or {\"tensor\": name}");
      }
      default:
        throw Error(Code::bad_argument,
                    "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                    "(got float)");
    }
  }
  void slice(Doc::Ref v) {
    if (!v.is(Kind::array) || v.size() != 3) fail("slice takes [start, stop, step], null for an absent part");
    Arg& arg = add(ArgKind::slice);
    uint32_t bit = 1;
    for (const Doc::Ref e : v.parts()) {
      if (e.is(Kind::integer)) {
        arg.count |= bit;
      } else if (!e.is(Kind::null)) {
        throw Error(Code::bad_argument, "slice indices must be integers or None or have an __index__ method");
      }
      p_.ints.push_back(e.is(Kind::integer) ? e.integer() : 0);
      bit *= 2;
    }
  }
  /// A nested list of integers or booleans: its sizes, then its values.
  void array(Doc::Ref v) {
    Shape sizes;
    for (Doc::Ref d = v; d.is(Kind::array); d = d.first()) {
      sizes.push_back(static_cast<int64_t>(d.size()));
      if (d.size() == 0) break;
    }
    const size_t arg = p_.args.size();
    add_count(ArgKind::int_array, sizes.size());
    p_.ints.insert(p_.ints.end(), sizes.begin(), sizes.end());
    std::vector<int64_t> left;
    bool integers = false, booleans = false;
    for (Doc::Ref at = v; !(at == v.next()); at = at.following()) {
      while (!left.empty() && left.back() == 0) left.pop_back();
      const size_t depth = left.size();
      if (depth) --left.back();
      if (depth < sizes.size()) {
        if (!at.is(Kind::array) || static_cast<int64_t>(at.size()) != sizes[depth]) {
          fail("expected sequence of length " + std::to_string(sizes[depth]) + " at dim " + std::to_string(depth) +
               " (got " + (at.is(Kind::array) ? std::to_string(at.size()) : std::string(describe(at.kind()))) + ")");
        }
        left.push_back(sizes[depth]);
      } else if (at.is(Kind::integer) || at.is(Kind::boolean)) {
        (at.is(Kind::integer) ? integers : booleans) = true;
        p_.ints.push_back(at.is(Kind::integer) ? at.integer() : at.boolean());
      } else if (at.is(Kind::real)) {
        throw Error(Code::bad_argument, "tensors used as indices must be long, byte or bool tensors");
      } else {
        fail(std::string("a nested list in an index holds integers or booleans, got ") + describe(at.kind()));
      }
    }
    if (integers && booleans) fail("a nested list in an index mixes integers and booleans");
    if (booleans) p_.args[arg].kind = ArgKind::bool_array;
  }

  static void outs(Doc::Ref v, Program::Step& step) {
    if (v.is(Kind::array)) {
      for (const Doc::Ref e : v.parts()) {
        if (e.is(Kind::null)) {
          step.outs.emplace_back();
        } else {
          step.outs.emplace_back(checked_name(e, "out"));
        }
      }
    } else {
      step.outs.emplace_back(checked_name(v, "out"));
    }
  }

  Program& p_;
  std::map<std::string, uint64_t, std::less<>> numbers_;
};

}  // namespace

const char* name_fault(std::string_view s) {
  if (s.empty()) return "a name has at least one character";
  if (s.size() > 255) return "a name has at most 255 bytes";
  if (s.ends_with(".grad")) return "a last part .grad is reserved for gradients";
  if (s[0] == '#' && s.size() > 1 && s.find_first_not_of("0123456789", 1) == std::string_view::npos) {
    return "# and a number is reserved for entries without a name";
  }
  while (!s.empty()) {
    const size_t n = utf8_length(s);
    if (n == 0) return "a name is UTF-8";
    if (s[0] == '/') return "a name has no '/'";
    if (static_cast<uint8_t>(s[0]) < 0x20 || s[0] == 0x7F) return "a name has no control characters";
    s.remove_prefix(n);
  }
  return nullptr;
}

std::shared_ptr<const Program> read_program(Doc::Ref v, DType floating, Use use) {
  if (!v.is(Kind::object)) fail(std::string("a program is an object, got ") + describe(v.kind()));
  auto p = std::make_shared<Program>();
  std::optional<Doc::Ref> ops;
  each_member(v, [&](std::string_view key, Doc::Ref value) {
    if (key == "inputs") {
      p->inputs = read_inputs(value, floating, use == Use::define ? &p->declared_inputs : nullptr);
    } else if (key == "ops") {
      if (!value.is(Kind::array)) fail(std::string("ops must be a list, got ") + describe(value.kind()));
      ops = value;
    } else if (key == "fetch") {
      p->fetch = strings(value, "fetch");
    } else if (key == "release") {
      p->release = strings(value, "release");
    } else {
      fail("unknown field " + quoted(key) + " of a program");
    }
  });
  if (!ops) return p;
  StepReader reader(*p);
  p->steps.reserve(ops->size());
  for (const Doc::Ref e : ops->parts()) {
    const auto number = static_cast<int64_t>(p->steps.size());
    Program::Step& step = p->steps.emplace_back();
    try {
      reader.read(e, step);
    } catch (const Error& error) {
      step.broken = error;
      step.broken->at(0, number).of(step.op);
      break;
    }
  }
  return p;
}

bool read_feeds_member(std::string_view key, Doc::Ref value, DType floating, Feeds& feeds) {
  if (key == "inputs") {
    feeds.inputs = read_inputs(value, floating, nullptr);
  } else if (key == "fetch") {
    feeds.fetch = strings(value, "fetch");
  } else {
    return false;
  }
  return true;
}

Feeds read_feeds(Doc::Ref v, DType floating) {
  if (!v.is(Kind::object)) fail(std::string("a run is an object, got ") + describe(v.kind()));
  Feeds feeds;
  each_member(v, [&](std::string_view key, Doc::Ref value) {
    if (!read_feeds_member(key, value, floating, feeds)) fail("unknown field " + quoted(key) + " of a run");
  });
  return feeds;
}

namespace {

void run_once(Service& service, std::weak_ptr<Scribe> scribe, const std::string& text, Done<Result<std::string>> done) {
  std::shared_ptr<const Program> program;
  auto opened = service.open({});
  if (!opened) return done(opened.error());
  const SessionPtr session = *opened;
  session->attach();
  const auto end = [&service, session] {
    service.close(session->id(), [](Result<void>) {});
    session->detach();
  };
  try {
    program = read_program(Doc(text).root(), session->info().dtype, Use::run);
  } catch (const Error& e) {
    end();
    return done(e);
  }
  session->run(program, {}, [scribe = std::move(scribe), end, done = std::move(done)](Result<ProgramResult> r) mutable {
    end();
    auto write = [r = std::move(r), done = std::move(done)]() mutable {
      if (!r) return done(r.error());
      try {
        std::string answer;
        write_result(answer, *r);
        done(std::move(answer));
      } catch (const Error& e) {
        done(e);
      }
    };
    const auto s = scribe.lock();
    if (!s || !s->post(write)) write();  // a full queue slows this lane down, and loses nothing
  });
}

struct RunOnce {
  Service& service;
  std::weak_ptr<Scribe> scribe;
  std::string text;
  Done<Result<std::string>> done;
  void operator()() { run_once(service, std::move(scribe), text, std::move(done)); }
};

}  // namespace

std::function<void(std::string, Done<Result<std::string>>)> make_run_json(Service& service) {
  return [&service, scribe = std::make_shared<Scribe>()](std::string text, Done<Result<std::string>> done) {
    RunOnce task{service, scribe, std::move(text), std::move(done)};
    if (!scribe->post(task)) task.done(Error(Code::overloaded, "too many programs are waiting"));
  };
}

}  // namespace gradwire::server::http
