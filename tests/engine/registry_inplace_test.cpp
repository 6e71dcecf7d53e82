#include <catch2/catch_test_macros.hpp>

#include "engine/apply.h"
#include "engine/shape.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

// Each in-place row with each sample of its row.
template <class F> void each_inplace(Engine& e, F f) {
  for (const OpRow& row : catalogue()) {
    if (!row.inplace) continue;
    const OpRow& plain = catalogue()[row.id - 1u];
    REQUIRE(plain.def == row.def);
    for (const std::string_view text : samples_of(row)) {
      const auto parsed = parse_literals(e.cx, text);
      if (parsed->tensors.empty() || parsed->positional[0].kind != ArgKind::tensor) continue;  // `2.5; f(3)`
      INFO(row.name() << ": " << text);
      f(row, plain, std::string(text));
    }
  }
}

Error error_of(Engine& e, const Arguments& a) {
  try {
    a.run(e.cx);
  } catch (const Error& err) {
    return err;
  }
  return Error(Code::internal, "nothing was thrown");
}

// The shape of what the ordinary form gives is self's.
bool fits(Engine& e, const Arguments& plain) {
  return std::ranges::equal(flat(plain.run(e.cx))[0].shape(), plain.tensors[0].shape());
}

}  // namespace

TEST_CASE("An in-place form writes what the ordinary form gives, counts, and answers with self",
          "[registry][A34][A35][B12]") {
  Engine e;
  each_inplace(e, [&](const OpRow& row, const OpRow& plain, const std::string& text) {
    const Arguments p(e.cx, plain, text);
    if (!fits(e, p)) return;
    for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced}) {
      Arguments a(e.cx, row, text);
      const Tensor self = a.tensors[0] = laid_out(a.tensors[0], layout);
      const std::vector<Tensor> got = flat(a.run(e.cx));
      REQUIRE(got.size() == 1);
      CHECK(got[0].get() == self.get());
      CHECK(self.version() == 1);
      CHECK(difference({self}, {e.cx.contiguous(flat(p.run(e.cx))[0], self.dtype())}, 0, 0) == "");
    }
  });
}

TEST_CASE("An in-place form has the gradient of the ordinary form", "[registry][D32][D34]") {
  Engine e;
  each_inplace(e, [&](const OpRow& row, const OpRow& plain, const std::string& text) {
    if (!has_gradient(row) || !fits(e, Arguments(e.cx, plain, text))) return;
    std::vector<Tensor> grads[2];
    for (const bool in_place : {false, true}) {
      Arguments a(e.cx, in_place ? row : plain, text);
      std::vector<Tensor> leaves;
      for (size_t i = 0; i < a.tensors.size(); ++i) {
        if (!is_floating(a.tensors[i].dtype())) continue;
        leaves.push_back(leaf_like(a.tensors[i]));
        a.tensors[i] = i == 0 ? gradwire::clone(leaves[0]) : leaves.back();
      }
      const Tensor y = flat(a.run(e.cx))[0];
      const Tensor w = e.cx.full(y.shape(), 3, y.dtype());
      grads[in_place] = gradwire::grad<Tensor>({y}, std::span<const Tensor>(leaves), {w}, {}, false, true);
    }
    CHECK(difference(grads[1], grads[0], 0, 0) == "");
  });
}

TEST_CASE("An in-place form refuses a leaf that requires grad, and a view of one", "[registry][D30][C33]") {
  Engine e;
  each_inplace(e, [&](const OpRow& row, const OpRow&, const std::string& text) {
    for (const bool view : {false, true}) {
      Arguments a(e.cx, row, text);
      if (!is_floating(a.tensors[0].dtype())) return;
      const Tensor leaf = leaf_like(a.tensors[0]);
      a.tensors[0] = view ? gradwire::view(leaf, Ints(leaf.shape())) : leaf;
      const Tensor before = copy_of(e.cx, leaf);
      const Error err = error_of(e, a);
      CHECK(err.code() == Code::leaf_inplace);
      CHECK(err.op() == row.name());
      CHECK(leaf.version() == 0);
      CHECK(difference({leaf}, {before}, 0, 0).find("element") == std::string::npos);
      const GradMode off(e.cx, false);
      if (error_of(e, a).code() == Code::internal) CHECK(leaf.version() == 1);
    }
  });
}

