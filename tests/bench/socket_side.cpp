// What the operating system's sockets can do, which no protocol on top of them can beat:
// socket_side tcp|unix SERVER_CPU CLIENT_CPU

#include <sys/epoll.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "tests/bench/side.h"
#include "tests/bench/sockets.h"

namespace {

using bench::Arguments;
using bench::Work;

constexpr size_t kMessage = 64;

struct Order {
  enum Kind : uint64_t { echo, take, give } kind;
  uint64_t size;
};

void read_all(int fd, char* to, size_t n) {
  for (size_t got = 0; got < n;) {
    const ssize_t r = recv(fd, to + got, n - got, 0);
    if (r <= 0) throw std::runtime_error("the other end is gone");
    got += static_cast<size_t>(r);
  }
}

void write_all(int fd, const char* from, size_t n) {
  for (size_t sent = 0; sent < n;) {
    const ssize_t r = send(fd, from + sent, n - sent, MSG_NOSIGNAL);
    if (r <= 0) throw std::runtime_error("the other end is gone");
    sent += static_cast<size_t>(r);
  }
}

/// Waits as a server with many connections does.
class Waiter {
 public:
  explicit Waiter(int fd) : epoll_(bench::checked(epoll_create1(0), "epoll_create")) {
    epoll_event e{};
    e.events = EPOLLIN;
    bench::checked(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e), "epoll_ctl");
  }
  void wait() const {
    epoll_event e;
    bench::checked(epoll_wait(epoll_, &e, 1, -1), "epoll_wait");
  }

 private:
  int epoll_;
};

void server(int fd) try {
  const Waiter waiter(fd);
  std::vector<char> memory(kMessage);
  for (Order o;;) {
    waiter.wait();
    read_all(fd, reinterpret_cast<char*>(&o), sizeof o);
    if (o.size > memory.size()) memory.assign(o.size, 1);
    if (o.kind == Order::take) read_all(fd, memory.data(), o.size);
    const size_t answer = o.kind == Order::give ? o.size : o.kind == Order::take ? 1 : sizeof o;
    write_all(fd, memory.data(), answer);
  }
} catch (const std::exception&) {
  // The client has ended.
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: socket_side tcp|unix SERVER_CPU CLIENT_CPU\n"), 2;
  const int fd = bench::with_server(argv[1], argv[2], argv[3], server);
  const Waiter waiter(fd);
  auto ask = [fd](Order::Kind kind, size_t size) {
    const Order o{kind, size};
    write_all(fd, reinterpret_cast<const char*>(&o), sizeof o);
  };
  auto bulk = [&](Order::Kind kind, const Arguments& mib) {
    auto memory = std::make_shared<std::vector<char>>(std::stoull(mib.at(0)) << 20, 1);
    return Work{[=] {
      ask(kind, memory->size());
      if (kind == Order::take) write_all(fd, memory->data(), memory->size());
      read_all(fd, memory->data(), kind == Order::take ? 1 : memory->size());
    }};
  };
  return bench::serve({
      {"call",
       [&](const Arguments&) {
         return Work{.round =
                         [&] {
                           char answer[sizeof(Order)];
                           ask(Order::echo, 0);
                           waiter.wait();
                           read_all(fd, answer, sizeof answer);
                         },
                     .median = true};
       }},
      {"upload", [&](const Arguments& mib) { return bulk(Order::take, mib); }},
      {"download", [&](const Arguments& mib) { return bulk(Order::give, mib); }},
  });
} catch (const std::exception& e) {
  std::printf("error %s\n", e.what());
  return 1;
}
