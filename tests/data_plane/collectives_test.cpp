// Every collective, on every dtype, against values computed here; real helpers over loopback.

#include <algorithm>
#include <bit>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "schema/half.h"
#include "tests/data_plane/ranks.h"

namespace gradwire::server::cluster::test {
namespace {

using Bytes = std::vector<std::byte>;

/// Element i of an array of the dtype, from a number that it can hold; whole numbers wrap.
void put(Bytes& to, DType t, size_t i, double x) {
  const auto n = static_cast<int64_t>(x);
  auto write = [&](auto v) { std::memcpy(to.data() + i * sizeof v, &v, sizeof v); };
  switch (t) {
    case DType::boolean:
      return write(static_cast<uint8_t>(n != 0));
    case DType::uint8:
      return write(static_cast<uint8_t>(n));
    case DType::int8:
      return write(static_cast<int8_t>(n));
    case DType::int16:
      return write(static_cast<int16_t>(n));
    case DType::int32:
      return write(static_cast<int32_t>(n));
    case DType::int64:
      return write(n);
    case DType::float16:
      return write(float_to_half(static_cast<float>(x)));
    case DType::bfloat16:
      return write(float_to_bfloat16(static_cast<float>(x)));
    case DType::float32:
      return write(static_cast<float>(x));
    case DType::float64:
      return write(x);
  }
}

bool is_signed(DType t) { return t != DType::boolean && t != DType::uint8; }

/// Small whole numbers, whose sums and products every dtype holds.
double value(DType t, int rank, size_t i) {
  const auto n = static_cast<int>((static_cast<size_t>(rank) * 7 + i * 3) % 5);
  return t == DType::boolean ? n > 2 : n - (is_signed(t) ? 2 : 0);
}

Bytes array(DType t, int rank, size_t count, size_t first = 0) {
  Bytes b(count * static_cast<size_t>(size_of(t)));
  for (size_t i = 0; i < count; ++i) put(b, t, i, value(t, rank, first + i));
  return b;
}

double reduced(ReduceOp op, DType t, int size, size_t i) {
  double x = value(t, 0, i);
  for (int r = 1; r < size; ++r) {
    const double y = value(t, r, i);
    const auto a = static_cast<int64_t>(x), b = static_cast<int64_t>(y);
    switch (op) {
      case ReduceOp::avg:
      case ReduceOp::sum:
        x += y;
        break;
      case ReduceOp::product:
        x *= y;
        break;
      case ReduceOp::min:
        x = std::min(x, y);
        break;
      case ReduceOp::max:
        x = std::max(x, y);
        break;
      case ReduceOp::band:
        x = static_cast<double>(a & b);
        break;
      case ReduceOp::bor:
        x = static_cast<double>(a | b);
        break;
      case ReduceOp::bxor:
        x = static_cast<double>(a ^ b);
        break;
    }
  }
  if (op != ReduceOp::avg) return x;
  return t == DType::float64 ? x / size
         : is_floating(t)    ? static_cast<float>(x) / static_cast<float>(size)
                             : std::trunc(x / size);
}

Bytes reduced_array(ReduceOp op, DType t, int size, size_t count, size_t first = 0) {
  Bytes b(count * static_cast<size_t>(size_of(t)));
  for (size_t i = 0; i < count; ++i) put(b, t, i, reduced(op, t, size, first + i));
  return b;
}

Bytes joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

/// The part of each rank, at its place or (scatter) all of them.
std::vector<Bytes> parts_of(DType t, int size, size_t count) {
  std::vector<Bytes> parts;
  for (int r = 0; r < size; ++r) parts.push_back(array(t, r, count));
  return parts;
}

bool begins_with(const Bytes& all, const Bytes& part) {
  return all.size() >= part.size() && std::equal(part.begin(), part.end(), all.begin());
}

constexpr size_t kCounts[] = {0, 1, 5, 1003};

template <class F> void each_dtype(F f) {
  for (int t = 0; t < kDTypes; ++t) {
    CAPTURE(name(static_cast<DType>(t)));
    f(static_cast<DType>(t));
  }
}

bool allowed(ReduceOp op, DType t) {
  if (op == ReduceOp::avg) return t != DType::boolean;
  return op < ReduceOp::band || op > ReduceOp::bxor || !is_floating(t);
}

TEST_CASE("all_reduce, reduce and reduce_scatter give what a loop over the ranks gives", "[H20][H21][H26]") {
  const Way way = GENERATE(Way::near, Way::far);
  for (int size = 1; size <= 4; ++size) {
    CAPTURE(size);
    Ranks g(size, way);
    each_dtype([&](DType t) {
      for (int op = 0; op <= static_cast<int>(ReduceOp::avg); ++op) {
        const auto o = static_cast<ReduceOp>(op);
        if (!allowed(o, t)) continue;
        for (const size_t count : kCounts) {
          CAPTURE(op, count);
          const auto n = static_cast<int64_t>(count);
          const Bytes expected = reduced_array(o, t, size, count);
          for (const Bytes& b : g.run({Collective::all_reduce, o, t, n, -1}, parts_of(t, size, count)))
            CHECK(b == expected);
          const int root = (op + size - 1) % size;
          CHECK(g.run({Collective::reduce, o, t, n, root}, parts_of(t, size, count))[static_cast<size_t>(root)] ==
                expected);

          const auto out =
              g.run({Collective::reduce_scatter, o, t, n, -1}, parts_of(t, size, count * static_cast<size_t>(size)));
          for (size_t r = 0; r < out.size(); ++r) {
            CHECK(begins_with(out[r], reduced_array(o, t, size, count, count * r)));
          }
        }
      }
    });
  }
}

TEST_CASE("broadcast, all_gather, gather and scatter move every element to its place", "[H19][H22][H23][H24]") {
  const Way way = GENERATE(Way::near, Way::far);
  for (int size = 1; size <= 4; ++size) {
    CAPTURE(size);
    Ranks g(size, way);
    each_dtype([&](DType t) {
      for (const size_t count : kCounts) {
        for (int root = 0; root < size; ++root) {
          CAPTURE(count, root);
          const auto n = static_cast<int64_t>(count);
          const auto at = static_cast<size_t>(root);
          const auto parts = parts_of(t, size, count);
          const Bytes all = joined(parts), empty(parts[0].size());
          for (const Bytes& b : g.run({Collective::broadcast, {}, t, n, root}, parts)) CHECK(b == parts[at]);

          std::vector<Bytes> own;  // each has its own part only
          for (size_t r = 0; r < parts.size(); ++r) {
            std::vector<Bytes> one(parts.size(), empty);
            one[r] = parts[r];
            own.push_back(joined(one));
          }
          for (const Bytes& b : g.run({Collective::all_gather, {}, t, n, -1}, own)) CHECK(b == all);

          std::vector<Bytes> in = parts;
          in[at] = own[at];
          CHECK(g.run({Collective::gather, {}, t, n, root}, in)[at] == all);

          in.assign(parts.size(), empty);
          in[at] = all;
          const auto out = g.run({Collective::scatter, {}, t, n, root}, in);
          for (size_t r = 0; r < out.size(); ++r) CHECK(begins_with(out[r], parts[r]));
        }
      }
    });
  }
}

TEST_CASE("No rank leaves a barrier before the last has come", "[H25]") {
  const Way way = GENERATE(Way::near, Way::far);
  Ranks g(3, way);
  const Terms barrier{Collective::barrier, {}, DType::float32, 0, -1};
  auto first = g.start(0, barrier, nullptr), second = g.start(1, barrier, nullptr);
  // What the two can do without the third they have done when a message between them has passed.
  const Bytes one(1);
  auto sent = g.start(0, {Collective::send, {}, DType::uint8, 1, 1}, g.area(0, one), uint64_t{9});
  auto got = g.start(1, {Collective::recv, {}, DType::uint8, 1, 0}, g.area(1, one), uint64_t{9});
  REQUIRE(sent.get());
  REQUIRE(got.get());
  CHECK(first.future.wait_for(0ms) == std::future_status::timeout);
  CHECK(second.future.wait_for(0ms) == std::future_status::timeout);
  auto third = g.start(2, barrier, nullptr);
  CHECK(first.get());
  CHECK(second.get());
  CHECK(third.get());
}

TEST_CASE("send and recv pair up by tag, in any order, beside a collective that waits", "[H15][H16][H17]") {
  const Way way = GENERATE(Way::near, Way::far);
  Ranks g(2, way);
  const Terms reduce{Collective::all_reduce, ReduceOp::sum, DType::int32, 3, -1};
  auto waits = g.start(1, reduce, g.area(1, array(DType::int32, 1, 3)));
  constexpr size_t kMessages = 40, kLarge = 300'000;
  std::vector<Answer<int>> sent, received;
  std::vector<AreaPtr> got;
  auto count = [](size_t i) { return i % 4 ? i : kLarge; };
  for (size_t i = 0; i < kMessages; ++i) {
    const int to = static_cast<int>(i % 2);
    sent.push_back(g.start(1 - to, {Collective::send, {}, DType::int32, static_cast<int64_t>(count(i)), to},
                           g.area(1 - to, array(DType::int32, 0, count(i), i)), i));
  }
  for (size_t i = kMessages; i-- > 0;) {
    const int to = static_cast<int>(i % 2);
    got.push_back(g.area(to, Bytes(count(i) * 4)));
    received.push_back(
        g.start(to, {Collective::recv, {}, DType::int32, static_cast<int64_t>(count(i)), 1 - to}, got.back(), i));
  }
  for (auto& a : sent) CHECK(*a.get() == -1);
  for (size_t k = 0; k < kMessages; ++k) {
    const size_t i = kMessages - 1 - k;
    CAPTURE(i);
    CHECK(*received[k].get() == 1 - static_cast<int>(i % 2));
    CHECK(Bytes(got[k]->bytes.begin(), got[k]->bytes.end()) == array(DType::int32, 0, count(i), i));
  }
  CHECK(waits.future.wait_for(0ms) == std::future_status::timeout);
  CHECK(g.start(0, reduce, g.area(0, array(DType::int32, 0, 3))).get());
  CHECK(waits.get());
}

TEST_CASE("Every rank has the same bits, whatever the size, and they are near the true sum", "[H20]") {
  const Way way = GENERATE(Way::near, Way::far);
  std::mt19937 random(7);
  for (int size = 2; size <= 4; ++size) {
    Ranks g(size, way);
    for (const DType t : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      for (const size_t count : {size_t{1}, size_t{3}, size_t{17}, size_t{4099}, size_t{300'007}}) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::avg}) {
          CAPTURE(size, name(t), count, static_cast<int>(op));
          std::vector<Bytes> in;
          std::vector<double> sum(count), scale(count);
          for (int r = 0; r < size; ++r) {
            in.emplace_back(count * static_cast<size_t>(size_of(t)));
            for (size_t i = 0; i < count; ++i) {
              const double x = (static_cast<double>(random()) / 4294967296.0 - 0.5) *
                               std::exp2(static_cast<double>(random() % 16) - 8);
              put(in.back(), t, i, x);
              sum[i] += x, scale[i] += std::abs(x);
            }
          }
          const auto out = g.run({Collective::all_reduce, op, t, static_cast<int64_t>(count), -1}, in);
          for (int r = 1; r < size; ++r) CHECK(out[static_cast<size_t>(r)] == out[0]);
          if (t != DType::float64 || op == ReduceOp::product) continue;
          size_t far = 0;
          for (size_t i = 0; i < count; ++i) {
            double x;
            std::memcpy(&x, out[0].data() + i * 8, 8);
            far += !(std::abs(x - sum[i] / (op == ReduceOp::avg ? size : 1)) <= 1e-15 * scale[i] * 4);
          }
          CHECK(far == 0);
        }
      }
    }
  }
}

TEST_CASE("Halves are summed in float32 and rounded once", "[H20]") {
  const Way way = GENERATE(Way::near, Way::far);
  Ranks g(4, way);
  // 2048 + 1 + 1 + 1 and 256 + 1 + 1 + 1: one at a time every 1 is lost to rounding. The nearest of 2051 is 2052, even.
  for (const auto& [t, large, sum] :
       {std::tuple{DType::float16, 2048.0, 2052.0}, std::tuple{DType::bfloat16, 256.0, 260.0}}) {
    std::vector<Bytes> in(4, Bytes(200));
    Bytes expected(200);
    for (size_t i = 0; i < 100; ++i) {
      for (size_t r = 0; r < 4; ++r) put(in[r], t, i, r == i % 4 ? large : 1);
      put(expected, t, i, sum);
    }
    for (const Bytes& b : g.run({Collective::all_reduce, ReduceOp::sum, t, 100, -1}, in)) CHECK(b == expected);
    CHECK(g.run({Collective::reduce, ReduceOp::sum, t, 100, 2}, in)[2] == expected);
  }
}

TEST_CASE("Whole numbers wrap, averages of them are cut off, and NaN wins min and max", "[H26]") {
  const Way way = GENERATE(Way::near, Way::far);
  Ranks g(3, way);
  auto reduce = [&](ReduceOp op, DType t, const std::vector<double>& of) {
    std::vector<Bytes> in(3, Bytes(static_cast<size_t>(size_of(t))));
    for (size_t r = 0; r < 3; ++r) put(in[r], t, 0, of[r]);
    const auto out = g.run({Collective::all_reduce, op, t, 1, -1}, in);
    CHECK(out[0] == out[1]);
    CHECK(out[0] == out[2]);
    return out[0];
  };
  auto is = [](DType t, double x) {
    Bytes b(static_cast<size_t>(size_of(t)));
    put(b, t, 0, x);
    return b;
  };
  CHECK(reduce(ReduceOp::sum, DType::int8, {100, 100, 0}) == is(DType::int8, -56));
  CHECK(reduce(ReduceOp::sum, DType::uint8, {200, 100, 1}) == is(DType::uint8, 45));
  CHECK(reduce(ReduceOp::product, DType::int16, {300, 300, 1}) == is(DType::int16, 24464));
  CHECK(reduce(ReduceOp::avg, DType::int32, {-1, -3, -4}) == is(DType::int32, -2));
  CHECK(reduce(ReduceOp::avg, DType::uint8, {2, 3, 3}) == is(DType::uint8, 2));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType t : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    for (size_t where = 0; where < 3; ++where) {
      std::vector<double> x{1, 2, 3};
      x[where] = nan;
      CHECK(reduce(ReduceOp::min, t, x) == is(t, nan));
      CHECK(reduce(ReduceOp::max, t, x) == is(t, nan));
    }
    CHECK(reduce(ReduceOp::min, t, {1, -2, 3}) == is(t, -2));
    CHECK(reduce(ReduceOp::max, t, {1, -2, 3}) == is(t, 3));
  }
}

TEST_CASE("Ten thousand small all_reduce in a row are all right", "[H20]") {
  const Way way = GENERATE(Way::near, Way::far);
  Ranks g(2, way);
  constexpr int kWindow = 100;
  size_t wrong = 0;
  for (int i = 0; i < 10'000; i += kWindow) {
    std::vector<AreaPtr> areas;
    std::vector<Answer<int>> answers;
    for (int k = 0; k < kWindow; ++k) {
      for (int r = 0; r < 2; ++r) {
        areas.push_back(g.area(r, array(DType::int32, r, 10, static_cast<size_t>(i + k))));
        answers.push_back(g.start(r, {Collective::all_reduce, ReduceOp::sum, DType::int32, 10, -1}, areas.back()));
      }
    }
    for (size_t k = 0; k < answers.size(); ++k) {
      REQUIRE(answers[k].get());
      const Bytes got(areas[k]->bytes.begin(), areas[k]->bytes.end());
      wrong += got != reduced_array(ReduceOp::sum, DType::int32, 2, 10, static_cast<size_t>(i) + k / 2);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace gradwire::server::cluster::test
