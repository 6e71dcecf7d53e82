#include <catch2/catch_test_macros.hpp>

#include <cmath>

#include "engine/apply.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

Error error_of(const auto& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return Error(Code::internal, "nothing was thrown");
}

}  // namespace

TEST_CASE("grad answers for leaves and results, in order, and leaves .grad as it is", "[autograd][D8][D9]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2}), b = e.leaf({2}, {3, 4});
  const Tensor h = a * b, y = sum(h * h);
  const std::vector<Tensor> g = gradwire::grad<Tensor>({y}, {h, b, a}, {}, true);
  REQUIRE(g.size() == 3);
  CHECK(values(g[0]) == Values{6, 16});
  CHECK(values(g[1]) == Values{6, 32});
  CHECK(values(g[2]) == Values{18, 64});
  CHECK_FALSE(grad_of(a));
  CHECK_FALSE(grad_of(h));
  CHECK(values(gradwire::grad<Tensor>({y}, {y}, {}, true)[0]) == Values{1});
  CHECK(values(gradwire::grad<Tensor>({y}, {a, a}, {}, true)[1]) == Values{18, 64});
  CHECK_FALSE(g[0].requires_grad());
}

TEST_CASE("An input that plays no part is an error, or empty where that is allowed", "[autograd][D10][D11]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2}), unused = e.leaf({2}, {3, 4}), plain = e.doubles({2}, {5, 6});
  const Tensor y = sum(a * 2);
  const Error err = error_of([&] { gradwire::grad<Tensor>({y}, {unused}, {}, true); });
  CHECK(
      err.message() ==
      "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is "
      "the desired behavior.");
  const std::vector<Tensor> g = gradwire::grad<Tensor>({y}, {unused, a}, {}, true, false, true);
  CHECK_FALSE(g[0]);
  CHECK(values(g[1]) == Values{2, 2});
  CHECK(error_of([&] { gradwire::grad<Tensor>({y}, {plain}); }).message() ==
        "One of the differentiated Tensors does not require grad");
  CHECK(error_of([&] { gradwire::grad<Tensor>({plain}, {a}); }).message() ==
        "element 0 of tensors does not require grad and does not have a grad_fn");
  CHECK(error_of([&] {
          gradwire::grad<Tensor>({y, plain}, {a});
        }).message() == "element 1 of tensors does not require grad and does not have a grad_fn");
}

TEST_CASE("The gradient that is passed in must fit; a single element needs none", "[autograd][D5][D6]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  const Tensor y = a * 2;
  CHECK(error_of([&] { y.backward(); }).message() == "grad can be implicitly created only for scalar outputs");
  CHECK(
      error_of([&] {
        y.backward(e.doubles({3}, {1, 2, 3}));
      }).message() ==
      "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a shape of torch.Size([2]).");
  CHECK(error_of([&] {
          gradwire::grad<Tensor>({y, y}, {a}, {e.doubles({2}, {1, 1})});
        }).message() == "got 2 tensors and 1 gradients");
  y.backward(e.doubles({2}, {1, 10}));
  CHECK(values(grad_of(a)) == Values{2, 20});
  CHECK(a.version() == 0);
}

TEST_CASE("Several roots add up, and one-element roots among them need no gradient", "[autograd][D4]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  const Tensor first = sum(a), second = a * 2;
  const Tensor g = gradwire::grad<Tensor>({first, second}, {a}, {Tensor(), e.doubles({2}, {1, 1})})[0];
  CHECK(values(g) == Values{3, 3});
}

TEST_CASE("backward with inputs accumulates for those alone", "[autograd][D50]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2}), b = e.leaf({2}, {3, 4});
  const Tensor h = a * b;
  h.backward(e.doubles({2}, {1, 1}), true, false, {a});
  CHECK(values(grad_of(a)) == Values{3, 4});
  CHECK_FALSE(grad_of(b));
  // A result among the inputs accumulates once, whether it retains its gradient or not.
  const Tensor k = h * 2, retained = h * 3;
  retained.retain_grad();
  const Tensor y = sum(k + retained);
  y.backward(Tensor(), true, false, {k, retained});
  CHECK(values(grad_of(k)) == Values{1, 1});
  CHECK(values(grad_of(retained)) == Values{1, 1});
  CHECK(values(grad_of(a)) == Values{3, 4});
  CHECK(error_of([&] { y.backward(Tensor(), true, false, std::vector<Tensor>{}); }).message() ==
        "'inputs' argument to backward() cannot be empty.");
}

TEST_CASE("create_graph makes gradients that require grad; without it they have no history",
          "[autograd][D14][D18][D19]") {
  Engine e;
  const Tensor x = e.leaf({}, {3});
  const Tensor y = x * x;
  const Tensor plain = gradwire::grad<Tensor>({y}, {x}, {}, true)[0];
  CHECK(error_of([&] { plain.backward(); }).message() ==
        "element 0 of tensors does not require grad and does not have a grad_fn");
  y.backward({.create_graph = true});
  const Tensor g = grad_of(x);
  CHECK(g.requires_grad());
  CHECK(values(g) == Values{6});
  // .grad is replaced, not written: g stays what it was.
  const Tensor again = x * x;
  again.backward({.create_graph = true});
  CHECK(values(grad_of(x)) == Values{12});
  CHECK(values(g) == Values{6});
  CHECK(values(gradwire::grad<Tensor>({g}, {x})[0]) == Values{2});
}

