// `gradwire launch` with small shell programs as ranks.

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "client/gradwire.h"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using Words = std::vector<std::string>;

namespace {

/// A running `gradwire launch ARGS`.
class Launch {
 public:
  explicit Launch(const Words& args, bool on_terminal = false) {
    int out[2], err[2], lives[2];
    if (on_terminal) {
      REQUIRE(::openpty(&out[0], &out[1], nullptr, nullptr, nullptr) == 0);
    } else {
      REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    }
    REQUIRE(::pipe2(err, O_CLOEXEC) == 0);
    REQUIRE(::pipe(lives) == 0);  // every process that the launcher starts has it open
    ::fcntl(lives[0], F_SETFD, FD_CLOEXEC);
    Words words{GRADWIRE_BIN "/gradwire", "launch"};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setenv("TERM", "xterm", 1);
      ::unsetenv("NO_COLOR");
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]), ::close(err[1]), ::close(lives[1]);
    out_ = out[0], err_ = err[0], lives_ = lives[0];
  }
  ~Launch() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(out_), ::close(err_), ::close(lives_);
  }
  Launch(const Launch&) = delete;

  void signal(int s) const { ::kill(pid_, s); }
  /// Reads until this stands in standard output.
  void wait_for(const std::string& text) {
    while (text_.find(text) == std::string::npos) REQUIRE(read_some());
  }
  /// Waits for the end. The exit status; 1000 + n: ended by signal n.
  int wait() {
    while (read_some()) {}
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  /// Waits until no process that the launcher started is left.
  void wait_for_all() const {
    char c;
    CHECK(::read(lives_, &c, 1) == 0);
  }
  /// Whether none is left now.
  bool all_gone() const {
    pollfd p{lives_, POLLIN, 0};
    return ::poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
  }
  const std::string& out() const { return text_; }
  const std::string& errors() const { return error_text_; }
  void close_output() {
    ::close(out_);
    out_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }

 private:
  bool read_some() {
    pollfd fds[2] = {{out_open_ ? out_ : -1, POLLIN, 0}, {err_open_ ? err_ : -1, POLLIN, 0}};
    if (!out_open_ && !err_open_) return false;
    if (::poll(fds, 2, 60'000) <= 0) return false;
    char part[65536];
    if (fds[0].revents) {
      const ssize_t n = ::read(out_, part, sizeof part);
      if (n > 0) text_.append(part, static_cast<size_t>(n));
      out_open_ = n > 0;
    }
    if (fds[1].revents) {
      const ssize_t n = ::read(err_, part, sizeof part);
      if (n > 0) error_text_.append(part, static_cast<size_t>(n));
      err_open_ = n > 0;
    }
    return true;
  }

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1, lives_ = -1;
  bool out_open_ = true, err_open_ = true;
  std::string text_, error_text_;
};

/// The ranks run a shell's program, and are waited for.
struct Ran {
  int status;
  std::string out, errors;
  bool all_gone;
};
Ran run(Words options, const std::string& program) {
  options.insert(options.end(), {"sh", "-c", program});
  Launch l(options);
  const int status = l.wait();
  return {status, l.out(), l.errors(), l.all_gone()};
}

std::multiset<std::string> lines(const std::string& text) {
  std::multiset<std::string> all;
  std::istringstream in(text);
  for (std::string l; std::getline(in, l);) all.insert(l);
  return all;
}

}  // namespace

TEST_CASE("Each rank gets a server and its place in the environment", "[launch][H8]") {
  const auto ran = run({"--servers", "10.0.0.7:7420,[fd00::1]:7430,unix:/run/g.sock"},
                       "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $GRADWIRE_SERVER");
  CHECK(ran.status == 0);
  CHECK(ran.errors.empty());
  CHECK(lines(ran.out) == std::multiset<std::string>{"[0] 0 0 3 10.0.0.7 7422 10.0.0.7:7420",
                                                     "[1] 1 1 3 10.0.0.7 7422 [fd00::1]:7430",
                                                     "[2] 2 2 3 10.0.0.7 7422 unix:/run/g.sock"});
  const auto given =
      run({"--servers", "[fd00::1]:7430", "--nproc", "2", "--master-addr", "there", "--master-port", "99"},
          "echo $MASTER_ADDR $MASTER_PORT $GRADWIRE_SERVER");
  CHECK(lines(given.out) == std::multiset<std::string>{"[0] there 99 [fd00::1]:7430", "[1] there 99 [fd00::1]:7430"});
  CHECK(run({"--servers", "[fd00::1]:7430"}, "echo $MASTER_ADDR").out == "[0] fd00::1\n");
}

TEST_CASE("The environment that was there gives way to that of the rank", "[launch][H8]") {
  ::setenv("RANK", "77", 1);
  ::setenv("GRADWIRE_TEST_KEPT", "kept", 1);
  const auto ran = run({"--servers", "a:1"}, "echo $RANK $GRADWIRE_TEST_KEPT; env | grep -c ^RANK=");
  ::unsetenv("RANK");
  ::unsetenv("GRADWIRE_TEST_KEPT");
  CHECK(ran.out == "[0] 0 kept\n[0] 1\n");
}

TEST_CASE("connect without an address goes to the launched rank's server", "[launch][local]") {
  ::setenv("GRADWIRE_SERVER", "unix:/no/such/socket", 1);
  CHECK_THROWS_AS(gradwire::connect(""), gradwire::Unavailable);
  ::unsetenv("GRADWIRE_SERVER");
  ::setenv("GRADWIRED", GRADWIRE_BIN "/gradwired", 1);
  CHECK(gradwire::connect("").info().lanes > 0);
}

TEST_CASE("Launched ranks work on their servers, which end with them", "[launch][local]") {
  ::setenv("GRADWIRED", GRADWIRE_BIN "/gradwired", 1);
  Launch l({"--servers", "local,local", GRADWIRE_BIN "/gradwire", "info"});
  CHECK(l.wait() == 0);
  const auto said = lines(l.out());
  CHECK(said.count("[0] address    local") == 1);
  CHECK(said.count("[1] address    local") == 1);
  CHECK(l.all_gone());
}

TEST_CASE("64 ranks say their number, each behind it", "[launch]") {
  const auto ran = run({"--servers", "a:1,b:2", "--nproc", "64"}, "echo out $RANK; echo err $RANK >&2");
  CHECK(ran.status == 0);
  std::multiset<std::string> out, errors;
  for (int r = 0; r < 64; ++r) {
    const std::string n = std::to_string(r);
    out.insert("[" + n + "] out " + n);
    errors.insert("[" + n + "] err " + n);
  }
  CHECK(lines(ran.out) == out);
  CHECK(lines(ran.errors) == errors);
}

TEST_CASE("The first failure ends the other ranks, and its status is passed on", "[launch]") {
  const auto ran = run({"--servers", "a:1", "--nproc", "3"}, "if [ $RANK = 1 ]; then exit 5; fi; sleep 300; exit 9");
  CHECK(ran.status == 5);
  CHECK(ran.errors == "gradwire: rank 1 failed with exit status 5; ending the others\n");
  CHECK(ran.all_gone);
}

TEST_CASE("A rank that a signal ended counts as 128 and the signal's number", "[launch]") {
  const auto ran = run({"--servers", "a:1", "--nproc", "3"}, "if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 300");
  CHECK(ran.status == 128 + SIGKILL);
  CHECK_THAT(ran.errors, StartsWith("gradwire: rank 2 was ended by signal 9 (Killed)"));
  CHECK(ran.all_gone);
}

TEST_CASE("Who does not end when asked is ended after the grace", "[launch]") {
  const auto begin = std::chrono::steady_clock::now();
  // Rank 1 fails once rank 0 no longer listens to SIGTERM: the directory is their signal.
  char dir[] = "/tmp/gradwire_launch_XXXXXX";
  REQUIRE(::mkdtemp(dir));
  const std::string go = std::string(dir) + "/go";
  REQUIRE(::mkfifo(go.c_str(), 0600) == 0);
  const auto ran = run({"--servers", "a:1", "--nproc", "2", "--grace", "0.3"},
                       "if [ $RANK = 1 ]; then read x < " + go + "; exit 3; fi; trap '' TERM; echo x > " + go +
                           "; sleep 300; sleep 300");
  ::unlink(go.c_str());
  ::rmdir(dir);
  CHECK(ran.status == 3);
  CHECK(ran.all_gone);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(300));
}

