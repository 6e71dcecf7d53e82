// What `gradwired drain` does to sockets that are no server's.
#include "server/drain.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <string>

#include "schema/error.h"

namespace gradwire::server {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string refusal(const std::string& path) {
  try {
    ask_to_drain(path);
    return "";
  } catch (const Error& e) {
    return e.message();
  }
}

struct Place {
  Place() {
    folder = (std::filesystem::temp_directory_path() / "gradwire-drain-XXXXXX").string();
    REQUIRE(::mkdtemp(folder.data()));
    path = folder + "/socket";
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
  }
  ~Place() { std::filesystem::remove_all(folder); }
  const sockaddr* at() const { return reinterpret_cast<const sockaddr*>(&address); }
  std::string folder, path;
  sockaddr_un address{};
};

TEST_CASE("drain asks nobody whom the asking would end", "[server][T44]") {
#ifdef __SANITIZE_THREAD__
  SKIP("ThreadSanitizer's own thread blocks all signals, also in a process that would be ended by one");
#endif
  const Place place;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    ::signal(SIGUSR1, SIG_DFL);
    const int s = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool listens = ::bind(s, place.at(), sizeof place.address) == 0 && ::listen(s, 4) == 0;
    if (listens && ::write(ready[1], "y", 1) == 1) ::pause();
    ::_exit(1);
  }
  char yes = 0;
  REQUIRE(::read(ready[0], &yes, 1) == 1);
  CHECK_THAT(refusal(place.path), ContainsSubstring("is no server of Gradwire's"));
  CHECK(::waitpid(other, nullptr, WNOHANG) == 0);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  ::close(ready[0]), ::close(ready[1]);
}

TEST_CASE("drain does not wait for ever for a listener that takes no connections", "[server][T44]") {
  const Place place;
  const int s = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(s, place.at(), sizeof place.address) == 0);
  REQUIRE(::listen(s, 0) == 0);
  const int first = ::socket(AF_UNIX, SOCK_STREAM, 0);  // fills its queue
  REQUIRE(::connect(first, place.at(), sizeof place.address) == 0);
  CHECK_THAT(refusal(place.path), ContainsSubstring("no server can be reached on " + place.path));
  ::close(first), ::close(s);
}

}  // namespace
}  // namespace gradwire::server
