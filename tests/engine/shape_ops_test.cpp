#include <catch2/catch_test_macros.hpp>

#include "engine/apply.h"
#include "engine/shape.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

template <class F> std::string message(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was thrown";
}

Tensor counted(Engine& e, const Shape& sizes) {
  Values v(static_cast<size_t>(checked_numel(sizes)));
  for (size_t k = 0; k < v.size(); ++k) v[k] = static_cast<double>(k);
  return e.doubles(sizes, v);
}

}  // namespace

TEST_CASE("Views share their storage, and copies do not", "[engine][A16][A17]") {
  Engine e;
  const Tensor x = counted(e, {2, 3, 4}), m = counted(e, {3, 4});
  const Tensor views[] = {transpose(x, 0, 2),
                          t(m),
                          squeeze(counted(e, {1, 2})),
                          unsqueeze(x, -1),
                          flatten(x, 1),
                          narrow(x, 1, 1, 2),
                          select(x, 2, -1),
                          slice(x, 2, 1, {}, 2),
                          movedim(x, 0, 2),
                          diagonal(m, 1),
                          expand(m, {2, 3, 4}),
                          unflatten(x, 2, {2, -1}),
                          broadcast_to(m, {1, 3, 4}),
                          view_as(m, counted(e, {12}))};
  for (const Tensor& v : views) CHECK((v->storage == x->storage || v->storage == m->storage || v.numel() == 2));
  CHECK(squeeze(unsqueeze(x, 0))->storage == x->storage);
  for (const Tensor& c : {flip(x, 0), roll(x, 1), repeat(m, {1, 1}), tril(m), diag(m), rot90(m, 0)})
    CHECK((c->storage != x->storage && c->storage != m->storage));
}

TEST_CASE("Writing through a view of a view changes the base", "[engine][A17][D33]") {
  Engine e;
  const Tensor x = counted(e, {3, 4});
  diagonal(narrow(x, 1, 1, 3)).zero_();
  CHECK(values(x) == Values{0, 0, 2, 3, 4, 5, 0, 7, 8, 9, 10, 0});
  CHECK(x.version() == 1);
}

TEST_CASE("The gradient of an in-place write through a view goes to the base", "[engine][D33]") {
  Engine e;
  const Tensor a = e.leaf({3}, {1, 2, 3}), b = a * 1;
  narrow(b, 0, 0, 2).mul_(5);
  CHECK(b.version() == 1);
  CHECK(values(gradwire::grad<Tensor>({sum(b)}, {a})[0]) == Values{5, 5, 1});
}

TEST_CASE("Strides of views are those that PyTorch gives", "[engine][A16][A19]") {
  Engine e;
  const Tensor x = counted(e, {2, 3, 4});
  CHECK(Shape(unsqueeze(x, 1).strides()) == Shape{12, 12, 4, 1});
  CHECK(Shape(unsqueeze(x, -1).strides()) == Shape{12, 4, 1, 1});
  CHECK(Shape(slice(x, 2, 0, {}, 3).strides()) == Shape{12, 4, 3});
  CHECK(Shape(diagonal(x, 0, 0, 1).strides()) == Shape{1, 16});
  CHECK(Shape(movedim(x, {0, 1}, {2, 0}).strides()) == Shape{4, 1, 12});
  CHECK(select(x, 0, 1)->offset == 12);
  CHECK(Shape(expand(counted(e, {3, 1}), {3, 4}).strides()) == Shape{1, 0});
}

TEST_CASE("Dims and sizes that do not fit are refused in PyTorch's words", "[engine][A18][A19][A57]") {
  Engine e;
  const Tensor x = counted(e, {2, 3});
  CHECK(message([&] { squeeze(x, 2); }) == "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  CHECK(message([&] { unsqueeze(x, 3); }) == "Dimension out of range (expected to be in range of [-3, 2], but got 3)");
  CHECK(message([&] { flatten(x, 1, 0); }) == "flatten() has invalid args: start_dim cannot come after end_dim");
  CHECK(message([&] { narrow(x, 0, 1, 2); }) == "start (1) + length (2) exceeds dimension size (2).");
  CHECK(message([&] { select(x, 0, 2); }) == "select(): index 2 out of range for tensor of size [2, 3] at dimension 0");
  CHECK(message([&] { movedim(x, {0, 1}, {1, 1}); }) == "movedim: repeated dim in `destination` ([1, 1])");
  CHECK(message([&] { diagonal(x, 0, 1, 1); }) == "diagonal dimensions cannot be identical 1, 1");
  CHECK(message([&] { t(counted(e, {1, 1, 1})); }) == "t() expects a tensor with <= 2 dimensions, but self is 3D");
  CHECK(
      message([&] { broadcast_to(x, {3}); }) ==
      "expand(torch.DoubleTensor{[2, 3]}, size=[3]): the number of sizes provided (1) must be greater or equal to the "
      "number of dimensions in the tensor (2)");
  CHECK(message([&] {
          expand(counted(e, {3, 4, 4}), {1, 3, 3, 3});
        }) ==
        "The expanded size of the tensor (3) must match the existing size (4) at non-singleton dimension 3.  Target "
        "sizes: [1, 3, 3, 3].  Tensor sizes: [3, 4, 4]");
  CHECK(message([&] {
          unflatten(x, 1, {2, 2});
        }) == "unflatten: Provided sizes [2, 2] don't multiply up to the size of dim 1 (3) in the input tensor");
}

TEST_CASE("A refused view of too many dims costs no memory", "[engine][T24]") {
  Engine e;
  const Tensor x = e.cx.full(Shape(kMaxDims, 1), 1, DType::float64);
  const int64_t before = e.cx.pool.used();
  CHECK(message([&] { unsqueeze(x, 0); }) != "nothing was thrown");
  CHECK(e.cx.pool.used() == before);
}