TEST_CASE("Who is asked to end may clean up, and its last words are heard", "[launch]") {
  Launch l({"--servers", "a:1", "--nproc", "2", "sh", "-c",
            "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 300 & wait; done"});
  l.wait_for("[0] ready");
  l.wait_for("[1] ready");
  l.signal(SIGTERM);
  CHECK(l.wait() == 128 + SIGTERM);
  const auto said = lines(l.out());
  CHECK(said.count("[0] bye") == 1);
  CHECK(said.count("[1] bye") == 1);
  CHECK(l.all_gone());
}

TEST_CASE("An interrupt reaches the ranks, and a second one ends those that ignore it", "[launch]") {
  Launch l({"--servers", "a:1", "--nproc", "2", "--grace", "300", "sh", "-c",
            "trap 'echo no' INT; echo ready; while :; do sleep 300 & wait; done"});
  l.wait_for("[0] ready");
  l.wait_for("[1] ready");
  l.signal(SIGINT);
  l.wait_for("[0] no");
  l.wait_for("[1] no");
  l.signal(SIGINT);
  CHECK(l.wait() == 128 + SIGINT);
  CHECK(l.all_gone());
}

TEST_CASE("Ranks end with a launcher that was killed", "[launch]") {
  Launch l({"--servers", "a:1", "--nproc", "2", "sh", "-c", "trap '' TERM HUP INT; echo ready; exec sleep 300"});
  l.wait_for("[0] ready");
  l.wait_for("[1] ready");
  l.signal(SIGKILL);
  CHECK(l.wait() == 1000 + SIGKILL);
  l.wait_for_all();
}

