// Sessions on servers of their own, each with one compute thread: what the whole stack makes of an all_reduce, and of a
// data-parallel step.

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <thread>

#include "client/distributed.h"
#include "client/gradwire.h"
#include "client/nn/nn.h"
#include "tests/bench/side.h"

namespace {

using namespace gradwire;
using bench::Arguments;
using bench::Work;

constexpr int64_t kWidth = 1024, kBatch = 128;

/// A port that was free a moment ago.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in in{};
  in.sin_family = AF_INET, in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof in;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&in), size) || ::getsockname(fd, reinterpret_cast<sockaddr*>(&in), &size))
    throw std::runtime_error("no free port");
  ::close(fd);
  return ntohs(in.sin_port);
}

std::vector<int> numbers_in(const std::string& path) {
  std::ifstream in(path);
  return {std::istream_iterator<int>(in), {}};
}

/// All threads of a process, to CPU 1, and those that compute to CPU 0.
void pin(int pid) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(name == "gradwired:lane" ? 0 : 1, &one);
    if (::sched_setaffinity(std::stoi(task.path().filename()), sizeof one, &one))
      throw std::runtime_error("cannot pin");
  }
}

std::vector<int> children_of(int pid) {
  std::vector<int> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    for (const int child : numbers_in(task.path() / "children")) all.push_back(child);
  }
  return all;
}

/// A machine with a core to spare: the servers' lanes share CPU 0, and all else has CPU 1.
void part() {
  pin(::getpid());
  for (const int server : children_of(::getpid())) {
    pin(server);
    for (const int helper : children_of(server)) pin(helper);
  }
}

/// Servers whose sessions are a group.
struct Servers {
  explicit Servers(int size) {
    const std::string meeting = "tcp://127.0.0.1:" + std::to_string(free_port());
    for (int r = 0; r < size; ++r) {
      clients.push_back(connect("local", {.session = {.memory_limit = int64_t{4} << 30},
                                          .server_args = {"--peer", "127.0.0.1:0", "--threads", "1"}}));
    }
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        try {
          distributed::init_process_group(session(r), {.init_method = meeting, .world_size = size, .rank = r});
        } catch (const std::exception& e) {
          std::printf("error %s\n", e.what());
          std::_Exit(1);
        }
      });
    }
    for (auto& t : threads) t.join();
  }
  int size() const { return static_cast<int>(clients.size()); }
  Session& session(int r) { return clients[static_cast<size_t>(r)].session(); }
  std::vector<Client> clients;
};

/// Waits for what all ranks were told; each hears of it before one waits.
struct Ranks {
  std::vector<Tensor> marks;  // a number of each rank
  void wait() const {
    std::vector<Future<double>> all;
    for (const Tensor& m : marks) all.push_back(m.async_item<double>());
    for (auto& f : all) f.get();
  }
};

/// `times` all_reduce in a row of `bytes` of float32.
Work all_reduce(Servers& w, size_t bytes, int times) {
  auto xs = std::make_shared<std::vector<Tensor>>();
  auto ranks = std::make_shared<Ranks>();
  for (int r = 0; r < w.size(); ++r) {
    xs->push_back(from_span(w.session(r), bench::numbers(bytes / 4, r), {static_cast<int64_t>(bytes / 4)}));
    ranks->marks.push_back(zeros(w.session(r), {1}));
  }
  const auto once = [=] {
    for (int i = 0; i < times; ++i) {
      for (const Tensor& x : *xs) distributed::all_reduce(x);
    }
    ranks->wait();
  };
  for (const Tensor& x : *xs) distributed::all_reduce(x);
  ranks->wait();
  const double sum = xs->back().sum().item<double>();
  for (const Tensor& x : *xs) zero_(x);
  return {once, [sum] { return sum; }};
}

struct Net : nn::Sequential {
  explicit Net(Session& s)
      : nn::Sequential(nn::Linear(s, 784, kWidth), nn::ReLU(), nn::Linear(s, kWidth, kWidth), nn::ReLU(),
                       nn::Linear(s, kWidth, kWidth), nn::ReLU(), nn::Linear(s, kWidth, 10)) {}
};

