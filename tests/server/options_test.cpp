#include "server/options.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

namespace gradwire::server {
namespace {

using Catch::Matchers::ContainsSubstring;

StartUp start(std::vector<std::string> args, std::map<std::string, std::string> env = {}) {
  return read_options(args, [&env](const char* name) -> const char* {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("a config file is a file of a bounded size, with names of a bounded length", "[server][options]") {
  std::string folder = (std::filesystem::temp_directory_path() / "gradwire-config-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()));
  const std::string path = folder + "/config", pipe = folder + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto with = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    return start({"check-config", path});
  };
  for (const std::string& other : {pipe, std::string("/dev/zero"), folder}) {
    CAPTURE(other);
    CHECK_THAT(start({"check-config", other}).err, ContainsSubstring("is not a file"));
    CHECK(start({"check-config", other}).exit_code == 78);
    CHECK_THAT(start({"--config", other}).err, ContainsSubstring("is not a file"));
    CHECK_THAT(start({}, {{"GRADWIRE_CONFIG", other}}).err, ContainsSubstring("is not a file"));
  }
  std::string deep;
  for (int i = 0; i < 20000; ++i) deep += "a.";
  CHECK_THAT(with("[" + deep + "b]\nx=1\n").err, ContainsSubstring("a name in the config file"));
  CHECK_THAT(with(deep + "b=1\n").err, ContainsSubstring("a name in the config file"));
  CHECK_THAT(with(std::string(300 << 10, '#')).err, ContainsSubstring("has more than 262144 bytes"));
  CHECK(with("# " + std::string(500, '-') + "\nlanes = 3 # " + std::string(500, '-') + "\n").exit_code == 0);
  std::filesystem::remove_all(folder);
}

TEST_CASE("without options it serves loopback on the default ports", "[server][options][T34]") {
  const StartUp s = start({});
  CHECK(s.exit_code == -1);
  CHECK(s.options.rpc == "127.0.0.1:7420");
  CHECK(s.options.http == "127.0.0.1:7421");
  CHECK(s.options.probe == "127.0.0.1:7423");
  CHECK(s.options.threads >= 1);
}

TEST_CASE("the start matrix: an address beyond loopback needs both protections or both switches",
          "[server][options][T34]") {
  int combinations = 0, refused = 0;
  for (const std::string address : {"127.0.0.1:0", "127.8.9.10:0", "[::1]:0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    for (const bool token : {false, true}) {
      for (const std::string tls : {"", "cert", "key", "both"}) {
        for (const bool no_auth : {false, true}) {
          for (const bool no_tls : {false, true}) {
            std::vector<std::string> args{"--http", address};
            if (token) args.insert(args.end(), {"--token-file", "tokens"});
            if (tls == "cert" || tls == "both") args.insert(args.end(), {"--tls-cert", "c.pem"});
            if (tls == "key" || tls == "both") args.insert(args.end(), {"--tls-key", "k.pem"});
            if (no_auth) args.push_back("--insecure-no-auth");
            if (no_tls) args.push_back("--insecure-no-tls");
            CAPTURE(args);
            const StartUp s = start(args);
            const bool loopback = address.starts_with("127.") || address == "[::1]:0";
            // This build checks no tokens and has no TLS: with them it starts nowhere.
            const bool may = !token && tls.empty() && (loopback || (no_auth && no_tls));
            CHECK(s.exit_code == (may ? -1 : 78));
            CHECK(s.err.empty() == may);
            ++combinations, refused += !may;
            if (!may && !loopback && tls != "cert" && tls != "key") {
              const bool asks_token = s.err.find("--token-file FILE") != std::string::npos;
              const bool asks_tls = s.err.find("--tls-cert FILE") != std::string::npos;
              CHECK(asks_token == (!token && !no_auth));
              CHECK(asks_tls == (tls.empty() && !no_tls));
            }
          }
        }
      }
    }
  }
  CHECK(combinations == 192);
  CHECK(refused > 96);
}

TEST_CASE("every listener is under the bind rule", "[server][options][T34]") {
  for (const std::string flag : {"--rpc", "--http", "--probe"}) {
    const StartUp s = start({flag, "0.0.0.0:0"});
    CHECK(s.exit_code == 78);
    CHECK_THAT(s.err, ContainsSubstring(flag + " 0.0.0.0:0"));
  }
  CHECK(start({"--rpc", "off", "--http", "off", "--unix", "/tmp/x"}).exit_code == -1);
  CHECK(start({"--rpc", "off", "--http", "off"}).exit_code == 78);
}

TEST_CASE("servers among themselves need TLS with an authority beyond loopback, or the switch",
          "[server][options][T34]") {
  const std::vector<std::string> tls{"--tls-cert", "c.pem", "--tls-key", "k.pem"};
  const auto with = [](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return start(args);
  };
  CHECK(start({"--peer", "127.0.0.1:0"}).exit_code == -1);
  CHECK(start({"--peer", "localhost:7422"}).options.peer == "127.0.0.1:7422");
  CHECK(start({}).options.peer.empty());
  CHECK(start({"--peer", "off"}).options.peer.empty());
  const StartUp open = start({"--peer", "0.0.0.0:7422"});
  CHECK(open.exit_code == 78);
  CHECK_THAT(open.err, ContainsSubstring("--peer 0.0.0.0:7422") && ContainsSubstring("--tls-ca FILE"));
  CHECK(with({"--peer", "0.0.0.0:7422"}, tls).exit_code == 78);
  CHECK(with({"--peer", "0.0.0.0:7422", "--tls-ca", "ca.pem"}, tls).exit_code == -1);
  CHECK(start({"--peer", "0.0.0.0:7422", "--insecure-no-tls"}).exit_code == -1);
  CHECK(with({"--peer", "127.0.0.1:7422"}, tls).exit_code == 78);
  CHECK(start({"--peer", "127.0.0.1:0", "--tls-ca", "ca.pem"}).exit_code == 78);
  // That the servers have it does not give it to the clients.
  CHECK(with({"--peer", "0.0.0.0:7422", "--tls-ca", "ca.pem", "--http", "0.0.0.0:0", "--insecure-no-auth"}, tls)
            .exit_code == 78);
  CHECK(start({"--peer", "elsewhere"}).exit_code == 78);
}

TEST_CASE("the ports of data planes are a range", "[server][options]") {
  const StartUp s = start({"--data-ports", "7430-7439"});
  CHECK(s.options.data_first_port == 7430);
  CHECK(s.options.data_last_port == 7439);
  for (const std::string bad : {"7430", "7439-7430", "0-5", "1-65536", "a-b", "1-2-3", "-1-5"}) {
    CAPTURE(bad);
    const StartUp refused = start({"--data-ports=" + bad});
    CHECK(refused.exit_code == 78);
    CHECK_THAT(refused.err, ContainsSubstring("--data-ports " + bad));
  }
}

TEST_CASE("a pod of a StatefulSet finds its rank in its name", "[server][options][H8]") {
  const std::vector<std::string> args{
      "--peer", "127.0.0.1:0",  "--group-init", "tcp://gw-0.gw:7422", "--group-world-size",
      "4",      "--group-rank", "ordinal",      "--group-name",       "train"};
  const StartUp s = start(args, {{"HOSTNAME", "gw-3"}});
  CHECK(s.err == "");
  CHECK(s.options.group_rank_read == 3);
  CHECK(s.options.group_world_size == 4);
  CHECK(s.options.group_name == "train");
  CHECK(start(args, {{"HOSTNAME", "my-gw-12.gw.default.svc"}}).err ==
        "gradwired does not start: --group-rank 12 is out of range: [0, 3]\n");
  CHECK_THAT(start(args, {{"HOSTNAME", "laptop"}}).err, ContainsSubstring("does not end with a number"));
  CHECK(start({"--peer", "127.0.0.1:0", "--group-init", "file:///x", "--group-rank", "2"}).options.group_rank_read ==
        2);
  CHECK(start({"--peer", "127.0.0.1:0", "--group-init", "file:///x"}).options.group_rank_read == -1);
  CHECK(start({"--peer", "127.0.0.1:0", "--group-init", "file:///x", "--group-rank", "two"}).exit_code == 78);
  CHECK_THAT(start({"--group-init", "file:///x"}).err, ContainsSubstring("--group-init needs --peer"));
  CHECK_THAT(start({"--group-rank", "1"}).err, ContainsSubstring("go with --group-init"));
}

TEST_CASE("an address that is none is refused before a port opens", "[server][options]") {
  for (const std::string bad :
       {"7421", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.1:80", "::1:80", "[::1]",
        "example.org:80", "127.0.0.1:80x", " 127.0.0.1:80", "[127.0.0.1]:80", "[::1%lo]:80", "0177.0.0.1:80"}) {
    CAPTURE(bad);
    CHECK(start({"--http", bad}).exit_code == 78);
  }
  CHECK(start({"--http", "localhost:0"}).options.http == "127.0.0.1:0");
  CHECK(start({"--http", "[::ffff:127.0.0.1]:80"}).exit_code == 78);  // not ::1
}

TEST_CASE("an option comes from the command line, else the config file, else the environment", "[server][options]") {
  const auto file =
      std::filesystem::temp_directory_path() / ("gradwire_options_" + std::to_string(::getpid()) + ".toml");
  std::ofstream(file) << "lanes = 3\nsession-memory = \"2GiB\"\ninsecure-no-tls = true\nallowed-host = [\"a.example\", "
                         "\"b.example\"]\n";
  const std::map<std::string, std::string> env{
      {"GRADWIRE_LANES", "5"}, {"GRADWIRE_SESSION_TENSORS", "77"}, {"GRADWIRE_INSECURE_NO_AUTH", "true"}};
  StartUp s = start({"--config", file.string()}, env);
  CHECK(s.err == "");
  CHECK(s.options.lanes == 3);
  CHECK(s.options.session_memory == int64_t{2} << 30);
  CHECK(s.options.session_tensors == 77);
  CHECK(s.options.insecure_no_auth);
  CHECK(s.options.insecure_no_tls);
  CHECK(s.options.allowed_hosts == std::vector<std::string>{"a.example", "b.example"});
  s = start({"--lanes", "4", "--config", file.string()}, env);
  CHECK(s.options.lanes == 4);
  CHECK(start({}, env).options.lanes == 5);
  std::ofstream(file) << "lane = 3\n";
  CHECK(start({"--config", file.string()}).exit_code == 64);  // a key that means nothing
  std::filesystem::remove(file);
  CHECK(start({"--config", file.string()}).exit_code == 64);
}

TEST_CASE("numbers are held within their limits", "[server][options]") {
  for (const std::string bad : {"0", "257", "-1", "9223372036854775807", "9223372036854775808", "two", "", "1.5"}) {
    CAPTURE(bad);
    CHECK(start({"--lanes", bad}).exit_code == 64);
  }
  CHECK(start({"--lanes", "256"}).options.lanes == 256);
  CHECK(start({"--session-memory", "1048575"}).exit_code == 64);
  CHECK(start({"--session-memory", "1048576"}).exit_code == -1);
  CHECK(start({"--session-memory", "9223372036854775807"}).exit_code == 64);
  CHECK(start({"--session-memory", "99999999TiB"}).exit_code == 64);
  CHECK(start({"--session-memory", "-1"}).exit_code == 64);
  CHECK(start({}, {{"GRADWIRE_LANES", "many"}}).exit_code == 64);
  CHECK(start({"--log-level", "loud"}).exit_code == 78);
}

TEST_CASE("a server with a free HTTP port takes a free probe port unless one is named", "[server][options]") {
  CHECK(start({"--http", "127.0.0.1:0"}).options.probe == "127.0.0.1:0");
  CHECK(start({"--http", "127.0.0.1:0", "--probe", "127.0.0.1:7423"}).options.probe == "127.0.0.1:7423");
  CHECK(start({"--http", "127.0.0.1:0"}, {{"GRADWIRE_PROBE", "off"}}).options.probe.empty());
}

TEST_CASE("a config file may be named by the environment or checked by its name", "[server][options]") {
  const auto file = std::filesystem::temp_directory_path() / ("gradwire_named_" + std::to_string(::getpid()) + ".toml");
  std::ofstream(file) << "lanes = 3\n";
  const std::map<std::string, std::string> env{{"GRADWIRE_CONFIG", file.string()}};
  CHECK(start({}, env).options.lanes == 3);
  CHECK(start({"--lanes", "4"}, env).options.lanes == 4);
  CHECK(start({"check-config", file.string()}).exit_code == 0);
  const auto other = file.string() + ".other";
  std::ofstream(other) << "lanes = 5\n";
  CHECK(start({"--config", other}, env).options.lanes == 5);
  std::ofstream(file) << "lanes = 0\n";
  CHECK(start({"check-config", file.string()}).exit_code == 78);
  CHECK_THAT(start({"check-config", file.string()}).err, ContainsSubstring("lanes"));
  CHECK(start({"check-config", other}, env).exit_code == 0);
  std::filesystem::remove(file);
  std::filesystem::remove(other);
  CHECK(start({}, env).exit_code == 64);
  CHECK(start({"check-config", file.string()}).exit_code == 78);
}

TEST_CASE("the subcommands routes and drain start no server", "[server][options]") {
  CHECK(start({}).command == Command::serve);
  CHECK(start({"routes"}).command == Command::routes);
  const StartUp s = start({"drain", "--wait=250ms", "--unix", "/x"});
  CHECK(s.command == Command::drain);
  CHECK(s.drain_wait == 250);
  CHECK(s.options.unix_path == "/x");
  CHECK(start({"drain"}).drain_wait == 5000);
  CHECK(start({"drain", "--wait=2m"}).drain_wait == 120000);
  CHECK(start({"drain"}, {{"GRADWIRE_UNIX", "/y"}}).options.unix_path == "/y");
  for (const char* bad : {"5", "-1s", "61m", "99999999999999999999s"}) {
    CAPTURE(bad);
    CHECK(start({"drain", "--wait=" + std::string(bad)}).exit_code == 64);
  }
}

TEST_CASE("help shows every option and how to begin; check-config says whether it would start", "[server][options]") {
  const StartUp help = start({"--help"});
  CHECK(help.exit_code == 0);
  for (const char* word :
       {"--rpc", "--token-file", "--insecure-no-tls", "--session-memory", "GRADWIRE_", "check-config", "curl"}) {
    CHECK_THAT(help.out, ContainsSubstring(word));
  }
  CHECK(start({"check-config"}).exit_code == 0);
  CHECK_THAT(start({"check-config"}).out, ContainsSubstring("would start"));
  CHECK(start({"check-config", "--http", "0.0.0.0:80"}).exit_code == 78);
  CHECK(start({"--http", "0.0.0.0:80", "check-config"}).exit_code == 78);
  CHECK(start({"--no-such-option"}).exit_code == 64);
  CHECK(start({"extra"}).exit_code == 64);
  CHECK(start({"--version"}).out == "gradwired 0.1.0\n");
}

}  // namespace
}  // namespace gradwire::server
