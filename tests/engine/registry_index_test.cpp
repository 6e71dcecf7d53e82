#include <catch2/catch_test_macros.hpp>

#include <cmath>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

// x of these sizes, filled 0, 1, 2, ...
Tensor counted(Engine& e, const Shape& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  Values v(static_cast<size_t>(n));
  for (size_t k = 0; k < v.size(); ++k) v[k] = static_cast<double>(k);
  return e.doubles(sizes, v);
}

Tensor at(const Tensor& x, std::string_view index) {
  const auto l = parse_literals(x.maker(), index);
  return call(x.maker(), find_op("index")->id, std::vector<Bound>{Bound(x), l->positional[0]}).at[0];
}

std::string refusal(const Tensor& x, std::string_view index) {
  try {
    at(x, index);
    return "";
  } catch (const Error& e) {
    CHECK(e.op() == "index");
    return e.message();
  }
}

struct Case {
  const char* index;
  Shape shape;
};

}  // namespace

TEST_CASE("Lists of indices pick elements, broadcast against each other, and may repeat",
          "[registry][C1][C2][C3][C4][C19]") {
  Engine e;
  const Tensor x = counted(e, {5, 5, 5});
  CHECK(values(at(x, "{[1, 2], [3, 2], [1, 0]}")) == Values{41, 60});
  CHECK(values(at(x, "{[2, 3, 2], [0], [1]}")) == Values{51, 76, 51});
  CHECK(values(at(x, "{[[1, 0], [0, 1]], [0], [1]}")) == Values{26, 1, 1, 26});
  CHECK(std::ranges::equal(at(x, "{[[1, 0], [0, 1]], [0], [1]}").shape(), Shape{2, 2}));
  CHECK(values(at(x, "{[-1, -5], [0], [0]}")) == Values{100, 0});
}

TEST_CASE("Shapes of indexed tensors", "[registry][C5][C6][C7][C8][C9][C10][C11][C12][C15][C16][C17][C26][C27]") {
  Engine e;
  const Tensor five = counted(e, {5, 5, 5}), x = counted(e, {2, 3, 4, 5});
  for (const Case& c : std::initializer_list<Case>{{"{[0, 3], :, :}", {2, 5, 5}},
                                                   {"{[0, 3], ...}", {2, 5, 5}},
                                                   {"{[0, 2, 4], :, :}", {3, 5, 5}},
                                                   {"{[1, 3]}", {2, 5, 5}},
                                                   {"{[]}", {0, 5, 5}},
                                                   {"{True}", {1, 5, 5, 5}},
                                                   {"{False}", {0, 5, 5, 5}},
                                                   {"{[True, False, True, False, True]}", {3, 5, 5}},
                                                   {"{3:3}", {0, 5, 5}},
                                                   {"{::2, 1:, -1}", {3, 4}},
                                                   {"{..., None}", {5, 5, 5, 1}}}) {
    INFO(c.index);
    CHECK(std::ranges::equal(at(five, c.index).shape(), c.shape));
  }
  for (const Case& c : std::initializer_list<Case>{{"{:, [0, 1], [2, 3], :}", {2, 2, 5}},
                                                   {"{:, [[0, 1, 2]], [[2], [3]], :}", {2, 2, 3, 5}},
                                                   {"{[0, 1], :, [2, 3]}", {2, 3, 5}},
                                                   {"{:, [0, 1], :, [2, 3]}", {2, 2, 4}},
                                                   {"{0, :, [0, 1]}", {3, 2, 5}},
                                                   {"{:, [0, 1], 1, [0, 1]}", {2, 2}},
                                                   {"{:, 1:3, [0, 2]}", {2, 2, 2, 5}},
                                                   {"{:, 0:2, [0, 2], 1:}", {2, 2, 2, 4}},
                                                   {"{:, None, [0, 2]}", {2, 1, 2, 4, 5}},
                                                   {"{[0, 1], None, [0, 2]}", {2, 1, 4, 5}}}) {
    INFO(c.index);
    CHECK(std::ranges::equal(at(x, c.index).shape(), c.shape));
  }
  CHECK(values(at(e.doubles({2, 2}, {0, 1, 2, 3}), "{[[True, False], [True, True]]}")) == Values{0, 2, 3});
  CHECK(std::ranges::equal(
      at(counted(e, {5, 7, 3}), "{[True, False, True, False, True], :, [True, True, True]}").shape(), Shape{3, 7}));
}

