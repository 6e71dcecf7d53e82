#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

// What PyTorch answers for two tensors, by dtype number: bool, uint8, int8, int16, int32, int64, float16, bfloat16,
// float32, float64.
constexpr const char* kTable[kDTypes] = {"0123456789", "1133456789", "2323456789", "3333456789", "4444456789",
                                         "5555556789", "6666666889", "7777778789", "8888888889", "9999999999"};

DType by_table(DType a, DType b) { return static_cast<DType>(kTable[static_cast<int>(a)][static_cast<int>(b)] - '0'); }

enum class Rank { dims, zero_dim, number };

struct Side {
  DType dtype;  // of a number: the one that stands for its category
  Rank rank;
};

// c10's rule, written from its description: what has dims counts first, then 0-dim tensors, then numbers; a lower rank
// counts only where its category is higher.
DType expected(Side a, Side b) {
  if (a.rank == b.rank) return by_table(a.dtype, b.dtype);
  if (a.rank > b.rank) std::swap(a, b);
  return category(b.dtype) > category(a.dtype) ? by_table(a.dtype, b.dtype) : a.dtype;
}

}  // namespace

TEST_CASE("Two operands of any dtypes and ranks promote as PyTorch promotes them", "[promotion][A51][A1][B2]") {
  for (const DType default_dtype : {DType::float32, DType::float64}) {
    Engine e;
    e.cx.default_dtype = default_dtype;
    const OpRow& add = *find_op("add");
    const DType numbers[] = {DType::boolean, DType::int64, default_dtype};
    std::vector<Side> sides;
    for (int t = 0; t < kDTypes; ++t) {
      sides.push_back({static_cast<DType>(t), Rank::dims});
      sides.push_back({static_cast<DType>(t), Rank::zero_dim});
    }
    for (const DType t : numbers) sides.push_back({t, Rank::number});
    for (const Side& a : sides) {
      for (const Side& b : sides) {
        Tensor tensors[2];
        std::vector<Bound> args;
        bool any_dims = false;
        for (const Side* s : {&a, &b}) {
          if (s->rank == Rank::number) {
            args.push_back(Bound(category(s->dtype) == Category::boolean   ? Scalar(true)
                                 : category(s->dtype) == Category::integer ? Scalar(1)
                                                                           : Scalar(1.0)));
            continue;
          }
          any_dims = any_dims || s->rank == Rank::dims;
          Tensor& t = tensors[s == &b];
          t = e.cx.full(s->rank == Rank::dims ? Shape{2} : Shape{}, 1, s->dtype);
          args.push_back(Bound(t));
        }
        INFO(name(a.dtype) << " " << static_cast<int>(a.rank) << ", " << name(b.dtype) << " "
                           << static_cast<int>(b.rank));
        const Tensor sum = call(e.cx, add.id, args).at[0];
        const DType want = expected(a, b);
        CHECK(sum.dtype() == want);
        CHECK(values(sum) == Values(any_dims ? 2 : 1, want == DType::boolean ? 1 : 2));
        CHECK(std::ranges::equal(sum.shape(), any_dims ? Shape{2} : Shape{}));
      }
    }
  }
}

TEST_CASE("Promotion does not depend on the order", "[promotion][A51]") {
  for (int a = 0; a < kDTypes; ++a) {
    for (int b = 0; b < kDTypes; ++b) {
      const auto x = static_cast<DType>(a), y = static_cast<DType>(b);
      CHECK(promote(x, y) == by_table(x, y));
      CHECK(promote(x, y) == promote(y, x));
    }
  }
}

TEST_CASE("A gradient has its input's dtype, whatever the operands were promoted to", "[promotion][A51][B28]") {
  Engine e;
  for (const DType mine : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    for (const DType other : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
      const Tensor x = leaf_like(e.cx.full(Shape{2, 3}, 2, mine)), y = e.cx.full(Shape{3}, 3, other);
      sum(x * y).backward();
      CHECK(grad_of(x).dtype() == mine);
      CHECK(values(grad_of(x)) == Values(6, 3));
    }
  }
}

