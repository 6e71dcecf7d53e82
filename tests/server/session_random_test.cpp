#include <catch2/catch_test_macros.hpp>
#include <random>

#include "tests/server/rig.h"

namespace gradwire::server {
namespace {

/// Batches that no client would write: any operator with any arguments, counts that do not fit, texts that are none.
class Wild {
 public:
  explicit Wild(uint64_t seed) : r_(seed) {}
  uint64_t below(uint64_t n) { return r_() % n; }

  Arg arg(uint64_t next_id, bool inside) {
    static constexpr int64_t kInts[] = {0, 1, -1, 2, 3, 7, 1 << 20, int64_t{1} << 40, INT64_MAX, INT64_MIN};
    Arg a;
    a.kind = static_cast<ArgKind>(below(10) < 6 ? static_cast<int>(ArgKind::tensor) : below(18));
    if (inside && below(3)) a.kind = ArgKind::tensor;
    switch (a.kind) {
      case ArgKind::tensor:
        a.id = below(20) ? 1 + below(std::max<uint64_t>(1, next_id - 1)) : r_();
        a.part = below(6) ? Part::value : static_cast<Part>(below(3));
        break;
      case ArgKind::real:
        a.f = below(2) ? 0.5 : std::numeric_limits<double>::quiet_NaN();
        break;
      default:
        a.i = kInts[below(std::size(kInts))];
        break;
    }
    a.count = static_cast<uint32_t>(below(12) ? below(4) : below(3) ? below(200) : r_());
    return a;
  }

  Batch batch(uint64_t seq, uint64_t& next_id, size_t operators) {
    BatchMaker m(seq, seq, seq - 1);
    for (uint64_t n = below(8); n-- > 0;) {
      if (below(5) == 0) {
        m.upload(next_id++, std::vector<float>(below(7), 1.5f), below(2));
        continue;
      }
      if (below(10) == 0) {
        m.release(1 + below(next_id));
        continue;
      }
      std::vector<Arg> args;
      for (uint64_t k = below(5); k-- > 0;) {
        args.push_back(arg(next_id, false));
        if (args.back().kind == ArgKind::tensors || args.back().kind == ArgKind::index) {
          const uint32_t inner = args.back().count % 4;
          for (uint32_t i = 0; i < inner; ++i) args.push_back(arg(next_id, true));
        }
      }
      const auto op = static_cast<uint16_t>(below(30) ? below(operators) : r_());
      m.call(op, args, below(4) ? next_id++ : below(3), below(3) != 0);
      if (below(2)) m.b.calls.back().args = static_cast<uint8_t>(below(6));
      if (below(3) == 0) m.b.calls.back().line = static_cast<uint32_t>(below(3));
    }
    for (uint64_t n = below(40); n-- > 0;)
      m.b.ints.push_back(below(3) ? static_cast<int64_t>(below(4)) : static_cast<int64_t>(r_()));
    for (uint64_t n = below(3); n-- > 0;) m.b.texts.emplace_back(below(2) ? "float64" : std::string(below(9), '\xff'));
    for (uint64_t n = below(3); n-- > 0;) m.b.lines.push_back({static_cast<uint32_t>(below(4)), 1});
    for (uint64_t n = below(3); n-- > 0;)
      m.fetch(1 + below(next_id + 2), static_cast<Part>(below(2)), static_cast<FetchKind>(below(2)));
    return std::move(m.b);
  }

 private:
  std::mt19937_64 r_;
};

TEST_CASE("random batches are answered, harm no neighbour and leave nothing behind", "[server][session][T20][T22]") {
  Options options;
  options.session_tensors = 500;
  Rig rig(options);
  const size_t operators = rig.service.info().operators.size();
  const uint16_t add = op(rig, "add");
  auto neighbour = rig.open();
  REQUIRE(!run(*neighbour, BatchMaker(1).upload(1, {1, 2, 3}))->error);
  uint64_t calm = 2, right = 0, wrong = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Wild wild(seed);
    SessionOptions o;
    o.memory_limit = int64_t{16} << 20;
    auto s = rig.open(o);
    uint64_t next_id = 1;
    for (uint64_t seq = 1; seq <= 100; ++seq) {
      BatchMaker m(0);
      m.b = wild.batch(seq, next_id, operators);
      const auto a = run(*s, m);
      REQUIRE(a->seq == seq);
      a->error ? ++wrong : ++right;
      if (a->error) REQUIRE(a->error->code() != Code::internal);
    }
    CHECK(s->info().bytes <= o.memory_limit);
    BatchMaker m(calm, 1, calm - 1);
    m.call(add, {BatchMaker::tensor(1), BatchMaker::tensor(1)}, calm).fetch(calm).release(calm - 1 > 1 ? calm - 1 : 0);
    const auto a = run(*neighbour, m);
    REQUIRE(!a->error);
    REQUIRE(floats(a->fetched[0].value) == std::vector<float>{2, 4, 6});
    ++calm;
    wait<Result<void>>([&](auto done) { s->close(std::move(done)); });
    CHECK(s->info().bytes == 0);
  }
  CHECK(right > 100);  // both roads were taken
  CHECK(wrong > 100);
}

}  // namespace
}  // namespace gradwire::server
