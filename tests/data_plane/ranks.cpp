#include "tests/data_plane/ranks.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "server/cluster/plane/mesh.h"

namespace gradwire::server::cluster::test {

std::set<pid_t> children() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "stat");
    std::string line;
    if (!std::getline(in, line)) continue;
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string state;
    pid_t parent = 0;
    fields >> state >> parent;
    if (parent == ::getpid()) found.insert(std::stoi(name));
  }
  return found;
}

bool only_children(const std::set<pid_t>& wanted, milliseconds limit) {
  for (const auto until = Clock::now() + limit; Clock::now() < until; std::this_thread::yield()) {
    const auto now = children();
    if (std::includes(wanted.begin(), wanted.end(), now.begin(), now.end())) return true;
  }
  return false;
}

std::string hello(int32_t from, int32_t to, int32_t lane) {
  std::string h(plane::kMagic.begin(), plane::kMagic.end());
  for (const int32_t x : {from, to, lane, 0}) h.append(reinterpret_cast<const char*>(&x), 4);
  return h + std::string(32, 'n');
}

sockaddr_un abstract(const std::string& name, socklen_t& size) {
  sockaddr_un u{};
  u.sun_family = AF_UNIX;
  const std::string path = std::string(1, '\0') + "gradwire-plane-" + name;
  path.copy(u.sun_path, path.size());
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  return u;
}

bool hears_end(int fd, milliseconds limit) {
  pollfd p{fd, POLLIN, 0};
  if (::poll(&p, 1, static_cast<int>(limit.count())) != 1) return false;
  char byte;
  const ssize_t n = ::recv(fd, &byte, 1, 0);
  return n == 0 || (n < 0 && errno == ECONNRESET);  // reset: what was said to it was not read
}

Ranks::Ranks(int size, DataPlaneOptions options, bool connected, milliseconds timeout, Way way)
    : ranks(static_cast<size_t>(size)), way_(way) {
  for (int r = 0; r < size; ++r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    const auto before = children();
    rank.plane = make_gloo_plane(options);
    Answer<std::string> address;
    rank.plane->prepare(r, size, timeout, address.done());
    auto result = address.get();
    INFO((result ? "" : result.error().message()));
    REQUIRE(result);
    rank.address = *result;
    for (const pid_t p : children()) {
      if (!before.count(p)) rank.helper = p;
    }
  }
  if (!connected) return;
  for (auto& answer : connect()) {
    auto result = answer.get();
    INFO((result ? "" : result.error().message()));
    REQUIRE(result);
  }
}

std::vector<std::string> Ranks::addresses() const {
  std::vector<std::string> all;
  for (const Rank& r : ranks) all.push_back(way_ == Way::near ? r.address : r.address.substr(0, r.address.find('@')));
  return all;
}

std::vector<Answer<void>> Ranks::connect(const std::string& key) {
  std::vector<Answer<void>> answers(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r].plane->connect(addresses(), key, answers[r].done());
  return answers;
}

Answer<int> Ranks::start(int rank, Terms terms, AreaPtr area, milliseconds deadline) {
  Answer<int> answer;
  ranks[static_cast<size_t>(rank)].plane->run({terms, std::move(area), Clock::now() + deadline, answer.done()});
  return answer;
}

Answer<int> Ranks::start(int rank, Terms terms, AreaPtr area, uint64_t tag, milliseconds deadline) {
  Answer<int> answer;
  ranks[static_cast<size_t>(rank)].plane->run({terms, std::move(area), Clock::now() + deadline, answer.done()}, tag);
  return answer;
}

AreaPtr Ranks::area(int rank, const std::vector<std::byte>& bytes) {
  AreaPtr a = ranks[static_cast<size_t>(rank)].plane->area(bytes.size());
  if (!bytes.empty()) std::memcpy(a->bytes.data(), bytes.data(), bytes.size());
  return a;
}

std::vector<std::vector<std::byte>> Ranks::run(Terms terms, const std::vector<std::vector<std::byte>>& in) {
  std::vector<AreaPtr> areas;
  std::vector<Answer<int>> answers;
  for (int r = 0; r < size(); ++r) {
    areas.push_back(area(r, in[static_cast<size_t>(r)]));
    answers.push_back(start(r, terms, areas.back()));
  }
  std::vector<std::vector<std::byte>> out;
  for (size_t r = 0; r < answers.size(); ++r) {
    auto result = answers[r].get();
    INFO((result ? "" : result.error().message()));
    REQUIRE(result);
    REQUIRE(*result == -1);
    out.emplace_back(areas[r]->bytes.begin(), areas[r]->bytes.end());
  }
  return out;
}

}  // namespace gradwire::server::cluster::test
