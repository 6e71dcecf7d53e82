#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace gradwire::server::http {

/// What a request's body may be: none; JSON; JSON, npy or safetensors.
enum class Body { none, json, tensor };
/// What a route answers; `upgrade` goes on as a WebSocket.
enum class Gives { nothing, json, tensor, text, upgrade };

/// One row a route: dispatch, 405's Allow, HEAD, OPTIONS and /v1/openapi.json come from here.
struct Route {
  using Handler = Async<Answer> (*)(Exchange&);
  const char* method;
  const char* pattern;  // "{…}" stands for one segment
  Body body;
  Gives gives;
  int status;      // where all goes well
  Handler handle;  // null for an upgrade
  const char* doc;
  const char* in;  // names of schemas in openapi.cpp, or null
  const char* out;
  const char* query;  // its query parameters, separated by spaces
  bool probe;         // also on the probe listener
};
std::span<const Route> routes();
/// A line a route: method and path, and "probe" where the probe listener has it too.
std::string routes_text();

struct Found {
  const Route* route = nullptr;     // null: the path or the method is not there
  std::vector<std::string> params;  // of the path
  std::string allow;                // the methods of the path; empty where the path is unknown
};
/// HEAD finds GET's route.
Found find_route(const Head&, bool probe);

/// The answers that need no session: OPTIONS, unknown paths and methods throw; all else is the route's handler.
Async<Answer> dispatch(Exchange&, const Found&);

/// The OpenAPI 3.1 document of routes().
const std::string& openapi();

// Handlers, by file.
Async<Answer> post_session(Exchange&);  // sessions.cpp
Async<Answer> list_sessions(Exchange&);
Async<Answer> get_session(Exchange&);
Async<Answer> delete_session(Exchange&);
Async<Answer> run_program(Exchange&);
Async<Answer> put_program(Exchange&);
Async<Answer> delete_program(Exchange&);
Async<Answer> run_stored(Exchange&);
Async<Answer> put_tensor(Exchange&);  // tensors.cpp
Async<Answer> get_tensor(Exchange&);
Async<Answer> list_tensors(Exchange&);
Async<Answer> delete_tensor(Exchange&);
Async<Answer> put_group(Exchange&);  // groups.cpp
Async<Answer> get_group(Exchange&);
Async<Answer> delete_group(Exchange&);

}  // namespace gradwire::server::http
