// The SDK on a server of its own: what a newcomer writes, and what features.md promises in values.

#include <stdlib.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>
#include <algorithm>
#include <numeric>

#include "client/gradwire.h"

using namespace gradwire;
using Catch::Matchers::Approx;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;
using Floats32 = std::vector<float>;

namespace {

/// One server for all of these; each test has a session of its own.
Client& server() {
  ::setenv("GRADWIRED", GRADWIRE_BIN "/gradwired", 1);
  static Client client = connect("local", {.connect_timeout = std::chrono::seconds(60)});
  return client;
}

struct Fixture {
  Session session = server().open();
  Fixture() { set_default_session(session); }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "Operators, broadcasting and numbers on either side", "[client][local]") {
  auto x = tensor({{1., 2.}, {3., 4.}});
  CHECK((x + tensor({10., 20.})).to_vector<float>() == Floats32{11, 22, 13, 24});
  CHECK((2 - x).to_vector<float>() == Floats32{1, 0, -1, -2});
  CHECK((12 / x).to_vector<float>() == Floats32{12, 6, 4, 3});
  CHECK((-x).to_vector<float>() == Floats32{-1, -2, -3, -4});
  CHECK((x > 2).to_vector<bool>() == std::vector<bool>{false, false, true, true});
  CHECK((x == 3).dtype() == boolean);
  CHECK(matmul(x, x).to_vector<float>() == Floats32{7, 10, 15, 22});
  CHECK(x.sum().item<float>() == 10);
  CHECK(x.sum({.dim = 0}).to_vector<float>() == Floats32{4, 6});
  CHECK(x.sum({0, 1}, true).shape() == Shape{1, 1});
  CHECK(x.mean({.dim = -1, .keepdim = true}).shape() == Shape{2, 1});
  x += 1;
  x *= x;
  CHECK(x.to_vector<float>() == Floats32{4, 9, 16, 25});
}

TEST_CASE_METHOD(Fixture, "Indexing reads and writes views", "[client][local][A21]") {
  auto v = tensor({2., 3., 4., 5.});
  CHECK(v[3].shape().empty());
  CHECK(v[3].item<float>() == 5);
  CHECK(v[Slice{.start = 1, .stop = 3}].to_vector<float>() == Floats32{3, 4});
  CHECK(v[v > 3].to_vector<float>() == Floats32{4, 5});
  CHECK(v[{newaxis, Slice{.step = 2}}].shape() == Shape{1, 2});
  v[0] += 10;
  CHECK(v[0].item<float>() == 12);
  v.index_put_({std::vector<int64_t>{1, 2}}, 0.);
  CHECK(v.to_vector<float>() == Floats32{12, 0, 0, 5});
  CHECK_THROWS_AS(v[4].item<float>(), IndexOutOfRange);
}

TEST_CASE_METHOD(Fixture, "Copies of a tensor are one tensor", "[client][local]") {
  auto x = zeros({2});
  auto y = x;
  y += 1;
  CHECK(x.to_vector<float>() == Floats32{1, 1});
  auto z = x.clone();
  z += 1;
  CHECK(x.to_vector<float>() == Floats32{1, 1});
}

TEST_CASE_METHOD(Fixture, "The walk-through of requires_grad", "[client][local][D2]") {
  auto x = ones({1}), y = ones({1});
  auto z = x + y;
  CHECK_FALSE(z.requires_grad());
  z.backward();
  CHECK_THROWS_MATCHES(session.sync(), NoGradFn,
                       Message("element 0 of tensors does not require grad and does not have a grad_fn"));
  auto w = ones({1}, {.requires_grad = true});
  auto total = w + z;
  CHECK(total.requires_grad());
  CHECK_FALSE(total.is_leaf());
  total.backward();
  CHECK(w.grad().to_vector<float>() == Floats32{1});
  CHECK_FALSE(x.has_grad());
  CHECK_FALSE(z.has_grad());
}

TEST_CASE_METHOD(Fixture, "grad gives gradients that can be differentiated again", "[client][local][D8][D14]") {
  auto x = tensor({2.}, {.requires_grad = true});
  auto y = (x * x * x).sum();
  auto first = grad(y, {x}, {.create_graph = true});
  CHECK(first[0].to_vector<float>() == Floats32{12});
  CHECK_FALSE(x.has_grad());
  auto second = grad(first[0].sum(), {x}, {.create_graph = true});
  CHECK(second[0].to_vector<float>() == Floats32{12});
  auto third = grad(second[0].sum(), x);
  CHECK(third[0].to_vector<float>() == Floats32{6});
  CHECK_THROWS_AS(grad(third[0].sum(), x)[0].item<float>(), NoGradFn);
}

TEST_CASE_METHOD(Fixture, "A Hessian-vector product", "[client][local][D16]") {
  auto x = tensor({1., 2.}, {.requires_grad = true});
  auto g = grad((x * x * x).sum() * x.sum(), {x}, {.create_graph = true})[0];
  CHECK(g.to_vector<float>() == Floats32{18, 45});
  CHECK(grad((g * tensor({1., -1.})).sum(), {x})[0].to_vector<float>() == Floats32{9, -45});
}

TEST_CASE_METHOD(Fixture, "no_grad records nothing and allows updates in place", "[client][local][D23][D30]") {
  auto w = tensor({1., 2.}, {.requires_grad = true});
  (w * w).sum().backward();
  {
    no_grad scope;
    CHECK_FALSE((w * 2).requires_grad());
    w -= 0.5 * w.grad();
  }
  CHECK(w.to_vector<float>() == Floats32{0, 0});
  CHECK((w * 2).requires_grad());
  w += 1;
  CHECK_THROWS_MATCHES(session.sync(), LeafInplace,
                       Message("a leaf Variable that requires grad is being used in an in-place operation."));
}

TEST_CASE_METHOD(Fixture, "retain_grad keeps the gradient of an inner tensor", "[client][local][D20]") {
  auto i = tensor({1., 2., 3.}, {.requires_grad = true});
  auto h = 3 * i;
  h.retain_grad();
  (h * h).sum().backward();
  CHECK(h.grad().to_vector<float>() == Floats32{6, 12, 18});
  CHECK(i.grad().to_vector<float>() == Floats32{18, 36, 54});
}

TEST_CASE_METHOD(Fixture, "A value that backward needs and that was changed is an error", "[client][local][D31][A32]") {
  auto a = tensor({1., 2., 3.}, {.requires_grad = true});
  auto out = a.exp();
  auto c = out.detach();
  c *= 0;
  CHECK(out.to_vector<float>() == Floats32{0, 0, 0});
  out.sum().backward();
  CHECK_THROWS_MATCHES(
      session.sync(), InplaceModified,
      MessageMatches(StartsWith("one of the variables needed for gradient computation has been modified by an "
                                "inplace operation")));
}

TEST_CASE_METHOD(Fixture, "An error names the line and leaves the session as it was", "[client][local][errors]") {
  auto x = tensor({1., 2., 3.}, {.requires_grad = true});
  auto y = x * 2;
  const uint32_t line = __LINE__ + 1;
  auto bad = x + tensor({1., 2.});
  try {
    auto never = bad * 2;  // throws where the answer came before it
    never.item<float>();
    FAIL("nothing was thrown");
  } catch (const ShapeMismatch& e) {
    CHECK(e.op() == "add");
    CHECK(e.where().line == line);
    CHECK_THAT(e.what(), StartsWith("The size of tensor a (3) must match the size of tensor b (2)"));
  }
  CHECK(y.to_vector<float>() == Floats32{2, 4, 6});
  y.sum().backward();
  CHECK(x.grad().to_vector<float>() == Floats32{2, 2, 2});
  CHECK_THROWS_AS(bad + 1, ShapeMismatch);
}

TEST_CASE_METHOD(Fixture, "Sessions have default dtypes and seeds of their own", "[client][local][A6][L19]") {
  auto a = server().open({.dtype = float64, .seed = 7}), b = server().open({.seed = 7}), c = server().open({.seed = 7});
  CHECK(zeros(a, {2}).dtype() == float64);
  CHECK(tensor(a, 1.5).dtype() == float64);
  const auto drawn = randn(b, {8}).to_vector<float>();
  CHECK(randn(c, {8}).to_vector<float>() == drawn);
  CHECK(randn(c, {8}).to_vector<float>() != drawn);
  manual_seed(c, 7);
  CHECK(randn(c, {8}).to_vector<float>() == drawn);
}

TEST_CASE_METHOD(Fixture, "A chain of 20,000 operators forward and back", "[client][local]") {
  auto x = ones({10}, {.requires_grad = true});
  auto y = x + 0;
  for (int i = 0; i < 20000; ++i) y = y + 1;
  y.sum().backward();
  CHECK(y[0].item<float>() == 20001);
  CHECK(x.grad().to_vector<float>() == Floats32(10, 1.f));
}

TEST_CASE_METHOD(Fixture, "Large tensors go up and come down", "[client][local][bulk]") {
  std::vector<float> v(3'000'000);
  std::iota(v.begin(), v.end(), 0.f);
  auto x = from_span(v, {3, 1'000'000}, {.requires_grad = true});
  CHECK((x * 2).sum({.dim = 0})[0].item<float>() == 2 * (0.f + 1e6f + 2e6f));
  auto first = x.async_to_vector<float>();
  x.data()[{0, 0}] += 5;  // after the value was asked for
  CHECK(first.get() == v);
  CHECK(x[{0, 0}].item<float>() == 5);
}

TEST_CASE_METHOD(Fixture, "Tensors are released with their last handle", "[client][local][L1]") {
  const auto count = [&] {
    for (const auto& s : server().sessions()) {
      if (s.id == session.id()) return s.tensors;
    }
    return int64_t{-1};
  };
  {
    auto x = zeros({10});
    for (int i = 0; i < 1000; ++i) auto y = x + 1;
    session.sync();
    CHECK(count() <= 2);
  }
  session.sync();
  CHECK(count() == 0);
}

TEST_CASE_METHOD(Fixture, "What the tensor is can be asked", "[client][local][facts]") {
  auto x = randn({2, 3}, {.requires_grad = true});
  auto y = x.relu().transpose(0, 1);
  CHECK(y.shape() == Shape{3, 2});
  CHECK(y.dim() == 2);
  CHECK(y.size(-1) == 2);
  CHECK(y.numel() == 6);
  CHECK(y.device() == "cpu");
  CHECK(y.requires_grad());
  CHECK(x.is_leaf());
  CHECK_FALSE(y.grad_fn().empty());
  CHECK_THROWS_AS(y.size(2), IndexOutOfRange);
}

TEST_CASE_METHOD(Fixture, "A server started for a client ends with it", "[client][local]") {
  std::string id;
  {
    auto client = connect("local", {.connect_timeout = std::chrono::seconds(60)});
    CHECK(client.info().lanes >= 1);
    auto x = ones(client.session(), {2});
    CHECK(x.sum().item<float>() == 2);
  }
  CHECK(zeros({1}).item<float>() == 0);  // the other server is still there
}

TEST_CASE_METHOD(Fixture, "One class holds every dtype, which has PyTorch's old type names",
                 "[client][local][A2][A3]") {
  const auto d = tensor({1., 1., 1.}, {.dtype = float64});
  const auto l = tensor({1, 2});
  STATIC_CHECK(std::is_same_v<decltype(d), decltype(l)>);
  CHECK(d.type() == "torch.DoubleTensor");
  CHECK(d.type() != "torch.FloatTensor");
  CHECK(l.type() == "torch.LongTensor");
  CHECK(zeros({1}, {.dtype = uint8}).type() == "torch.ByteTensor");
  CHECK(zeros({1}, {.dtype = int8}).type() == "torch.CharTensor");
  CHECK(zeros({1}, {.dtype = int16}).type() == "torch.ShortTensor");
  CHECK(zeros({1}, {.dtype = int32}).type() == "torch.IntTensor");
  CHECK(zeros({1}, {.dtype = float16}).type() == "torch.HalfTensor");
  CHECK(zeros({1}).type() == "torch.FloatTensor");
}

TEST_CASE_METHOD(Fixture, "A program runs on the device that the server has", "[client][local][A12][A13]") {
  const auto devices = server().info().devices;
  CHECK(std::ranges::find(devices, "cpu") != devices.end());
  const bool cuda = server().cuda_is_available();
  const auto x = tensor({1., 2.}).to(cuda ? "cuda:0" : "cpu");
  CHECK(x.device() == (cuda ? "cuda:0" : "cpu"));
  CHECK((x * 2).device() == x.device());
  CHECK(zeros({2}).device() == x.device());
}

TEST_CASE_METHOD(Fixture, "Switches of older behaviour are read and written in the order of the calls",
                 "[client][local][B30]") {
  const auto a = ones({4}), b = ones({2, 2});
  CHECK_FALSE(is_compat("pointwise_fallback").item<bool>());
  CHECK_THROWS_AS((a + b).sum().item<float>(), ShapeMismatch);
  set_compat("pointwise_fallback", true);
  CHECK(is_compat("pointwise_fallback").item<bool>());
  CHECK((a + b).to_vector<float>() == Floats32{2, 2, 2, 2});
  set_compat("pointwise_fallback", false);
  CHECK_THROWS_AS((a + b).sum().item<float>(), ShapeMismatch);
  CHECK_THROWS_AS((set_compat("pointwise", true), session.sync()), BadArgument);
}

TEST_CASE_METHOD(Fixture, "A warning names the operator and the line that it is about", "[client][local][B31][B17]") {
  set_compat("broadcast_warning");
  const auto a = ones({4, 1}), b = ones({1, 4});
  const unsigned line = __LINE__ + 1;
  const auto sum = a + b;
  const auto quiet = a + a;
  session.sync();
  const auto warnings = session.warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].op == "add");
  CHECK(
      warnings[0].message.starts_with("self and other do not have the same shape, but are broadcastable, and have the "
                                      "same number of elements."));
  CHECK(warnings[0].line == line);
  CHECK(warnings[0].file.ends_with("local_test.cpp"));
  CHECK(session.warnings().empty());
}

TEST_CASE_METHOD(Fixture, "The constructors of old take integers as a shape and a list as data",
                 "[client][local][A4]") {
  CHECK(FloatTensor(5, 7, 3).shape() == Shape{5, 7, 3});
  CHECK(FloatTensor(3).shape() == Shape{3});
  CHECK(FloatTensor({3}).to_vector<float>() == Floats32{3});
  CHECK(DoubleTensor({1, 1, 1}).type() == "torch.DoubleTensor");
  CHECK(DoubleTensor({{1.5}, {2.5}}).to_vector<double>() == std::vector<double>{1.5, 2.5});
  CHECK(LongTensor({2, 4}).dtype() == int64);
  CHECK(ByteTensor(2).dtype() == uint8);
  CHECK(HalfTensor(1).dtype() == float16);
}
