// gradwire: what a server is and does, from a terminal.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/gradwire.h"
#include "client/launch.h"

namespace {

enum Exit { kOk = 0, kFailed = 1, kUsage = 2, kUnreachable = 3, kRefused = 4 };

constexpr const char* kFooter = R"(
The server is an address (127.0.0.1:7420), a Unix socket (unix:/run/gradwire.sock), or "local", which starts a gradwired
for this command alone: a way to try a program without setting anything up.

Examples:
  gradwire info
  gradwire --server unix:/run/gradwire.sock sessions
  gradwire --server local run program.json
  gradwire launch --servers 10.0.0.1:7420,10.0.0.2:7420 ./train
  echo '{"inputs": {"x": {"data": [1.0, 2.0], "requires_grad": true}},
         "ops": [{"op": "sum", "in": ["x"], "out": "y"}, {"op": "backward", "in": ["y"]}],
         "fetch": ["y", "x.grad"]}' | gradwire --server local run -

Exit status (launch: see its help): 0 done; 1 the server answered with an error; 2 bad usage; 3 no server, or no answer in time; 4 it refuses
this client.)";

constexpr const char* kLaunchFooter = R"(
The options stand before PROGRAM and its arguments: gradwire launch [OPTIONS] PROGRAM [ARGUMENTS...]

Each rank is the program with MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK and LOCAL_RANK in its environment, as
init_process_group("env://") reads them, and GRADWIRE_SERVER, the server that connect("") takes. MASTER_ADDR is the host of
the first server, MASTER_PORT the port on which that server talks to other servers, unless given. More ranks than servers
share them in turn. What a rank writes appears line by line behind its number; standard input is empty.

When a rank fails the others are asked to end (SIGTERM), and after the grace made to. Interrupting the launcher interrupts
them all.

Examples:
  gradwire launch --servers 10.0.0.1:7420,10.0.0.2:7420 ./train_digits_ddp --epochs 5
  gradwire launch --servers a:7420,b:7420 --master-addr a --master-port 7500 ./train
  gradwire launch --nproc 4 -- sh -c 'echo rank $RANK of $WORLD_SIZE'

Exit status: 0 all ranks succeeded; that of the first that failed (128 + N: ended by signal N); 127 there is no such
program; 2 bad usage.)";

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) throw CLI::ValidationError("--token-file", "cannot read " + file);
  return line;
}

