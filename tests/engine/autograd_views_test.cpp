#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <random>

#include "engine/apply.h"
#include "engine/shape.h"
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

// A random program over x: views of views, writes through them and into their bases, new tensors in between. The same
// seed gives the same program; steps that are refused are left out, which never depends on values.
std::vector<Tensor> program(const Tensor& x, uint64_t seed, std::string* text) {
  std::mt19937_64 random(seed);
  auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  std::vector<Tensor> t = {x * 1};
  for (int64_t steps = 3 + below(9); steps > 0; --steps) {
    const size_t ia = random() % t.size(), ib = random() % t.size();
    const Tensor a = t[ia], b = t[ib];
    const int64_t what = below(20), i = below(4), j = below(3);
    const double c = 0.5 + 0.25 * static_cast<double>(below(5));
    std::string done;
    auto say = [&](const std::string& s) {
      if (text)
        done = "t" + std::to_string(ia) + " " + s + " (t" + std::to_string(ib) + ", " + std::to_string(i) + ", " +
               std::to_string(j) + ", " + std::to_string(c) + "); ";
    };
    try {
      switch (what) {
        case 0:
          say("slice"), t.push_back(a[{Slice{i % 2, {}, 1 + j % 2}}]);
          break;
        case 1:
          say("slice of last"),
              t.push_back(a[{ellipsis, Slice{j % 2, j == 1 ? std::optional<int64_t>(-1) : std::nullopt}}]);
          break;
        case 2:
          say("transpose"), t.push_back(transpose(a, 0, -1));
          break;
        case 3:
          say("flatten"), t.push_back(reshape(a, {-1}));
          break;
        case 4:
          say("select"), t.push_back(a[{i}]);
          break;
        case 5:
          say("unsqueeze"), t.push_back(a[{newaxis}]);
          break;
        case 6:
          say("expand"), t.push_back(expand(a, {2, -1, -1}));
          break;
        case 7:
          say("*= c"), a *= c;
          break;
        case 8:
          say("*= b"), a *= b;
          break;
        case 9:
          say("+= b"), add_(a, b, c);
          break;
        case 10:
          say("/= c"), a /= c;
          break;
        case 11:
          say("copy_ b"), copy_(a, b);
          break;
        case 12:
          say("index_put_ b"), index_put_(a, {std::vector<int64_t>{1, 0}}, b);
          break;
        case 13:
          say("index_put_ accumulate"), index_put_(a, {std::vector<int64_t>{0, 0}}, b * c, true);
          break;
        case 14:
          say("put scalar"), index_put_(a, {Slice{0, 1}}, c);
          break;
        case 15:
          say("exp(a/8)"), t.push_back(exp(a * 0.125));
          break;
        case 16:
          say("exp_"), a *= 0.125, exp_(a);
          break;
        case 17:
          say("a * b"), t.push_back(a * b);
          break;
        case 18:
          say("neg_"), neg_(a);
          break;
        default:
          say("zero_ of a row"), a[{i}].zero_();
          break;
      }
      if (text) *text += done;
    } catch (const Error& e) {
      if (e.code() == Code::internal) throw;
      if (text) *text += done + "which is refused: " + e.message() + "; ";
    }
  }
  return t;
}

Tensor weights(const Tensor& like, size_t salt) {
  Values v(static_cast<size_t>(like.numel()));
  for (size_t k = 0; k < v.size(); ++k) v[k] = 0.25 + 0.125 * static_cast<double>((k * 5 + salt * 3) % 7);
  return from_bytes(like.maker(), DType::float64, like.shape(), std::as_bytes(std::span(v)));
}

struct Outcome {
  double loss = 0;
  Values gradient;  // of the weighted sum of all tensors
  Tensor x, graph;  // graph: the gradient with its history, where asked for
};

Outcome gradient_of(Engine& e, const Values& at, uint64_t seed, bool create, std::string* text = nullptr) {
  Outcome o;
  o.x = e.leaf({2, 3}, at);
  const std::vector<Tensor> all = program(o.x, seed, text);
  std::vector<Tensor> w;
  for (const Tensor& t : all) {
    w.push_back(weights(t, w.size()));
    const Values a = values(t), b = values(w.back());
    for (size_t k = 0; k < a.size(); ++k) o.loss += a[k] * b[k];
  }
  const GradMode on(e.cx, true);
  o.graph =
      gradwire::grad<Tensor>(std::span<const Tensor>(all), {o.x}, std::span<const Tensor>(w), {}, create, true)[0];
  o.gradient = o.graph ? values(o.graph) : Values(at.size(), 0);
  return o;
}

double loss_of(Engine& e, const Values& at, uint64_t seed) {
  const Tensor x = e.leaf({2, 3}, at);
  double sum = 0;
  size_t n = 0;
  for (const Tensor& t : program(x, seed, nullptr)) {
    const Values a = values(t), b = values(weights(t, n++));
    for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  }
  return sum;
}