TEST_CASE("Integers, slices, new axes and '...' give views; lists and masks copies", "[registry][C25][A21][A16][A17]") {
  Engine e;
  const Tensor x = counted(e, {5, 5, 5});
  for (const char* view : {"{1}", "{1:3}", "{None, 1}", "{...}", "{::2, 1, 1:}"}) {
    INFO(view);
    CHECK(at(x, view)->storage == x->storage);
  }
  for (const char* copy : {"{[0]}", "{[True, True, True, True, True]}", "{True}", "{1:, [0]}"}) {
    INFO(copy);
    CHECK(at(x, copy)->storage != x->storage);
  }
  at(x, "{[0]}").zero_();
  CHECK(values(x)[1] == 1);
  at(x, "{0}").zero_();
  CHECK(values(x)[1] == 0);
  const Tensor vector = e.doubles({4}, {2, 3, 4, 5});
  CHECK(at(vector, "{3}").ndim() == 0);
  CHECK(item(at(vector, "{3}")).real() == 5);
}

TEST_CASE("Indexes that name nothing are refused in PyTorch's words", "[registry][C18][C20][C21][C22][C23][C24]") {
  Engine e;
  const Tensor x = counted(e, {5, 5, 5});
  CHECK(refusal(x, "{5}") == "index 5 is out of bounds for dimension 0 with size 5");
  CHECK(refusal(x, "{0, -6}") == "index -6 is out of bounds for dimension 1 with size 5");
  CHECK(refusal(x, "{[0, 5]}") == "index 5 is out of bounds for dimension 0 with size 5");
  CHECK(refusal(x, "{0, 0, 0, 0}") == "too many indices for tensor of dimension 3");
  CHECK(refusal(x, "{[0, 1], [0, 1, 2]}") ==
        "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]");
  CHECK(refusal(x, "{[True, False, True]}") ==
        "The shape of the mask [3] at index 0 does not match the shape of the indexed tensor [5, 5, 5] at index 0");
  CHECK(refusal(x, "{::0}") == "slice step cannot be zero");
  CHECK(refusal(x, "{::-1}") == "step must be greater than zero");
  CHECK(refusal(x, "{..., ...}") == "an index can only have a single ellipsis ('...')");
  const Tensor real = e.doubles({1}, {0});
  try {
    x[{real}];
    FAIL();
  } catch (const Error& err) {
    CHECK(err.message() == "tensors used as indices must be long, byte or bool tensors");
  }
}

TEST_CASE("Assignment broadcasts values and refuses what does not fit", "[registry][C28][C29][C30][C31][C32]") {
  Engine e;
  auto put = [&](const Tensor& x, std::string_view index, std::string_view value) -> std::string {
    const auto i = parse_literals(e.cx, index), v = parse_literals(e.cx, value);
    try {
      call(e.cx, find_op("index_put_")->id, std::vector<Bound>{Bound(x), i->positional[0], v->positional[0]});
      return "";
    } catch (const Error& err) {
      CHECK(x.version() == 0);
      return err.message();
    }
  };
  const Tensor x = gradwire::zeros(e.cx, {3, 3});
  CHECK(put(x, "{[0, 2], [1, 1]}", "5") == "");
  CHECK(values(x) == Values{0, 5, 0, 0, 0, 0, 0, 5, 0});
  const Tensor y = gradwire::zeros(e.cx, {3, 2});
  CHECK(put(y, "{[0, 2]}", "[[1.], [2.]]") == "");
  CHECK(values(y) == Values{1, 1, 0, 0, 2, 2});
  const Tensor z = gradwire::zeros(e.cx, {3});
  CHECK(put(z, "{1:}", "[[4., 5.]]") == "");  // leading sizes of 1 are dropped
  CHECK(values(z) == Values{0, 4, 5});
  const Tensor m = gradwire::zeros(e.cx, {4});
  CHECK(put(m, "{[True, False, True, True]}", "[1., 2., 3.]") == "");
  CHECK(values(m) == Values{1, 0, 2, 3});
  CHECK(put(gradwire::zeros(e.cx, {4}), "{[True, False, True, True]}", "[1., 2.]") ==
        "shape mismatch: value tensor of shape [2] cannot be broadcast to indexing result of shape [3]");
  CHECK(put(gradwire::zeros(e.cx, {2, 3}), "{:}", "[1., 2., 3., 4.]") ==
        "The expanded size of the tensor (3) must match the existing size (4) at non-singleton dimension 1.  Target "
        "sizes: [2, 3].  Tensor sizes: [4]");
  CHECK(put(gradwire::zeros(e.cx, {4}), "{[0, 1]}", "[1, 2]") ==
        "Index put requires the source and destination dtypes match, got Float for the destination and Long for the "
        "source.");
  const Tensor w = gradwire::zeros(e.cx, {2}, DType::int64);
  CHECK(put(w, "{:}", "[1.7, -1.7]") == "");  // slices convert
  CHECK(values(w) == Values{1, -1});
}

