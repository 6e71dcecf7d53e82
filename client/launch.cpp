#include "client/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "client/errors.h"
#include "client/launch_output.h"

namespace gradwire::client {
namespace {

using Clock = std::chrono::steady_clock;
using Time = std::optional<Clock::time_point>;

[[noreturn]] void refuse(const std::string& text) { raise(Error(Code::bad_argument, text)); }

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

/// "host" of "host:port" and "[ipv6]:port"; nothing if it is neither.
std::optional<std::string> host_of(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || !is_port(address.substr(colon + 1))) return std::nullopt;
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return std::nullopt;
  if (host.empty()) return std::nullopt;
  return std::string(host);
}

[[noreturn]] void fail(const char* what) {
  raise(Error(Code::internal, std::string(what) + ": " + std::strerror(errno)));
}

struct Pipe {
  Fd read, write;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC)) fail("cannot make a pipe");
    read = Fd(fds[0]), write = Fd(fds[1]);
  }
};

struct Rank {
  pid_t pid = -1;      // also its process group
  bool ended = false;  // its program
  bool gone = false;   // and what that left in the group
  Stream out[2];
  Time kill_at;  // what is left of its group then

  /// Whether something of its process group is there. As the launcher takes in what its ranks leave behind, such a
  /// group has a child of the launcher in it, and while that is not waited for the number means this group.
  bool group_lives() const {
    siginfo_t info;
    return ::waitid(P_PGID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  }
  void send(int signal) const {
    if (group_lives()) ::kill(-pid, signal);
  }
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options), ranks_(static_cast<size_t>(options.nproc)) {}

  int run() {
    take_signals();
    for (int r = 0; r < options_.nproc && !ending_; ++r) {
      try {
        start(r);
      } catch (const Error& e) {
        end_all("rank " + std::to_string(r) + ": " + e.what(), 126, SIGTERM);
      }
    }
    while (!over()) turn();
    return status_.value_or(0);
  }

