// The process: reads its options, builds its parts in order, says when it is ready, and ends them in reverse.

#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "server/cluster/group.h"
#ifdef GRADWIRE_NCCL
#include "server/cluster/nccl/nccl_plane.h"
#endif
#include "server/drain.h"
#include "server/engine.h"
#include "server/executor.h"
#include "server/http/http_server.h"
#include "server/http/json_program.h"
#include "server/http/routes.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/rpc/rpc_server.h"
#include "server/service.h"

namespace {

using namespace gradwire;
using namespace gradwire::server;

/// libgomp reads its wait policy when it is loaded, before main(): teams that spin while they wait take the cores that
/// the other lanes and the loops need. A worker waits up to a millisecond for the next loop before it sleeps, where
/// there are cores for all: to wake it takes longer than most loops.
void pass_wait_policy(char** argv) {
  if (getenv("OMP_WAIT_POLICY")) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  setenv("GOMP_SPINCOUNT", "50000", 0);
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return;
  self[n] = '\0';
  execv(self, argv);  // if that fails, it is slower and not wrong
}

/// No core files (they hold other people's tensors), as many descriptors as are allowed, no death by a closed pipe; the
/// signals that end the process or ask it to drain wait for sigtimedwait().
sigset_t prepare_process() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  signal(SIGPIPE, SIG_IGN);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\', out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out += '"';
}

void say_ready(const RpcServer& rpc, const HttpServer& http, const cluster::Cluster& cluster, const Options& o) {
  std::string line;
  auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) line += (line.empty() ? "{\"" : ", \"") + std::string(key) + "\": " + quoted(value);
  };
  add("rpc", rpc.address());
  add("http", http.address());
  add("probe", http.probe_address());
  add("peer", cluster.address());
  add("unix", o.unix_path);
  std::printf("%s}\n", line.c_str());
  std::fflush(stdout);
}

/// Waits for a signal that ends the process; sweeps meanwhile, and drains where it is asked to.
void wait_for_end(const sigset_t& ends, Service& service) {
  for (Orphans orphans;;) {
    const timespec second{1, 0};
    siginfo_t info;
    const int got = sigtimedwait(&ends, &info, &second);
    if (got == SIGUSR1) {
      if (!service.draining()) spdlog::info("draining: no new sessions; those that are open go on until SIGTERM");
      service.drain();
    } else if (got > 0) {
      spdlog::info("{}: finishing the work in hand", got == SIGTERM ? "SIGTERM" : "SIGINT");
      return;
    }
    service.sweep();
    orphans.reap();
  }
}

/// Until nothing is queued or running, for two looks in a row (answers are on their way to the front ends between), or
/// the time is over, or a second signal comes.
void drain(const sigset_t& ends, const Executor& executor, int seconds) {
  const auto over = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (int quiet = 0; quiet < 2 && std::chrono::steady_clock::now() < over;) {
    quiet = executor.idle() ? quiet + 1 : 0;
    const timespec pause{0, 20'000'000};
    siginfo_t info;
    const int got = sigtimedwait(&ends, &info, &pause);
    if (got > 0 && got != SIGUSR1) return;
  }
}

cluster::Cluster::Options cluster_options(const Options& o) {
  cluster::Cluster::Options c;
  c.peer = o.peer, c.advertise = o.peer_advertise;
  if (!o.peer.empty()) c.tls_cert = o.tls_cert, c.tls_key = o.tls_key, c.tls_ca = o.tls_ca;
  c.insecure_no_tls = o.insecure_no_tls, c.multicast = o.multicast;
  c.data.first_port = o.data_first_port, c.data.last_port = o.data_last_port;
  c.make_plane = [](const std::string& backend, const cluster::DataPlaneOptions& data) {
#ifdef GRADWIRE_NCCL
    if (backend == "nccl") return cluster::make_nccl_plane(data);
#endif
    return backend == "gloo" ? cluster::make_gloo_plane(data) : nullptr;
  };
  return c;
}