std::string whole(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(file, std::ios::binary);
  if (!in) throw CLI::ValidationError("FILE", "cannot read " + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What `launch` starts: what the parser left, and what stands behind the -- that the parser was not shown.
std::vector<std::string> command_of(std::vector<std::string> words, std::span<char*> behind) {
  if (!words.empty() && words[0].starts_with('-')) throw CLI::ExtrasError("launch", {words[0]});
  if (!words.empty() && !behind.empty()) words.emplace_back("--");
  words.insert(words.end(), behind.begin(), behind.end());
  if (words.empty()) throw CLI::RequiredError("PROGRAM");
  return words;
}

void show_info(const gradwire::Client& client) {
  const gradwire::ServerInfo i = client.info();
  std::cout << "address    " << client.address() << "\nversion    " << i.version << "\ndevices    ";
  for (size_t k = 0; k < i.devices.size(); ++k) std::cout << (k ? ", " : "") << i.devices[k];
  std::cout << "\nlanes      " << i.lanes << "\nthreads    " << i.threads << "\noperators  "
            << (i.catalogue_hash == gradwire::kCatalogueHash
                    ? "the same as this client's, " + std::to_string(gradwire::kOperators)
                    : std::string("other than this client's: they are found by name"))
            << "\n";
}

void show_sessions(const gradwire::Client& client) {
  const std::string own = client.session().id();
  std::printf("%-34s %-16s %-8s %10s %14s %12s %10s\n", "ID", "NAME", "DEVICE", "TENSORS", "BYTES", "OPERATORS", "AGE");
  for (const auto& s : client.sessions()) {
    if (s.id == own) continue;  // this command's
    std::printf("%-34s %-16s %-8s %10lld %14lld %12llu %9.0fs\n", s.id.c_str(), s.name.c_str(), s.device.c_str(),
                static_cast<long long>(s.tensors), static_cast<long long>(s.bytes),
                static_cast<unsigned long long>(s.ops_run), s.age_seconds);
  }
}

int exit_of(gradwire::Code code) {
  switch (code) {
    case gradwire::Code::unavailable:
    case gradwire::Code::deadline_exceeded:
      return kUnreachable;
    case gradwire::Code::unauthenticated:
    case gradwire::Code::forbidden:
      return kRefused;
    default:
      return kFailed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"gradwire: asks a Gradwire server, and runs programs on it."};
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", GRADWIRE_VERSION);
  std::string server = "127.0.0.1:7420", token, token_file, file;
  double timeout = 0;
  app.add_option("-s,--server", server, "where the server is")->envname("GRADWIRE_SERVER")->capture_default_str();
  app.add_option("--token-file", token_file, "a file whose first line is the token to log in with")
      ->envname("GRADWIRE_TOKEN_FILE");
  app.add_option("--timeout", timeout, "seconds to wait for an answer; 0: for as long as it takes")
      ->check(CLI::NonNegativeNumber);
  auto* info = app.add_subcommand("info", "What the server is: version, devices, threads, operators");
  auto* sessions = app.add_subcommand("sessions", "The sessions on it, one a line");
  auto* run = app.add_subcommand(
      "run", "Run a program in the notation of POST /v1/run, in a session of its own, and print its answer");
  auto* launch =
      app.add_subcommand("launch", "Start a program once a rank, each with a server and its place in the group");
  std::string servers;
  gradwire::client::LaunchOptions ranks;
  double grace = 10;
  launch->add_option("--servers", servers, "where rank 0, 1, 2, … works, separated by commas (default: --server)");
  launch->add_option("--nproc", ranks.nproc, "how many ranks (default: one a server)")
      ->check(CLI::Range(1, gradwire::client::kMaxRanks));
  launch->add_option("--master-addr", ranks.master_addr, "where the ranks meet (default: the first server's host)");
  launch->add_option("--master-port", ranks.master_port, "and on which port")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  launch->add_option("--grace", grace, "seconds between asking a rank to end and ending it")
      ->check(CLI::Range(0., 86400.))
      ->capture_default_str();
  launch->prefix_command();
  launch->footer(kLaunchFooter);
  run->add_option("FILE", file, "the program's JSON; - reads standard input")->required();

  // Behind a -- is the program to launch; the parser would take it for arguments of its own.
  const std::span<char*> words(argv, static_cast<size_t>(argc));
  auto shown = words.end();
  if (std::ranges::find(words, std::string_view("launch")) != words.end())
    shown = std::ranges::find(words, std::string_view("--"));
  const std::span<char*> behind(shown == words.end() ? shown : shown + 1, words.end());

  try {
    app.parse(static_cast<int>(shown - words.begin()), argv);
    if (*launch) {
      ranks.servers = gradwire::client::parse_servers(servers.empty() ? server : servers);
      ranks.grace = std::chrono::milliseconds(static_cast<int64_t>(grace * 1000));
      ranks.command = command_of(launch->remaining(), behind);
      return gradwire::client::launch(ranks);
    }
    std::string program;
    if (*run) program = whole(file);
    gradwire::ConnectOptions options;
    if (!token_file.empty()) options.token = first_line(token_file);
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000));
    const auto client = gradwire::connect(server, options);
    if (*info) show_info(client);
    if (*sessions) show_sessions(client);
    if (*run) std::cout << client.run_json(program) << "\n";
    return std::cout.flush() ? kOk : kFailed;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) ? kUsage : kOk;
  } catch (const gradwire::Error& e) {
    std::cerr << "gradwire: " << name(e.code()) << ": " << e.what();
    if (!e.op().empty())
      std::cerr << " (operator " << e.op() << (e.step() >= 0 ? ", step " + std::to_string(e.step()) : "") << ")";
    std::cerr << "\n";
    return *launch ? kUsage : exit_of(e.code());
  } catch (const std::exception& e) {
    std::cerr << "gradwire: " << e.what() << "\n";
    return kFailed;
  }
}
