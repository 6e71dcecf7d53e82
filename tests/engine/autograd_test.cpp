#include <pthread.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>

#include "tests/engine/context.h"

using namespace gradwire;
using namespace gradwire::engine;
using Catch::Matchers::Approx;
using Catch::Matchers::StartsWith;

namespace {

template <class F>
Error error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return Error(Code::internal, "nothing was thrown");
}

}  // namespace

TEST_CASE("The walk-through of history: who requires grad, and what backward does", "[D1][D2][A28]") {
  Engine e;
  const Tensor x = e.doubles({1}, {1}), y = e.doubles({1}, {1});
  const Tensor z = x + y;
  CHECK_FALSE(z.requires_grad());
  CHECK(error_of([&] { z.backward(); }).message() == "element 0 of tensors does not require grad and does not have a grad_fn");
  const Tensor w = e.leaf({1}, {1});
  const Tensor total = w + z;
  CHECK(total.requires_grad());
  total.backward();
  CHECK(values(grad_of(w)) == Values{1});
  CHECK_FALSE(grad_of(x));
}

TEST_CASE("x^3 at 2: 12, then 12, then 6", "[D14]") {
  Engine e;
  const Tensor x = e.leaf({}, {2});
  const Tensor y = x * x * x;
  const Tensor g = gradwire::grad<Tensor>({y}, {x}, {}, {}, true)[0];
  CHECK(values(g) == Values{12});
  const Tensor h = gradwire::grad<Tensor>({g}, {x}, {}, {}, true)[0];
  CHECK(values(h) == Values{12});
  CHECK(values(gradwire::grad<Tensor>({h}, {x})[0]) == Values{6});
}

TEST_CASE("A gradient penalty is differentiated through the gradient", "[D15]") {
  Engine e;
  const Tensor x = e.leaf({2}, {1, 2});
  const Tensor y = sum(x * x * x);
  const Tensor g = gradwire::grad<Tensor>({y}, {x}, {}, {}, true)[0];
  CHECK(values(g) == Values{3, 12});
  sum(g * g).backward();
  CHECK(values(grad_of(x)) == Values{36, 288});  // 2 g * 6 x
}

TEST_CASE("A Hessian-vector product", "[D16]") {
  Engine e;
  const Tensor x = e.leaf({2}, {1, 2}), v = e.doubles({2}, {1, -1});
  const Tensor y = sum(x * x * x) * sum(x);
  const Tensor g = gradwire::grad<Tensor>({y}, {x}, {}, {}, true)[0];
  CHECK(values(g) == Values{18, 45});
  CHECK(values(gradwire::grad<Tensor>({sum(g * v)}, {x})[0]) == Values{9, -45});
}

TEST_CASE("Three backward calls add up", "[D7]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  for (int i = 0; i < 3; ++i) sum(a * 3).backward();
  CHECK(values(grad_of(a)) == Values{9, 9});
}

TEST_CASE("Broadcast operands get the sum of what they were repeated over", "[B28]") {
  Engine e;
  const Tensor a = e.leaf({3, 1}, {1, 2, 3}), b = e.leaf({4}, {1, 2, 3, 4});
  sum(a + b).backward();
  CHECK(values(grad_of(a)) == Values{4, 4, 4});
  CHECK(values(grad_of(b)) == Values{3, 3, 3, 3});
}

TEST_CASE("A second pass needs what the first one freed, unless it was kept", "[D13]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  const Tensor saved = sum(a * a), nothing_saved = sum(a + 1);
  saved.backward({.retain_graph = true});
  saved.backward();
  const Error err = error_of([&] { saved.backward(); });
  CHECK(err.code() == Code::graph_freed);
  CHECK(err.message() ==
        "Trying to backward through the graph a second time, but the buffers have already been freed. Specify retain_graph=True when "
        "calling backward the first time.");
  nothing_saved.backward();
  nothing_saved.backward();
}

TEST_CASE("A saved tensor that was changed in place is noticed, also through detach, not through data", "[D31][A31][A32]") {
  Engine e;
  const Tensor a = e.leaf({3}, {1, 2, 3});
  const Tensor out = exp(a);
  const Tensor before = gradwire::clone(out);
  detach(out).zero_();
  const Error err = error_of([&] { sum(out).backward(); });
  CHECK(err.code() == Code::inplace_modified);
  CHECK(err.message() ==
        "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.DoubleTensor [3]], which is "
        "output 0 of ExpBackward0, is at version 1; expected version 0 instead");
  const Tensor again = exp(a);
  gradwire::data(again).zero_();
  sum(again).backward();
  CHECK(values(grad_of(a)) == Values{0, 0, 0});
}

