#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http/json.h"
#include "server/program.h"
#include "server/result.h"

namespace gradwire::server {
class Service;
}

namespace gradwire::server::http {

enum class Use { run, define };

/// A program in the notation of rest-api.md section 3. `floating` is the session's default dtype. A step that makes no
/// sense ends the list as a broken one, so that the steps before it run; anything else throws Error{bad_program} or
/// {bad_tensor} before a step runs. When it is to be stored (Use::define), `inputs` may also be a list of names, or
/// hold null or {} in a tensor's place: names that every run must feed.
std::shared_ptr<const Program> read_program(Doc::Ref, DType floating, Use);

/// What one run of a stored program brings: {"inputs": {…}, "fetch": […]}, both may be absent.
struct Feeds {
  std::vector<Program::Input> inputs;
  std::vector<std::string> fetch;
};
Feeds read_feeds(Doc::Ref, DType floating);
/// One member of it; false where the key is another.
bool read_feeds_member(std::string_view key, Doc::Ref value, DType floating, Feeds&);

/// Runs a program's JSON text in a session of its own, and answers with JSON text; for Service::run_json. The service
/// outlives the function.
std::function<void(std::string, Done<Result<std::string>>)> make_run_json(Service&);

}  // namespace gradwire::server::http
