#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <random>

#include "engine/apply.h"
#include "engine/shape.h"
#include "schema/ops.h"
#include "tests/engine/arrays.h"
#include "tests/engine/registry_checks.h"
#include "tests/engine/registry_edges.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

// The bytes that a target's storage has, and its version.
struct Before {
  Tensor target;
  std::vector<std::byte> bytes;
  uint32_t version = 0;
  explicit Before(const Tensor& t) : target(t) {
    if (!t) return;
    const auto* from = static_cast<const std::byte*>(t->storage->data());
    if (from) bytes.assign(from, from + t->storage->bytes());
    version = t.version();
  }
  bool same() const {
    return !target || (target.version() == version &&
                       (bytes.empty() || std::memcmp(target->storage->data(), bytes.data(), bytes.size()) == 0));
  }
};

class Attack {
 public:
  Attack() : e_({.bytes = 8 << 20, .nodes = 20'000}) {}

  // The samples of a row that its calls start from; one that begins with a number has no in-place form.
  std::vector<Arguments> samples(const OpRow& row) {
    std::vector<Arguments> all;
    for (const std::string_view text : samples_of(row)) {
      const auto parsed = parse_literals(e_.cx, text);
      if (row.inplace && parsed->positional[0].kind != ArgKind::tensor) continue;
      all.emplace_back(e_.cx, row, text);
    }
    return all;
  }

  // Whether the edge is an argument of the kind that the parameter takes.
  bool fits(const OpRow& row, const Arguments& sample, int param, const Edge& edge) {
    Store s;
    std::vector<Bound> args = sample.bound();
    args[static_cast<size_t>(param)] = bound(edge, sample, false, s);
    try {
      check(row.id, args);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  // The sample's arguments with some of them exchanged. A result or an error that names the operator; then nothing is
  // left of either, and a call that failed has not written.
  void strike(const OpRow& row, const Arguments& sample, std::span<const std::pair<int, Edge>> changes, bool grad) {
    const int64_t used = e_.cx.pool.used(), nodes = e_.cx.nodes();
    {
      std::vector<Store> stores(changes.size());
      Arguments a = sample;
      for (Tensor& t : a.tensors) {
        if (!t) continue;
        t = copied(t);
        if (!grad || !is_floating(t.dtype())) continue;
        require_grad(t);
        if (writes(row)) t = t * 1;
      }
      std::vector<Bound> args = a.bound();
      for (size_t i = 0; i < changes.size(); ++i)
        args[static_cast<size_t>(changes[i].first)] = bound(changes[i].second, a, grad, stores[i]);
      const Before before(writes(row) && args[0].kind == ArgKind::tensor ? *args[0].tensors : Tensor());
      ++calls_;
      bool done = false;
      try {
        check(row.id, args);
        std::vector<Tensor> results = flat(call(e_.cx, row.id, args));
        done = true, ++successes_;
        for (const Tensor& r : results) {
          if (!r || !r.requires_grad()) continue;
          Tensor one;
          try {
            one = e_.cx.full(r.shape(), 1, r.dtype());
          } catch (const Error& err) {
            if (err.code() != Code::memory_limit) throw;
          }
          if (one) r.backward(one, true);
        }
      } catch (const Error& err) {
        INFO(name(err.code()) << ": " << err.message());
        // What walks a graph, as the gradient of a result does, may fail in any operator of it.
        const bool named = done || is_backward(row.id) ? !err.op().empty() : err.op() == row.name();
        if (!named) CHECK(err.op() == row.name());
        if (err.code() == Code::internal) CHECK(err.code() != Code::internal);
        if (err.message().empty() || err.message().size() > 4000) CHECK(err.message().size() - 1 < 4000);
      }
      if (!done && !before.same()) CHECK(before.same());
      if (e_.cx.pool.used() > e_.cx.limits().bytes) CHECK(e_.cx.pool.used() <= e_.cx.limits().bytes);
      e_.cx.warnings.clear();
    }
    e_.cx.pool.collect();
    if (e_.cx.pool.used() != used || e_.cx.nodes() != nodes) {
      CHECK(e_.cx.pool.used() == used);
      REQUIRE(e_.cx.nodes() == nodes);
    }
  }

  test::Threads one_{1};  // calls are small and many
  Engine e_;
  Edges edges_;
  int64_t calls_ = 0, successes_ = 0;

 private:
  static bool writes(const OpRow& row) { return row.name().ends_with('_'); }
  Bound bound(const Edge& edge, const Arguments& a, bool grad, Store& s) {
    static const Tensor none;
    if (edge.recipe < 0) return edge.plain;
    const Tensor& own = a.tensors.empty() ? none : a.tensors[0];
    if (edge.recipe >= kOwn && !own) return Bound();
    return cook(e_.cx, edge.recipe, grad, own, s);
  }
};

int64_t peak() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return int64_t{u.ru_maxrss} << 10;
}

}  // namespace

TEST_CASE("Any argument at its edge gives a result or an error that names the operator, and leaves nothing behind",
          "[registry][T18][T19][T20][T24]") {
  Attack attack;
  [[maybe_unused]] const int64_t before = peak();
  for (const OpRow& row : catalogue()) {
    const std::vector<Arguments> samples = attack.samples(row);
    if (samples.empty()) continue;
    const Arguments& sample = samples[0];  // the others belong to the next test
    for (int p = 0; p < row.params; ++p) {
      for (size_t k = 0; k < attack.edges_.all.size(); ++k) {
        const std::pair<int, Edge> change[] = {{p, attack.edges_.all[k]}};
        const bool fits = attack.fits(row, sample, p, change[0].second);
        for (const bool grad : {false, true}) {
          if (grad && !fits) continue;
          INFO(row.sig.full_name() << ", parameter " << p << ", edge " << k << ", recipe " << change[0].second.recipe
                                   << (grad ? ", with grad" : ""));
          attack.strike(row, sample, change, grad);
        }
      }
    }
  }
  CHECK(attack.calls_ > 20'000);
  CHECK(attack.successes_ > 2'000);
#ifndef GRADWIRE_ASAN
  CHECK(peak() - before < 64 << 20);
#endif
}

TEST_CASE("Any mixture of arguments at their edges gives a result or an error, and leaves nothing behind",
          "[registry][T18][T19][T20]") {
  Attack attack;
  std::mt19937_64 random(20);
  for (const OpRow& row : catalogue()) {
    const std::vector<Arguments> samples = attack.samples(row);
    if (samples.empty()) continue;
    // Of a kind that fits, mostly: the others are refused at once.
    std::vector<std::vector<Edge>> fitting(static_cast<size_t>(row.params));
    for (int p = 0; p < row.params; ++p) {
      for (const Edge& edge : attack.edges_.all) {
        if (attack.fits(row, samples[0], p, edge)) fitting[static_cast<size_t>(p)].push_back(edge);
      }
    }
    for (int round = 0; round < 400; ++round) {
      std::vector<std::pair<int, Edge>> changes;
      for (int p = 0; p < row.params; ++p) {
        if (random() % 2 == 0) continue;
        const std::vector<Edge>& some = fitting[static_cast<size_t>(p)].empty() || random() % 16 == 0
                                            ? attack.edges_.all
                                            : fitting[static_cast<size_t>(p)];
        changes.emplace_back(p, some[random() % some.size()]);
      }
      const size_t which = static_cast<size_t>(round) % samples.size();
      std::string what;
      for (const auto& [p, edge] : changes) what += " " + std::to_string(p) + ":" + std::to_string(edge.recipe);
      INFO(row.sig.full_name() << ", sample " << which << ", round " << round << ", changes" << what);
      attack.strike(row, samples[which], changes, random() % 2);
    }
  }
}

TEST_CASE("Without the memory for a call it fails whole, and succeeds once there is room", "[registry][T21][T24]") {
  for (const OpRow& row : catalogue()) {
    for (const std::string_view text : samples_of(row)) {
      for (const bool grad : {false, true}) {
        Engine e({.bytes = 1 << 20});
        const auto parsed = parse_literals(e.cx, text);
        if (row.inplace && parsed->positional[0].kind != ArgKind::tensor) continue;
        INFO(row.name() << ": " << text << (grad ? ", with grad" : ""));
        const Arguments sample(e.cx, row, text);
        // Runs with exactly `room` bytes left; true if it went through.
        auto run = [&](int64_t room) {
          Arguments a = sample;
          std::vector<Tensor> leaves;
          for (Tensor& t : a.tensors) {
            if (!t) continue;
            t = copied(t);
            if (!grad || !is_floating(t.dtype())) continue;
            require_grad(t);
            leaves.push_back(t);
            if (row.inplace) t = t * 1;
          }
          std::vector<Tensor> before;
          for (const Tensor& t : a.tensors) before.push_back(t ? copy_of(e.cx, t) : Tensor());
          std::vector<Node*> history;
          for (const Tensor& t : a.tensors) history.push_back(t ? t->node : nullptr);
          std::vector<std::pair<void*, size_t>> filler;
          auto fill = [&](size_t block) {
            while (e.cx.pool.limit() - e.cx.pool.used() - room >= static_cast<int64_t>(block))
              filler.emplace_back(e.cx.pool.take(block), block);
          };
          fill(4096), fill(64);
          const int64_t used = e.cx.pool.used(), nodes = e.cx.nodes();
          bool done = false;
          try {
            const std::vector<Tensor> results = flat(a.run(e.cx));
            done = true;
          } catch (const Error& err) {
            done = err.code() != Code::memory_limit;  // what it says with any memory
            if (!done) {
              CHECK((err.op() == row.name() || (is_backward(row.id) && !err.op().empty())));
              CHECK(err.message().starts_with("out of memory: tried to allocate "));
            }
          }
          if (!done) {
            // A leaf or a base may have the place now that its gradient, or its views, need.
            CHECK(e.cx.pool.used() - used <= static_cast<int64_t>(a.tensors.size() * ((sizeof(Extra) + 63) / 64 * 64)));
            CHECK(e.cx.nodes() == nodes);
            for (size_t i = 0; i < a.tensors.size(); ++i) {
              if (!a.tensors[i]) continue;
              CHECK(a.tensors[i].version() == 0);
              CHECK(a.tensors[i]->node == history[i]);
            }
          }
          for (const auto& [p, bytes] : filler) e.cx.pool.give(p, bytes);
          if (!done) CHECK(difference(a.tensors, before, 0, 0) == "");
          return done;
        };
        const int64_t at_rest = e.cx.pool.used();
        int64_t room = 0;
        while (!run(room) && room < 1 << 19) room += 64;
        CHECK(room < 1 << 19);
        CHECK(e.cx.pool.used() == at_rest);
        CHECK(e.cx.nodes() == 0);
      }
    }
  }
}
