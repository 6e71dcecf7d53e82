#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

Values read(const Snapshot& s) {
  Values v(s.bytes / sizeof(double));
  std::memcpy(v.data(), s.data, s.bytes);
  return v;
}

Error error_of(const auto& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return Error(Code::internal, "nothing was thrown");
}

// Small data shares a block with its storage, large data has one of its own.
constexpr int64_t kSizes[] = {1, 3, 512, 513, 100'000};

}  // namespace

TEST_CASE("A snapshot keeps its bytes while the tensor is written", "[storage][A16]") {
  for (const int64_t n : kSizes) {
    Engine e;
    const Tensor t = e.cx.full(Shape{n}, 1, DType::float64);
    const Tensor view = gradwire::view(t, {n});
    const Snapshot s = snapshot(t);
    CHECK(s.data == t.data());  // costs no copy
    t += 1;
    CHECK(read(s) == Values(static_cast<size_t>(n), 1));
    CHECK(values(t) == Values(static_cast<size_t>(n), 2));
    CHECK(values(view) == Values(static_cast<size_t>(n), 2));
    CHECK(view.version() == 1);
    const void* moved = t.data();
    view += 1;  // nobody holds these bytes: no further copy
    CHECK(t.data() == moved);
    const Snapshot again = snapshot(t);
    view.zero_();
    CHECK(read(again) == Values(static_cast<size_t>(n), 3));
    CHECK(read(s) == Values(static_cast<size_t>(n), 1));
    CHECK(values(t) == Values(static_cast<size_t>(n), 0));
  }
}

TEST_CASE("A snapshot that is gone costs no copy", "[storage]") {
  for (const int64_t n : kSizes) {
    Engine e;
    const Tensor t = e.cx.full(Shape{n}, 1, DType::float64);
    snapshot(t);
    const void* before = t.data();
    t += 1;
    CHECK(t.data() == before);
  }
}

TEST_CASE("A snapshot of a view has the view's elements in row-major order", "[storage][A16]") {
  Engine e;
  const Tensor t = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(read(snapshot(transpose(t, 0, 1))) == Values{1, 4, 2, 5, 3, 6});
  CHECK(read(snapshot(t[{1}])) == Values{4, 5, 6});
  CHECK(read(snapshot(expand(t[{0, 0}], {3}))) == Values{1, 1, 1});
  CHECK(snapshot(e.doubles({0}, {})).bytes == 0);
}

TEST_CASE("Holds end on any thread, and the memory comes back to the session", "[storage][T24]") {
  for (const int64_t n : kSizes) {
    Engine e;
    const int64_t before = e.cx.pool.used();
    Snapshot held;
    {
      const Tensor t = e.cx.full(Shape{n}, 1, DType::float64);
      held = snapshot(t);
      t += 1;
    }
    CHECK(e.cx.pool.used() > before);
    double sum = 0;
    std::thread([&] {
      const Values v = read(held);
      sum = std::accumulate(v.begin(), v.end(), 0.0);
      held = {};
    }).join();
    CHECK(sum == static_cast<double>(n));
    e.cx.pool.collect();
    CHECK(e.cx.pool.used() == before);
  }
}

TEST_CASE("A snapshot outlives its session", "[storage]") {
  for (const int64_t n : kSizes) {
    Snapshot held;
    {
      Engine e;
      held = snapshot(e.cx.full(Shape{n}, 7, DType::float64));
    }
    std::thread([&] {
      CHECK(read(held) == Values(static_cast<size_t>(n), 7));
      held = {};
    }).join();
  }
}

TEST_CASE("Readers of snapshots and a writer of the tensor never meet", "[storage]") {
  Engine e({.bytes = 64 << 20});
  const Tensor t = e.cx.full(Shape{2000}, 0, DType::float64);
  std::vector<std::thread> readers;
  std::atomic<int> wrong = 0;
  for (int round = 0; round < 60; ++round) {
    readers.emplace_back([s = snapshot(t), round, &wrong]() mutable {
      for (const double v : read(s)) wrong += v != round;
      s = {};
    });
    t += 1;
  }
  for (std::thread& r : readers) r.join();
  CHECK(wrong == 0);
  CHECK(values(t) == Values(2000, 60));
  e.cx.pool.collect();
  CHECK(e.cx.pool.used() < 64 * 1024);
}

TEST_CASE("An upload is filled elsewhere and becomes a tensor without a copy", "[storage][A44]") {
  for (const int64_t n : kSizes) {
    Engine e;
    const int64_t before = e.cx.pool.used();
    {
      Upload u = reserve(e.cx, DType::float64, Shape{n});
      CHECK(u.bytes == static_cast<size_t>(n) * 8);
      CHECK(e.cx.pool.used() >= n * 8);
      std::thread([&u, n] { std::fill_n(static_cast<double*>(u.data), n, 3.0); }).join();
      const Tensor t = adopt(e.cx, u);
      CHECK(t.data() == u.data);
      CHECK(values(t) == Values(static_cast<size_t>(n), 3));
      t += 1;  // the upload still holds the bytes
      CHECK(static_cast<double*>(u.data)[0] == 3);
      CHECK(values(t)[0] == 4);
      std::thread([&u] { u.hold.reset(); }).join();
    }
    e.cx.pool.collect();
    CHECK(e.cx.pool.used() == before);
  }
  Engine e;
  Upload u = reserve(e.cx, DType::boolean, Shape{3});
  std::memset(u.data, 2, 3);
  CHECK(error_of([&] { adopt(e.cx, u); }).code() == Code::bad_tensor);
}