TEST_CASE("Without create_graph .grad is written in place, and aliases see it", "[autograd][D7][A35]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  sum(a * 3).backward();
  const Tensor g = grad_of(a);
  CHECK(g.version() == 0);
  sum(a * 3).backward();
  CHECK(values(g) == Values{6, 6});
  CHECK(g.get() == grad_of(a).get());
  CHECK(g.version() == 1);
}

TEST_CASE("Grad mode decides what is recorded; a creator's own requires_grad holds",
          "[autograd][D1][D23][D24][D25][A28][A40]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  {
    const GradMode off(e.cx, false);
    CHECK_FALSE((a * 2).requires_grad());
    CHECK(gradwire::zeros(e.cx, {2}, {.requires_grad = true}).requires_grad());
    {
      const GradMode on(e.cx, true);
      CHECK((a * 2).requires_grad());
    }
    CHECK_FALSE((a * 2).requires_grad());
    CHECK_FALSE(a[{0}].requires_grad());
    // In-place on a result keeps its history as it was.
    const Tensor y = a * 2;
    y += 1;
    CHECK(y.is_leaf());
  }
  CHECK((a * 2).requires_grad());
  CHECK_FALSE((e.doubles({1}, {1}) * 2).requires_grad());
}

TEST_CASE("Only floating leaves change whether they require grad", "[autograd][D28][D29][A29][A30]") {
  Engine e;
  const Tensor a = e.doubles({2}, {1, 2});
  CHECK(a.is_leaf());
  CHECK(a.requires_grad_().get() == a.get());
  CHECK(a.requires_grad());
  const Tensor y = a * 1;
  CHECK_FALSE(y.is_leaf());
  CHECK(detach(y).is_leaf());
  CHECK((e.doubles({1}, {1}) * 1).is_leaf());
  y.requires_grad_();  // it does already
  CHECK(
      error_of([&] { y.requires_grad_(false); }).message() ==
      "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a subgraph "
      "that doesn't require differentiation use var_no_grad = var.detach().");
  a.requires_grad_(false);
  CHECK_FALSE(a.requires_grad());
  y.backward(e.doubles({2}, {1, 1}));  // its history had a; a wants no gradient now
  CHECK_FALSE(grad_of(a));
  const Tensor whole = gradwire::zeros(e.cx, {2}, DType::int64);
  CHECK(error_of([&] { whole.requires_grad_(); }).message() ==
        "only Tensors of floating point dtype can require gradients");
  CHECK(error_of([&] { gradwire::zeros(e.cx, {2}, {.dtype = DType::int64, .requires_grad = true}); }).message() ==
        "Only Tensors of floating point and complex dtype can require gradients");
}

TEST_CASE("A Variable is a tensor: a leaf on the same memory; volatile warns and does nothing",
          "[autograd][A27][D27]") {
  Engine e;
  const Tensor t = e.doubles({2}, {1, 2});
  const Tensor v = Variable(t, true);
  CHECK(v.requires_grad());
  CHECK_FALSE(t.requires_grad());
  const Tensor w = Variable(t);
  add_(w, 1);
  CHECK(values(v) == Values{2, 3});
  CHECK(e.cx.warnings.empty());
  const Tensor x = Variable(t, {.requires_grad = true, .volatile_ = true});
  sum(x * x).backward();
  CHECK(values(grad_of(x)) == Values{4, 6});
  REQUIRE(e.cx.warnings.size() == 1);
  CHECK(e.cx.warnings[0].message == "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.");
}

TEST_CASE("Adding up losses keeps every graph alive and charged, adding up their numbers none", "[autograd][A25]") {
  Engine e;
  const Tensor w = e.leaf({1000}, std::vector<double>(1000, 1));
  const auto losses = [&](bool as_numbers) {
    double number = 0;
    Tensor total = e.doubles({}, {0});
    const int64_t before = e.cx.bytes_used();
    for (int i = 0; i < 50; ++i) {
      const Tensor loss = exp(w * 2).sum();
      if (as_numbers)
        number += item(loss).real();
      else
        total = total + loss;
    }
    return e.cx.bytes_used() - before;
  };
  const int64_t all = e.cx.bytes_used();
  CHECK(losses(true) < 3 * 8000);
  CHECK(losses(false) > 50 * 8000);
  CHECK(e.cx.bytes_used() == all);  // what is dropped is given back
}

