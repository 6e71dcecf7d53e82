#include "client/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
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

namespace gradwire::client {
namespace {

using Clock = std::chrono::steady_clock;
using Time = std::optional<Clock::time_point>;

constexpr size_t kLongestLine = 64 * 1024;   // without its newline
constexpr size_t kOutputBound = 256 * 1024;  // no more is read while so much waits to be written
constexpr size_t kPiece = 4096;              // what a pipe that is ready for writing takes without waiting (PIPE_BUF)

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

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& f) noexcept : fd_(std::exchange(f.fd_, -1)) {}
  Fd& operator=(Fd&& f) noexcept {
    std::swap(fd_, f.fd_);
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

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

/// Where lines go: standard output or standard error.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {
    const char* term = std::getenv("TERM");
    const char* plain = std::getenv("NO_COLOR");
    colour_ = ::isatty(fd) && !(plain && *plain) && !(term && std::strcmp(term, "dumb") == 0);
  }
  int fd() const { return fd_; }
  bool empty() const { return begin_ == text_.size(); }
  bool full() const { return text_.size() - begin_ >= kOutputBound; }
  void add(int rank, std::string_view line) {
    if (broken_) return;
    if (colour_) text_ += "\033[3" + std::to_string(1 + rank % 6) + "m";
    text_ += "[" + std::to_string(rank) + "]";
    if (colour_) text_ += "\033[0m";
    text_ += ' ';
    text_ += line;
    text_ += '\n';
  }
  void say(const std::string& line) {
    if (!broken_) text_ += "gradwire: " + line + "\n";
  }
  /// Writes a piece once poll says that there is room. False: nobody reads it.
  bool write() {
    const ssize_t n = ::write(fd_, text_.data() + begin_, std::min(kPiece, text_.size() - begin_));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n < 0) {
      drop();
      return false;
    }
    begin_ += static_cast<size_t>(n);
    if (empty() || begin_ >= kOutputBound) text_.erase(0, begin_), begin_ = 0;
    return true;
  }
  /// From now on nothing is kept or written.
  void drop() { broken_ = true, text_.clear(), begin_ = 0; }

 private:
  int fd_;
  bool colour_ = false, broken_ = false;
  std::string text_;
  size_t begin_ = 0;
};

/// One output of one rank.
struct Stream {
  Fd pipe;
  Sink* sink = nullptr;
  std::string line;  // its beginning
  int64_t read_bytes = 0;

  /// Reads what is there. False: the end, or nothing there.
  bool read(int rank) {
    char part[16 * 1024];
    const ssize_t n = ::read(pipe.get(), part, sizeof part);
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
      close(rank);
      return false;
    }
    read_bytes += n;
    for (std::string_view rest(part, static_cast<size_t>(n)); !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size()), take = std::min(end, kLongestLine - line.size());
      line += rest.substr(0, take);
      rest.remove_prefix(take);
      const bool whole = rest.starts_with('\n');
      if (whole) rest.remove_prefix(1);
      if (whole || (line.size() == kLongestLine && !rest.empty())) {
        sink->add(rank, line);
        line.clear();
      }
    }
    return true;
  }
  void close(int rank) {
    if (!line.empty()) sink->add(rank, line);
    line.clear();
    pipe.close();
  }
  /// Reads what is in the pipe now, and no more.
  void finish(int rank) {
    int there = 0;
    if (pipe && ::ioctl(pipe.get(), FIONREAD, &there) == 0)
      for (const int64_t end = read_bytes + there; pipe && read_bytes < end && read(rank);) {}
    if (pipe) close(rank);
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
    for (int r = 0; r < options_.nproc && !ending_; ++r) try {
        start(r);
      } catch (const Error& e) {
        end_all("rank " + std::to_string(r) + ": " + e.what(), 126, SIGTERM);
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
    rank.out[0].pipe = std::move(out.read), rank.out[0].sink = &sinks_[0];
    rank.out[1].pipe = std::move(err.read), rank.out[1].sink = &sinks_[1];
    for (Stream& s : rank.out) ::fcntl(s.pipe.get(), F_SETFL, O_NONBLOCK);
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
    std::vector<std::pair<int, Stream*>> streams;
    for (Sink& s : sinks_)
      if (!s.empty()) {
        fds.push_back({s.fd(), POLLOUT, 0});
        sinks.push_back(&s);
      }
    if (reading())
      for (size_t r = 0; r < ranks_.size(); ++r)
        for (Stream& s : ranks_[r].out)
          if (s.pipe) {
            fds.push_back({s.pipe.get(), POLLIN, 0});
            streams.emplace_back(static_cast<int>(r), &s);
          }
    if (::poll(fds.data(), fds.size(), wait_time()) < 0) {
      if (errno == EINTR) return;
      fail("cannot wait for the ranks");
    }
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) take(static_cast<int>(info.ssi_signo));
    size_t k = 1;
    for (Sink* s : sinks)
      if (fds[k++].revents && !s->empty() && !s->write()) end_all("", 128 + SIGPIPE, SIGTERM);
    for (const auto& [rank, stream] : streams)
      if (fds[k++].revents && reading()) stream->read(rank);
    kill_late_ones();
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
    for (size_t k = 0; k < ranks_.size(); ++k) {
      Rank& r = ranks_[k];
      if (r.pid < 0 || r.gone) continue;
      r.gone = r.ended && !r.group_lives();
      all = all && r.gone;
      if (!r.gone) continue;
      r.kill_at.reset();
      for (Stream& s : r.out) s.finish(static_cast<int>(k));  // who else holds these is no part of the rank
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
