// The tests, and what they start: this program is its own data-plane-helper, and a server that is one rank of a group.

#include <catch2/catch_session.hpp>
#include <cstdio>
#include <string_view>

#include "tests/cluster/rig.h"

namespace gradwire::server::cluster {

/// Joins, says "joined" on standard output, and calls all_reduce of 4 Mi float32 until it fails.
int run_member(const std::string& url, int rank, int world_size) {
  Cluster::Options options;
  options.peer = "127.0.0.1:0";
  options.make_plane = [](const std::string&, const DataPlaneOptions& data) { return make_gloo_plane(data); };
  const auto cluster = make_cluster(options);
  JoinOptions o;
  o.init_method = url, o.rank = rank, o.world_size = world_size;
  auto joined = join(*cluster, o).get();
  if (!joined) return 1;
  std::puts("joined");
  std::fflush(stdout);
  while (start(*joined, terms(Collective::all_reduce, 1 << 22)).done.get()) {}
  return 0;
}

}  // namespace gradwire::server::cluster

int main(int argc, char** argv) {
  using namespace gradwire::server::cluster;
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (argc == 2 && command == "data-plane-helper") return data_plane_helper();
  if (argc == 5 && command == "member") return run_member(argv[2], std::stoi(argv[3]), std::stoi(argv[4]));
  return Catch::Session().run(argc, argv);
}