TEST_CASE("Assigning .grad checks its size and type", "[autograd][D37]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  CHECK(error_of([&] {
          a.set_grad(e.doubles({3}, {1, 2, 3}));
        }).message() == "assigned grad has data of a different size");
  CHECK(error_of([&] { a.set_grad(gradwire::zeros(e.cx, {2}, DType::float32)); }).message() ==
        "assigned grad has data of a different type");
  a.set_grad(e.doubles({2}, {5, 6}));
  sum(a).backward();
  CHECK(values(grad_of(a)) == Values{6, 7});
  a.set_grad(Tensor());
  CHECK_FALSE(grad_of(a));
}

TEST_CASE("retain_grad on what has no history is refused; on a leaf it does nothing", "[autograd][D20]") {
  Engine e;
  CHECK(error_of([&] { e.doubles({1}, {1}).retain_grad(); }).message() ==
        "can't retain_grad on Tensor that has requires_grad=False");
  const Tensor a = e.leaf({1}, {1});
  a.retain_grad();
  sum(a * 2).backward();
  CHECK(values(grad_of(a)) == Values{2});
  // What is written in place afterwards retains the gradient of its new value.
  const Tensor h = a * 3;
  h.retain_grad();
  h *= 2;
  sum(h * 5).backward();
  CHECK(values(grad_of(h)) == Values{5});
}

TEST_CASE("The pattern of a gradient penalty", "[autograd][D15][D17]") {
  Engine e;
  const Tensor x = e.leaf({2}, {1, 2});
  const Tensor g = gradwire::grad<Tensor>({sum(x * x * x)}, {x}, {}, {}, true)[0];
  CHECK(values(g) == Values{3, 12});
  const Tensor squared = sum(g * g);  // n = sqrt of it: n's gradient is that of n^2 over 2 n
  const double n = std::sqrt(values(squared)[0]);
  CHECK(std::abs(n - 12.369317) < 1e-6);
  squared.backward(e.doubles({}, {1 / (2 * n)}));
  CHECK(std::abs(values(grad_of(x))[0] - 1.4552) < 1e-4);
  CHECK(std::abs(values(grad_of(x))[1] - 11.6417) < 1e-4);
}

TEST_CASE("An unrolled step of an optimiser is differentiated", "[autograd][D17]") {
  Engine e;
  const Tensor rate = e.leaf({}, {0.1}), w = e.leaf({}, {2});
  const Tensor g = gradwire::grad<Tensor>({w * w}, {w}, {}, {}, true)[0];
  const Tensor stepped = w - rate * g;  // 2 - 0.1 * 4
  (stepped * stepped).backward();
  CHECK(std::abs(values(grad_of(rate))[0] - 2 * 1.6 * -4) < 1e-12);
  CHECK(std::abs(values(grad_of(w))[0] - 2 * 1.6 * (1 - 0.2)) < 1e-12);
}

TEST_CASE("A pass that fails leaves the graph usable and no gradient behind", "[autograd][D49][T24]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2}), b = e.leaf({2}, {3, 4});
  const Tensor h = exp(a), y = sum(h * b);
  const Tensor keep = gradwire::clone(h);
  gradwire::detach(h).zero_();
  for (int round = 0; round < 3; ++round)
    CHECK(error_of([&] { y.backward(Tensor(), true); }).code() == Code::inplace_modified);
  CHECK_FALSE(grad_of(a));
  const Tensor z = sum(a * b);
  z.backward();
  CHECK(values(grad_of(a)) == Values{3, 4});
}

TEST_CASE("A diamond of 2^60 paths is walked node by node", "[autograd][T22]") {
  Engine e;
  const Tensor x = e.leaf({}, {1});
  Tensor y = x;
  for (int i = 0; i < 60; ++i) y = y + y;
  y.backward();
  CHECK(values(grad_of(x)) == Values{0x1p60});
}

TEST_CASE("A million uses of one leaf, and a million roots", "[autograd][T22]") {
  Engine e({.bytes = int64_t{2} << 30, .nodes = 4'000'000});
  const Tensor x = e.leaf({}, {2});
  std::vector<Tensor> roots;
  for (int i = 0; i < 1'000'000; ++i) roots.push_back(x * 3);
  const Tensor g = gradwire::grad<Tensor>(std::span<const Tensor>(roots), {x})[0];
  CHECK(values(g) == Values{3e6});
  roots.clear();
  CHECK(e.cx.nodes() == 1);
}

TEST_CASE("Two hundred thousand in-place writes, half through a view, are built, differentiated and freed",
          "[autograd][T22][D32]") {
  Engine e({.bytes = int64_t{2} << 30});
  {
    const Tensor x = e.leaf({4}, {1, 2, 3, 4});
    const Tensor y = x * 1, row = y[{Slice{0, 2}}];
    for (int i = 0; i < 100'000; ++i) y += 1, row += 1;
    sum(y).backward();
    CHECK(values(grad_of(x)) == Values(4, 1));
    CHECK(values(y) == Values{200'001, 200'002, 100'003, 100'004});
  }
  CHECK(e.cx.nodes() == 0);
  CHECK(e.cx.pool.used() == 0);
}
