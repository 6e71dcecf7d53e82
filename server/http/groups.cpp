// Process groups over HTTP.
#include <cmath>

#include "server/groups.h"
#include "server/http/json_write.h"
#include "server/http/names.h"
#include "server/http/routes.h"
#include "server/http/session_use.h"

namespace gradwire::server::http {
namespace {

using Kind = Doc::Kind;

[[noreturn]] void bad(const std::string& why) { throw Error(Code::bad_argument, why); }

std::string text(std::string_view key, Doc::Ref v, size_t most) {
  if (!v.is(Kind::string) || v.size() > most)
    bad(std::string(key) + " must be a string of at most " + std::to_string(most) + " bytes");
  return std::string(v.text());
}
int number(std::string_view key, Doc::Ref v) {
  if (!v.is(Kind::integer) || v.integer() < 0 || v.integer() > 1'000'000)
    bad(std::string(key) + " must be an integer in [0, 1000000]");
  return static_cast<int>(v.integer());
}

cluster::JoinOptions read_join(const std::string& body) {
  cluster::JoinOptions o;
  o.timeout = std::chrono::minutes(30);  // as init_process_group's
  if (body.empty()) return o;
  const Doc doc(body);
  if (!doc.root().is(Kind::object)) bad("how to join a group is an object");
  each_member(doc.root(), [&](std::string_view key, Doc::Ref v) {
    if (v.is(Kind::null)) return;
    if (key == "backend") {
      o.backend = text(key, v, 255);
    } else if (key == "init_method") {
      o.init_method = text(key, v, 4096);
    } else if (key == "group_name") {
      o.group_name = text(key, v, 255);
    } else if (key == "world_size") {
      o.world_size = number(key, v);
    } else if (key == "rank") {
      o.rank = number(key, v);
    } else if (key == "timeout_seconds") {
      const double seconds = v.is(Kind::integer) ? static_cast<double>(v.integer()) : v.is(Kind::real) ? v.real() : 0;
      if (!(seconds > 0) || seconds > 7 * 24 * 3600) bad("timeout_seconds must be positive and at most a week");
      o.timeout = std::chrono::milliseconds(std::max<int64_t>(1, std::llround(seconds * 1000)));
    } else if (key == "environment") {
      if (!v.is(Kind::object) || v.size() > 64) bad("environment must be an object of at most 64 strings");
      each_member(
          v, [&](std::string_view name, Doc::Ref value) { o.environment.emplace_back(name, text(name, value, 4096)); });
    } else {
      bad("unknown option '" + std::string(key.substr(0, 80)) + "' of a group");
    }
  });
  return o;
}

std::string written(const GroupInfo& g) {
  std::string body = "{\"name\":";
  write_text(body, g.name);
  return body += ",\"rank\":" + std::to_string(g.rank) + ",\"world_size\":" + std::to_string(g.world_size) +
                 ",\"epoch\":" + std::to_string(g.epoch) + "}";
}

}  // namespace

Async<Answer> put_group(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  if (const char* fault = name_fault(x.params[1]))
    throw Error(Code::bad_request, std::string("a group's name: ") + fault);
  const std::string body = co_await read_json_body(x);
  cluster::JoinOptions options = read_join(body);
  auto start = [&](Done<Result<GroupInfo>> done) {
    session->join_group(x.params[1], std::move(options), std::move(done));
  };
  co_return Answer::json(written(value_or_throw(co_await call<Result<GroupInfo>>(x, start))), 201);
}

Async<Answer> get_group(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  auto start = [&](Done<Result<GroupInfo>> done) { session->describe_group(x.params[1], std::move(done)); };
  co_return Answer::json(written(value_or_throw(co_await call<Result<GroupInfo>>(x, start))));
}

Async<Answer> delete_group(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  auto start = [&](Done<Result<void>> done) { session->leave_group(x.params[1], std::move(done)); };
  value_or_throw(co_await call<Result<void>>(x, start));
  Answer answer;
  answer.status = 204;
  co_return answer;
}

}  // namespace gradwire::server::http