 private:
  void take_signals() {
    for (int fd = ::open("/dev/null", O_RDWR); fd >= 0 && fd <= 2;) fd = ::dup(fd);  // 0 to 2 are what they should be
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t set;
    ::sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGPIPE}) ::sigaddset(&set, s);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    ::sigdelset(&set, SIGPIPE);  // a write says so itself
    ::signal(SIGCHLD, SIG_DFL);  // ignored, it would lose the exit statuses
    signals_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) fail("cannot wait for signals");
  }

  std::vector<std::string> environment(int rank) const {
    const std::pair<const char*, std::string> ours[] = {
        {"MASTER_ADDR", options_.master_addr},
        {"MASTER_PORT", std::to_string(options_.master_port)},
        {"WORLD_SIZE", std::to_string(options_.nproc)},
        {"RANK", std::to_string(rank)},
        {"LOCAL_RANK", std::to_string(rank)},
        {"GRADWIRE_SERVER", options_.servers[static_cast<size_t>(rank) % options_.servers.size()]}};
    std::vector<std::string> all;
    for (char** e = environ; *e; ++e) {
      const std::string_view entry = *e;
      if (std::ranges::none_of(ours, [&](const auto& o) { return entry.substr(0, entry.find('=')) == o.first; }))
        all.emplace_back(entry);
    }
    for (const auto& [name, value] : ours) all.push_back(name + ("=" + value));
    return all;
  }

  void start(int r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    Pipe out, err, failed;
    std::vector<std::string> words = options_.command, variables = environment(r);
    std::vector<char*> argv, envp;
    for (auto& w : words) argv.push_back(w.data());
    for (auto& v : variables) envp.push_back(v.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);

    const pid_t parent = ::getpid();
    rank.pid = ::fork();
    if (rank.pid < 0) fail("cannot be started");
    if (rank.pid == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const int null = ::open("/dev/null", O_RDONLY);
      ::dup2(null, 0);
      ::dup2(out.write.get(), 1);
      ::dup2(err.write.get(), 2);
      if (null > 2) ::close(null);
      ::sigprocmask(SIG_SETMASK, &before_, nullptr);
      ::execvpe(argv[0], argv.data(), envp.data());
      const int error = errno;
      [[maybe_unused]] const ssize_t told = ::write(failed.write.get(), &error, sizeof error);
      ::_exit(127);
    }
    ::setpgid(rank.pid, rank.pid);  // whichever of the two comes first
    out.write.close(), err.write.close(), failed.write.close();
    int error = 0;
    ssize_t n;
    while ((n = ::read(failed.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {}
    if (n == sizeof error) {
      ::waitpid(rank.pid, nullptr, 0);
      rank.pid = -1;
      return end_all("cannot run " + options_.command[0] + ": " + std::strerror(error), error == ENOENT ? 127 : 126,
                     SIGTERM);
    }
    for (const Fd* pipe : {&out.read, &err.read}) ::fcntl(pipe->get(), F_SETFL, O_NONBLOCK);
    rank.out[0] = Stream(std::move(out.read), sinks_[0], r);
    rank.out[1] = Stream(std::move(err.read), sinks_[1], r);
  }

  /// Passes the signal to all ranks, and sets the time of their end. Only the first status counts.
  void end_all(const std::string& why, int status, int signal) {
    if (!why.empty()) sinks_[1].say(why);
    if (!status_) status_ = status;
    if (ending_) return;
    ending_ = true;
    for (Rank& r : ranks_) {
      if (r.pid < 0 || r.gone) continue;
      r.send(signal);
      r.kill_at = Clock::now() + options_.grace;
    }
  }

  void reap() {
    int status;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = std::ranges::find(ranks_, pid, &Rank::pid);
      if (found == ranks_.end() || found->ended) continue;  // left behind by a rank
      found->ended = true;
      if (!found->kill_at) found->kill_at = Clock::now() + options_.grace;
      const std::string who = "rank " + std::to_string(found - ranks_.begin());
      const std::string then = ending_ ? "" : "; ending the others";
      // How the ranks end that were told to is no news.
      if (WIFSIGNALED(status)) {
        const int s = WTERMSIG(status);
        end_all(ending_ ? "" : who + " was ended by signal " + std::to_string(s) + " (" + ::strsignal(s) + ")" + then,
                128 + s, SIGTERM);
      } else if (WEXITSTATUS(status)) {
        const int s = WEXITSTATUS(status);
        end_all(ending_ ? "" : who + " failed with exit status " + std::to_string(s) + then, s, SIGTERM);
      }
    }
  }

  void take(int signal) {
    if (signal == SIGCHLD) return reap();
    if (!interrupted_) {
      interrupted_ = true;
      if (ending_)
        for (Rank& r : ranks_)
          if (r.pid > 0 && !r.gone) r.send(signal);
      return end_all("", 128 + signal, signal);
    }
    for (Rank& r : ranks_)
      if (!r.gone) r.kill_at = Clock::now();
    for (Sink& s : sinks_) s.drop();  // who asks twice waits for no reader
  }

  bool reading() const { return !sinks_[0].full() && !sinks_[1].full(); }

  /// Waits for one thing to happen, and does what follows from it.
  void turn() {
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
    std::vector<Sink*> sinks;
    std::vector<Stream*> streams;
    for (Sink& s : sinks_)
      if (!s.empty()) {
        fds.push_back({s.fd(), POLLOUT, 0});
        sinks.push_back(&s);
      }
    if (reading())
      for (Rank& r : ranks_)
        for (Stream& out : r.out)
          if (out.open()) {
            fds.push_back({out.fd(), POLLIN, 0});
            streams.push_back(&out);
          }
    if (::poll(fds.data(), fds.size(), wait_time()) < 0) {
      if (errno == EINTR) return;
      fail("cannot wait for the ranks");
    }
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) take(static_cast<int>(info.ssi_signo));
    size_t k = 1;
    for (Sink* s : sinks)
      if (const int error = fds[k++].revents && !s->empty() ? s->write() : 0) cannot_write(error);
    for (Stream* s : streams)
      if (fds[k++].revents && reading()) s->read();
    kill_late_ones();
  }

  /// The ranks end as if they had written there themselves.
  void cannot_write(int error) {
    end_all(error == EPIPE ? "" : std::string("cannot write what the ranks say: ") + std::strerror(error),
            128 + SIGPIPE, SIGTERM);
  }

  int wait_time() const {
    Time next;
    for (const Rank& r : ranks_)
      if (r.kill_at && (!next || *r.kill_at < *next)) next = r.kill_at;
    if (!next) return -1;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 30));
  }

  void kill_late_ones() {
    for (Rank& r : ranks_)
      if (r.kill_at && *r.kill_at <= Clock::now()) {
        if (r.pid > 0 && !r.gone) r.send(SIGKILL);
        r.kill_at.reset();
      }
  }

  /// All ranks are gone, with what they left in their groups, and what they said is written.
  bool over() {
    bool all = true;
    for (Rank& r : ranks_) {
      if (r.pid < 0 || r.gone) continue;
      r.gone = r.ended && !r.group_lives();
      all = all && r.gone;
      if (!r.gone) continue;
      r.kill_at.reset();
      for (Stream& s : r.out) s.finish();  // who else holds these is no part of the rank
    }
    return all && sinks_[0].empty() && sinks_[1].empty();
  }

  const LaunchOptions& options_;
  std::vector<Rank> ranks_;
  Sink sinks_[2]{Sink(1), Sink(2)};
  Fd signals_;
  sigset_t before_{};
  bool ending_ = false, interrupted_ = false;
  std::optional<int> status_;
};

}  // namespace

std::vector<std::string> parse_servers(const std::string& list) {
  std::vector<std::string> servers;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string one = list.substr(at, end - at);
    const bool path = one.starts_with("unix:") && one.size() > 5;
    if (!path && one != "local" && !host_of(one))
      refuse("--servers: '" + one + "' (number " + std::to_string(servers.size()) +
             ") is no address; host:port, [ipv6]:port, unix:PATH and local are");
    servers.push_back(one);
    at = end + 1;
  }
  return servers;
}

int launch(const LaunchOptions& given) {
  LaunchOptions options = given;
  if (options.command.empty()) refuse("there is no program to launch");
  if (options.servers.empty()) refuse("there is no server to launch for");
  if (options.nproc == 0) options.nproc = static_cast<int>(options.servers.size());
  if (options.nproc < 1 || options.nproc > kMaxRanks)
    refuse("between 1 and " + std::to_string(kMaxRanks) + " ranks can be launched, not " +
           std::to_string(options.nproc));
  if (options.servers.size() > static_cast<size_t>(options.nproc))
    refuse(std::to_string(options.servers.size()) + " servers are too many for " + std::to_string(options.nproc) +
           " ranks");
  if (options.master_port < 1 || options.master_port > 65535)
    refuse("--master-port should be in [1, 65535], not " + std::to_string(options.master_port));
  if (options.master_addr.empty()) options.master_addr = host_of(options.servers[0]).value_or("127.0.0.1");
  return Launcher(options).run();
}

}  // namespace gradwire::client
