// The conformance cases through the SDK: the program is read by the HTTP reader, bound by the engine, and each call is
// sent by the client's session to a gradwired, as a function of ops.h would send it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <deque>
#include <map>

#include "client/gradwire.h"
#include "server/args.h"
#include "server/http/json_program.h"
#include "tests/conformance/cases.h"

namespace gradwire::conformance {
namespace {

using server::Program;

/// Plays one program in a session.
class Player {
 public:
  Player(Session session, const Program& program)
      : session_(std::move(session)), program_(program), args_(program.args), cx_(*backend_, {}) {
    // Every tensor that an argument names gets a stand-in for binding, which looks at kinds only.
    std::map<std::pair<uint64_t, Part>, uint64_t> slots;
    for (Arg& a : args_) {
      if (a.kind != ArgKind::tensor) continue;
      const auto [at, fresh] = slots.try_emplace({a.id, a.part}, refs_.size());
      if (fresh) refs_.push_back({program.names.at(a.id), a.part, cx_.empty({}, DType::float32)});
      a.id = at->second, a.part = Part::value;
    }
  }

  json::object run() {
    for (const Program::Input& i : program_.inputs)
      names_[i.name] = from_bytes(session_, i.dtype, i.bytes, i.shape, i.requires_grad);
    server::ArgReader reader(server::Columns{args_, program_.ints, program_.texts}, [this](const Arg& a) {
      Ref& r = refs_.at(a.id);
      r.handle = part(r.name, r.part);
      return &r.stand_in;
    });
    for (const Program::Step& s : program_.steps) {
      if (s.broken) throw Error(*s.broken);
      reader.clear(), tensors_.clear(), indexes_.clear();
      const auto read = [&](const Program::Range& r) {
        reader.arg = r.first, reader.integer = r.ints;
        return reader.read();
      };
      std::vector<engine::Bound> positional;
      std::vector<std::pair<std::string_view, engine::Bound>> named;
      for (const auto& r : s.positional) positional.push_back(read(r));
      for (const auto& [name, r] : s.named) named.emplace_back(name, read(r));
      engine::BoundCall call;
      engine::bind(s.op, positional, named, call);
      std::vector<Value<Tensor>> values;
      for (int k = 0; k < call.count; ++k) values.push_back(value(call.args[k]));
      const GradMode mode(s.grad_mode.value_or(true));
      place(s, send(call.id, values));
    }
    json::object tensors;
    for (const std::string& name : program_.fetch) tensors[name] = fetched(name);
    return {{"tensors", tensors}};
  }

 private:
  struct Ref {
    std::string name;
    Part part;
    engine::Tensor stand_in;
    Tensor handle = {};
  };

  Tensor part(const std::string& name, Part p) {
    const auto found = names_.find(name);
    if (found == names_.end()) throw Error(Code::no_tensor, "there is no tensor '" + name + "'");
    return p == Part::grad ? found->second.grad() : found->second;
  }
  const Tensor& handle(const engine::Tensor& t) {
    static const Tensor nothing;
    for (const Ref& r : refs_) {
      if (r.stand_in.operator->() == t.operator->()) return r.handle;
    }
    return nothing;
  }

  Value<Tensor> value(const engine::Bound& b) {
    Value<Tensor> v;
    v.kind = b.kind, v.count = b.count;
    switch (b.kind) {
      case ArgKind::boolean:
        v.b = b.b;
        break;
      case ArgKind::integer:
        v.i = b.i;
        break;
      case ArgKind::real:
        v.f = b.f;
        break;
      case ArgKind::text:
        v.text = b.text;
        break;
      case ArgKind::dtype:
        v.dtype = b.dtype;
        break;
      case ArgKind::ints:
      case ArgKind::bools:
        v.ints = b.ints;
        break;
      case ArgKind::floats:
        v.floats = b.floats;
        break;
      case ArgKind::tensor:
        v.tensors = &tensors_.emplace_back(1, handle(*b.tensors)).front();
        break;
      case ArgKind::tensors: {
        auto& list = tensors_.emplace_back();
        for (const engine::Tensor& t : std::span(b.tensors, b.count)) list.push_back(handle(t));
        v.tensors = list.data();
        break;
      }
      case ArgKind::index: {
        auto& list = indexes_.emplace_back();
        for (const auto& item : std::span(b.index, b.count)) {
          IndexItem<Tensor> i;
          i.kind = item.kind, i.integer = item.integer, i.slice = item.slice;
          i.sizes = item.sizes, i.values = item.values, i.tensor = handle(item.tensor);
          list.push_back(std::move(i));
        }
        v.index = list.data();
        break;
      }
      default:
        break;
    }
    return v;
  }