/// A rank's model of 11 MiB, its batch, and a step: forward, backward, SGD.
struct Rank {
  Rank(Servers& w, int r, int64_t bucket) : net(w.session(r)) {
    Session& s = w.session(r);
    const no_grad off;
    for (const Tensor& p : net.parameters()) {
      const int64_t n = p.numel();
      copy_(p, (sin(arange(s, 0, n, {.dtype = DType::float32}) * 0.7) * 0.03).reshape(p.shape()));
    }
    x = sin(arange(s, 0, kBatch * 784, {.dtype = DType::float32}) * 0.01).reshape({kBatch, 784});
    target = arange(s, kBatch).remainder(10);
    if (bucket) ddp.emplace(net, distributed::DistributedOptions{.bucket_bytes = bucket});
  }
  Tensor step() {
    zero_grad(net.parameters(), {.set_to_none = true});
    const Tensor loss = cross_entropy(ddp ? (*ddp)(x) : net(x), target);
    loss.backward();
    const no_grad off;
    for (const Tensor& p : net.parameters()) p.sub_(p.grad(), 1e-3);
    return loss.detach();
  }
  Net net;
  Tensor x, target;
  std::optional<nn::DistributedDataParallel<Net>> ddp;
};

/// Two steps of all ranks, data-parallel, or each for itself and then one all_reduce of as many bytes as the gradients
/// have: what two steps are when half of each one's exchange is hidden behind backward.
Work steps(Servers& w, int64_t bucket) {
  auto ranks = std::make_shared<std::vector<std::unique_ptr<Rank>>>(w.clients.size());
  std::vector<std::thread> threads;  // broadcasts wait for each other
  for (int r = 0; r < w.size(); ++r)
    threads.emplace_back([&, r] { (*ranks)[static_cast<size_t>(r)] = std::make_unique<Rank>(w, r, bucket); });
  for (auto& t : threads) t.join();
  auto gradients = std::make_shared<std::vector<Tensor>>();
  for (int r = 0; r < w.size(); ++r) {
    int64_t n = 0;
    for (const Tensor& p : (*ranks)[static_cast<size_t>(r)]->net.parameters()) n += p.numel();
    gradients->push_back(zeros(w.session(r), {n}));
  }
  const auto round = [=] {
    Ranks done;
    for (int i = 0; i < 2; ++i) {
      done.marks.clear();
      for (auto& r : *ranks) done.marks.push_back(r->step());
    }
    if (bucket) return done.wait();
    done.wait();
    for (const Tensor& g : *gradients) distributed::all_reduce(g);
    done.marks.clear();
    for (const Tensor& g : *gradients) done.marks.push_back(g.narrow(0, 0, 1));
    done.wait();
  };
  // All ranks have one batch: the mean of their gradients is what each has for itself.
  const double loss = (round(), [&] {
    std::vector<Future<double>> all;
    for (auto& r : *ranks) all.push_back(r->step().async_item<double>());
    double sum = 0;
    for (auto& l : all) sum += l.get();
    return sum;
  }());
  return {round, [loss] { return loss; }};
}

}  // namespace

int main(int argc, char** argv) try {
  const int size = argc > 1 ? std::atoi(argv[1]) : 0;
  const std::string_view how = argc > 2 ? argv[2] : "";
  if (size < 1 || size > 16 || argc > 4) return std::fprintf(stderr, "usage: group_side SERVERS [apart] [NAME]\n"), 2;
  Servers w(size);
  if (how == "apart") part();
  return bench::serve({
      {"all_reduce",
       [&](const Arguments& a) {
         if (std::stoi(a.at(0)) != size) throw std::invalid_argument("it has other ranks");
         return all_reduce(w, std::stoull(a.at(1)), a.size() > 2 ? std::stoi(a[2]) : 1);
       }},
      {"ddp", [&](const Arguments& a) { return steps(w, a.empty() ? 2 << 20 : std::stoll(a[0])); }},
      {"compute", [&](const Arguments&) { return steps(w, 0); }},
  });
} catch (const std::exception& e) {
  std::printf("error %s\n", e.what());
  return 1;
}
