// What ranks hear when another's server is killed or stopped, and when they do not agree.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/e2e/cluster_rig.h"

namespace gradwire::e2e {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// How a rank's stream of all_reduce ended.
struct End {
  std::string error;
  Clock::time_point call, heard;
  bool unchanged = false;
};

#ifdef GRADWIRE_TSAN
constexpr int64_t kLarge = 1 << 20;
constexpr int kOften = 5;
#else
constexpr int64_t kLarge = 16 << 20;  // float32: 64 MiB
constexpr int kOften = 50;
#endif

pid_t pid_of(const World& w, int rank) { return w.servers[static_cast<size_t>(rank)]->pid(); }
/// The helpers of a server's data planes.
std::vector<pid_t> helpers(const World& w, int rank) {
  const Server& s = *w.servers[static_cast<size_t>(rank)];
  std::vector<pid_t> all = s.family();
  std::erase(all, s.pid());
  return all;
}

/// All ranks reduce without end; a signal meets this process, one's server or helper, `after` the third all_reduce has
/// begun. What the others hear. What was stopped goes on once they have.
std::vector<End> strike(World& w, int victim, pid_t process, int signal, int64_t elements, milliseconds after,
                        Clock::time_point& struck) {
  std::atomic<int> begun{0}, over{0};
  const int world = w.size();
  std::vector<End> ends(static_cast<size_t>(world));
  std::thread striker([&] {
    while (begun <= 2 * world && over == 0) std::this_thread::yield();
    std::this_thread::sleep_for(after);
    ::kill(process, signal);
    struck = Clock::now();
    while (over < world - 1) std::this_thread::sleep_for(milliseconds(1));
    if (signal == SIGSTOP) ::kill(process, SIGCONT);
  });
  Said said = w.run([&](Session& s, int rank) {
    End& end = ends[static_cast<size_t>(rank)];
    for (int i = 0; i < 1000; ++i) {
      const float mine = static_cast<float>(i + rank);
      const Tensor x = full(s, {elements}, mine);
      s.sync();
      ++begun;
      end.call = Clock::now();
      end.error = error_of(s, [&] { dist::all_reduce(x); });
      if (end.error.empty()) continue;
      end.heard = Clock::now();
      end.unchanged = rank != victim && eq(x, mine).all().item<bool>();
      break;
    }
    if (rank != victim) ++over;
  });
  striker.join();
  said[static_cast<size_t>(victim)].clear();  // the client of a killed server
  CHECK(said == fine(world));
  ends.erase(ends.begin() + victim);
  return ends;
}

void add_up(World& w, const std::vector<int>& ranks) {
  const auto n = static_cast<int>(ranks.size());
  CHECK(w.run(
            [&](Session& s, int rank) {
              const Tensor x = full(s, {3}, 1 << rank);
              dist::all_reduce(x);
              float sum = 0;
              for (const int r : ranks) sum += static_cast<float>(1 << r);
              must(x.to_vector<float>() == std::vector<float>(3, sum), "the sum afterwards");
            },
            ranks) == fine(n));
}

void kill_in_mid_all_reduce(int rounds) {
  World w(3);
  // Between two calls the signal comes too, but not always: where it did so in all rounds there are more of them.
  const int wanted = rounds > 10 ? rounds / 4 : 1, most = rounds + 20;
  int midway = 0;
  for (int round = 0; round < rounds || (midway < wanted && round < most); ++round) {
    const int victim = (round + 2) % 3;
    INFO("round " << round << ", rank " << victim << " is killed");
    w.meet();
    Clock::time_point struck;
    const auto ends = strike(w, victim, pid_of(w, victim), SIGKILL, kLarge, milliseconds(3 + round * 7 % 50), struck);
    midway += std::ranges::all_of(ends, [&](const End& e) { return e.call < struck; });
    for (const End& e : ends) {
      CHECK_THAT(e.error, StartsWith("unavailable: ") && ContainsSubstring("rank " + std::to_string(victim)));
      CHECK(seconds(e.heard - struck) <= 1);
      CHECK(e.unchanged);
    }
    std::vector<int> others;
    for (int r = 0; r < 3; ++r) {
      if (r == victim) continue;
      CHECK(w.servers[static_cast<size_t>(r)]->runs());
      others.push_back(r);
    }
    const auto again = Clock::now();
    w.meet(others);
    CHECK(seconds(Clock::now() - again) <= 3);
    add_up(w, others);
    w.replace(victim);
  }
  CHECK(midway >= wanted);
  w.meet();
  add_up(w, {0, 1, 2});
  // Who has lived longest holds no more than who has just come.
  std::vector<size_t> open;
  for (const auto& s : w.servers) open.push_back(s->descriptors());
  CHECK(*std::max_element(open.begin(), open.end()) <= *std::min_element(open.begin(), open.end()) + 8);
}

}  // namespace