TEST_CASE("An in-place form never changes self's shape", "[registry][B12][B13]") {
  Engine e;
  int refused = 0;
  each_inplace(e, [&](const OpRow& row, const OpRow& plain, const std::string& text) {
    if (fits(e, Arguments(e.cx, plain, text))) return;
    ++refused;
    const Arguments a(e.cx, row, text);
    const Tensor before = copy_of(e.cx, a.tensors[0]);
    const Error err = error_of(e, a);
    CHECK(err.code() == Code::shape_mismatch);
    CHECK(err.op() == row.name());
    CHECK(err.message().starts_with("output with shape " + to_string(before.shape()) +
                                    " doesn't match the broadcast shape "));
    CHECK(a.tensors[0].version() == 0);
    CHECK(difference({a.tensors[0]}, {before}, 0, 0) == "");
  });
  CHECK(refused > 0);
}

TEST_CASE("An in-place form refuses a result that self's dtype cannot hold", "[registry][A52]") {
  Engine e;
  int refused = 0;
  each_inplace(e, [&](const OpRow& row, const OpRow& plain, const std::string& text) {
    if (!fits(e, Arguments(e.cx, plain, text))) return;
    for (int n = 0; n < kDTypes; ++n) {
      const auto t = static_cast<DType>(n);
      Arguments a(e.cx, row, text), p(e.cx, plain, text);
      a.tensors[0] = e.cx.contiguous(a.tensors[0], t), p.tensors[0] = copy_of(e.cx, a.tensors[0]);
      INFO(name(t));
      Tensor made;
      try {
        made = flat(p.run(e.cx))[0];
      } catch (const Error&) {
        CHECK(error_of(e, a).op() == row.name());
        CHECK(a.tensors[0].version() == 0);
        continue;
      }
      if (category(made.dtype()) <= category(t)) {
        a.run(e.cx);
        CHECK(a.tensors[0].dtype() == t);
        CHECK(a.tensors[0].version() == 1);
        CHECK(difference({a.tensors[0]}, {e.cx.contiguous(made, t)}, 0, 0) == "");
        continue;
      }
      ++refused;
      const Error err = error_of(e, a);
      CHECK(err.code() == Code::dtype_mismatch);
      CHECK(err.op() == row.name());
      CHECK(err.message() == std::string("result type ") + gradwire::row(made.dtype()).torch +
                                 " can't be cast to the desired output type " + gradwire::row(t).torch);
      CHECK(a.tensors[0].version() == 0);
      CHECK(difference({a.tensors[0]}, {p.tensors[0]}, 0, 0) == "");
    }
  });
  CHECK(refused > 0);
}

TEST_CASE("An in-place form refuses a target whose elements share memory", "[registry][A19]") {
  Engine e;
  each_inplace(e, [&](const OpRow& row, const OpRow&, const std::string& text) {
    Arguments a(e.cx, row, text);
    const Tensor& t = a.tensors[0];
    if (t.numel() < 2) return;
    const Tensor one = e.cx.full(Shape{1}, 1, t.dtype());
    a.tensors[0] = e.cx.alias(one, t.shape(), Shape(t.shape().size(), 0), 0);
    const Error err = error_of(e, a);
    CHECK(err.code() == Code::bad_argument);
    CHECK(err.message() ==
          "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
          "Please clone() the tensor before performing the operation.");
    CHECK(err.op() == row.name());
    CHECK(values(one) == Values{1});
    CHECK(one.version() == 0);
  });
}

TEST_CASE("Self as its own second argument gives the right gradient or is noticed", "[registry][D34][D31]") {
  Engine e;
  each_inplace(e, [&](const OpRow& row, const OpRow& plain, const std::string& text) {
    if (!has_gradient(row) || !fits(e, Arguments(e.cx, plain, text))) return;
    const Arguments sample(e.cx, row, text);
    for (size_t i = 1; i < sample.tensors.size(); ++i) {
      if (!std::ranges::equal(sample.tensors[i].shape(), sample.tensors[0].shape())) continue;
      INFO("argument " << i);
      Tensor grads[2];
      for (const bool in_place : {false, true}) {
        Arguments a(e.cx, in_place ? row : plain, text);
        const Tensor x = leaf_like(a.tensors[0]);
        a.tensors[0] = a.tensors[i] = gradwire::clone(x);
        try {
          const Tensor y = flat(a.run(e.cx))[0];
          const Tensor w = e.cx.full(y.shape(), 3, y.dtype());
          grads[in_place] = gradwire::grad<Tensor>({y}, {x}, {w}, {}, false, true)[0];
        } catch (const Error& err) {
          REQUIRE(in_place);
          CHECK((err.code() == Code::inplace_modified || err.code() == Code::bad_argument));
        }
      }
      if (grads[1]) CHECK(difference({grads[1]}, {grads[0]}, 0, 0) == "");
    }
  });
}