TEST_CASE("What a rank leaves running has the grace and no more", "[launch]") {
  const auto ended = run({"--servers", "a:1", "--grace", "0.2"}, "sleep 300 & echo over");
  CHECK(ended.status == 0);
  CHECK(ended.out == "[0] over\n");
  CHECK(ended.all_gone);
  const auto heard = run({"--servers", "a:1"}, "(read x < /dev/null; echo later) & echo over");
  CHECK(heard.status == 0);
  CHECK(lines(heard.out) == std::multiset<std::string>{"[0] later", "[0] over"});
}

TEST_CASE("A last line without its end is a line", "[launch]") {
  CHECK(run({"--servers", "a:1"}, "printf 'one\\n\\ntwo'").out == "[0] one\n[0] \n[0] two\n");
  CHECK(run({"--servers", "a:1"}, ":").out.empty());
}

TEST_CASE("A line of any length arrives in pieces of at most 64 KiB", "[launch]") {
  const auto size = [](int64_t n) {
    const auto ran = run({"--servers", "a:1"}, "head -c " + std::to_string(n) + " /dev/zero; echo; echo end");
    std::vector<size_t> sizes;
    std::istringstream in(ran.out);
    for (std::string l; std::getline(in, l);) {
      CHECK_THAT(l, StartsWith("[0] "));
      sizes.push_back(l.size() - 4);
    }
    return sizes;
  };
  CHECK(size(65535) == std::vector<size_t>{65535, 3});
  CHECK(size(65536) == std::vector<size_t>{65536, 3});
  CHECK(size(65537) == std::vector<size_t>{65536, 1, 3});
  CHECK(size(200'000) == std::vector<size_t>{65536, 65536, 65536, 200'000 - 3 * 65536, 3});
}