TEST_CASE("A server killed in mid all_reduce of 64 MiB is an error for the others within a second", "[H36][T41]") {
  kill_in_mid_all_reduce(3);
}
TEST_CASE("A server killed in mid all_reduce of 64 MiB is an error for the others, fifty times", "[H36][T41][long]") {
  kill_in_mid_all_reduce(kOften);
}

TEST_CASE("A stopped server is an error at the group's deadline, and comes back", "[H36][T42]") {
  const int victim = GENERATE(2, 0);
  World w(3);
  w.meet({}, milliseconds(2000));
  Clock::time_point struck;
  for (const End& e : strike(w, victim, pid_of(w, victim), SIGSTOP, 1 << 20, milliseconds(3), struck)) {
    CHECK_THAT(e.error, StartsWith("deadline_exceeded: "));
    CHECK(seconds(e.heard - e.call) >= 1.9);
    CHECK(seconds(e.heard - e.call) <= 3.5);
    CHECK(e.unchanged);
  }
  const std::vector<int> others = victim == 0 ? std::vector<int>{1, 2} : std::vector<int>{0, 1};
  w.meet(others);
  add_up(w, others);
  for (const auto& s : w.servers) CHECK(s->runs());
  w.meet();
  add_up(w, {0, 1, 2});
}

TEST_CASE("A helper that is killed or stopped in mid all_reduce ends the group, and no server", "[H36][T41][T42]") {
  World w(3);
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const bool killed = signal == SIGKILL;
    INFO((killed ? "killed" : "stopped"));
    w.meet({}, milliseconds(killed ? 30000 : 2000));
    REQUIRE(helpers(w, 1).size() == 1);
    Clock::time_point struck;
    for (const End& e : strike(w, 1, helpers(w, 1)[0], signal, 1 << 20, milliseconds(3), struck)) {
      CHECK_THAT(e.error, StartsWith(killed ? "unavailable: " : "deadline_exceeded: "));
      if (killed) CHECK_THAT(e.error, ContainsSubstring("rank 1"));
      CHECK(seconds(e.heard - (killed ? struck : e.call)) <= (killed ? 1 : 3.5));
      CHECK(e.unchanged);
    }
    for (const auto& s : w.servers) CHECK(s->runs());
    w.meet();
    add_up(w, {0, 1, 2});
  }
}

