// The server as a process: how it starts, what it says, how it ends.

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

extern char** environ;

namespace {

using Catch::Matchers::ContainsSubstring;
using Seconds = std::chrono::duration<double>;

/// A gradwired with pipes from its standard output and error.
class Process {
 public:
  explicit Process(std::vector<std::string> args) {
    int out[2], err[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    std::string program = std::string(GRADWIRE_BIN) + "/gradwired";
    args.insert(args.begin(), program);
    std::vector<char*> argv;
    for (auto& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    // Without the tests' own wait policy: the process must find its way to it.
    std::vector<char*> env;
    for (char** e = environ; *e; ++e) {
      if (std::strncmp(*e, "OMP_WAIT_POLICY=", 16) != 0) env.push_back(*e);
    }
    env.push_back(nullptr);
    REQUIRE(posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), env.data()) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]), close(err[1]);
    out_ = out[0], err_ = err[0];
  }
  ~Process() {
    if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    close(out_), close(err_);
  }
  /// The next line of standard output; what there is at its end.
  std::string line() { return read_until(out_, '\n'); }
  std::string all_out() { return read_until(out_, '\0'); }
  std::string all_err() { return read_until(err_, '\0'); }
  /// The exit status, or minus the signal.
  int wait() {
    int status = 0;
    waitpid(pid, &status, 0);
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t pid = -1;

 private:
  static std::string read_until(int fd, char end) {
    std::string text;
    for (char c; text.size() < (1 << 20);) {
      pollfd p{fd, POLLIN, 0};
      if (poll(&p, 1, 60000) <= 0) return text + " (nothing more within a minute)";
      if (read(fd, &c, 1) != 1) break;
      if (c == end) break;
      text += c;
    }
    return text;
  }
  int out_, err_;
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// "127.0.0.1:PORT" of a key of the ready line.
std::string address(const std::string& ready, const std::string& key) {
  std::smatch m;
  return std::regex_search(ready, m, std::regex("\"" + key + "\": \"(127\\.0\\.0\\.1:[1-9][0-9]*)\"")) ? m[1].str()
                                                                                                       : "";
}

/// One request on a connection of its own, and the answer. A body makes it a POST; `sent` is called once it is written.
std::string http(const std::string& at, const std::string& path, const std::string& body = {},
                 const std::function<void()>& sent = {}) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(at.substr(at.find(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    const std::string request =
        (body.empty() ? "GET " : "POST ") + path + " HTTP/1.1\r\nHost: " + at + "\r\nConnection: close\r\n" +
        (body.empty() ? std::string()
                      : "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n") +
        "\r\n" + body;
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      if (sent) sent();
      char buffer[4096];
      for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

const std::vector<std::string> kFree{"--rpc", "127.0.0.1:0", "--http", "127.0.0.1:0"};

TEST_CASE("the server prints one line with its addresses when it is ready, and serves there", "[e2e][process]") {
  Process p(kFree);
  const std::string ready = p.line();
  CHECK(ready.front() == '{');
  CHECK(ready.back() == '}');
  for (const std::string key : {"rpc", "http", "probe"}) {
    CAPTURE(ready, key);
    CHECK(!address(ready, key).empty());
  }
  CHECK_THAT(http(address(ready, "http"), "/v1/info"), ContainsSubstring("200") && ContainsSubstring("version"));
  CHECK_THAT(http(address(ready, "probe"), "/livez"), ContainsSubstring("200"));
  CHECK_THAT(http(address(ready, "probe"), "/metrics"), ContainsSubstring("gradwire_sessions 0"));
  kill(p.pid, SIGTERM);
  CHECK(p.wait() == 0);
  CHECK(p.all_out().empty());
}

TEST_CASE("a server that has a peer address says it, and is ready as before", "[e2e][process]") {
  auto args = kFree;
  args.insert(args.end(), {"--peer", "127.0.0.1:0"});
  Process p(args);
  const std::string ready = p.line();
  CHECK_THAT(ready, ContainsSubstring("\"peer\": \"127.0.0.1:"));
  CHECK_THAT(http(address(ready, "http"), "/v1/info"), ContainsSubstring("200"));
  kill(p.pid, SIGTERM);
  CHECK(p.wait() == 0);
}

TEST_CASE("the process has no core files, a passive wait policy and survives a closed pipe", "[e2e][process][T38]") {
  Process p(kFree);
  const std::string ready = p.line();
  const std::string proc = "/proc/" + std::to_string(p.pid);
  CHECK_THAT(slurp(proc + "/environ"), ContainsSubstring("OMP_WAIT_POLICY=PASSIVE"));
  CHECK_THAT(slurp(proc + "/environ"), ContainsSubstring("GOMP_SPINCOUNT=50000"));
  CHECK_THAT(slurp(proc + "/limits"), ContainsSubstring("Max core file size        0                    0"));
  CHECK(std::filesystem::read_symlink(proc + "/exe").filename() == "gradwired");
  kill(p.pid, SIGPIPE);
  CHECK_THAT(http(address(ready, "probe"), "/livez"), ContainsSubstring("200"));
}

TEST_CASE("an idle server ends at once and cleanly", "[e2e][process][T44]") {
  for (const int signal : {SIGTERM, SIGINT}) {
    Process p(kFree);
    const std::string ready = p.line();
    const auto begin = std::chrono::steady_clock::now();
    kill(p.pid, signal);
    CHECK(p.wait() == 0);
    const double took = Seconds(std::chrono::steady_clock::now() - begin).count();
    CAPTURE(took);
    CHECK(took < 1.0);  // 0.1 s on a machine that has nothing else to do
    CHECK_THAT(http(address(ready, "http"), "/livez"), !ContainsSubstring("200"));
  }
}

TEST_CASE("work in hand is finished before the server ends, and new work is refused", "[e2e][process][T44]") {
  Process p(kFree);
  const std::string ready = p.line(), at = address(ready, "http"), probe = address(ready, "probe");
  const std::string made = http(at, "/v1/sessions", "{}");
  std::smatch id;
  REQUIRE(std::regex_search(made, id, std::regex("\"id\": ?\"([0-9a-f]{32})\"")));
#ifdef GRADWIRE_TSAN
  const std::string size = "64";  // reference loops, watched: the time to drain must be enough
#else
  const std::string size = "512";
#endif
  std::string program = R"({"ops": [{"op": "rand", "attrs": {"size": [)" + size + ", " + size + R"(]}, "out": "a"})";
  for (int i = 0; i < 200; ++i) program += R"(, {"op": "matmul", "in": ["a", "a"], "out": "b"})";
  program += R"(, {"op": "sum", "in": ["b"], "out": "s"}], "fetch": ["s"]})";
  std::promise<void> sent;
  auto answer = std::async(std::launch::async, [&] {
    return http(at, "/v1/sessions/" + id[1].str() + "/run", program, [&] { sent.set_value(); });
  });
  sent.get_future().wait();
  // It has begun when the server has counted operators.
  const std::regex some("gradwire_ops_total [1-9]");
  while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready &&
         !std::regex_search(http(probe, "/metrics"), some)) {}
  kill(p.pid, SIGTERM);
  const std::string result = answer.get();
  CHECK_THAT(result, ContainsSubstring(" 200 ") && ContainsSubstring("\"s\""));
  CHECK(p.wait() == 0);
}

TEST_CASE("a server that would be open to others does not start, and opens no port", "[e2e][process][T34]") {
  // The probe's port would be open first if any were.
  Process first(kFree);
  const std::string probe = address(first.line(), "probe");
  kill(first.pid, SIGTERM);
  first.wait();
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"--http", "0.0.0.0:0", "--probe", probe},
           {"--rpc", "[::]:0", "--probe", probe, "--insecure-no-auth"},
           {"--http", "0.0.0.0:0", "--probe", probe, "--insecure-no-tls"},
           {"--http", "127.0.0.1:0", "--rpc", "off", "--probe", probe, "--token-file", "/dev/null"},
       }) {
    CAPTURE(args);
    Process p(args);
    CHECK(p.wait() == 78);
    CHECK(p.all_out().empty());
    CHECK_THAT(p.all_err(), ContainsSubstring("does not start"));
    CHECK(http(probe, "/livez").empty());
  }
  Process open({"--http", "0.0.0.0:0", "--rpc", "off", "--insecure-no-auth", "--insecure-no-tls"});
  CHECK_THAT(open.line(), ContainsSubstring("\"http\": \"0.0.0.0:"));
  kill(open.pid, SIGTERM);
  CHECK(open.wait() == 0);
  CHECK_THAT(open.all_err(), ContainsSubstring("INSECURE"));
}

TEST_CASE("a port that is taken and an unknown option are said", "[e2e][process]") {
  Process one(kFree);
  const std::string ready = one.line();
  Process two({"--rpc", "off", "--http", address(ready, "http"), "--probe", "off"});
  CHECK(two.wait() == 78);
  CHECK_THAT(two.all_err(), ContainsSubstring(address(ready, "http")));
  Process three({"--no-such-option"});
  CHECK(three.wait() == 64);
  CHECK_THAT(three.all_err(), ContainsSubstring("--no-such-option"));
  Process help({"--help"});
  CHECK(help.wait() == 0);
  CHECK_THAT(help.all_out(), ContainsSubstring("Examples"));
}

}  // namespace
