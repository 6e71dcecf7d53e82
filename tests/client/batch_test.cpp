#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <set>
#include <thread>

#include "client/gradwire.h"
#include "tests/client/fake.h"

using namespace gradwire;
using Catch::Matchers::ContainsSubstring;

namespace {

size_t calls_of(const Batch& b, uint16_t op) {
  size_t n = 0;
  for (const auto& c : b.calls) n += c.op == op;
  return n;
}
size_t calls_of(const std::vector<Batch>& all, uint16_t op) {
  size_t n = 0;
  for (const auto& b : all) n += calls_of(b, op);
  return n;
}

}  // namespace

TEST_CASE("Calls are gathered while others are in flight, up to 1,024 a batch", "[client][batch]") {
  Fake fake;
  auto client = connect(fake.address());
  fake.hold();
  auto x = tensor({1., 2.});
  fake.batches(1);  // sent at once: nothing was in flight
  constexpr size_t kMade = 12'000;
  std::thread user([&] {  // it waits once no more may be in flight
    for (size_t i = 0; i < kMade; ++i) x = x + 1;
  });
  fake.batches(8);
  fake.let_go();
  user.join();
  client.session().sync();
  const auto all = fake.batches();
  size_t full = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].seq == i + 1);
    CHECK(all[i].calls.size() <= 1024);
    full += all[i].calls.size() == 1024;
  }
  CHECK(calls_of(all, op::add) == kMade);
  CHECK(full >= 4);
}

TEST_CASE("A batch that is not full is sent soon, and a fetch sends it at once", "[client][batch]") {
  Fake fake;
  auto client = connect(fake.address());
  fake.hold();
  auto x = tensor({1., 2.});
  fake.batches(1);
  auto y = x + 1;
  CHECK(calls_of(fake.batches(2), op::add) == 1);
}

TEST_CASE("What is in flight is bounded: a fast program waits for the server", "[client][batch]") {
  Fake fake;
  auto client = connect(fake.address());
  fake.hold();
  auto x = tensor({1., 2.});
  fake.batches(1);
  std::atomic<int> made{0};
  std::thread user([&] {
    for (int i = 0; i < 40000; ++i) x += 1, ++made;
  });
  fake.batches(8);  // all that may be in flight
  CHECK(made < 20 * 1024);
  fake.let_go();
  user.join();
  client.session().sync();
  CHECK(calls_of(fake.batches(), op::add_) == 40000);
}

TEST_CASE("Ids rise and are never used twice, and each is released once", "[client][handles]") {
  Fake fake;
  auto client = connect(fake.address());
  {
    auto x = tensor({1., 2.});
    auto y = x;  // a second handle of the same tensor
    for (int i = 0; i < 100; ++i) x = x * 2;
  }
  client.session().sync();
  std::set<uint64_t> made, released;
  uint64_t last = 0;
  for (const auto& b : fake.batches()) {
    for (const auto& c : b.calls) {
      if (c.op == OpCall::kRelease) {
        CHECK(made.count(c.out));
        CHECK(released.insert(c.out).second);
      } else if (c.out) {
        CHECK(c.out > last);
        last = c.out;
        made.insert(c.out);
      }
    }
  }
  CHECK(made.size() == 101);
  CHECK(released == made);
}

