#include "client/local.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "schema/error.h"

namespace gradwire::client {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

bool runs(const fs::path& p) { return ::access(p.c_str(), X_OK) == 0 && !fs::is_directory(p); }

std::string find_server() {
  if (const char* named = std::getenv("GRADWIRED"); named && *named) {
    if (!runs(named)) throw Error(Code::unavailable, std::string("$GRADWIRED names no program: ") + named);
    return named;
  }
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  if (!self.empty() && runs(self.parent_path() / "gradwired")) return self.parent_path() / "gradwired";
  const char* path = std::getenv("PATH");
  const std::string dirs = path ? path : "";
  for (size_t at = 0; at <= dirs.size();) {
    const size_t end = std::min(dirs.find(':', at), dirs.size());
    const fs::path candidate = fs::path(dirs.substr(at, end - at)) / "gradwired";
    if (end > at && runs(candidate)) return candidate;
    at = end + 1;
  }
  throw Error(Code::unavailable, "there is no gradwired in $GRADWIRED, beside this program or in $PATH");
}

int left(Clock::time_point until) {
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count()));
}

}  // namespace

Local::Local(const std::vector<std::string>& args, std::chrono::milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  const std::string program = find_server();
  std::string dir = (fs::temp_directory_path() / "gradwire-XXXXXX").string();
  if (!::mkdtemp(dir.data())) throw Error(Code::unavailable, "cannot make " + dir + ": " + std::strerror(errno));
  dir_ = dir;
  socket_ = dir_ + "/socket";

  int out[2];
  if (::pipe2(out, O_CLOEXEC)) {
    end();
    throw Error(Code::unavailable, std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  std::vector<std::string> words = {program, "--unix",  socket_, "--rpc",       "",       "--http",
                                    "",      "--probe", "",      "--log-level", "warning"};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);

  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {  // only calls that are safe after a fork of a program with threads
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::setpgid(0, 0);  // an interrupt from the terminal is for the program; it ends the server itself
    ::dup2(out[1], 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  if (pid_ < 0) {
    ::close(out[0]);
    end();
    throw Error(Code::unavailable, std::string("cannot start gradwired: ") + std::strerror(errno));
  }
  // The server says on a line of its own that it is ready.
  std::string said;
  while (said.find('\n') == std::string::npos) {
    pollfd p{out[0], POLLIN, 0};
    const int ready = ::poll(&p, 1, left(until));
    if (ready < 0 && errno == EINTR) continue;
    char text[512];
    const ssize_t n = ready > 0 ? ::read(out[0], text, sizeof text) : 0;
    if (n <= 0 || said.size() > 8192) {
      ::close(out[0]);
      end();
      throw Error(Code::unavailable,
                  ready > 0 ? program + " ended before it was ready" : program + " was not ready in time");
    }
    said.append(text, static_cast<size_t>(n));
  }
  ::close(out[0]);
}

void Local::end() noexcept {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    const auto until = Clock::now() + std::chrono::seconds(5);
    int status;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (Clock::now() > until) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, &status, 0);
        break;
      }
      ::poll(nullptr, 0, 2);  // a process has no event to wait for with a limit
    }
    pid_ = -1;
  }
  std::error_code ignored;
  if (!dir_.empty()) fs::remove_all(dir_, ignored);
}

Local::~Local() { end(); }

}  // namespace gradwire::client