namespace {

/// A rank that tries until its group has added up; when that was.
double persist(World& w, Session& s, int rank, const std::string& meeting, Clock::time_point since) {
  std::string error;
  while (seconds(Clock::now() - since) < 40) {
    const Tensor x = full(s, {1000}, rank + 1);
    error = error_of(s, [&] {
      dist::init_process_group(
          s, {.init_method = meeting, .world_size = w.size(), .rank = rank, .timeout = std::chrono::seconds(20)});
      dist::all_reduce(x);
    });
    if (error.empty()) {
      must(eq(x, w.size() * (w.size() + 1) / 2).all().item<bool>(), "the sum");
      return seconds(Clock::now() - since);
    }
    must(eq(x, rank + 1).all().item<bool>(), "the tensor has changed");
    if (dist::is_initialized(s)) dist::destroy_process_group(s);
  }
  throw Error(Code::internal, "no group in time, the last error: " + error);
}

void kill_while_forming(int rounds) {
  World w(3);
  const std::string meeting = "tcp://" + w.servers[0]->peer();
  for (int round = 0; round < rounds; ++round) {
    INFO("round " << round);
    // The third joins, and is killed at some moment of that; one in its place joins after it.
    const auto begun = Clock::now();
    std::atomic<bool> gone{false};
    std::thread killer([&] {
      std::this_thread::sleep_for(milliseconds(3 * (round % 16)));
      w.servers[2]->signal(SIGKILL);
      gone = true;
    });
    std::vector<double> took(3);
    const Said said = w.run([&](Session& s, int rank) {
      if (rank != 2) {
        took[static_cast<size_t>(rank)] = persist(w, s, rank, meeting, begun);
        return;
      }
      try {
        dist::init_process_group(s, {.init_method = meeting, .world_size = 3, .rank = 2});
      } catch (const Error&) {}
      while (!gone) std::this_thread::yield();
      w.replace(2);
      took[2] = persist(w, w.session(2), 2, meeting, begun);
    });
    killer.join();
    CHECK(said == fine(3));
    for (const double t : took) CHECK(t <= 10);
    CHECK(w.run([](Session& s, int) { dist::destroy_process_group(s); }) == fine(3));
  }
}

}  // namespace

TEST_CASE("A server killed while its group forms keeps nobody waiting, and one in its place joins", "[H12][H36]") {
  kill_while_forming(4);
}
TEST_CASE("A server killed at any moment while its group forms keeps nobody waiting", "[H12][H36][long]") {
  kill_while_forming(kOften);
}

TEST_CASE("A server stopped while its group forms is an error at the deadline, and comes back", "[H12][H36][T42]") {
  World w(3);
  for (const int ms : {0, 20}) {
    INFO("stopped after " << ms << " ms");
    const std::string meeting = "tcp://" + w.servers[0]->peer();
    const auto begun = Clock::now();
    std::atomic<int> over{0};
    std::thread stopper([&] {
      std::this_thread::sleep_for(milliseconds(ms));
      w.servers[2]->signal(SIGSTOP);
      while (over < 2) std::this_thread::sleep_for(milliseconds(1));
      w.servers[2]->signal(SIGCONT);
    });
    CHECK(w.run([&](Session& s, int rank) {
      const Tensor x = full(s, {1000}, 1);
      const std::string error = error_of(s, [&] {
        dist::init_process_group(
            s, {.init_method = meeting, .world_size = 3, .rank = rank, .timeout = std::chrono::seconds(1)});
        if (rank != 2) dist::all_reduce(x);
      });
      const double took = seconds(Clock::now() - begun);
      if (rank == 2) return;
      ++over;
      must(error.starts_with("deadline_exceeded: "), "the error is '" + error + "'");
      must(took >= 0.9 && took <= 3.5, "it took " + std::to_string(took) + " s");  // two deadlines at most
    }) == fine(3));
    stopper.join();
    w.meet();
    add_up(w, {0, 1, 2});
    CHECK(w.run([](Session& s, int) { dist::destroy_process_group(s); }) == fine(3));
  }
}

TEST_CASE("A server killed in mid backward is an error for the others, whose gradients stay their own",
          "[H32][H36][T41]") {
  World w(3);
  w.meet();
  std::atomic<int> steps{0}, over{0};
  std::thread striker([&] {
    while (steps <= 6 && over == 0) std::this_thread::yield();
    w.servers[2]->signal(SIGKILL);
  });
  Said said = w.run([&](Session& s, int rank) {
    // Rank r's gradient is r + 1 everywhere, the mean of all 2.
    const Tensor weight = zeros(s, {1 << 20}).requires_grad_(), share = full(s, {1 << 20}, rank + 1);
    const dist::DistributedData parallel({weight}, {}, {.bucket_bytes = 1 << 20});
    std::string error;
    for (int i = 0; i < 10000 && error.empty(); ++i) {
      zero_grad({weight});
      error = error_of(s, [&] { sum(weight * share).backward(); });
      ++steps;
      if (rank == 2 && !error.empty()) break;
      must(eq(weight.grad(), error.empty() ? 2. : rank + 1.).all().item<bool>(), "the gradient after '" + error + "'");
    }
    ++over;
    must(error.starts_with("unavailable: "), "the error is '" + error + "'");
  });
  striker.join();
  said.pop_back();
  CHECK(said == fine(2));
  w.meet({0, 1});
  add_up(w, {0, 1});
}

