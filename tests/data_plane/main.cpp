// The tests, and the helpers that they start: this program is its own data-plane-helper.

#include <catch2/catch_session.hpp>
#include <string_view>

#include "server/cluster/data_plane.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "data-plane-helper") {
    return gradwire::server::cluster::data_plane_helper();
  }
  return Catch::Session().run(argc, argv);
}