TEST_CASE("A call carries its arguments, its line and the thread's grad mode", "[client][batch][D26]") {
  Fake fake;
  auto client = connect(fake.address());
  fake.hold();
  auto x = tensor({1., 2.});
  fake.batches(1);
  const uint32_t line = __LINE__ + 1;
  auto y = x.sum({.dim = {0, -1}, .keepdim = true});
  {
    no_grad scope;
    y = x * 2.5;
    enable_grad inner;
    y = x / 2;
  }
  y = x.grad() - x;
  fake.let_go();
  client.session().sync();
  std::map<uint16_t, bool> mode;
  for (const auto& b : fake.batches()) {
    size_t arg = 0;
    for (const auto& c : b.calls) {
      mode[c.op] = c.grad_mode;
      const Arg* a = b.args.data() + arg;
      if (c.op == op::sum) {
        CHECK(a[0].kind == ArgKind::tensor);
        CHECK((a[1].kind == ArgKind::ints && a[1].count == 2));
        CHECK((a[2].kind == ArgKind::boolean && a[2].i == 1));
        CHECK(a[3].kind == ArgKind::none);
        CHECK(b.lines.at(c.line - 1).line == line);
        CHECK_THAT(b.texts.at(b.lines.at(c.line - 1).file), ContainsSubstring("batch_test.cpp"));
      } else if (c.op == op::mul) {
        CHECK((a[1].kind == ArgKind::real && a[1].f == 2.5));
      } else if (c.op == op::sub) {
        CHECK((a[0].part == Part::grad && a[1].part == Part::value && a[0].id == a[1].id));
      }
      arg += c.args;
    }
  }
  CHECK(mode.at(op::sum));
  CHECK_FALSE(mode.at(op::mul));
  CHECK(mode.at(op::div));
  CHECK(mode.at(op::sub));
}

TEST_CASE("Indices travel as they were written", "[client][batch]") {
  Fake fake;
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  auto y = x[{0, Slice{.start = 1, .step = 2}, ellipsis, newaxis, true, x, std::vector<int64_t>{4, 5}}];
  client.session().sync();
  for (const auto& b : fake.batches()) {
    size_t arg = 0;
    for (const auto& c : b.calls) {
      if (c.op == op::index) {
        const Arg* a = b.args.data() + arg;
        CHECK((a[1].kind == ArgKind::index && a[1].count == 7));
        CHECK((a[2].kind == ArgKind::integer && a[2].i == 0));
        CHECK((a[3].kind == ArgKind::slice && a[3].count == (1 | 4)));
        CHECK(a[4].kind == ArgKind::ellipsis);
        CHECK(a[5].kind == ArgKind::none);
        CHECK((a[6].kind == ArgKind::boolean && a[6].i == 1));
        CHECK(a[7].kind == ArgKind::tensor);
        CHECK((a[8].kind == ArgKind::int_array && a[8].count == 1));
        CHECK(b.ints.size() >= 6);
      }
      arg += c.args;
    }
  }
}

TEST_CASE("A call is bounded, and so is a batch of fetches", "[client][batch][L31]") {
  Fake fake;
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  CHECK_THROWS_AS(x[std::vector<int64_t>(600'000)], TooLarge);
  CHECK_THROWS_AS(x.reshape(std::vector<int64_t>(600'000, 1)), TooLarge);
  const std::string word(100'000, 'x');
  CHECK_THROWS_AS(nll_loss(x, x, {.reduction = word}), TooLarge);
  client.session().sync();
  fake.hold();
  auto first = x.async_item<float>();
  fake.batches(2);
  std::vector<Future<std::vector<float>>> futures;
  for (int i = 0; i < 3000; ++i) futures.push_back(x.async_to_vector<float>());
  fake.let_go();
  for (auto& f : futures) CHECK(f.get() == std::vector<float>{1, 2});
  for (const auto& b : fake.batches()) {
    CHECK(b.fetches.size() <= 1024);
    CHECK(calls_of(b, op::index) + calls_of(b, op::reshape) == 0);
  }
}

TEST_CASE("A server with another catalogue is spoken to by names", "[client][catalogue]") {
  Fake fake({.catalogue_hash = 1, .operators = {"neg", "mul"}});
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  auto y = x * 2;
  CHECK_THROWS_AS(x + 1, UnknownOperator);
  client.session().sync();
  CHECK(calls_of(fake.batches(), 1) == 1);
}

TEST_CASE("Threads share a session in one order", "[client][threads]") {
  Fake fake;
  auto client = connect(fake.address());
  auto x = tensor({1., 2.});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([x] {
      for (int i = 0; i < 2000; ++i) auto y = x + 1;
    });
  }
  for (auto& t : threads) t.join();
  client.session().sync();
  const auto all = fake.batches();
  CHECK(calls_of(all, op::add) == 8000);
  uint64_t last = 0;
  for (const auto& b : all) {
    for (const auto& c : b.calls) {
      if (c.op == op::add) {
        CHECK(c.out > last);
        last = c.out;
      }
    }
  }
}
