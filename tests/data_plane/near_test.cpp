// Ranks on one machine, who lend each other their memory; and what one of them gains by saying what is not so.

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include "server/cluster/plane/fd.h"
#include "server/cluster/plane/mesh.h"
#include "tests/data_plane/ranks.h"

namespace gradwire::server::cluster::test {
namespace {

using plane::Fd;
using Bytes = std::vector<std::byte>;

/// Areas that a helper has mapped: its own, and those of others.
struct Mapped {
  size_t own = 0, lent = 0;
};
Mapped mapped(pid_t helper) {
  std::ifstream maps("/proc/" + std::to_string(helper) + "/maps");
  Mapped m;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("gradwire-area") == std::string::npos) continue;
    ++(line.find(" rw-s ") == std::string::npos ? m.lent : m.own);
  }
  return m;
}

Bytes numbers(size_t count, int32_t rank) {
  Bytes b(count * 4);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t x = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(rank) * 1000003u;
    std::memcpy(&b[i * 4], &x, 4);
  }
  return b;
}

TEST_CASE("Ranks on one machine lend each other their areas, others send them, and the bits are the same",
          "[data_plane][H20][H23][H24]") {
  constexpr int kSize = 3;
  Ranks near(kSize), far(kSize, Way::far);
  // About the size from which bytes are lent, and more than one segment of Gloo's.
  for (const int64_t count : {4095, 4096, 4097, 12'288, 12'289, 70'000, 1'000'003}) {
    for (const Terms& t :
         {Terms{Collective::all_reduce, ReduceOp::sum, DType::int32, count, -1},
          Terms{Collective::all_reduce, ReduceOp::avg, DType::float16, count, -1},
          Terms{Collective::reduce, ReduceOp::bxor, DType::int32, count, 1},
          Terms{Collective::broadcast, {}, DType::int32, count, 2},
          Terms{Collective::all_gather, {}, DType::int32, count, -1},
          Terms{Collective::gather, {}, DType::int32, count, 1}, Terms{Collective::scatter, {}, DType::int32, count, 2},
          Terms{Collective::reduce_scatter, ReduceOp::max, DType::int32, count, -1}}) {
      CAPTURE(count, static_cast<int>(t.what));
      std::vector<Bytes> in;
      for (int r = 0; r < kSize; ++r) in.push_back(numbers(static_cast<size_t>(count * kSize), r));
      const auto a = near.run(t, in), b = far.run(t, in);
      const bool parts = t.what == Collective::all_gather;
      const auto bytes = static_cast<size_t>(count * size_of(t.dtype)) * (parts ? kSize : 1);
      for (size_t r = 0; r < kSize; ++r) {
        if ((t.what == Collective::reduce || t.what == Collective::gather) && static_cast<int>(r) != t.root) continue;
        CHECK(std::memcmp(a[r].data(), b[r].data(), bytes) == 0);
      }
    }
  }
  for (const Rank& r : near.ranks) CHECK(mapped(r.helper).lent > 0);
  for (const Rank& r : far.ranks) CHECK(mapped(r.helper).lent == 0);
}

TEST_CASE("Large messages are lent too, and wait for who takes them late", "[data_plane][H15][H17]") {
  Ranks g(2);
  const Terms send{Collective::send, {}, DType::int32, 100'000, 1},
      recv{Collective::recv, {}, DType::int32, 100'000, 0};
  const Bytes first = numbers(100'000, 0), second = numbers(100'000, 1);
  auto one = g.start(0, send, g.area(0, first), 1), two = g.start(0, send, g.area(0, second), 2);
  // What was lent is read when it is taken, not before: a barrier passes meanwhile.
  g.run({Collective::barrier, {}, DType::uint8, 0, -1}, std::vector<Bytes>(2));
  CHECK(one.future.wait_for(0s) == std::future_status::timeout);
  auto a = g.area(1, Bytes(400'000)), b = g.area(1, Bytes(400'000));
  CHECK(g.start(1, recv, a, 1).get());
  CHECK(g.start(1, recv, b, 2).get());
  CHECK(one.get());
  CHECK(two.get());
  CHECK(Bytes(a->bytes.begin(), a->bytes.end()) == first);
  CHECK(Bytes(b->bytes.begin(), b->bytes.end()) == second);
}

TEST_CASE("Areas that are given up leave those who borrowed them too", "[data_plane]") {
  DataPlaneOptions o;
  o.memory = 4 << 20;
  Ranks g(2, o);
  for (int64_t count = 5000; count < 500'000; count = count * 6 / 5) {
    const Bytes in(static_cast<size_t>(count) * 4);
    g.run({Collective::all_reduce, ReduceOp::sum, DType::int32, count, -1}, {in, in});
  }
  g.run({Collective::barrier, {}, DType::uint8, 0, -1}, std::vector<Bytes>(2));
  for (const Rank& r : g.ranks) {
    CHECK(mapped(r.helper).lent > 0);
    CHECK(mapped(r.helper).lent <= 18);
    CHECK(mapped(r.helper).own <= 18);
  }
}

TEST_CASE("An area that is given up leaves an idle neighbour within a second or two", "[data_plane]") {
  DataPlaneOptions o;
  o.memory = 4 << 20;
  Ranks g(2, o);
  const Bytes in(size_t{3} << 20);
  g.run({Collective::all_reduce, ReduceOp::sum, DType::int32, int64_t{3} << 18, -1}, {in, in});
  REQUIRE(mapped(g.ranks[1].helper).lent == 1);
  g.ranks[0].plane->area(size_t{2} << 20);  // for which the other gives way
  const auto until = Clock::now() + 5s;
  while (mapped(g.ranks[1].helper).lent && Clock::now() < until) std::this_thread::sleep_for(20ms);
  CHECK(mapped(g.ranks[1].helper).lent == 0);
  CHECK(mapped(g.ranks[0].helper).own == 0);
}

// ---- somebody who knows the key, and says what is not so

struct Header {
  uint64_t slot = 0, bytes = 0, area = 0, offset = 0;
};

Fd memory(size_t size, unsigned seals) {
  Fd fd(::memfd_create("a-test's", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  if (seals) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

/// Whether it could still be said.
bool say(const Fd& to, Header h, const Fd& with = Fd()) {
  iovec data{&h, sizeof h};
  msghdr m{};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  plane::Rights rights;
  if (with) rights.put(m, with.get());
  return ::sendmsg(to.get(), &m, MSG_NOSIGNAL) == sizeof h;
}

/// Rank 0, and in the place of its helper's neighbour this test: who knows the key has its links.
struct Pair {
  explicit Pair(Way way) : ranks(2, {}, false, 5000ms, way) {
    Answer<void> connected;
    ranks.ranks[0].plane->connect(ranks.addresses(), kKey, connected.done());
    plane::Mesh mesh(1, 2);
    mesh.listen("127.0.0.1", 0, 0);
    links = mesh.connect(ranks.addresses(), kKey, Clock::now() + 5s);
    REQUIRE(connected.get());
  }
  const Fd& link() const { return links[0]; }  // of collectives
  Ranks ranks;
  std::vector<Fd> links;
};

/// What rank 0 says of its all_reduce with a rank 1 that is `talk`.
std::string ended_by(Way way, const std::function<void(const Fd&)>& talk) {
  Pair p(way);
  auto answer = p.ranks.start(0, {Collective::all_reduce, ReduceOp::sum, DType::int32, 100'000, -1},
                              p.ranks.area(0, numbers(100'000, 0)), 5000ms);
  talk(p.link());
  auto result = answer.get();
  REQUIRE_FALSE(result);
  return result.error().message();
}

TEST_CASE("A neighbour who lends what it has not, or what can be cut off, is lost and harms nobody", "[T39][T40]") {
  const std::string lost = "data plane: the connection with rank 1 is lost: ";
  const Fd good = memory(4096, F_SEAL_SHRINK);
  const struct {
    std::string says;
    std::function<void(const Fd&)> talk;
  } cases[] = {
      {lost + "it lends what it has not shown",
       [](const Fd& fd) {
         say(fd, {1, 64, 7, 0});
       }},
      {lost + "it lends what it has not shown",
       [&](const Fd& fd) {
         say(fd, {1, 4097, 7, 0}, good);
       }},
      {lost + "it lends what it has not shown",
       [&](const Fd& fd) {
         say(fd, {1, 64, 7, 4040}, good);
       }},
      {lost + "it lends what it has not shown",
       [&](const Fd& fd) {
         say(fd, {1, 64, 7, ~uint64_t{0} - 31}, good);
       }},
      {lost + "it lends what it has not shown",
       [&](const Fd& fd) {
         say(fd, {1, ~uint64_t{0}, 7, 1}, good);
       }},
      {lost + "it has read what was not lent",
       [](const Fd& fd) {
         while (say(fd, {uint64_t{0xfe} << 56})) {}
       }},
      {lost + "data plane: no area",
       [](const Fd& fd) {
         say(fd, {1, 64, 7, 0}, memory(4096, 0));
       }},
      {lost + "data plane: no area",
       [](const Fd& fd) {
         say(fd, {1, 64, 7, 0}, memory(0, F_SEAL_SHRINK));
       }},
      {lost + "data plane: no area",
       [](const Fd& fd) {
         say(fd, {1, 64, 7, 0}, Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)));
       }},
      {lost + "data plane: no area",
       [](const Fd& fd) {
         int ends[2];
         REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
         const Fd reads(ends[0]), writes(ends[1]);
         say(fd, {1, 64, 7, 0}, reads);
       }},
      {lost + "it runs another collective",
       [&](const Fd& fd) {
         say(fd, {uint64_t{3} << 56, 4096, 7, 0}, good);
       }},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    CAPTURE(i);
    CHECK(ended_by(Way::near, cases[i].talk) == cases[i].says);
  }
  CHECK(ended_by(Way::far, [](const Fd& fd) {
          say(fd, {1, 64, 7, 0});
        }) == lost + "it speaks as if it were on this machine");
}

TEST_CASE("What was lent stays what it was when the lender ends, or is an error", "[data_plane][T41]") {
  for (const int64_t count : {100'000, 5'000'000}) {
    for (const bool pairwise : {true, false}) {
      CAPTURE(count, pairwise);
      Ranks g(2);
      const Bytes in = numbers(static_cast<size_t>(count), 0);
      const Terms send{pairwise ? Collective::send : Collective::broadcast, {}, DType::int32, count, pairwise ? 1 : 0};
      const Terms recv{pairwise ? Collective::recv : Collective::broadcast, {}, DType::int32, count, 0};
      auto sent = pairwise ? g.start(0, send, g.area(0, in), 1) : g.start(0, send, g.area(0, in));
      // Told, and not taken: whatever else this rank moves has to wait for a barrier that never comes.
      CHECK(sent.future.wait_for(50ms) == std::future_status::timeout);
      g.ranks[0].plane = nullptr;
      sent.get();
      const AreaPtr out = g.area(1, Bytes(in.size()));
      auto taken = (pairwise ? g.start(1, recv, out, 1, 5000ms) : g.start(1, recv, out, 5000ms)).get();
      if (taken) CHECK(std::memcmp(out->bytes.data(), in.data(), in.size()) == 0);
    }
  }
}

TEST_CASE("Who borrows memory can read it, and do nothing else to it", "[data_plane][T39]") {
  Pair pair(Way::near);
  const Bytes in = numbers(100'000, 0);
  auto answer =
      pair.ranks.start(0, {Collective::broadcast, {}, DType::int32, 100'000, 0}, pair.ranks.area(0, in), 1000ms);
  Header h;
  Fd lent;
  int flags = 0;
  pollfd p{pair.link().get(), POLLIN, 0};
  REQUIRE(::poll(&p, 1, 5000) == 1);
  REQUIRE(plane::Rights::receive(pair.link().get(), &h, sizeof h, lent, flags) == sizeof h);
  REQUIRE(lent);
  CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, lent.get(), 0) == MAP_FAILED);
  CHECK(::pwrite(lent.get(), "x", 1, 0) == -1);
  CHECK(::fallocate(lent.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
  CHECK(::ftruncate(lent.get(), 0) == -1);
  void* at = ::mmap(nullptr, in.size(), PROT_READ, MAP_SHARED, lent.get(), 0);
  REQUIRE(at != MAP_FAILED);
  CHECK(std::memcmp(static_cast<char*>(at) + h.offset, in.data(), h.bytes) == 0);
  CHECK(::mprotect(at, 4096, PROT_READ | PROT_WRITE) == -1);
  ::munmap(at, in.size());
  answer.get();
}

TEST_CASE("Where the Unix socket leads nowhere, or to somebody else, ranks meet over TCP", "[data_plane][T39]") {
  socklen_t size;
  const sockaddr_un u = abstract("somebody-else", size);
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&u), size) == 0);
  REQUIRE(::listen(listener.get(), 16) == 0);
  for (const bool there : {false, true}) {
    Ranks g(2, {}, false, 5000ms);
    auto addresses = g.addresses();
    addresses[0] = addresses[0].substr(0, addresses[0].find('@')) + (there ? "@somebody-else" : "@nobody");
    std::vector<Answer<void>> answers(2);
    for (size_t r = 0; r < 2; ++r) g.ranks[r].plane->connect(addresses, kKey, answers[r].done());
    std::vector<Fd> callers;
    for (const auto until = Clock::now() + 1s; there && callers.size() < 2 && Clock::now() < until;) {
      Fd caller(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!caller) continue;
      const std::string reply(64, 'r');
      ::send(caller.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
      callers.push_back(std::move(caller));
    }
    for (auto& a : answers) REQUIRE(a.get());
    const Bytes in = numbers(50'000, 0);
    CHECK(g.run({Collective::broadcast, {}, DType::int32, 50'000, 0}, {in, Bytes(200'000)})[1] == in);
    CHECK(mapped(g.ranks[1].helper).lent == 0);
  }
}

TEST_CASE("Another user who floods the Unix socket gets no answer and holds no group up", "[T39]") {
  if (::geteuid() != 0) SKIP("only root can be another user");
  Ranks g(2, {}, false);
  socklen_t size;
  const sockaddr_un u = abstract(g.ranks[0].address.substr(g.ranks[0].address.find('@') + 1), size);
  const std::string greeting = hello(1, 0, 0);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd ready(ends[0]);
  Fd says(ends[1]);
  // As the other user: the first greets as a rank does, the others flood. Nothing there may allocate.
  std::vector<pid_t> others;
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::setgid(65534) || ::setuid(65534)) ::_exit(1);
      ::alarm(120);
      if (i == 0) {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
        if (::connect(fd, reinterpret_cast<const sockaddr*>(&u), size)) ::_exit(2);
        if (::send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL) != 56) ::_exit(3);
        if (::write(says.get(), "g", 1) != 1) ::_exit(4);
        ::_exit(hears_end(fd, 30000ms) ? 0 : 5);
      }
      for (int n = 0;; ++n) {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&u), size)) ::sched_yield();
        ::close(fd);
        if (n == 1000 && ::write(says.get(), "f", 1) != 1) ::_exit(6);
      }
    }
    others.push_back(pid);
    // It is there, or has ended: the greeting comes before the flood.
    if (i == 2) says = Fd();
    char sign;
    if (::read(ready.get(), &sign, 1) == 1) continue;
    for (const pid_t p : others) ::kill(p, SIGKILL), ::waitpid(p, nullptr, 0);
    SKIP("this process may not be another user");
  }
  const auto begin = Clock::now();
  for (auto& answer : g.connect()) CHECK(answer.get());
  CHECK(Clock::now() - begin < 10s);
  int status = -1;
  ::waitpid(others[0], &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  for (size_t i = 1; i < others.size(); ++i) {
    ::kill(others[i], SIGKILL);
    ::waitpid(others[i], &status, 0);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
  }
}

TEST_CASE("Strangers at the Unix socket get no place and stop nobody", "[T39]") {
  auto fastest = Clock::duration::max();
  for (int round = 0; round < 3; ++round) {
    Ranks g(2, {}, false);
    const std::string name = g.ranks[0].address.substr(g.ranks[0].address.find('@') + 1);
    socklen_t size;
    const sockaddr_un u = abstract(name, size);
    const auto knock = [&] {
      Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&u), size) ? Fd() : std::move(fd);
    };
    std::vector<Fd> strangers;
    for (int i = 0; i < 300; ++i) {
      strangers.push_back(knock());
      REQUIRE(strangers.back());
      // Always less than a greeting, so that they stay.
      Header h;
      const std::string text(static_cast<size_t>(i) % (56 - sizeof h), 'x');
      // With a descriptor, as a neighbour might.
      if (i % 2) say(strangers.back(), h, strangers.front());
      ::send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    const auto begin = Clock::now();
    for (auto& answer : g.connect()) REQUIRE(answer.get());
    fastest = std::min(fastest, Clock::now() - begin);
    CHECK_FALSE(knock());
    const Bytes in = numbers(50'000, 0);
    CHECK(g.run({Collective::broadcast, {}, DType::int32, 50'000, 0}, {in, Bytes(200'000)})[1] == in);
    CHECK(mapped(g.ranks[1].helper).lent > 0);  // at the Unix socket, not past it
  }
  CHECK(fastest < 2s);  // before a stranger's time is over: the oldest gave way
}

}  // namespace
}  // namespace gradwire::server::cluster::test
