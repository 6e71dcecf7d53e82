#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/apply.h"
#include "engine/shape.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

using Items = std::vector<IndexItem<Tensor>>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();

// One argument that nobody in good faith would pass; it makes its tensors anew each time, because calls may change
// them.
struct Edge {
  Bound plain;      // of no tensors
  int recipe = -1;  // else: which
};

struct Store {
  std::vector<Tensor> tensors = std::vector<Tensor>(4);
  Items items;
};

// Tensors, lists of tensors and indexes by number; the last ones are made of the call's own first tensor.
constexpr int kRecipes = 63, kOwn = 58;
Bound cook(Context& cx, int recipe, bool grad, const Tensor& own, Store& s) {
  auto one = [&](Tensor t) {
    s.tensors[0] = std::move(t);
    if (grad && is_floating(s.tensors[0].dtype())) {
      require_grad(s.tensors[0]);
      if (s.tensors[0].numel() < 1 << 20) s.tensors[0] = s.tensors[0] * 1;
    }
    return Bound(s.tensors[0]);
  };
  auto filled = [&](Shape shape, double v, DType t) { return one(cx.full(shape, v, t)); };
  auto whole = [&](Shape shape, int64_t v) { return one(cx.full(shape, v, DType::int64)); };
  auto list = [&](size_t n) { return Bound(std::span<const Tensor>(s.tensors).first(n)); };
  auto index = [&](Items items) {
    s.items = std::move(items);
    return Bound(std::span<const IndexItem<Tensor>>(s.items));
  };
  auto array = [](ArgKind kind, Shape sizes, std::vector<int64_t> v) {
    IndexItem<Tensor> item;
    item.kind = kind, item.sizes = std::move(sizes), item.values = std::move(v);
    return item;
  };
  if (recipe < kDTypes) return filled({2, 3}, 1, static_cast<DType>(recipe));
  switch (recipe) {
    case 10:
      return filled({}, 2, DType::float64);
    case 11:
      return filled({0}, 2, DType::float64);
    case 12:
      return filled({0, 3}, 2, DType::float32);
    case 13:
      return filled({3, 0, 2}, 2, DType::float64);
    case 14:
      return filled({1}, 2, DType::float64);
    case 15:
      return filled(Shape(32, 1), 2, DType::float64);
    case 16:
      return filled({2, 3}, kNaN, DType::float64);
    case 17:
      return filled({2, 3}, -kInf, DType::float64);
    case 18:
      return filled({2, 3}, 1e308, DType::float64);
    case 19:
      return one(cx.alias(cx.full(Shape{1}, 1, DType::float64), Shape{300, 300}, Shape{0, 0}, 0));
    case 20:
      return one(cx.alias(cx.full(Shape{8}, 1, DType::float64), Shape{4, 4}, Shape{1, 1}, 0));
    case 21:
      return whole({4}, -1);
    case 22:
      return whole({4}, kMax);
    case 23:
      return whole({2, 3}, kMin);
    case 24:
      return whole({}, 5);
    case 25:
      return whole({0}, 0);
    case 26:
      return one(cx.full(Shape{5}, true, DType::boolean));
    case 27:
      return one(cx.full(Shape{}, true, DType::boolean));
    case 28:
      return one(cx.full(Shape{4, 5}, false, DType::boolean));
    case 29:
      return filled({4, 5}, 0.5, DType::float32);
    case 30:
      return filled({5}, -0.0, DType::float64);
    case 31:
      return list(0);
    case 32:
      return list(1);  // an empty tensor
    case 33:
      s.tensors[0] = cx.full(Shape{2}, 1, DType::float64), s.tensors[1] = cx.full(Shape{3}, 1, DType::int64);
      return list(2);
    case 34:
      s.tensors[0] = s.tensors[1] = s.tensors[2] = leaf_like(cx.full(Shape{}, 1, DType::float64));
      return list(3);
    case 35:
      return index({});
    case 36:
      return index({kMax});
    case 37:
      return index({kMin});
    case 38:
      return index({Slice{kMin, kMax, kMax}});
    case 39:
      return index({Slice{kMax, kMin, 1}});
    case 40:
      return index({Slice{0, 3, 0}});
    case 41:
      return index({Slice{3, 0, kMin}});
    case 42:
      return index(Items(100, newaxis));
    case 43:
      return index(Items(31, newaxis));
    case 44:
      return index({ellipsis, ellipsis});
    case 45:
      return index({whole({2}, kMax).tensors[0]});
    case 46:
      return index({filled({2}, 1, DType::float32).tensors[0]});
    case 47:
      return index({array(ArgKind::int_array, {kMax / 8}, {0})});
    case 48:
      return index({array(ArgKind::int_array, {2, 2}, {0, -1, 0, kMin})});
    case 49:
      return index({array(ArgKind::bool_array, {7}, {1, 0, 1, 0, 1, 0, 5})});
    case 50:
      return index({true, false, true, ellipsis, false});
    case 51:
      return index(
          {array(ArgKind::int_array, {1000}, std::vector<int64_t>(1000, 0)), newaxis, whole({1000, 1}, 0).tensors[0]});
    case 52:
      return index(Items(40, array(ArgKind::int_array, {1}, {0})));
    case 53:
      return index({array(ArgKind::ellipsis, {-1}, {}), array(ArgKind::real, {}, {})});
    case 54:
      return filled({2, 1, 3, 1, 2, 1}, 1, DType::float64);
    case 55:
      return one(
          cx.alias(cx.full(Shape{1}, 1, DType::float32), Shape{2048, 1024}, Shape{0, 0}, 0));  // 8 MiB written out
    case 56: {
      s.tensors.assign(10'000, cx.full({}, 1, DType::float64));
      return list(10'000);
    }
    case 57:
      return index(Items(10'000, 0));
    case 58:
      s.tensors[0] = own;
      return Bound(s.tensors[0]);
    case 59:
      s.tensors[0] = s.tensors[1] = own;
      return list(2);
    case 60: {  // its own bytes in another order
      Shape shape(own.shape()), strides(own.strides());
      std::reverse(shape.begin(), shape.end()), std::reverse(strides.begin(), strides.end());
      s.tensors[0] = cx.alias(own, shape, strides, own->offset);
      return Bound(s.tensors[0]);
    }
    case 61:  // one of its elements everywhere
      s.tensors[0] = own.numel() > 0 ? cx.alias(own, own.shape(), Shape(own.shape().size(), 0), own->offset) : own;
      return Bound(s.tensors[0]);
    default: {  // all but its first element, where it has such a row
      if (own.ndim() != 1 || own.numel() < 2) return Bound(s.tensors[0] = own);
      s.tensors[0] = cx.alias(own, Shape{own.size(0) - 1}, Shape{own.strides()[0]}, own->offset + own.strides()[0]);
      return Bound(s.tensors[0]);
    }
  }
}

struct Edges {
  std::vector<Edge> all;
  std::vector<std::vector<int64_t>> ints = {{},
                                            {-1},
                                            {0},
                                            {1},
                                            {kMax},
                                            {kMin},
                                            {int64_t{1} << 40},
                                            {-1, -1},
                                            {-1, 0},
                                            {0, 0},
                                            {2, 3},
                                            {kMax, kMax},
                                            {1 << 20, 1 << 20, 1 << 20},
                                            {1, 0, -1},
                                            {3, -2, 1},
                                            {0, kMax, -1},
                                            {1000, 10000},
                                            std::vector<int64_t>(33, 1),
                                            std::vector<int64_t>(32, 1),
                                            std::vector<int64_t>(10'000, 0),
                                            std::vector<int64_t>(10'000, 1),
                                            {int64_t{1} << 31},
                                            {int64_t{1} << 62, 2},
                                            {-2},
                                            {2, 1, 0, 3}};
  std::vector<double> floats = {0, -1, kNaN, kInf}, more = std::vector<double>(10'000, 0.5);
  Edges() {
    auto add = [this](Bound v) { all.push_back({v}); };
    add(Bound());
    for (const bool b : {false, true}) add(Bound(Scalar(b)));
    for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{-3}, int64_t{300}, int64_t{1} << 31,
                            int64_t{1} << 40, int64_t{1} << 62, kMax, kMin, kMin + 1})
      add(Bound(Scalar(i)));
    for (const double f : {0.0, -0.5, 1e308, 5e-324, 3e9, -1e19, kNaN, kInf, -kInf}) add(Bound(Scalar(f)));
    static const std::string long_text(100'000, 'x');
    for (const std::string_view t :
         {std::string_view(""), std::string_view("mean"), std::string_view("NaN"), std::string_view("-Infinity"),
          std::string_view("cpu"), std::string_view("cuda:99999999999"), std::string_view("cuda:"),
          std::string_view("float32"), std::string_view("\0\xff\xfe", 3), std::string_view(long_text)})
      add(Bound(t));
    for (int t = 0; t < kDTypes; ++t) add(Bound(static_cast<DType>(t)));
    for (const auto& v : ints) add(Bound(std::span<const int64_t>(v)));
    add(Bound(std::span<const double>(floats)));
    add(Bound(std::span<const double>(more)));
    for (int r = 0; r < kRecipes; ++r) all.push_back({Bound(), r});
    Bound odd;
    odd.kind = ArgKind::slice, odd.count = 7;
    add(odd);
  }
};

// The bytes that a target's storage has, and its version.
struct Before {
  Tensor target;
  std::vector<std::byte> bytes;
  uint32_t version = 0;
  explicit Before(const Tensor& t) : target(t) {
    if (!t) return;
    const auto* from = static_cast<const std::byte*>(t->storage->data());
    bytes.assign(from, from + t->storage->bytes());
    version = t.version();
  }
  bool same() const {
    return !target ||
           (target.version() == version && std::memcmp(target->storage->data(), bytes.data(), bytes.size()) == 0);
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
        t = copy_of(e_.cx, t);
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
            t = copy_of(e.cx, t);
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
