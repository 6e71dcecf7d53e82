#include "tests/e2e/cluster_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

extern char** environ;

namespace gradwire::e2e {

namespace fs = std::filesystem;

namespace {

std::string first_line(int fd) {
  std::string text;
  for (char c;;) {
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, 60000) <= 0 || ::read(fd, &c, 1) != 1) throw std::runtime_error("the server has not started");
    if (c == '\n') return text;
    text += c;
  }
}

/// The value of a key of the ready line.
std::string value_of(const std::string& ready, const std::string& key) {
  const size_t at = ready.find("\"" + key + "\": \"");
  if (at == std::string::npos) throw std::runtime_error("no " + key + " in " + ready);
  const size_t begin = at + key.size() + 5;
  return ready.substr(begin, ready.find('"', begin) - begin);
}

std::string text_of(const Error& e) { return std::string(name(e.code())) + ": " + e.what(); }

}  // namespace

Server::Server(const Options& o) {
  std::string folder = (fs::temp_directory_path() / "gradwire-e2e-XXXXXX").string();
  if (!::mkdtemp(folder.data())) throw std::runtime_error("no folder " + folder);
  folder_ = folder, unix_ = "unix:" + folder + "/rpc";
  std::vector<std::string> words = o.before;
  for (const std::string& w : {std::string(GRADWIRE_BIN) + "/gradwired", std::string("--rpc"), std::string("off"),
                               std::string("--http"), std::string("off"), std::string("--probe"), std::string("off"),
                               std::string("--unix"), folder + "/rpc", std::string("--threads"), std::string("1"),
                               std::string("--log-level"), std::string("error"), std::string("--peer"), o.peer})
    words.push_back(w);
  words.insert(words.end(), o.more.begin(), o.more.end());
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  int out[2];
  if (::pipe2(out, O_CLOEXEC)) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  const int rc = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  try {
    if (rc) throw std::runtime_error("cannot start " + words[0]);
    peer_ = value_of(first_line(out[0]), "peer");
  } catch (...) {
    ::close(out[0]);
    if (!rc) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    fs::remove_all(folder_);
    throw;
  }
  ::close(out[0]);
}

Server::~Server() {
  if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool Server::runs() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

void Server::signal(int s) const { ::kill(pid_, s); }

int Server::wait() {
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (runs() && std::chrono::steady_clock::now() < late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (runs()) signal(SIGKILL);
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<pid_t> Server::family() const {
  std::vector<pid_t> all{pid_};
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid_) + "/task", ignored)) {
    std::ifstream in(thread.path() / "children");
    all.insert(all.end(), std::istream_iterator<pid_t>(in), {});
  }
  return all;
}

size_t Server::descriptors() const {
  const fs::directory_iterator all("/proc/" + std::to_string(pid_) + "/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

World::World(int n, const Server::Options& o) {
  for (int i = 0; i < n; ++i) servers.push_back(std::make_unique<Server>(o));
  for (const auto& s : servers) clients.push_back(connect(s->unix_address()));
}

World::World(std::vector<std::unique_ptr<Server>> given) : servers(std::move(given)) {
  for (const auto& s : servers) clients.push_back(connect(s->unix_address()));
}

World::~World() {
  clients.clear();
  std::vector<Server*> left;
  for (const auto& s : servers) {
    if (s->runs()) left.push_back(s.get());
  }
  for (Server* s : left) s->signal(SIGTERM);
  for (Server* s : left) CHECK(s->wait() == 0);
}

void World::replace(int i, const Server::Options& o) {
  const auto at = static_cast<size_t>(i);
  clients[at] = {};
  servers[at] = std::make_unique<Server>(o);
  clients[at] = connect(servers[at]->unix_address());
}

Said World::run(const Program& program, const std::vector<int>& some) {
  std::vector<int> ranks = some;
  if (ranks.empty()) ranks.resize(servers.size()), std::iota(ranks.begin(), ranks.end(), 0);
  Said said(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        program(session(ranks[i]), ranks[i]);
        session(ranks[i]).sync();
      } catch (const Error& e) {
        said[i] = text_of(e);
      } catch (const std::exception& e) {
        said[i] = e.what();
      }
    });
  }
  for (auto& t : threads) t.join();
  return said;
}

void World::meet(const std::vector<int>& some, std::chrono::milliseconds timeout) {
  std::vector<int> ranks = some;
  if (ranks.empty()) ranks.resize(servers.size()), std::iota(ranks.begin(), ranks.end(), 0);
  const std::string at = "tcp://" + servers[static_cast<size_t>(ranks[0])]->peer();
  const auto world = static_cast<int>(ranks.size());
  const Program leave = [](Session& s, int) {
    if (dist::is_initialized(s)) dist::destroy_process_group(s);
  };
  REQUIRE(run(leave, ranks) == fine(world));
  const Program join = [&](Session& s, int server) {
    const auto rank = std::find(ranks.begin(), ranks.end(), server) - ranks.begin();
    dist::init_process_group(s, {.init_method = at, .world_size = world, .rank = rank, .timeout = timeout});
  };
  REQUIRE(run(join, ranks) == fine(world));
}

std::string error_of(Session& s, const std::function<void()>& f) {
  try {
    f();
    s.sync();
  } catch (const Error& e) {
    return text_of(e);
  }
  return {};
}

}  // namespace gradwire::e2e