bool close(double a, double b, double scale) {
  return std::abs(a - b) <= 1e-4 * (1 + std::abs(b)) + 1e-8 * std::abs(scale);
}

const Values kAt = {0.5, -1.25, 0.75, 1.5, -0.625, 1.0};

}  // namespace

TEST_CASE("Programs of views and in-place writes have the gradient that differences give, or are refused",
          "[autograd][D34][D33][D32][D31][A17][A16][C35]") {
  Engine e;
  int right = 0, refused = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Outcome o;
    std::string text;
    try {
      o = gradient_of(e, kAt, seed, false, &text);
    } catch (const Error& err) {
      INFO(seed << ": " << text << name(err.code()) << ": " << err.message());
      if (err.code() != Code::inplace_modified) CHECK(err.message() == "");
      ++refused;
      if (e.cx.nodes() != 0) REQUIRE(e.cx.nodes() == 0);
      continue;
    }
    if (!(std::abs(o.loss) < 1e6)) continue;
    for (size_t k = 0; k < kAt.size(); ++k) {
      Values up = kAt, down = kAt;
      up[k] += 1e-6, down[k] -= 1e-6;
      const double numeric = (loss_of(e, up, seed) - loss_of(e, down, seed)) / 2e-6;
      INFO(seed << ": " << text << "element " << k << " is " << o.gradient[k] << ", differences give " << numeric);
      if (!close(o.gradient[k], numeric, o.loss)) CHECK(o.gradient[k] == numeric);
    }
    ++right;
    o = {};
    if (e.cx.nodes() != 0) {
      INFO(seed << ": " << text);
      REQUIRE(e.cx.nodes() == 0);  // no history holds itself
    }
  }
  CHECK(right > 1000);
  CHECK(refused > 20);
  CHECK(e.cx.nodes() == 0);
  CHECK(e.cx.pool.used() == 0);
}

TEST_CASE("Second gradients go through views and in-place writes as well", "[autograd][D34][D14][D18]") {
  Engine e;
  int right = 0;
  for (uint64_t seed = 10'000; seed < 11'000; ++seed) {
    const Values v = {1, -0.5, 0.25, 2, 0.75, -1};
    auto along = [&](const Values& g) {
      double s = 0;
      for (size_t k = 0; k < v.size(); ++k) s += g[k] * v[k];
      return s;
    };
    std::string text;
    Values second(kAt.size(), 0);
    double loss = 0;
    try {
      const Outcome o = gradient_of(e, kAt, seed, true, &text);
      loss = o.loss;
      if (!(std::abs(loss) < 1e4) || !o.graph || !o.graph.requires_grad()) continue;
      const Tensor h = gradwire::grad<Tensor>({o.graph}, {o.x}, {e.doubles({2, 3}, v)}, {}, false, true)[0];
      if (h) second = values(h);
    } catch (const Error& err) {
      INFO(seed << ": " << text << name(err.code()) << ": " << err.message());
      if (err.code() != Code::inplace_modified) CHECK(err.message() == "");
      continue;
    }
    for (size_t k = 0; k < kAt.size(); ++k) {
      Values up = kAt, down = kAt;
      up[k] += 1e-6, down[k] -= 1e-6;
      const double numeric =
          (along(gradient_of(e, up, seed, false).gradient) - along(gradient_of(e, down, seed, false).gradient)) / 2e-6;
      INFO(seed << ": " << text << "element " << k << " is " << second[k] << ", differences give " << numeric);
      if (!close(second[k], numeric, loss)) CHECK(second[k] == numeric);
    }
    ++right;
  }
  CHECK(right > 200);
  CHECK(e.cx.nodes() == 0);
  CHECK(e.cx.pool.used() == 0);
}

