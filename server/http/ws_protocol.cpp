#include "server/http/ws_protocol.h"

#include <cstring>
#include <optional>

#include "schema/safetensors.h"
#include "server/http/json_program.h"
#include "server/http/json_tensor.h"
#include "server/http/json_write.h"
#include "server/http/names.h"

namespace gradwire::server::http {
namespace {

using Kind = Doc::Kind;

[[noreturn]] void bad(const std::string& why) { throw Error(Code::bad_request, why); }

std::string name_of(Doc::Ref v) {
  if (!v.is(Kind::string)) bad(std::string("expected a name, got ") + describe(v.kind()));
  return std::string(v.text());
}

std::string new_name(std::string_view name) {
  if (const char* fault = name_fault(name)) bad("'" + std::string(name.substr(0, 80)) + "': " + fault);
  return std::string(name);
}

/// The frames of fetched tensors, and what the text says in their place.
void write_head(std::string& to, std::string_view name, const TensorValue& t, std::vector<WsAnswer::Frame>& frames) {
  to += "{\"dtype\":\"";
  to += gradwire::name(t.info.dtype);
  to += "\",\"shape\":" + to_string(t.info.shape) + ",\"requires_grad\":" + (t.info.requires_grad ? "true" : "false") +
        ",\"frame\":" + std::to_string(frames.size()) + "}";
  const SafetensorsEntry entry{std::string(name), t.info.dtype, t.info.shape, 0, 0};
  frames.push_back({safetensors_head(std::span(&entry, 1)), t.bytes});
}

}  // namespace

struct WsProtocol::Request {
  enum class What { run, run_program, put, get, release };
  std::string id = "null";  // as JSON
  What what = What::run;
  bool binary = false;
  std::shared_ptr<const Program> program;
  Feeds feeds;
  std::vector<std::string> names;  // of a program, or of what to get or release
  std::vector<Program::Input> tensors;
  bool many = false;  // put by names
  Part part = Part::value;

  /// Fills `id` first, so that an error carries it.
  void read(Doc::Ref v, DType floating) {
    if (!v.is(Kind::object)) bad(std::string("a request is an object, got ") + describe(v.kind()));
    std::optional<Doc::Ref> body, inputs, fetch;
    int kinds = 0;
    each_member(v, [&](std::string_view key, Doc::Ref value) {
      if (key == "id") read_id(value);
    });
    each_member(v, [&](std::string_view key, Doc::Ref value) {
      if (key == "id") return;
      if (key == "encoding") {
        if (!value.is(Kind::string) || (value.text() != "json" && value.text() != "binary"))
          bad("encoding is json or binary");
        binary = value.text() == "binary";
      } else if (key == "inputs") {
        inputs = value;
      } else if (key == "fetch") {
        fetch = value;
      } else if (const auto kind = kind_of(key)) {
        ++kinds;
        what = *kind;
        body = value;
      } else {
        bad("unknown field '" + std::string(key.substr(0, 80)) + "' of a request");
      }
    });
    if (kinds != 1) bad("a request has one of run, run_program, put, get, release");
    if ((inputs || fetch) && what != What::run_program) bad("inputs and fetch stand beside run_program");
    switch (what) {
      case What::run:
        program = read_program(*body, floating, Use::run);
        break;
      case What::run_program:
        read_run(*body, v, floating);
        break;
      case What::put:
        read_put(*body, floating);
        break;
      case What::get:
        read_get(*body);
        break;
      case What::release:
        read_names(*body);
        break;
    }
  }

