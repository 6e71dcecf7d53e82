#include "server/http/routes.h"

#include <algorithm>
#include <array>

#include "engine/registry.h"
#include "server/http/json_write.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/service.h"

namespace gradwire::server::http {
namespace {

/// The rows of the catalogue as operators.json names them. Made once: it does not change.
std::string operators_text() {
  std::string body = "{\"operators\":[";
  for (const engine::OpRow& row : engine::catalogue()) {
    std::string signature = row.def->sig;
    const bool derived = row.inplace && row.def->inplace;
    if (derived) signature.insert(signature.find_first_of(".("), "_");
    if (body.back() != '[') body += ',';
    body += "{\"index\":" + std::to_string(row.id) + ",\"name\":";
    write_text(body, row.sig.name);
    body += ",\"overload\":";
    write_text(body, row.sig.overload);
    body += ",\"signature\":";
    write_text(body, signature);
    body += ",\"doc\":";
    write_text(body, derived ? "In-place form of `" + row.sig.name.substr(0, row.sig.name.size() - 1) + "`."
                             : std::string(row.def->doc));
    body += derived ? ",\"inplace\":true}" : ",\"inplace\":false}";
  }
  return body += "]}";
}

Async<Answer> get_operators(Exchange&) {
  static const std::string text = operators_text();
  co_return Answer::json(text);
}

Async<Answer> get_openapi(Exchange&) { co_return Answer::json(openapi()); }

Async<Answer> get_info(Exchange& x) {
  const ServerInfo info = x.service.info();
  std::string body = "{\"name\":\"gradwire\",\"version\":";
  write_text(body, info.version);
  body += ",\"api\":\"v1\",\"devices\":[";
  for (const std::string& device : info.devices) {
    if (body.back() != '[') body += ',';
    write_text(body, device);
  }
  body += "],\"operators\":" + std::to_string(info.operators.size()) + ",\"catalogue_hash\":\"" +
          std::to_string(info.catalogue_hash) + "\",\"lanes\":" + std::to_string(info.lanes) +
          ",\"threads\":" + std::to_string(info.threads) + ",\"limits\":{\"head_bytes\":" + std::to_string(kMaxHead) +
          ",\"json_bytes\":" + std::to_string(kMaxJson) + ",\"json_depth\":" + std::to_string(kMaxJsonDepth) +
          ",\"json_values\":" + std::to_string(kMaxJsonValues) +
          ",\"session_memory\":" + std::to_string(x.service.options().session_memory) + "}}";
  co_return Answer::json(std::move(body));
}

Async<Answer> get_livez(Exchange& x) {
  if (!x.alive()) throw Error(Code::unavailable, "the HTTP loop has not turned for a while");
  co_return Answer::json("{\"status\":\"ok\"}");
}

Async<Answer> get_readyz(Exchange& x) {
  if (x.service.draining()) throw Error(Code::draining, "the server is draining");
  co_return Answer::json("{\"status\":\"ok\"}");
}

Async<Answer> get_metrics(Exchange& x) {
  Answer answer;
  answer.type = "text/plain; version=0.0.4; charset=utf-8";
  answer.body = x.service.metrics().text();
  co_return answer;
}

constexpr Route kRoutes[] = {
    {"GET", "/v1/sessions", Body::none, Gives::json, 200, list_sessions, "List the open sessions.", nullptr, "Sessions",
     nullptr, false},
    {"POST", "/v1/sessions", Body::json, Gives::json, 201, post_session, "Open a session.", "SessionOptions", "Session",
     nullptr, false},
    {"GET", "/v1/sessions/{session}", Body::none, Gives::json, 200, get_session,
     "Describe a session: tensors, bytes, operators run, age, device.", nullptr, "Session", nullptr, false},
    {"DELETE", "/v1/sessions/{session}", Body::none, Gives::nothing, 204, delete_session,
     "Close a session; its memory goes back.", nullptr, nullptr, nullptr, false},
    {"GET", "/v1/sessions/{session}/tensors", Body::none, Gives::json, 200, list_tensors,
     "List the tensors of a session, without values.", nullptr, "TensorInfos", nullptr, false},
    {"PUT", "/v1/sessions/{session}/tensors/{name}", Body::tensor, Gives::json, 200, put_tensor,
     "Create or replace a tensor. Of a safetensors file with several tensors, t becomes NAME.t.", "Tensor",
     "TensorInfo", "requires_grad", false},
    {"GET", "/v1/sessions/{session}/tensors/{name}", Body::none, Gives::tensor, 200, get_tensor,
     "A tensor's value, its gradient or what is known of it.", nullptr, "Tensor", "part", false},
    {"DELETE", "/v1/sessions/{session}/tensors/{name}", Body::none, Gives::nothing, 204, delete_tensor,
     "Release a tensor.", nullptr, nullptr, nullptr, false},
    {"POST", "/v1/sessions/{session}/run", Body::json, Gives::json, 200, run_program, "Run a program once.", "Program",
     "Result", nullptr, false},
    {"PUT", "/v1/sessions/{session}/programs/{program}", Body::json, Gives::json, 201, put_program,
     "Store a program under a name.", "Definition", "StoredProgram", nullptr, false},
    {"DELETE", "/v1/sessions/{session}/programs/{program}", Body::none, Gives::nothing, 204, delete_program,
     "Forget a stored program.", nullptr, nullptr, nullptr, false},
    {"POST", "/v1/sessions/{session}/programs/{program}/run", Body::json, Gives::json, 200, run_stored,
     "Run a stored program with new inputs.", "Feeds", "Result", nullptr, false},
    {"PUT", "/v1/sessions/{session}/groups/{group}", Body::json, Gives::json, 201, put_group,
     "Join a process group; done when all its ranks have. The group \"world\" is the default one.", "GroupOptions",
     "Group", nullptr, false},
    {"GET", "/v1/sessions/{session}/groups/{group}", Body::none, Gives::json, 200, get_group,
     "Describe a process group of the session.", nullptr, "Group", nullptr, false},
    {"DELETE", "/v1/sessions/{session}/groups/{group}", Body::none, Gives::nothing, 204, delete_group,
     "Leave a process group; the other ranks' operations fail from then on.", nullptr, nullptr, nullptr, false},
    {"GET", "/v1/sessions/{session}/ws", Body::none, Gives::upgrade, 101, nullptr,
     "Go on as a WebSocket, subprotocol gradwire.v1.", nullptr, nullptr, nullptr, false},
    {"GET", "/v1/operators", Body::none, Gives::json, 200, get_operators, "The catalogue of operators.", nullptr,
     "Operators", nullptr, false},
    {"GET", "/v1/openapi.json", Body::none, Gives::json, 200, get_openapi, "This document.", nullptr, "Anything",
     nullptr, false},
    {"GET", "/v1/info", Body::none, Gives::json, 200, get_info, "Versions, devices and limits.", nullptr, "Info",
     nullptr, false},
    {"GET", "/livez", Body::none, Gives::json, 200, get_livez, "Whether the process works.", nullptr, "Status", nullptr,
     true},
    {"GET", "/healthz", Body::none, Gives::json, 200, get_livez, "The same as /livez.", nullptr, "Status", nullptr,
     true},
    {"GET", "/readyz", Body::none, Gives::json, 200, get_readyz, "Whether the server takes work.", nullptr, "Status",
     nullptr, true},
    {"GET", "/metrics", Body::none, Gives::text, 200, get_metrics, "Counters in Prometheus' text format.", nullptr,
     nullptr, nullptr, true},
};

/// The values of the pattern's {…}, or false where the path is another.
bool matches(std::string_view pattern, const std::vector<std::string>& path, std::vector<std::string>& params) {
  params.clear();
  size_t n = 0;
  while (!pattern.empty()) {
    pattern.remove_prefix(1);  // '/'
    const std::string_view part = pattern.substr(0, pattern.find('/'));
    pattern.remove_prefix(part.size());
    if (n == path.size()) return false;
    if (part.starts_with('{')) {
      if (path[n].empty()) return false;
      params.push_back(path[n]);
    } else if (part != path[n]) {
      return false;
    }
    ++n;
  }
  return n == path.size();
}

void allow(std::string& list, std::string_view method) {
  if (!list.empty()) list += ", ";
  list += method;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

std::string routes_text() {
  std::string text;
  for (const Route& r : kRoutes) text += std::string(r.method) + " " + r.pattern + (r.probe ? " probe\n" : "\n");
  return text;
}

Found find_route(const Head& head, bool probe) {
  Found found;
  const std::string_view wanted = head.method == "HEAD" ? std::string_view("GET") : head.method;
  std::vector<std::string> params;
  for (const Route& route : kRoutes) {
    if (probe && !route.probe) continue;
    if (!head.asterisk && !matches(route.pattern, head.path, params)) continue;
    const std::string_view method = route.method;
    if (found.allow.find(method) == std::string::npos) {
      allow(found.allow, method);
      if (method == "GET" && route.gives != Gives::upgrade) allow(found.allow, "HEAD");
    }
    if (head.asterisk || method != wanted) continue;
    if (head.method == "HEAD" && route.gives == Gives::upgrade) continue;
    found.route = &route;
    found.params = params;
  }
  if (!found.allow.empty()) allow(found.allow, "OPTIONS");
  return found;
}

Async<Answer> dispatch(Exchange& x, const Found& found) {
  if (found.allow.empty())
    throw Error(Code::no_route, "there is nothing at this path; /v1/openapi.json lists what there is");
  if (x.head.method == "OPTIONS") {
    Answer answer;
    answer.status = 204;
    answer.fields.emplace_back("Allow", found.allow);
    co_return answer;
  }
  if (!found.route) {
    Answer answer =
        error_answer(Error(Code::bad_method, std::string(x.head.method.substr(0, 40)) + " is not for this path"));
    answer.fields.emplace_back("Allow", found.allow);
    co_return answer;
  }
  const Route& route = *found.route;
  if (route.body != Body::none && !x.head.content_length) {
    throw Error(Code::length_required, "a body needs a Content-Length (0 for none)");
  }
  if (route.gives == Gives::json || route.gives == Gives::text) {
    const std::string_view type = route.gives == Gives::json ? "application/json" : "text/plain";
    const std::array offers = {type};
    if (!negotiate(x.head.joined("Accept"), offers))
      throw Error(Code::not_acceptable, "the answer is " + std::string(type));
  }
  co_return co_await route.handle(x);
}

Answer error_answer(const Error& e) {
  Answer answer = Answer::json(error_body(e), http_status(e.code()));
  if (answer.status == 503 || answer.status == 429) answer.fields.emplace_back("Retry-After", "1");
  if (answer.status == 401) answer.fields.emplace_back("WWW-Authenticate", "Bearer");
  return answer;
}

Async<std::string> read_json_body(Exchange& x) {
  const std::string type = media_type(x.head.field("Content-Type"));
  if (!type.empty() && type != "application/json" && !(type.starts_with("application/") && type.ends_with("+json"))) {
    throw Error(Code::unsupported_media_type, "the body must be application/json, got " + type.substr(0, 80));
  }
  if (x.unread > kMaxJson) {
    throw Error(Code::too_large, "a JSON body of " + std::to_string(x.unread) + " bytes is over the limit of " +
                                     std::to_string(kMaxJson));
  }
  std::string body;
  constexpr size_t kStep = size_t{1} << 20;  // memory follows what has arrived, not what was announced
  while (x.unread > 0) {
    const size_t have = body.size(), step = std::min<size_t>(kStep, x.unread);
    x.hold(step);
    body.resize(have + step);
    co_await x.read(std::as_writable_bytes(std::span(body)).subspan(have));
  }
  co_return body;
}

}  // namespace gradwire::server::http