TEST_CASE("Bytes that are no tensor of that shape are refused", "[storage][T18]") {
  Engine e;
  const std::byte bytes[4] = {};
  CHECK(error_of([&] { from_bytes(e.cx, DType::float32, Shape{2}, bytes); }).message() ==
        "a tensor of shape [2] and dtype float32 has 8 bytes, but 4 came");
  CHECK(error_of([&] { from_bytes(e.cx, DType::float32, Shape{-1}, bytes); }).code() == Code::bad_argument);
  CHECK(error_of([&] {
          from_bytes(e.cx, DType::uint8, Shape{int64_t{1} << 40, 1 << 20}, bytes);
        }).code() == Code::bad_argument);
  const std::byte odd[1] = {std::byte{2}};
  CHECK(error_of([&] { from_bytes(e.cx, DType::boolean, Shape{1}, odd); }).message() ==
        "element 0 of a bool tensor is 2, not 0 or 1");
  CHECK(error_of([&] { reserve(e.cx, DType::uint8, Shape{int64_t{1} << 40}); }).code() == Code::memory_limit);
  CHECK(e.cx.pool.used() == 0);
}

TEST_CASE("A session's memory is bounded; the error says what was asked and what is left", "[storage][T21]") {
  Engine e({.bytes = 1 << 20});
  const Tensor a = e.cx.full(Shape{65536}, 1, DType::float32);
  const int64_t used = e.cx.pool.used();
  const Error err = error_of([&] { gradwire::zeros(e.cx, {1 << 20}, DType::float64); });
  CHECK(err.code() == Code::memory_limit);
  CHECK(err.op() == "zeros");
  CHECK(err.message() == "out of memory: tried to allocate 8388672 bytes; " + std::to_string((1 << 20) - used) +
                             " of the session's limit of 1048576 bytes are left");
  CHECK(e.cx.pool.used() == used);
  CHECK(item((a * 2)[{7}]).real() == 2);  // there is room for this
  CHECK(e.cx.pool.used() == used);
}

TEST_CASE("Blocks of the pool never overlap, are aligned, and all come back", "[storage][T24]") {
  Pool* pool = Pool::make(64 << 20);
  std::mt19937 random(3);
  struct Held {
    unsigned char* p;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Held> held;
  int64_t most = 0;
  for (int round = 0; round < 20'000; ++round) {
    if (held.size() < 40 || random() % 2) {
      const size_t bytes = size_t{1} << random() % 21;
      const size_t asked = bytes + random() % bytes;
      try {
        auto* p = static_cast<unsigned char*>(pool->take(asked));
        if (reinterpret_cast<uintptr_t>(p) % (asked >= 256 ? 64 : 16) != 0) FAIL("misaligned");
        const auto mark = static_cast<unsigned char>(random());
        std::memset(p, mark, std::min<size_t>(asked, 300));
        p[asked - 1] = mark;
        held.push_back({p, asked, mark});
      } catch (const Error& e) {
        REQUIRE(e.code() == Code::memory_limit);
      }
    } else {
      const size_t k = random() % held.size();
      const Held h = held[k];
      if (h.p[0] != h.mark || h.p[h.bytes - 1] != h.mark) FAIL("overwritten");
      if (random() % 4 == 0)
        std::thread([&] { pool->give_remote(h.p, h.bytes); }).join();
      else
        pool->give(h.p, h.bytes);
      held[k] = held.back(), held.pop_back();
    }
    most = std::max(most, pool->mapped());
    if (pool->used() > pool->limit()) FAIL("over the limit");
  }
  CHECK(most <= pool->limit() + Pool::kSlack);
  for (const Held& h : held) pool->give(h.p, h.bytes);
  pool->collect();
  CHECK(pool->used() == 0);
  pool->release();
}

TEST_CASE("All of the limit can be had again in one piece, however it was cut before", "[storage][T21]") {
  Engine e({.bytes = 64 << 20});
  for (int round = 0; round < 3; ++round) {
    for (const int64_t each : {int64_t{1000}, int64_t{100'000}, int64_t{3'000'000}, int64_t{7'000'000}}) {
      std::vector<Tensor> many;
      const Error err = error_of([&] {
        for (;;) many.push_back(e.cx.empty(Shape{each}, DType::uint8));
      });
      CHECK(err.code() == Code::memory_limit);
      CHECK(static_cast<int64_t>(many.size()) * each > (64 << 20) * 0.45);
      many.clear();
      CHECK(e.cx.pool.used() == 0);
    }
  }
}

TEST_CASE("A graph is bounded by its number of nodes too", "[storage][T22]") {
  Engine e({.nodes = 100});
  const Tensor x = e.leaf({2}, {1, 2});
  Tensor y = x;
  const Error err = error_of([&] {
    for (;;) y = y + 1;
  });
  CHECK(err.code() == Code::memory_limit);
  CHECK(err.op() == "add");
  CHECK(err.message() ==
        "the autograd graph has reached the session's limit of 100 nodes; release results, or use no_grad");
  CHECK(e.cx.nodes() == 100);
  CHECK(error_of([&] { y += 1; }).code() == Code::memory_limit);
  CHECK(y.version() == 0);  // the write that could not be recorded did not happen
  {
    const GradMode off(e.cx, false);
    CHECK(values(y + 1) == Values{101, 102});
  }
  sum(y.detach()).requires_grad();
  CHECK(error_of([&] { require_grad(e.doubles({}, {1})); }).code() == Code::memory_limit);
  y = Tensor();
  CHECK(e.cx.nodes() == 1);
}