TEST_CASE("Numbers that a dtype cannot hold are refused, the others stored exactly", "[promotion][A8][T20]") {
  struct Case {
    DType dtype;
    Scalar value;
    double stored;  // NaN: refused
  };
  const double no = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : std::initializer_list<Case>{{DType::uint8, 255, 255},
                                                   {DType::uint8, 256, no},
                                                   {DType::uint8, -1, 255},
                                                   {DType::uint8, -256, no},
                                                   {DType::int8, 127, 127},
                                                   {DType::int8, 128, no},
                                                   {DType::int8, -128, -128},
                                                   {DType::int8, -129, no},
                                                   {DType::int16, 32768, no},
                                                   {DType::int32, 2147483647, 2147483647},
                                                   {DType::int32, int64_t{1} << 31, no},
                                                   {DType::int32, 2.9, 2},
                                                   {DType::int32, -3e9, no},
                                                   {DType::int64, 9.3e18, no},
                                                   {DType::int64, -9.3e18, no},
                                                   {DType::int64, no, no},
                                                   {DType::int64, std::numeric_limits<double>::infinity(), no},
                                                   {DType::boolean, 7, 1},
                                                   {DType::boolean, 0.0, 0},
                                                   {DType::float16, 65504, 65504},
                                                   {DType::float32, 0.1, 0.1f},
                                                   {DType::float64, 0.1, 0.1}}) {
    INFO(name(c.dtype) << " " << c.value.real());
    Engine e;
    const Tensor t = e.cx.full(Shape{2}, 0, c.dtype);
    if (std::isnan(c.stored)) {
      try {
        fill_(t, c.value);
        FAIL();
      } catch (const Error& err) {
        CHECK(err.message() == std::string("value cannot be converted to type ") + name(c.dtype) + " without overflow");
        CHECK(err.op() == "fill_");
        CHECK(t.version() == 0);
      }
    } else {
      fill_(t, c.value);
      CHECK(values(t) == Values(2, c.stored));
    }
  }
}

TEST_CASE("A whole number beside a tensor wraps into its dtype; a divisor that wraps to 0 is refused",
          "[promotion][A51][T20]") {
  Engine e;
  const Tensor u = e.make(DType::uint8, {1}, std::vector<uint8_t>{1});
  CHECK(values(u + 300) == Values{45});
  CHECK(values(u * 300) == Values{44});
  CHECK(values(u - 300) == Values{213});
  CHECK(values(eq(u, 257)) == Values{1});
  CHECK(values(e.make(DType::int32, {1}, std::vector<int32_t>{1}) + (int64_t{1} << 40)) == Values{1});
  CHECK(values(div(u, 300, "floor")) == Values{0});
  for (const Scalar divisor : {Scalar(256), Scalar(0), Scalar(false)}) {
    try {
      div(u, divisor, "floor");
      FAIL();
    } catch (const Error& err) {
      CHECK(err.message() == "ZeroDivisionError");
    }
  }
  try {
    gradwire::full(e.cx, {2}, 300, DType::uint8);
    FAIL();
  } catch (const Error& err) {
    CHECK(err.message() == "value cannot be converted to type uint8 without overflow");
  }
  CHECK(values(gradwire::full(e.cx, {1}, -1, DType::uint8)) == Values{255});
  // The least number divided by -1 wraps too.
  const Tensor least = e.make(DType::int64, {1}, std::vector<int64_t>{std::numeric_limits<int64_t>::min()});
  CHECK(item(div(least, -1, "floor")).integer() == std::numeric_limits<int64_t>::min());
  CHECK(item(div(least, -1, "trunc")).integer() == std::numeric_limits<int64_t>::min());
  CHECK(item(-least).integer() == std::numeric_limits<int64_t>::min());
}