TEST_CASE("Much output of many ranks is complete, and no line is torn", "[launch]") {
  const auto ran = run({"--servers", "a:1", "--nproc", "8"},
                       "i=0; while [ $i -lt 4000 ]; do echo line $i of $RANK; i=$((i+1)); done");
  CHECK(ran.status == 0);
  std::vector<int> next(8);
  std::istringstream in(ran.out);
  int wrong = 0;
  for (std::string l; std::getline(in, l);) {
    const size_t r = static_cast<size_t>(l[1] - '0');
    REQUIRE(r < 8);
    const std::string n = std::to_string(r);
    wrong += l != "[" + n + "] line " + std::to_string(next[r]++) + " of " + n;
  }
  CHECK(wrong == 0);
  CHECK(next == std::vector<int>(8, 4000));
}

TEST_CASE("Ranks end when nobody reads what they say", "[launch]") {
  Launch l({"--servers", "a:1", "--nproc", "2", "yes"});
  l.wait_for("[0] y");
  l.close_output();
  CHECK(l.wait() == 128 + SIGPIPE);
  CHECK(l.all_gone());
}

TEST_CASE("A terminal sees the ranks in colours, a file does not", "[launch]") {
  Launch l({"--servers", "a:1", "echo", "hello"}, true);
  CHECK(l.wait() == 0);
  CHECK_THAT(l.out(), StartsWith("\033[31m[0]\033[0m hello"));
  CHECK(run({"--servers", "a:1"}, "echo hello").out == "[0] hello\n");
}

TEST_CASE("A program's own options and -- are its own", "[launch]") {
  Launch own({"--servers", "a:1", "echo", "--nproc", "3", "--help", "--", "x"});
  CHECK(own.wait() == 0);
  CHECK(own.out() == "[0] --nproc 3 --help -- x\n");
  Launch behind({"--servers", "a:1", "--", "echo", "--", "y"});
  CHECK(behind.wait() == 0);
  CHECK(behind.out() == "[0] -- y\n");
}

TEST_CASE("A rank has no standard input", "[launch]") {
  CHECK(run({"--servers", "a:1"}, "read x || echo none").out == "[0] none\n");
}

TEST_CASE("A program that cannot be run is said once", "[launch]") {
  Launch none({"--servers", "a:1", "--nproc", "3", "/no/such/program"});
  CHECK(none.wait() == 127);
  CHECK(none.errors() == "gradwire: cannot run /no/such/program: No such file or directory\n");
  Launch directory({"--servers", "a:1", "/tmp"});
  CHECK(directory.wait() == 126);
  CHECK(directory.errors() == "gradwire: cannot run /tmp: Permission denied\n");
}

TEST_CASE("Servers and ranks that do not fit are refused before anything starts", "[launch]") {
  const auto refused = [](Words options, const std::string& text) {
    const auto ran = run(options, "echo started");
    CHECK(ran.status == 2);
    CHECK(ran.out.empty());
    CHECK_THAT(ran.errors, ContainsSubstring(text));
  };
  refused({"--servers", "a:1,,b:2"}, "'' (number 1) is no address");
  refused({"--servers", "a:1,b"}, "'b' (number 1) is no address");
  refused({"--servers", "a:0"}, "'a:0' (number 0) is no address");
  refused({"--servers", "a:65536"}, "is no address");
  refused({"--servers", ":7420"}, "is no address");
  refused({"--servers", "fd00::1:7420"}, "is no address");
  refused({"--servers", "unix:"}, "is no address");
  refused({"--servers", "a:1,b:1,c:1", "--nproc", "2"}, "3 servers are too many for 2 ranks");
  refused({"--servers", "a:1", "--nproc", "0"}, "--nproc");
  refused({"--servers", "a:1", "--nproc", "257"}, "--nproc");
  refused({"--master-port", "0"}, "--master-port");
  refused({"--grace", "-1"}, "--grace");
  refused({"--no-such-option"}, "--no-such-option");
  std::string many = "a:1";
  for (int i = 0; i < 256; ++i) many += ",a:1";
  refused({"--servers", many}, "between 1 and 256 ranks can be launched, not 257");
  Launch nothing({"--servers", "a:1"});
  CHECK(nothing.wait() == 2);
  CHECK_THAT(nothing.errors(), ContainsSubstring("PROGRAM"));
}