namespace {

/// What a rank calls.
struct Spec {
  std::string what = "reduce";
  int64_t count = 4;
  DType dtype = DType::float32;
  dist::ReduceOp op = dist::SUM;
  int64_t root = 0;
  bool operator==(const Spec&) const = default;
};

Tensor make(Session& s, const Spec& c) { return full(s, {c.count}, 2, {.dtype = c.dtype}); }

void call(Session& s, const Spec& c, const Tensor& x, int rank, int world) {
  std::vector<Tensor> list;
  const bool all = c.what == "reduce_scatter", one = c.what == "scatter" && rank == c.root;
  for (int i = 0; (all || one) && i < world; ++i) list.push_back(make(s, c));
  if (c.what == "reduce") dist::reduce(x, c.root, c.op);
  if (c.what == "all_reduce") dist::all_reduce(x, c.op);
  if (c.what == "broadcast") dist::broadcast(x, c.root);
  if (c.what == "all_gather") dist::all_gather(x);
  if (c.what == "gather") dist::gather(x, c.root);
  if (c.what == "scatter") dist::scatter(x, list, c.root);
  if (c.what == "reduce_scatter") dist::reduce_scatter(x, list, c.op);
  if (c.what == "barrier") dist::barrier(s);
}

/// The words by which the difference of these calls must be named.
std::vector<std::string> named(const std::vector<Spec>& calls) {
  const auto differ = [&](auto member) {
    return std::any_of(calls.begin(), calls.end(), [&](const Spec& c) { return c.*member != calls[0].*member; });
  };
  std::vector<std::string> words;
  if (differ(&Spec::what)) {
    words.push_back("the ranks call different collectives");
    for (const Spec& c : calls) words.push_back(c.what);
    return words;
  }
  const std::string& what = calls[0].what;
  words.push_back(what + ": ");
  if (differ(&Spec::count) || differ(&Spec::dtype)) {
    words.push_back("tensors are not equal in size or data type");
    for (const Spec& c : calls) words.push_back(std::string(name(c.dtype)) + " of " + std::to_string(c.count));
  }
  if (what.find("reduce") != std::string::npos && differ(&Spec::op)) words.push_back("reduce operations are not equal");
  if (differ(&Spec::root)) {
    words.push_back("roots are not equal");
    for (const Spec& c : calls) words.push_back("root " + std::to_string(c.root));
  }
  return words;
}

/// All ranks hear the same text, with all the words; their tensors are as before, and the next collective goes on.
void mismatch(World& w, const std::vector<Spec>& calls) {
  const int world = w.size();
  const std::vector<std::string> words = named(calls);
  std::vector<std::string> texts(calls.size());
  CHECK(w.run([&](Session& s, int rank) {
    const Spec& own = calls[static_cast<size_t>(rank)];
    const Tensor x = make(s, own);
    texts[static_cast<size_t>(rank)] = error_of(s, [&] { call(s, own, x, rank, world); });
    must(eq(x, 2).all().item<bool>(), "the tensor has changed");
    const Tensor next = full(s, {5}, rank + 1);
    dist::all_reduce(next);
    must(next.to_vector<float>() == std::vector<float>(5, static_cast<float>(world * (world + 1)) / 2), "the next");
  }) == fine(world));
  for (const std::string& text : texts) {
    CHECK(text == texts[0]);
    CHECK_THAT(text, StartsWith("group_mismatch: "));
    for (const std::string& word : words) CHECK_THAT(text, ContainsSubstring(word));
  }
}

}  // namespace