/// The group that the options name, which is the default group of a session. Without it the server is not what it was
/// started for: it ends, and whoever started it tries again.
struct GroupAtStart {
  std::mutex mutex;
  Service* service = nullptr;  // null once it ends
  bool failed = false;
};

std::shared_ptr<GroupAtStart> join_at_start(const Options& o, cluster::Cluster& cluster, Service& service) {
  auto state = std::make_shared<GroupAtStart>();
  if (o.group_init.empty()) return state;
  state->service = &service;
  cluster::JoinOptions join;
  join.init_method = o.group_init, join.group_name = o.group_name;
  join.world_size = o.group_world_size, join.rank = o.group_rank_read;
  join.timeout = std::chrono::minutes(5);
  cluster.join(std::move(join), [state](server::Result<cluster::GroupPtr> group) {
    const std::lock_guard lock(state->mutex);
    if (!state->service) return;
    if (group) {
      spdlog::info("rank {} of {} of the group made at start", (*group)->rank(), (*group)->size());
      return state->service->attach_group("world", std::move(*group));
    }
    spdlog::error("the group that --group-init names was not made: {}", group.error().what());
    state->failed = true;
    ::kill(::getpid(), SIGTERM);
  });
  return state;
}

int serve(const Options& options, const sigset_t& ends) {
  server::engine::make_backend(options.device);  // throws now rather than at the first session
  Clock clock;
  Metrics metrics;
  Executor executor(clock, metrics, options.lanes, options.threads);
  const auto cluster = cluster::make_cluster(cluster_options(options));
  Service service(options, executor, clock, metrics);
  service.run_json = http::make_run_json(service);
  if (!options.peer.empty()) service.use(cluster.get());
  RpcServer rpc(service);
  HttpServer http(service);
  if (options.insecure_no_auth || options.insecure_no_tls) {
    metrics.set(Metric::insecure_mode, 1);
    spdlog::warn("INSECURE: {}{} is on; whoever reaches this server may use it or read along",
                 options.insecure_no_auth ? "--insecure-no-auth " : "",
                 options.insecure_no_tls ? "--insecure-no-tls" : "");
  }
  say_ready(rpc, http, *cluster, options);
  spdlog::info("ready: {} lanes of {} threads on {}", executor.lanes(), executor.threads(), options.device);
  const auto group = join_at_start(options, *cluster, service);
  wait_for_end(ends, service);
  service.drain();
  http.drain();
  rpc.drain();
  drain(ends, executor, options.drain_seconds);
  const std::lock_guard lock(group->mutex);
  group->service = nullptr;
  return group->failed ? 1 : 0;
}

/// A subcommand of its own; nullopt: to serve.
std::optional<int> run_command(const StartUp& start) {
  switch (start.command) {
    case Command::serve:
      return std::nullopt;
    case Command::routes:
      std::fputs(http::routes_text().c_str(), stdout);
      return 0;
    case Command::drain:
      break;
  }
  try {
    ask_to_drain(start.options.unix_path);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gradwired drain: %s\n", e.what());
    return 1;
  }
  // Whoever sends new clients here needs a moment to notice; open sessions go on meanwhile.
  std::this_thread::sleep_for(std::chrono::milliseconds(start.drain_wait));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "data-plane-helper") return cluster::data_plane_helper();
  pass_wait_policy(argv);
  const sigset_t ends = prepare_process();
  const StartUp start = read_options(std::vector<std::string>(argv + 1, argv + argc));
  std::fputs(start.out.c_str(), stdout);
  std::fputs(start.err.c_str(), stderr);
  if (start.exit_code >= 0) return start.exit_code;
  if (const auto code = run_command(start)) return *code;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("gradwired", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  spdlog::set_level(spdlog::level::from_str(start.options.log_level));
  try {
    const int code = serve(start.options, ends);
    spdlog::info("ended");
    return code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gradwired does not start: %s\n", e.what());
    return kExitConfig;
  }
}
