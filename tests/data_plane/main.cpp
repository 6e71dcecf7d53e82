// The tests, and the processes that they start: this program is its own data-plane-helper, and as `doomed-server` a
// process with a helper that says so and waits for its end.

#include <catch2/catch_session.hpp>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "server/cluster/data_plane.h"

namespace {

int doomed_server() {
  using namespace gradwire::server;
  const auto plane = cluster::make_gloo_plane({});
  plane->prepare(0, 2, std::chrono::seconds(20), [](Result<std::string> address) {
    std::printf("%s\n", address ? address->c_str() : "error");
    std::fflush(stdout);
  });
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "data-plane-helper") {
    return gradwire::server::cluster::data_plane_helper();
  }
  if (argc == 2 && std::string_view(argv[1]) == "doomed-server") return doomed_server();
  return Catch::Session().run(argc, argv);
}