TEST_CASE("In-place operators keep history, and count versions", "[D32][A34][A35]") {
  Engine e;
  const Tensor a = e.leaf({}, {1});
  const Tensor b = a * 2;
  b += 1;
  b *= 3;
  CHECK(b.version() == 2);
  b.backward();
  CHECK(values(grad_of(a)) == Values{6});
}

TEST_CASE("Writing through a view rewrites its base's history", "[D33]") {
  Engine e;
  const Tensor a = e.leaf({3}, {1, 2, 3});
  const Tensor b = a * 1;
  const Tensor v = b[{Slice{0, 2}}];
  v *= 5;
  CHECK(b.version() == 1);
  CHECK(v.version() == 1);
  CHECK(values(b) == Values{5, 10, 3});
  sum(b).backward();
  CHECK(values(grad_of(a)) == Values{5, 5, 1});
}

TEST_CASE("A view taken before its base was changed sees the change and its history", "[D33][A17]") {
  Engine e;
  const Tensor a = e.leaf({3}, {1, 2, 3});
  const Tensor b = a * 1;
  const Tensor v = b[{Slice{1, 3}}];
  b *= a;
  CHECK(values(v) == Values{4, 9});
  sum(v).backward();
  CHECK(values(grad_of(a)) == Values{0, 4, 6});
}

TEST_CASE("Leaves that require grad are not written in place", "[D30][C33]") {
  Engine e;
  const Tensor a = e.leaf({3}, {1, 2, 3});
  CHECK(error_of([&] { a += 1; }).message() == "a leaf Variable that requires grad is being used in an in-place operation.");
  CHECK(error_of([&] { a[{0}].fill_(1); }).message() == "a view of a leaf Variable that requires grad is being used in an in-place operation.");
  CHECK(values(a) == Values{1, 2, 3});
  const GradMode off(e.cx, false);
  a += 1;
  CHECK(values(a) == Values{2, 3, 4});
  CHECK(a.version() == 1);
}

TEST_CASE("Two leaves that receive one gradient do not share it", "[D7]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2}), b = e.leaf({2}, {3, 4});
  sum(a + b).backward();
  grad_of(a) *= 10;
  CHECK(values(grad_of(a)) == Values{10, 10});
  CHECK(values(grad_of(b)) == Values{1, 1});
}

TEST_CASE("retain_grad keeps the gradient of what is no leaf", "[D20][E2]") {
  Engine e;
  const Tensor i = e.leaf({3}, {1, 2, 3});
  const Tensor h = i * 3;
  h.retain_grad();
  sum(h * h).backward();
  CHECK(values(grad_of(h)) == Values{6, 12, 18});
  CHECK(values(grad_of(i)) == Values{18, 36, 54});
}

TEST_CASE("Gradients that lead back to their own tensor go with the session", "[D19]") {
  const Pool* pool = nullptr;
  {
    Engine e;
    e.cx.pool.retain();
    pool = &e.cx.pool;
    const Tensor x = e.leaf({2}, {3, 4});
    sum(x * x).backward({.create_graph = true});
    CHECK(grad_of(x).requires_grad());
    CHECK(values(grad_of(x)) == Values{6, 8});
  }
  CHECK(pool->used() == 0);
  const_cast<Pool*>(pool)->release();
}

namespace {

void* deep_chain(void* ok) {
  Engine e({.bytes = int64_t{2} << 30});
  {
    const Tensor x = e.leaf({10}, Values(10, 1)), b = e.doubles({10}, Values(10, 0.5));
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = y + b;
    y.backward(e.doubles({10}, Values(10, 1)));
    *static_cast<bool*>(ok) = values(grad_of(x)) == Values(10, 1) && values(y) == Values(10, 500001);
  }
  *static_cast<bool*>(ok) = *static_cast<bool*>(ok) && e.cx.pool.used() == 0 && e.cx.nodes() == 0;
  return nullptr;
}

}  // namespace

TEST_CASE("A chain of a million additions is built, differentiated and freed on a 256 KiB stack", "[T22]") {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  pthread_t thread;
  bool ok = false;
  REQUIRE(pthread_create(&thread, &small, deep_chain, &ok) == 0);
  pthread_join(thread, nullptr);
  CHECK(ok);
}