TEST_CASE("Every pair of differences is named to all ranks, and the group goes on", "[H29][T40]") {
  const int world = GENERATE(2, 3, 4, 5);
  World w(world);
  w.meet();
  const Spec same;
  const Spec wrong[] = {{.count = 5}, {.dtype = DType::int32}, {.op = dist::MAX},
                        {.root = 1},  {.what = "all_reduce"},  same};
  for (size_t a = 0; a < std::size(wrong); ++a) {
    for (size_t b = a + 1; b < std::size(wrong); ++b) {
      std::vector<Spec> calls(static_cast<size_t>(world), same);
      calls.front() = wrong[a], calls.back() = wrong[b];
      INFO(a << " and " << b << " of " << world);
      mismatch(w, calls);
    }
  }
}

TEST_CASE("Each operation's differences are named", "[H29][T40]") {
  World w(3);
  w.meet();
  const std::string all[] = {"reduce", "all_reduce", "broadcast",      "all_gather",
                             "gather", "scatter",    "reduce_scatter", "barrier"};
  for (const std::string& what : all) {
    INFO(what);
    Spec same{.what = what};
    if (what != "barrier") {
      Spec other = same;
      other.count = 7;
      mismatch(w, {same, other, same});
      other = same, other.dtype = DType::float64;
      mismatch(w, {same, same, other});
    }
    if (what.find("reduce") != std::string::npos) {
      Spec other = same;
      other.op = dist::PRODUCT;
      mismatch(w, {other, same, same});
    }
    if (what == "broadcast" || what == "gather" || what == "scatter" || what == "reduce") {
      Spec other = same;
      other.root = 2;
      mismatch(w, {same, same, other});
    }
    for (const std::string& another : all) {
      if (another != what) mismatch(w, {same, same, {.what = another}});
    }
  }
}

TEST_CASE("Two collectives in another order, and one that is called twice, are named each time", "[H29][T40]") {
  const int world = GENERATE(2, 3);
  World w(world);
  w.meet();
  for (const bool twice : {false, true}) {
    std::vector<std::string> first(static_cast<size_t>(world)), second(first);
    CHECK(w.run([&](Session& s, int rank) {
      const bool odd = rank == world - 1;
      const Tensor x = full(s, {3}, 1);
      const auto one = [&] { dist::all_reduce(x); };
      const auto two = [&] { dist::broadcast(x, 0); };
      const auto at = static_cast<size_t>(rank);
      first[at] = error_of(s, [&] { odd && !twice ? two() : one(); });
      second[at] = error_of(s, [&] { odd ? one() : two(); });
      const float wanted = twice ? static_cast<float>(world) : 1;
      must(eq(x, wanted).all().item<bool>(), "the tensor after both");
      dist::all_reduce(x);
      must(eq(x, wanted * static_cast<float>(world)).all().item<bool>(), "the next collective");
    }) == fine(world));
    for (const auto& text : second) {
      CHECK(text == second[0]);
      CHECK_THAT(text, StartsWith("group_mismatch: the ranks call different collectives: "));
    }
    if (twice) CHECK(first == fine(world));
    if (!twice) CHECK_THAT(first.back(), StartsWith("group_mismatch: the ranks call different collectives: "));
  }
}

TEST_CASE("A message of another size is named to both, and the next one comes", "[H18][T40]") {
  World w(2);
  w.meet();
  std::vector<std::string> texts(2);
  CHECK(w.run([&](Session& s, int rank) {
    for (const DType t : {DType::float32, DType::float64}) {
      const Tensor x = full(s,
                            {rank == 0             ? 3
                             : t == DType::float32 ? 4
                                                   : 3},
                            rank, {.dtype = rank == 0 ? DType::float32 : t});
      texts[static_cast<size_t>(rank)] = error_of(s, [&] {
        if (rank == 0) dist::send(x, 1);
        if (rank == 1) dist::recv(x, 0);
      });
      must(texts[static_cast<size_t>(rank)].starts_with("group_mismatch: tensor sizes do not match: rank 0 sends "),
           texts[static_cast<size_t>(rank)]);
      must(eq(x, rank).all().item<bool>(), "the tensor has changed");
      const Tensor y = full(s, {3}, rank);
      if (rank == 0) dist::send(y, 1);
      if (rank == 1) must(dist::recv(y) == 0 && eq(y, 0).all().item<bool>(), "the next message");
    }
  }) == fine(2));
  CHECK(texts[0] == texts[1]);
}

}  // namespace gradwire::e2e