  std::vector<Tensor> send(engine::OpId id, std::span<const Value<Tensor>> args) {
    const engine::OpRow& row = engine::catalogue()[id];
    const auto at = std::source_location::current();
    if (row.name().ends_with('_')) {
      session_.none(id, at, args);
      return {*args[0].tensors};
    }
    const auto all = [](const auto& list) { return std::vector<Tensor>(list.begin(), list.end()); };
    switch (row.sig.results.size()) {
      case 0:
        session_.none(id, at, args);
        return {};
      case 1:
        return row.sig.results[0].list ? session_.list(id, at, args) : std::vector{session_.one(id, at, args)};
      case 2:
        return all(session_.several<2>(id, at, args));
      default:
        return all(session_.several<3>(id, at, args));
    }
  }

  void place(const Program::Step& s, std::vector<Tensor> results) {
    if (s.outs.empty()) return;
    if (results.size() != s.outs.size()) throw Error(Code::bad_program, "another number of results");
    for (size_t i = 0; i < results.size(); ++i) {
      if (s.outs[i]) names_[*s.outs[i]] = std::move(results[i]);
    }
  }

  json::value fetched(const std::string& full) {
    const server::Key key = server::key_of(full);
    const auto found = names_.find(key.name);
    if (found == names_.end()) {
      if (key.part == Part::grad) return nullptr;
      throw Error(Code::no_tensor, "there is no tensor '" + full + "'");
    }
    if (key.part == Part::grad && !found->second.has_grad()) return nullptr;
    const Tensor t = part(key.name, key.part);
    json::object o;
    try {
      o["dtype"] = gradwire::name(t.dtype());
    } catch (const NoGradient&) {
      return nullptr;  // an input that `grad` found unused
    }
    json::array shape, data;
    for (const int64_t d : t.shape()) shape.push_back(d);
    if (is_floating(t.dtype())) {
      for (const double x : t.to_vector<double>()) {
        if (std::isfinite(x))
          data.push_back(x);
        else
          data.push_back(std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
      }
    } else {
      for (const int64_t x : t.to_vector<int64_t>()) data.push_back(x);
    }
    o["shape"] = shape, o["data"] = data;
    return o;
  }

  Session session_;
  const Program& program_;
  std::vector<Arg> args_;
  std::unique_ptr<engine::Backend> backend_ = engine::make_cpu_backend();
  engine::Context cx_;
  std::vector<Ref> refs_;
  std::map<std::string, Tensor> names_;
  std::deque<std::vector<Tensor>> tensors_;
  std::deque<std::vector<IndexItem<Tensor>>> indexes_;
};

server::Result<std::string> play(const Client& client, const std::string& text) {
  try {
    const auto program =
        server::http::read_program(server::http::Doc(text).root(), DType::float32, server::http::Use::run);
    Session session = client.open();
    const json::object answer = Player(session, *program).run();
    session.sync();
    return json::serialize(answer);
  } catch (const Error& e) {
    return e;
  }
}

}  // namespace

TEST_CASE("Conformance cases give the right values through the SDK", "[conformance]") {
  const File file = GENERATE(from_range(kFiles));
  const Client client = connect("local");
  check_file(file.name, file.at_least, [&](const std::string& program) { return play(client, program); });
}

}  // namespace gradwire::conformance
