// Collectives of sessions on servers of their own, against values that are computed here.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <catch2/generators/catch_generators.hpp>

#include "schema/half.h"
#include "tests/e2e/cluster_rig.h"

namespace gradwire::e2e {
namespace {

using Bytes = std::vector<std::byte>;
using Op = dist::ReduceOp;
constexpr Op kOps[] = {dist::SUM, dist::PRODUCT, dist::MIN, dist::MAX, dist::BAND, dist::BOR, dist::BXOR, dist::AVG};
const char* const kOpNames[] = {"SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"};

bool defined(Op op, DType t) {
  if (t == DType::boolean) return op != dist::AVG;
  return !is_floating(t) || (op != dist::BAND && op != dist::BOR && op != dist::BXOR);
}

template <class T> T get(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T> void put(std::byte* p, T v) { std::memcpy(p, &v, sizeof v); }

double floating(DType t, const std::byte* p) {
  if (t == DType::float16) return static_cast<double>(half_to_float(get<uint16_t>(p)));
  if (t == DType::bfloat16) return static_cast<double>(bfloat16_to_float(get<uint16_t>(p)));
  return t == DType::float32 ? static_cast<double>(get<float>(p)) : get<double>(p);
}
void put_floating(DType t, std::byte* p, double v) {
  const auto f = static_cast<float>(v);
  if (t == DType::float16) {
    put(p, float_to_half(f));
  } else if (t == DType::bfloat16) {
    put(p, float_to_bfloat16(f));
  } else if (t == DType::float32) {
    put(p, f);
  } else {
    put(p, v);
  }
}
int64_t whole(DType t, const std::byte* p) {
  switch (t) {
    case DType::int8:
      return get<int8_t>(p);
    case DType::int16:
      return get<int16_t>(p);
    case DType::int32:
      return get<int32_t>(p);
    case DType::int64:
      return get<int64_t>(p);
    default:
      return get<uint8_t>(p);
  }
}
/// The low bytes: whole numbers wrap.
void put_whole(DType t, std::byte* p, int64_t v) { std::memcpy(p, &v, static_cast<size_t>(size_of(t))); }

template <class N> N folded(Op op, N a, N b) {
  switch (op) {
    case dist::MIN:
      return std::min(a, b);
    case dist::MAX:
      return std::max(a, b);
    case dist::PRODUCT:
      if constexpr (std::is_integral_v<N>)
        return static_cast<N>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      else
        return a * b;
    default:
      if constexpr (std::is_integral_v<N>) {
        if (op == dist::BAND) return a & b;
        if (op == dist::BOR) return a | b;
        if (op == dist::BXOR) return a ^ b;
        return static_cast<N>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      }
      return a + b;
  }
}

/// All ranks' elements reduced. The floating values are such that nothing is rounded but what AVG divides.
Bytes reduced(Op op, DType t, const std::vector<Bytes>& by_rank) {
  const auto size = static_cast<size_t>(size_of(t));
  const auto ranks = static_cast<int64_t>(by_rank.size());
  Bytes out(by_rank[0].size());
  for (size_t at = 0; at < out.size(); at += size) {
    if (is_floating(t)) {
      double v = floating(t, &by_rank[0][at]);
      for (size_t r = 1; r < by_rank.size(); ++r) v = folded(op, v, floating(t, &by_rank[r][at]));
      if (op == dist::AVG) v /= static_cast<double>(ranks);
      put_floating(t, &out[at], v);
      continue;
    }
    // bool: sum is or, product is and.
    const bool logical = t == DType::boolean;
    const Op own = logical && op == dist::SUM ? dist::BOR : logical && op == dist::PRODUCT ? dist::BAND : op;
    int64_t v = whole(t, &by_rank[0][at]);
    for (size_t r = 1; r < by_rank.size(); ++r) v = folded(own, v, whole(t, &by_rank[r][at]));
    put_whole(t, &out[at], v);
    if (op == dist::AVG) put_whole(t, &out[at], whole(t, &out[at]) / ranks);
  }
  return out;
}

/// A tensor of (rows, columns) elements that is a view of a larger one.
struct Layout {
  const char* name;
  Shape base, shape;
  Tensor (*view)(const Tensor& base);
  size_t (*place)(size_t k);  // of element k, in the base
};
const Layout kLayouts[] = {
    {"contiguous", {3, 5}, {3, 5}, [](const Tensor& b) { return b; }, [](size_t k) { return k; }},
    {"transposed",
     {5, 3},
     {3, 5},
     [](const Tensor& b) { return b.transpose(0, 1); },
     [](size_t k) { return k % 5 * 3 + k / 5; }},
    {"every second column",
     {3, 10},
     {3, 5},
     [](const Tensor& b) { return slice(b, 1, 1, 10, 2); },
     [](size_t k) { return k / 5 * 10 + k % 5 * 2 + 1; }},
    {"a row of a column",
     {7, 2},
     {7},
     [](const Tensor& b) { return b.select(1, 1); },
     [](size_t k) { return 2 * k + 1; }},
    {"one number", {}, {}, [](const Tensor& b) { return b; }, [](size_t k) { return k; }},
    {"nothing", {0, 5}, {0, 5}, [](const Tensor& b) { return b; }, [](size_t k) { return k; }},
};
size_t count(const Shape& s) {
  size_t n = 1;
  for (const int64_t d : s) n *= static_cast<size_t>(d);
  return n;
}

/// Values of a rank: whole numbers of all sizes, floating ones of a few bits.
Bytes values(DType t, size_t n, int rank, int salt) {
  Bytes out(n * static_cast<size_t>(size_of(t)));
  std::mt19937_64 random(static_cast<uint64_t>(1000 * salt + 10 * rank + static_cast<int>(t)));
  for (size_t i = 0; i < n; ++i) {
    std::byte* p = &out[i * static_cast<size_t>(size_of(t))];
    const uint64_t bits = random();
    if (is_floating(t)) {
      put_floating(t, p, static_cast<double>(static_cast<int64_t>(bits % 7) - 3));
    } else {
      put_whole(t, p, t == DType::boolean ? static_cast<int64_t>(bits & 1) : static_cast<int64_t>(bits));
    }
  }
  return out;
}

Bytes taken(const Layout& l, DType t, const Bytes& base) {
  const auto size = static_cast<size_t>(size_of(t));
  Bytes out(count(l.shape) * size);
  for (size_t k = 0; k < count(l.shape); ++k) std::memcpy(&out[k * size], &base[l.place(k) * size], size);
  return out;
}
Bytes with(const Layout& l, DType t, Bytes base, const Bytes& elements) {
  const auto size = static_cast<size_t>(size_of(t));
  for (size_t k = 0; k < count(l.shape); ++k) std::memcpy(&base[l.place(k) * size], &elements[k * size], size);
  return base;
}

/// One rank's calls on tensors of one dtype and layout; each is compared with what all ranks have, at the end.
class Checks {
 public:
  Checks(Session& s, int rank, int world, DType t, const Layout& l) : s_(s), rank_(rank), world_(world), t_(t), l_(l) {}

  Bytes start(int rank, int salt) const { return values(t_, count(l_.base), rank, salt); }
  Bytes elements(int rank, int salt) const { return taken(l_, t_, start(rank, salt)); }
  std::vector<Bytes> all(int salt) const {
    std::vector<Bytes> v;
    for (int r = 0; r < world_; ++r) v.push_back(elements(r, salt));
    return v;
  }
  /// A view of a new base of this rank.
  Tensor make(int salt) {
    base_ = from_bytes(s_, t_, start(rank_, salt), l_.base);
    return l_.view(base_);
  }
  /// The view that make() gave last has these elements now, and its base no other change.
  void becomes(const std::string& what, int salt, const Bytes& wanted) {
    expect(what, base_, with(l_, t_, start(rank_, salt), wanted));
  }
  void stays(const std::string& what, int salt) { expect(what, base_, start(rank_, salt)); }
  void expect(const std::string& what, const Tensor& got, Bytes wanted) {
    expected_.push_back({what, got.async_bytes(), std::move(wanted)});
  }
  void verify() {
    for (auto& e : expected_)
      must(e.got.get() == e.wanted, e.what + " of " + name(t_) + ", " + l_.name + ", on rank " + std::to_string(rank_));
    expected_.clear();
  }

 private:
  struct Expected {
    std::string what;
    Future<Bytes> got;
    Bytes wanted;
  };
  Session& s_;
  const int rank_, world_;
  const DType t_;
  const Layout& l_;
  Tensor base_;
  std::vector<Expected> expected_;
};

void reductions(Checks& c, Session& s, int rank, int world, DType t) {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    const Op op = kOps[i];
    const int salt = static_cast<int>(i);
    const std::string name = kOpNames[i];
    if (!defined(op, t)) {
      const Tensor x = c.make(salt);
      must(error_of(s, [&] { dist::all_reduce(x, op); }).starts_with("bad_argument: "), name + " is refused");
      c.stays("the refused " + name, salt);
      c.verify();
      continue;
    }
    const Bytes wanted = reduced(op, t, c.all(salt));
    dist::all_reduce(c.make(salt), op);
    c.becomes("all_reduce " + name, salt, wanted);
    const int root = salt % world;
    dist::reduce(c.make(salt), root, op);
    rank == root ? c.becomes("reduce " + name, salt, wanted) : c.stays("reduce " + name, salt);
    std::vector<Tensor> parts;
    for (int r = 0; r < world; ++r) parts.push_back(c.make(20 + r));
    const Tensor out = c.make(40);
    dist::reduce_scatter(out, parts, op);
    c.becomes("reduce_scatter " + name, 40, reduced(op, t, c.all(20 + rank)));
  }
}

void moves(Checks& c, Session& s, int rank, int world) {
  for (int root = 0; root < world; ++root) {
    dist::broadcast(c.make(root), root);
    c.becomes("broadcast", root, c.elements(root, root));
    const auto gathered = dist::gather(c.make(root), root);
    must(gathered.size() == (rank == root ? static_cast<size_t>(world) : 0), "gather's list");
    for (size_t r = 0; r < gathered.size(); ++r) c.expect("gather", gathered[r], c.elements(static_cast<int>(r), root));
    std::vector<Tensor> parts;
    for (int r = 0; rank == root && r < world; ++r) parts.push_back(c.make(50 + r));
    dist::scatter(c.make(60), parts, root);
    c.becomes("scatter", 60, c.elements(root, 50 + rank));
  }
  const auto all = dist::all_gather(c.make(70));
  for (size_t r = 0; r < all.size(); ++r) c.expect("all_gather", all[r], c.elements(static_cast<int>(r), 70));
  // Each to the next, in a ring.
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  auto sent = dist::isend(c.make(80), next);
  const Tensor into = c.make(81);
  dist::recv(into, previous);
  sent.wait();
  c.becomes("recv", 81, c.elements(previous, 80));
  dist::barrier(s);
}

}  // namespace

void all_operations(World& w) {
  const int world = w.size();
  CHECK(w.run([&](Session& s, int rank) {
    for (int d = 0; d < kDTypes; ++d) {
      const auto t = static_cast<DType>(d);
      for (const Layout& l : kLayouts) {
        Checks c(s, rank, world, t, l);
        reductions(c, s, rank, world, t);
        moves(c, s, rank, world);
        c.verify();
      }
    }
  }) == fine(world));
}

TEST_CASE("All operations on all dtypes and strides, on two to four servers",
          "[H15][H16][H17][H19][H20][H21][H22][H23][H24][H25][H26]") {
  World w(GENERATE(2, 3, 4));
  w.meet();
  all_operations(w);
}

TEST_CASE("Sums that must be rounded have the same bits on all servers", "[H20]") {
  const int world = GENERATE(2, 3, 4);
  World w(world);
  w.meet();
  for (const DType t : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    // More elements than ranks, a few, and enough for several messages.
    for (const size_t n : {size_t{1}, size_t{5}, size_t{1000}, size_t{300001}}) {
      const auto size = static_cast<size_t>(size_of(t));
      std::vector<Bytes> own, got(static_cast<size_t>(world));
      for (int r = 0; r < world; ++r) {
        std::mt19937_64 random(static_cast<uint64_t>(r) + n);
        std::uniform_real_distribution<double> draw(-1, 1);
        Bytes b(n * size);
        for (size_t i = 0; i < n; ++i) put_floating(t, &b[i * size], draw(random));
        own.push_back(std::move(b));
      }
      REQUIRE(w.run([&](Session& s, int rank) {
        const Tensor x = from_bytes(s, t, own[static_cast<size_t>(rank)], Shape{static_cast<int64_t>(n)});
        dist::all_reduce(x);
        got[static_cast<size_t>(rank)] = x.async_bytes().get();
      }) == fine(world));
      for (int r = 1; r < world; ++r) REQUIRE(got[static_cast<size_t>(r)] == got[0]);
      const double step = t == DType::float16    ? 0x1p-10
                          : t == DType::bfloat16 ? 0x1p-7
                          : t == DType::float32  ? 0x1p-22
                                                 : 0x1p-51;
      double worst = 0;
      for (size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (const Bytes& b : own) sum += floating(t, &b[i * size]);
        worst = std::max(worst, std::abs(floating(t, &got[0][i * size]) - sum));
      }
      CHECK(worst <= 4 * step);
    }
  }
}

TEST_CASE("Ten thousand all_reduce without a wrong bit on any of three servers", "[H20]") {
#ifdef GRADWIRE_TSAN
  constexpr int kTimes = 1000;
#else
  constexpr int kTimes = 10000;
#endif
  constexpr int kWorld = 3, kWidth = 4;
  World w(kWorld);
  w.meet();
  // Sums of these are exact: what all ranks must have is known to the bit.
  std::vector<std::vector<float>> own(kWorld);
  std::vector<float> wanted(kTimes * kWidth);
  for (int r = 0; r < kWorld; ++r) {
    std::mt19937 random(static_cast<unsigned>(r));
    for (float& sum : wanted) {
      const float v = static_cast<float>(static_cast<int>(random() % 8192) - 4096) * 0x1p-8f;
      own[static_cast<size_t>(r)].push_back(v);
      sum += v;
    }
  }
  std::vector<size_t> wrong(kWorld);
  CHECK(w.run([&](Session& s, int rank) {
    const Tensor all = from_span(s, own[static_cast<size_t>(rank)], {kTimes, kWidth});
    for (int i = 0; i < kTimes; ++i) dist::all_reduce(all.select(0, i));
    const std::vector<float> got = all.to_vector<float>();
    must(got.size() == wanted.size(), "the size");
    for (size_t i = 0; i < got.size(); ++i)
      wrong[static_cast<size_t>(rank)] += std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(wanted[i]);
  }) == fine(kWorld));
  CHECK(wrong == std::vector<size_t>(kWorld));
}

namespace {

/// What all ranks' tensors hold after the same random calls: the tests' own arithmetic.
struct Model {
  static constexpr int kTensors = 4;
  using Values = std::vector<int64_t>;
  std::vector<std::array<Values, kTensors>> ranks;
  Model(int world, std::mt19937& random) : ranks(static_cast<size_t>(world)) {
    for (size_t k = 0; k < kTensors; ++k) {
      const size_t n = std::array<size_t, kTensors>{1, 7, 300, 20000}[k];
      for (auto& r : ranks) {
        for (size_t i = 0; i < n; ++i) r[k].push_back(static_cast<int64_t>(random() % 100));
      }
    }
  }
  Values& at(int rank, int k) { return ranks[static_cast<size_t>(rank)][static_cast<size_t>(k)]; }
};

/// One call of all ranks in one of several groups.
struct Step {
  int group, kind, tensor, root, other;
};

void model(Model& m, const std::vector<int>& group, const Step& step) {
  const int k = step.tensor;
  if (step.kind == 2) {
    for (const int r : group) m.at(r, k) = m.at(step.root, k);
  } else if (step.kind == 3) {
    m.at(step.other, k) = m.at(step.root, k);
  } else {
    Model::Values total = m.at(group[0], k);
    for (size_t i = 1; i < group.size(); ++i) {
      const auto& v = m.at(group[i], k);
      for (size_t e = 0; e < v.size(); ++e)
        total[e] = step.kind == 0 ? folded(dist::SUM, total[e], v[e]) : std::max(total[e], v[e]);
    }
    if (step.kind == 1) m.at(step.root, k) = total;
    for (const int r : group) {
      if (step.kind == 0) m.at(r, k) = total;
    }
  }
}

void call(const Step& step, const Tensor& x, const dist::ProcessGroup& g, int rank) {
  if (step.kind == 0) dist::all_reduce(x, dist::SUM, g);
  if (step.kind == 1) dist::reduce(x, step.root, dist::MAX, g);
  if (step.kind == 2) dist::broadcast(x, step.root, g);
  if (step.kind == 3 && rank == step.root) dist::send(x, step.other, g);
  if (step.kind == 3 && rank == step.other) dist::recv(x, step.root, g);
}

void random_programs(unsigned seed, int length) {
  constexpr int kWorld = 4;
  const std::vector<std::vector<int>> groups = {{0, 1, 2, 3}, {0, 1}, {1, 2, 3}, {0, 3}, {0, 1, 2, 3}};
  std::mt19937 random(seed);
  Model m(kWorld, random);
  const Model start = m;
  std::vector<Step> steps;
  for (int i = 0; i < length; ++i) {
    const auto draw = [&](size_t n) { return static_cast<int>(random() % n); };
    Step s{draw(groups.size()), draw(4), draw(Model::kTensors), 0, 0};
    const auto& g = groups[static_cast<size_t>(s.group)];
    const auto from = static_cast<size_t>(draw(g.size()));
    s.root = g[from], s.other = g[(from + 1 + static_cast<size_t>(draw(g.size() - 1))) % g.size()];
    model(m, g, s);
    steps.push_back(s);
  }
  World w(kWorld);
  w.meet();
  CHECK(w.run([&](Session& s, int rank) {
    std::vector<dist::ProcessGroup> own{dist::group::WORLD};
    for (size_t g = 1; g < groups.size(); ++g)
      own.push_back(dist::new_group(s, std::vector<int64_t>(groups[g].begin(), groups[g].end())));
    std::vector<Tensor> tensors;
    for (const auto& v : start.ranks[static_cast<size_t>(rank)])
      tensors.push_back(from_span(s, v, {static_cast<int64_t>(v.size())}));
    // Who is no member calls too, and is passed by.
    for (const Step& step : steps)
      call(step, tensors[static_cast<size_t>(step.tensor)], own[static_cast<size_t>(step.group)], rank);
    for (int k = 0; k < Model::kTensors; ++k)
      must(tensors[static_cast<size_t>(k)].to_vector<int64_t>() == m.at(rank, k), "tensor " + std::to_string(k));
  }) == fine(kWorld));
}

}  // namespace

TEST_CASE("Random collectives and messages in overlapping groups of four servers", "[H15][H19][H20][H21][H27]") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    INFO("seed " << seed);
    random_programs(seed, 150);
  }
}
TEST_CASE("Many random collectives and messages in overlapping groups", "[H15][H19][H20][H21][H27][long]") {
  for (unsigned seed = 10; seed < 40; ++seed) {
    INFO("seed " << seed);
    random_programs(seed, 400);
  }
}