 private:
  static std::optional<What> kind_of(std::string_view key) {
    constexpr std::pair<std::string_view, What> kKinds[] = {{"run", What::run},
                                                            {"run_program", What::run_program},
                                                            {"put", What::put},
                                                            {"get", What::get},
                                                            {"release", What::release}};
    for (const auto& [name, kind] : kKinds) {
      if (key == name) return kind;
    }
    return std::nullopt;
  }
  void read_id(Doc::Ref v) {
    if (v.is(Kind::integer)) {
      id = std::to_string(v.integer());
    } else if (v.is(Kind::string) && v.size() <= 255) {
      id.clear();
      write_text(id, v.text());
    } else {
      bad("id is an integer or a string of at most 255 bytes");
    }
  }
  void read_run(Doc::Ref v, Doc::Ref request, DType floating) {
    const bool inside = v.is(Kind::object);
    if (!inside) names.push_back(name_of(v));
    each_member(inside ? v : request, [&](std::string_view key, Doc::Ref value) {
      if (inside && key == "name") {
        names.push_back(name_of(value));
      } else if (key == "inputs" || key == "fetch") {
        read_feeds_member(key, value, floating, feeds);
      } else if (inside) {
        bad("unknown field '" + std::string(key.substr(0, 80)) + "' of run_program");
      }
    });
    if (names.empty()) bad("run_program needs a name");
  }
  void read_put(Doc::Ref v, DType floating) {
    if (!v.is(Kind::object)) bad("put takes {\"name\", \"tensor\"}, or tensors by their names");
    std::optional<Doc::Ref> name, tensor;
    each_member(v, [&](std::string_view key, Doc::Ref value) {
      if (key == "name" && value.is(Kind::string)) name = value;
      if (key == "tensor" && value.is(Kind::object)) tensor = value;
    });
    if (name && tensor && v.size() == 2) {
      tensors.push_back(read_tensor(*tensor, floating));
      tensors.back().name = new_name(name->text());
      return;
    }
    many = true;
    each_member(v, [&](std::string_view key, Doc::Ref value) {
      std::string checked = new_name(key);
      tensors.push_back(read_tensor(value, floating));
      tensors.back().name = std::move(checked);
    });
  }
  void read_get(Doc::Ref v) {
    if (!v.is(Kind::object)) {
      names.push_back(name_of(v));
      return;
    }
    each_member(v, [&](std::string_view key, Doc::Ref value) {
      if (key == "name") {
        names.push_back(name_of(value));
      } else if (key == "part") {
        const std::string p = name_of(value);
        if (p != "value" && p != "grad") bad("part is value or grad");
        part = p == "grad" ? Part::grad : Part::value;
      } else {
        bad("unknown field '" + std::string(key.substr(0, 80)) + "' of get");
      }
    });
    if (names.empty()) bad("get needs a name");
  }
  void read_names(Doc::Ref v) {
    if (!v.is(Kind::array)) {
      names.push_back(name_of(v));
      return;
    }
    for (const Doc::Ref e : v.parts()) names.push_back(name_of(e));
  }
};

Async<TensorInfo> WsProtocol::put(Program::Input t) {
  auto make_room = [&](Done<Result<Room>> done) { session_->reserve(t.dtype, t.shape, std::move(done)); };
  Result<Room> reserved = co_await call<Result<Room>>(*this, make_room);
  Room room = value_or_throw(std::move(reserved));
  if (!t.bytes.empty()) std::memcpy(room.data, t.bytes.data(), t.bytes.size());
  auto start = [&](Done<Result<TensorInfo>> done) {
    Key key;
    key.name = t.name;
    session_->put(std::move(key), std::move(room), t.requires_grad, std::move(done));
  };
  Result<TensorInfo> info = co_await call<Result<TensorInfo>>(*this, start);
  co_return value_or_throw(std::move(info));
}

Async<void> WsProtocol::carry_out(Request& r, WsAnswer& answer) {
  std::string& text = answer.text;
  switch (r.what) {
    case Request::What::run:
    case Request::What::run_program: {
      auto start = [&](Done<Result<ProgramResult>> done) {
        if (r.what == Request::What::run) return session_->run(r.program, {}, std::move(done));
        session_->run_defined(r.names[0], std::move(r.feeds.inputs), std::move(r.feeds.fetch), std::move(done));
      };
      Result<ProgramResult> got = co_await call<Result<ProgramResult>>(*this, start);
      const ProgramResult result = value_or_throw(std::move(got));
      size_t size = 0;
      for (const auto& [name, value] : result.tensors) size += value ? value->bytes.size : 0;
      auto write = [&] {
        std::string body;
        if (r.binary) {
          write_result(body, result, [&](std::string& to, std::string_view name, const TensorValue& t) {
            write_head(to, name, t, answer.frames);
          });
        } else {
          write_result(body, result);
        }
        return body;
      };
      text += co_await by_size<std::string>(*this, r.binary ? 0 : size, write);
      break;
    }
    case Request::What::put: {
      std::string body;
      for (Program::Input& t : r.tensors) {
        const std::string name = t.name;
        const TensorInfo info = co_await put(std::move(t));
        if (!body.empty()) body += ',';
        write_info(body, name, info);
      }
      text += r.many ? "{\"tensors\":[" + body + "]}" : body;
      break;
    }
    case Request::What::get: {
      Key key = key_of(r.names[0]);
      if (r.part == Part::grad) key.part = Part::grad;
      auto start = [&](Done<Result<TensorValue>> done) { session_->get(key, std::move(done)); };
      Result<TensorValue> got = co_await call<Result<TensorValue>>(*this, start);
      const TensorValue value = value_or_throw(std::move(got));
      if (r.binary) {
        write_head(text, r.names[0], value, answer.frames);
      } else {
        auto write = [&] {
          std::string body;
          write_tensor(body, value);
          return body;
        };
        text += co_await by_size<std::string>(*this, value.bytes.size, write);
      }
      break;
    }
    case Request::What::release:
      for (const std::string& name : r.names) {
        auto start = [&](Done<Result<void>> done) { session_->release(key_of(name), std::move(done)); };
        value_or_throw(co_await call<Result<void>>(*this, start));
      }
      text += "{}";
      break;
  }
}

Async<WsAnswer> WsProtocol::answer(const std::string& request) {
  WsAnswer answer;
  Request r;
  std::optional<Error> error;
  session_->touch();
  try {
    const DType floating = session_->info().dtype;
    auto read = [&] {
      r.read(Doc(request).root(), floating);
      return true;
    };
    co_await by_size<bool>(*this, request.size(), read);
    answer.text = "{\"id\":" + r.id + ",\"result\":";
    co_await carry_out(r, answer);
  } catch (const Error& e) {
    error = e;
  } catch (const std::bad_alloc&) {
    error = Error(Code::memory_limit, "the server is out of memory");
  } catch (const std::exception&) {
    error = Error(Code::internal, "an internal error");
  }
  if (error) {
    answer.frames.clear();
    answer.text = "{\"id\":" + r.id + ",\"error\":";
    write_error(answer.text, *error);
  }
  answer.text += '}';
  co_return answer;
}

}  // namespace gradwire::server::http