TEST_CASE("Sums, shapes and views as the tensor model has them",
          "[registry][A18][A20][A22][A23][A58][B18][B21][B24][B25]") {
  Engine e;
  CHECK(sum(e.make(DType::int64, {2}, std::vector<int64_t>{2, 3})).ndim() == 0);
  const Tensor bytes = e.make(DType::uint8, {2}, std::vector<uint8_t>{200, 100});
  CHECK(sum(bytes).dtype() == DType::int64);
  CHECK(values(sum(bytes)) == Values{300});
  CHECK(values(sum(e.doubles({0}, {}))) == Values{0});
  CHECK(std::isnan(values(mean(e.doubles({0}, {})))[0]));
  const Tensor ones = gradwire::ones(e.cx, {2, 3});
  CHECK(values(sum(ones, 1)) == Values{3, 3});
  CHECK(std::ranges::equal((gradwire::ones(e.cx, {4, 1}) + gradwire::ones(e.cx, {4})).shape(), Shape{4, 4}));
  CHECK(values(gradwire::ones(e.cx, {4}) + sum(gradwire::ones(e.cx, {4, 4}), 1)) == Values(4, 5));
  CHECK(std::ranges::equal((gradwire::ones(e.cx, {4}) + sum(gradwire::ones(e.cx, {4, 4}), 1, true)).shape(),
                           Shape{4, 4}));
  CHECK(std::ranges::equal(matmul(gradwire::ones(e.cx, {1, 2, 3, 4}), gradwire::ones(e.cx, {5, 1, 4, 6})).shape(),
                           Shape{5, 2, 3, 6}));
  const Tensor greater = gt(gradwire::ones(e.cx, {2, 1}), gradwire::zeros(e.cx, {3}));
  CHECK(greater.dtype() == DType::boolean);
  CHECK(std::ranges::equal(greater.shape(), Shape{2, 3}));
  try {
    view(transpose(gradwire::ones(e.cx, {2, 5}), 0, 1), {10});
    FAIL();
  } catch (const Error& err) {
    CHECK(err.message() ==
          "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
          "contiguous subspaces). Use .reshape(...) instead.");
  }
}

TEST_CASE("to gives the same tensor where nothing changes; like-creators follow their model",
          "[registry][A14][A24][A36][A38][A39][A48]") {
  Engine e;
  const Tensor x = e.doubles({2}, {1.9, -1.9});
  CHECK(to(x, DType::float64).get() == x.get());
  CHECK(to(x, DType::float64, true).get() != x.get());
  CHECK(values(to(x, DType::int64)) == Values{1, -1});
  CHECK(zeros_like(x).dtype() == DType::float64);
  CHECK(ones_like(x, DType::int32).dtype() == DType::int32);
  CHECK(gradwire::full(e.cx, {2, 3}, 2.5).dtype() == DType::float32);
  CHECK(item(e.make(DType::int64, {1, 1}, std::vector<int64_t>{1})).integer() == 1);
  CHECK(item(e.doubles({}, {2.5})).real() == 2.5);
  for (const Tensor& many : {x, e.doubles({0}, {})}) {
    try {
      item(many);
      FAIL();
    } catch (const Error& err) {
      CHECK(err.message() == "only one element tensors can be converted to Python scalars");
    }
  }
}
