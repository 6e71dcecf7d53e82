// Strangers who knock at the ports of servers while these form groups and reduce.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "server/cluster/plane/mesh.h"
#include "tests/e2e/cluster_rig.h"

namespace gradwire::e2e {
namespace {

using Clock = std::chrono::steady_clock;

/// Where a process listens on 127.0.0.1, as /proc/net/tcp has it.
std::vector<int> listening(pid_t pid) {
  std::set<std::string> own;
  std::error_code ignored;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    const std::string to = std::filesystem::read_symlink(fd.path(), ignored).string();
    if (to.starts_with("socket:[")) own.insert(to.substr(8, to.size() - 9));
  }
  std::vector<int> ports;
  if (own.empty()) return ports;
  std::ifstream in("/proc/net/tcp");
  std::string line;
  for (std::getline(in, line); std::getline(in, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, skip, inode;
    words >> number >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    if (state != "0A") break;  // those that listen come first, before what may be thousands
    if (own.contains(inode)) ports.push_back(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

/// A connection that says something once.
class Knock {
 public:
  Knock(int port, const std::string& says) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    if (connected) ::send(fd_, says.data(), says.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ~Knock() { ::close(fd_); }
  Knock(const Knock&) = delete;
  Knock& operator=(const Knock&) = delete;
  /// All that has come so far.
  std::string heard() const {
    std::string all;
    char some[4096];
    for (ssize_t n; (n = ::recv(fd_, some, sizeof some, MSG_DONTWAIT)) > 0;) all.append(some, static_cast<size_t>(n));
    return all;
  }
  bool connected = false;

 private:
  int fd_;
};

/// How helpers greet each other, with the place of a rank that is still awaited.
std::string greeting(int32_t from, int32_t to, int32_t lane) {
  std::string h(server::cluster::plane::kMagic.begin(), server::cluster::plane::kMagic.end());
  for (const int32_t x : {from, to, lane, 0}) h.append(reinterpret_cast<const char*>(&x), 4);
  return h + std::string(32, 'n');
}

std::vector<std::string> payloads() {
  std::vector<std::string> all = {"",
                                  "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                  std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
                                  "SSH-2.0-scan\r\n",
                                  std::string(4, '\xff'),
                                  std::string(8, '\0'),
                                  std::string("\0\0\0\0\xff\xff\xff\x1f", 8),
                                  std::string("\0\0\0\0\1\0\0\0", 8),
                                  std::string(112, '\0'),
                                  std::string(112, '\xff'),
                                  std::string(1 << 16, 'x'),
                                  greeting(1, 0, 0).substr(0, 8),
                                  greeting(1, 0, 0),
                                  greeting(2, 0, 1) + std::string(32, 'p'),
                                  greeting(2, 1, 0) + std::string(32, 'p') + std::string(64, '\1'),
                                  greeting(-1, 0, 0),
                                  greeting(1 << 30, 0, 7)};
  std::mt19937 random(7);
  while (all.size() < 20) {
    std::string s(std::uniform_int_distribution<size_t>(1, 300)(random), '\0');
    for (char& c : s) c = static_cast<char>(random());
    all.push_back(std::move(s));
  }
  return all;
}

/// What the strangers have done and heard.
struct Storm {
  std::atomic<size_t> at_peers{0}, at_data{0};
  std::mutex mutex;
  size_t most_from_peer = 0, most_from_data = 0;
  bool leaked = false;

  void hear(const Knock& k, bool data) {
    const std::string said = k.heard();
    const std::lock_guard lock(mutex);
    size_t& most = data ? most_from_data : most_from_peer;
    most = std::max(most, said.size());
    leaked = leaked || said.find("secret") != std::string::npos;
  }
  void rage(const World& w, std::stop_token stop) {
    const std::vector<std::string> all = payloads();
    std::deque<std::unique_ptr<Knock>> held[2];  // apart: helpers answer late, servers not at all
    const auto knock = [&](int port, bool data, size_t kind) {
      auto k = std::make_unique<Knock>(port, all[kind % all.size()]);
      if (!k->connected) return;
      ++(data ? at_data : at_peers);
      auto& own = held[data];
      own.push_back(std::move(k));
      if (own.size() <= 200) return;
      hear(*own.front(), data);
      own.pop_front();
    };
    for (size_t i = 0; !stop.stop_requested(); ++i) {
      const Server& s = *w.servers[i % w.servers.size()];
      bool found = false;
      const std::vector<int> servers = listening(s.pid());  // a helper that was just forked has them too
      for (const pid_t p : s.family()) {
        if (p == s.pid()) continue;
        for (const int port : listening(p)) {
          if (std::ranges::find(servers, port) != servers.end()) continue;
          found = true;
          for (size_t kind = 0; kind < 20; ++kind) knock(port, true, kind);
        }
      }
      // A helper that waits answers late: what is held must not be dropped before.
      if (found) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::string& peer = s.peer();
      for (size_t n = 0; !found && n < 5; ++n) knock(std::stoi(peer.substr(peer.rfind(':') + 1)), false, i / 3 * 5 + n);
    }
    for (const bool data : {false, true}) {
      for (const auto& k : held[data]) hear(*k, data);
    }
  }
};

/// Holds each new helper of a server up, so that the others' wait for it with open ports.
void hold_up(const Server& server, std::stop_token stop) {
  std::set<pid_t> seen;
  for (const pid_t p : server.family()) seen.insert(p);
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const pid_t p : server.family()) {
      if (!seen.insert(p).second || ::kill(p, SIGSTOP)) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      ::kill(p, SIGCONT);
    }
  }
}

void storm(size_t knocks, std::chrono::seconds patience) {
  World w(3);
  w.meet();
  std::vector<size_t> before;
  for (const auto& s : w.servers) before.push_back(s->descriptors());
  std::string text;
  while (text.size() < (1 << 20)) text += "secret ";
  const std::vector<uint8_t> secret(text.begin(), text.end());
  Storm storm;
  double slowest = 0;
  size_t groups = 0;
  {
    std::vector<std::jthread> strangers;
    for (int i = 0; i < 2; ++i) strangers.emplace_back([&](std::stop_token stop) { storm.rage(w, stop); });
    const std::jthread slow([&](std::stop_token stop) { hold_up(*w.servers.back(), stop); });
    const auto enough = [&] { return storm.at_peers + storm.at_data >= knocks && storm.at_data >= 60; };
    const auto late = Clock::now() + patience;
    for (; groups < 5 || (!enough() && Clock::now() < late); ++groups) {
      const auto begun = Clock::now();
      w.meet({}, std::chrono::seconds(20));
      slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - begun).count());
      for (const auto& s : w.servers) {
        for (const pid_t p : s->family()) CHECK((p == s->pid() || listening(p).empty()));  // all have come
      }
      REQUIRE(w.run([&](Session& s, int rank) {
        const auto n = static_cast<int64_t>(secret.size());
        const Tensor x = rank == 0 ? from_span(s, secret, {n}) : zeros(s, {n}, {.dtype = DType::uint8});
        for (int i = 0; i < 4; ++i) dist::all_reduce(x, dist::BOR);
        must(x.to_vector<uint8_t>() == secret, "what all have");
      }) == fine(3));
    }
  }
  INFO(groups << " groups, " << storm.at_peers << " knocks at peer ports, " << storm.at_data << " at data ports, "
              << slowest << " s for the slowest group");
  CHECK(storm.at_peers + storm.at_data >= knocks);
  CHECK(storm.at_data >= 60);
  CHECK_FALSE(storm.leaked);
  CHECK(storm.most_from_peer == 0);
  CHECK(storm.most_from_data == 64);  // a nonce and a proof for a greeting: some were understood
  CHECK(slowest < 20);
  for (const auto& s : w.servers) CHECK(s->runs());
  // What the strangers held is given back.
  w.meet();
  for (size_t i = 0; i < w.servers.size(); ++i) {
    const auto until = Clock::now() + std::chrono::seconds(15);
    while (w.servers[i]->descriptors() > before[i] + 2 && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(w.servers[i]->descriptors() <= before[i] + 2);
  }
}

}  // namespace

TEST_CASE("Two thousand strangers at all ports of three servers get no tensor byte and stop nobody", "[T39]") {
  storm(2000, std::chrono::seconds(200));
}
TEST_CASE("Thirty thousand strangers at all ports of three servers get no tensor byte and stop nobody", "[T39][long]") {
  storm(30000, std::chrono::seconds(600));
}

}  // namespace gradwire::e2e