TEST_CASE("Writes are seen through every alias, and counted by all but .data and clones",
          "[autograd][A16][A17][A31][A32][A35]") {
  Engine e;
  const Tensor t = e.doubles({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor row = t[{1}], column = transpose(t, 0, 1)[{2}], flat = view(t, {6}),
               wide = expand(t[{0, Slice{0, 1}}], {4}), detached = detach(t), data = gradwire::data(t),
               copy = gradwire::clone(t), ofview = row[{Slice{1, 3}}];
  CHECK(std::ranges::equal(transpose(t, 0, 1).strides(), Shape{1, 3}));
  CHECK(std::ranges::equal(wide.strides(), Shape{0}));
  CHECK(row->offset == 3);
  ofview *= 10;
  CHECK(values(t) == Values{1, 2, 3, 4, 50, 60});
  CHECK(values(column) == Values{3, 60});
  CHECK(values(flat)[5] == 60);
  CHECK(values(detached)[4] == 50);
  CHECK(values(data)[4] == 50);
  CHECK(values(copy)[4] == 5);
  for (const Tensor& alias : {t, row, column, flat, wide, detached, ofview}) CHECK(alias.version() == 1);
  CHECK(data.version() == 0);
  CHECK(copy.version() == 0);
  data.zero_();
  CHECK(values(t) == Values(6, 0));
  CHECK(t.version() == 1);
  CHECK(data.version() == 1);
  detached.fill_(7);
  CHECK(t.version() == 2);
  {
    const GradMode off(e.cx, false);
    t += 1;
    CHECK(flat.version() == 3);
  }
}

TEST_CASE("A view of a view writes into the history of the base", "[autograd][D33]") {
  Engine e;
  const Tensor a = e.leaf({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = a * 1;
  const Tensor v = transpose(b, 0, 1), w = v[{Slice{1, 3}}], u = w[{0}];
  u *= e.doubles({2}, {10, 100});
  CHECK(values(b) == Values{1, 20, 3, 4, 500, 6});
  sum(b).backward({.retain_graph = true});
  CHECK(values(grad_of(a)) == Values{1, 10, 1, 1, 100, 1});
  // The views that were taken before know of it.
  grad_of(a).zero_();
  sum(w).backward({.retain_graph = true});
  CHECK(values(grad_of(a)) == Values{0, 10, 1, 0, 100, 1});
  grad_of(a).zero_();
  sum(u).backward();
  CHECK(values(grad_of(a)) == Values{0, 10, 0, 0, 100, 0});
}

TEST_CASE("What a parameter was is needed when it is updated between forward and backward", "[autograd][D31][D30]") {
  Engine e;
  const Tensor w = e.leaf({2}, {1, 2}), x = e.leaf({2}, {3, 4});
  const Tensor y = sum(w * x);
  {
    const GradMode off(e.cx, false);
    w -= 0.1;
  }
  const Error err = error_of([&] { y.backward(); });
  CHECK(err.code() == Code::inplace_modified);
  CHECK(err.op() == "mul");
  CHECK(err.message() ==
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[torch.DoubleTensor [2]] is at version 1; expected version 0 instead");
}

TEST_CASE("A change through .data goes unseen and gives the wrong gradient, as documented", "[autograd][D31][A31]") {
  Engine e;
  const Tensor a = e.leaf({}, {1});
  const Tensor y = a * a;
  gradwire::data(a) *= 2;
  y.backward();
  CHECK(values(grad_of(a)) == Values{4});
}

TEST_CASE("Writing into an expanded tensor is refused", "[autograd][A19]") {
  Engine e;
  const Tensor t = e.doubles({3, 1}, {1, 2, 3});
  CHECK(error_of([&] {
          expand(t, {3, 4}) += 1;
        }).message() ==
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
  CHECK(values(t) == Values{1, 2, 3});
  CHECK(t.version() == 0);
}

TEST_CASE("Assigning into a leaf that requires grad is refused; into a result it takes part in the gradient",
          "[autograd][C33][C35][C28][C29][C30]") {
  Engine e;
  const Tensor a = e.leaf({3}, {1, 2, 3}), b = e.leaf({2}, {5, 7});
  CHECK(error_of([&] { index_put_(a, {0}, 1); }).code() == Code::leaf_inplace);
  const Tensor c = a * 1;
  index_put_(c, {std::vector<int64_t>{0, 2}}, b);
  CHECK(values(c) == Values{5, 2, 7});
  c.backward(e.doubles({3}, {1, 10, 100}));
  CHECK(values(grad_of(a)) == Values{0, 10, 0});
  CHECK(values(grad_of(b)) == Values{1, 100});
  const Tensor twice = e.doubles({3}, {0, 0, 0});
  index_put_(twice, {std::vector<int64_t>{1, 1, 1}}, e.doubles({3}, {1, 2, 3}));
  CHECK(values(twice) == Values{0, 3, 0});
  index_put_(twice, {std::vector<int64_t>{0, 0, 0}}, e.doubles({3}, {1, 2, 3}), true);
  CHECK(values(twice) == Values{6, 3, 0});
}

TEST_CASE("A base without history gets one when a view of it is written", "[autograd][D33][D1]") {
  Engine e;
  const Tensor w = e.leaf({2}, {3, 4}), base = e.doubles({3}, {1, 2, 5});
  const Tensor other = base[{Slice{1, 3}}], v = base[{Slice{0, 2}}];
  CHECK_FALSE(other.requires_grad());
  v *= w;
  CHECK(base.requires_grad());
  CHECK(other.requires_grad());
  CHECK(values(base) == Values{3, 8, 5});
  sum(base).backward({.retain_graph = true});
  CHECK(values(grad_of(w)) == Values{1, 2});
  sum(other).backward();
  CHECK(values(grad_of(w)) == Values{1, 4});
}

TEST_CASE("A view taken without grad mode is written with it", "[autograd][D23][D33]") {
  Engine e;
  const Tensor a = e.leaf({2}, {1, 2});
  const Tensor b = a * 1;
  Tensor v;
  {
    const GradMode off(e.cx, false);
    v = b[{0}];
  }
  v *= 5;
  CHECK(values(b) == Values{5, 2});
  sum(b).backward();
  CHECK(values(grad_of(a)) == Values{5, 1});
}
