#include <algorithm>
#include <optional>

#include "server/http/json_program.h"
#include "server/http/json_tensor.h"
#include "server/http/json_write.h"
#include "server/http/names.h"
#include "server/http/routes.h"
#include "server/http/session_use.h"

namespace gradwire::server::http {
namespace {

using Kind = Doc::Kind;

[[noreturn]] void bad(const std::string& why) { throw Error(Code::bad_argument, why); }

int64_t positive(std::string_view key, Doc::Ref v) {
  if (!v.is(Kind::integer) || v.integer() <= 0) bad(std::string(key) + " must be a positive integer");
  return v.integer();
}
std::string text(std::string_view key, Doc::Ref v) {
  if (!v.is(Kind::string) || v.size() > 255) bad(std::string(key) + " must be a string of at most 255 bytes");
  return std::string(v.text());
}

SessionOptions read_options(const std::string& body) {
  SessionOptions options;
  if (body.empty()) return options;
  const Doc doc(body);
  if (!doc.root().is(Kind::object)) bad("a session's options are an object");
  each_member(doc.root(), [&](std::string_view key, Doc::Ref v) {
    if (v.is(Kind::null)) return;
    if (key == "device") {
      options.device = text(key, v);
    } else if (key == "name") {
      options.name = text(key, v);
    } else if (key == "dtype") {
      options.dtype = read_dtype(v);
      if (!is_floating(options.dtype)) bad("only floating-point types are supported as the default type");
    } else if (key == "seed") {
      if (!v.is(Kind::integer)) bad("seed must be an integer");
      options.seed = static_cast<uint64_t>(v.integer());
    } else if (key == "memory_limit") {
      options.memory_limit = positive(key, v);
    } else if (key == "ttl_seconds") {
      options.ttl_seconds = positive(key, v);
    } else if (key == "compat") {
      if (!v.is(Kind::array)) bad("compat must be a list of names");
      for (const Doc::Ref e : v.parts()) options.compat.push_back(text(key, e));
    } else if (key == "restore") {
      throw Error(Code::not_implemented, "this server keeps no checkpoints");
    } else {
      bad("unknown option '" + std::string(key.substr(0, 80)) + "' of a session");
    }
  });
  return options;
}

/// What a run fetched, as JSON; by the scribe where it is much.
Async<Answer> result_answer(Exchange& x, ProgramResult result) {
  size_t size = 0;
  for (const auto& [name, value] : result.tensors) {
    if (value) size += value->bytes.size;
  }
  auto write = [&result] {
    std::string body;
    write_result(body, result);
    return body;
  };
  std::string body = co_await by_size<std::string>(x, size, write);
  x.hold(body.size());
  co_return Answer::json(std::move(body));
}

void check_program_name(const std::string& name) {
  if (const char* fault = name_fault(name)) throw Error(Code::bad_request, std::string("a program's name: ") + fault);
}

}  // namespace

Async<Answer> post_session(Exchange& x) {
  const std::string body = co_await read_json_body(x);
  const SessionPtr session = value_or_throw(x.service.open(read_options(body)));
  session->touch();
  Answer answer;
  answer.status = 201;
  write_session(answer.body, session->info());
  answer.fields.emplace_back("Location", "/v1/sessions/" + session->id());
  co_return answer;
}

Async<Answer> list_sessions(Exchange& x) {
  std::string body = "{\"sessions\":[";
  for (const SessionInfo& s : x.service.list()) {
    if (body.back() != '[') body += ',';
    write_session(body, s);
  }
  co_return Answer::json(body += "]}");
}

Async<Answer> get_session(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  std::string body;
  write_session(body, session->info());
  co_return Answer::json(std::move(body));
}

Async<Answer> delete_session(Exchange& x) {
  { const SessionUse there(x.service, x.params[0]); }
  auto start = [&x](Done<Result<void>> done) { x.service.close(x.params[0], std::move(done)); };
  value_or_throw(co_await call<Result<void>>(x, start));
  Answer answer;
  answer.status = 204;
  co_return answer;
}

Async<Answer> run_program(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  const std::string body = co_await read_json_body(x);
  const DType floating = session->info().dtype;
  auto read = [&] { return read_program(Doc(body).root(), floating, Use::run); };
  auto program = co_await by_size<std::shared_ptr<const Program>>(x, body.size(), read);
  auto start = [&](Done<Result<ProgramResult>> done) { session->run(std::move(program), {}, std::move(done)); };
  Result<ProgramResult> result = co_await call<Result<ProgramResult>>(x, start);
  co_return co_await result_answer(x, value_or_throw(std::move(result)));
}

Async<Answer> put_program(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  check_program_name(x.params[1]);
  const std::string body = co_await read_json_body(x);
  const DType floating = session->info().dtype;
  auto read = [&] { return read_program(Doc(body).root(), floating, Use::define); };
  const auto program = co_await by_size<std::shared_ptr<const Program>>(x, body.size(), read);
  auto start = [&](Done<Result<void>> done) { session->define(x.params[1], program, std::move(done)); };
  value_or_throw(co_await call<Result<void>>(x, start));

  Answer answer;
  answer.status = 201;
  const auto names = [&answer](const char* key, const std::vector<std::string>& list) {
    answer.body += std::string(",\"") + key + "\":[";
    for (size_t i = 0; i < list.size(); ++i) {
      if (i) answer.body += ',';
      write_text(answer.body, list[i]);
    }
    answer.body += ']';
  };
  answer.body = "{\"name\":";
  write_text(answer.body, x.params[1]);
  names("inputs", program->declared_inputs);
  names("fetch", program->fetch);
  answer.body += ",\"ops\":" + std::to_string(program->steps.size()) + "}";
  co_return answer;
}

Async<Answer> delete_program(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  auto start = [&](Done<Result<void>> done) { session->drop_program(x.params[1], std::move(done)); };
  value_or_throw(co_await call<Result<void>>(x, start));
  Answer answer;
  answer.status = 204;
  co_return answer;
}

Async<Answer> run_stored(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  const std::string body = co_await read_json_body(x);
  const DType floating = session->info().dtype;
  auto read = [&] { return body.empty() ? Feeds{} : read_feeds(Doc(body).root(), floating); };
  Feeds feeds = co_await by_size<Feeds>(x, body.size(), read);
  auto start = [&](Done<Result<ProgramResult>> done) {
    session->run_defined(x.params[1], std::move(feeds.inputs), std::move(feeds.fetch), std::move(done));
  };
  Result<ProgramResult> result = co_await call<Result<ProgramResult>>(x, start);
  co_return co_await result_answer(x, value_or_throw(std::move(result)));
}

}  // namespace gradwire::server::http
