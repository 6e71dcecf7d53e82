// The conformance cases in process: program as JSON in, answer as JSON out, through the same reader, session and writer
// that HTTP uses. conform.py runs the same files over HTTP, sdk_test.cpp through the SDK.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "server/http/json_program.h"
#include "tests/conformance/cases.h"
#include "tests/server/rig.h"

namespace gradwire::conformance {

TEST_CASE("Conformance cases give the right values in process", "[conformance]") {
  const File file = GENERATE(from_range(kFiles));
  server::Rig rig;
  const auto run = server::http::make_run_json(rig.service);
  check_file(file.name, file.at_least, [&](std::string program) {
    return server::wait<server::Result<std::string>>([&](auto done) { run(std::move(program), std::move(done)); });
  });
}

}  // namespace gradwire::conformance