TEST_CASE("Lists and models that differ between ranks are refused before a byte of them moves", "[H29][H32][T40]") {
  World w(2);
  w.meet();
  const auto refused = [](Session& s, const std::function<void()>& call, const std::vector<Tensor>& all) {
    std::string said;
    try {
      call();
      s.sync();
    } catch (const Error& e) {
      said = e.what();
    }
    must(
        said.starts_with("broadcast: lists of tensors are not equal in number, shapes or data types: rank 0 has list "),
        "the error is '" + said + "'");
    for (const Tensor& t : all) must(eq(t, 0).all().item<bool>(), "nothing is written");
  };
  CHECK(w.run([&](Session& s, int rank) {
    const auto value = [&](Shape shape, DType d = DType::float32) {
      return full(s, shape, rank == 0 ? 1 : 0, {.dtype = d});
    };
    const std::vector<std::vector<Tensor>> ours[] = {
        // as many bytes here as there

        {{value({1}), value({2})}, {value({2, 3})}, {value({6})}, {value({4}), value({2})}},
        {{value({2}), value({1})}, {value({3, 2})}, {value({6}, DType::int32)}, {value({6})}}};
    for (size_t i = 0; i < ours[rank].size(); ++i) {
      const auto& list = ours[rank][i];
      refused(
          s, [&] { broadcast_coalesced(list); }, rank ? list : std::vector<Tensor>());
      if (i == 2) continue;  // integers are no parameters
      for (const Tensor& t : list) t.requires_grad_();
      refused(
          s, [&] { const dist::DistributedData parallel(list, {}); }, rank ? list : std::vector<Tensor>());
    }
    // And by ddp alone, whose gradients are averaged.
    const Tensor x = zeros(s, rank ? Shape{3, 2} : Shape{2, 3}).requires_grad_();
    ddp({x});
    std::string said;
    try {
      sum(x * (rank + 1)).backward();
      s.sync();
    } catch (const Error& e) {
      said = e.what();
    }
    must(said.starts_with("all_reduce: buckets of gradients are not equal: "), "the error is '" + said + "'");
    must(eq(x.grad(), rank + 1).all().item<bool>(), "the gradient stays this rank's own");
  }) == fine(2));
}

}  // namespace gradwire::e2e
