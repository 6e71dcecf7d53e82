#include <catch2/catch_test_macros.hpp>

#include <cmath>

#include "engine/apply.h"
#include "engine/shape.h"
#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

namespace {

bool of_optimizer(const OpRow& row) { return row.params > 0 && row.sig.params[0].type == Type::optimizer; }

std::vector<Tensor> run(Engine& e, const Arguments& a) {
  e.cx.generator = {7, 0};
  if (!of_optimizer(*a.row)) return flat(a.run(e.cx));
  Arguments fresh = a;  // a call changes its optimiser
  fresh.tensors[0] = copied(a.tensors[0]);
  return flat(fresh.run(e.cx));
}

template <class F> void each_sample(Engine& e, F f) {
  for (const OpRow& row : catalogue()) {
    if (row.inplace) continue;
    for (const std::string_view text : samples_of(row)) {
      INFO(row.sig.full_name() << ": " << text);
      f(row, Arguments(e.cx, row, text));
    }
  }
}

// Backward passes over tensors without history, and what else a sample cannot show in this setting, refuse.
bool refuses(Engine& e, const Arguments& a) {
  try {
    run(e, a);
    return false;
  } catch (const Error& err) {
    CHECK(err.op() == a.row->name());
    return err.code() == Code::no_grad_fn;
  }
}

// What other ranks send is written into arguments, as PyTorch has it.
bool is_remote(const OpRow& row) {
  const auto in = [&](std::span<const OpDef> family) {
    return std::ranges::any_of(family, [&](const OpDef& d) { return row.def == &d; });
  };
  return in(kCollectiveOps) || in(kMessageOps);
}

double eps_of(DType t) {
  return t == DType::float16 ? 0x1p-10 : t == DType::bfloat16 ? 0x1p-7 : t == DType::float32 ? 0x1p-23 : 0x1p-52;
}

// v as a value of an integer type: modulo 2^bits.
double wrapped(double v, DType t) {
  if (t == DType::boolean) return v != 0;
  const auto i = static_cast<int64_t>(v);
  switch (t) {
    case DType::uint8:
      return static_cast<uint8_t>(i);
    case DType::int8:
      return static_cast<int8_t>(i);
    case DType::int16:
      return static_cast<int16_t>(i);
    case DType::int32:
      return static_cast<int32_t>(i);
    default:
      return static_cast<double>(i);
  }
}

// Inputs that t holds exactly.
Tensor as_dtype(const Tensor& drawn, DType t) {
  Values v = values(drawn);
  if (!is_floating(t)) {
    for (double& x : v)
      x = t == DType::boolean ? std::abs(x) > 1 : std::round(3 * (t == DType::uint8 ? std::abs(x) : x));
    if (t != DType::boolean) {
      for (double& x : v) x = x == 0 ? 1 : x;
    }
  }
  return drawn.maker().contiguous(from_bytes(drawn.maker(), DType::float64, drawn.shape(), std::as_bytes(std::span(v))),
                                  t);
}

}  // namespace

TEST_CASE("Contiguous, transposed and sliced inputs give the same values", "[registry][A16][A17][B1]") {
  Engine e;
  each_sample(e, [&](const OpRow& row, const Arguments& sample) {
    if (refuses(e, sample)) return;
    const std::vector<Tensor> want = run(e, sample);
    for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced}) {
      for (size_t only = 0; only <= sample.tensors.size(); ++only) {
        Arguments a = sample;
        for (size_t i = 0; i < a.tensors.size(); ++i) {
          if (only == 0 || only == i + 1) a.tensors[i] = laid_out(a.tensors[i], layout);
        }
        INFO("layout " << static_cast<int>(layout) << " of input " << only);
        try {
          const std::string fault = difference(run(e, a), want, 1e-14, 1e-14);
          if (!row.def->by_strides || layout == Layout::contiguous) CHECK(fault == "");
        } catch (const Error& err) {
          CHECK(row.def->by_strides);
          CHECK(err.op() == row.name());
        }
      }
    }
  });
}

TEST_CASE("An expanded input gives what its copy gives, and the expanded input stays", "[registry][A19][B1]") {
  Engine e;
  each_sample(e, [&](const OpRow& row, const Arguments& sample) {
    if (row.def->by_strides || of_optimizer(row) || is_remote(row) || refuses(e, sample)) return;
    for (size_t i = 0; i < sample.tensors.size(); ++i) {
      const Tensor& t = sample.tensors[i];
      for (int d = 0; t.numel() > 0 && d < t.ndim(); ++d) {
        INFO("input " << i << ", dim " << d);
        Shape strides(t.strides());
        strides[static_cast<size_t>(d)] = 0;
        Arguments wide = sample, copied = sample;
        wide.tensors[i] = e.cx.alias(t, t.shape(), strides, 0);
        copied.tensors[i] = copy_of(e.cx, wide.tensors[i]);
        CHECK(difference(run(e, wide), run(e, copied), 1e-14, 1e-14) == "");
      }
    }
  });
}

TEST_CASE("Every dtype gives what float64 gives, within its precision, or an error that names the operator",
          "[registry][A1][A9][A23]") {
  Engine e;
  each_sample(e, [&](const OpRow& row, const Arguments& sample) {
    for (int n = 0; n < kDTypes; ++n) {
      const auto t = static_cast<DType>(n);
      INFO(name(t));
      Arguments a = sample, reference = sample;
      bool any = false;
      for (size_t i = 0; i < a.tensors.size(); ++i) {
        if (a.places[i].how != 'f' && a.places[i].how != 'p') continue;
        any = true;
        a.tensors[i] = as_dtype(a.tensors[i], t);
        reference.tensors[i] = e.cx.contiguous(a.tensors[i], DType::float64);
      }
      if (!any || refuses(e, reference)) return;
      std::vector<Tensor> got;
      try {
        got = run(e, a);
      } catch (const Error& err) {
        const bool about_dtype = err.code() == Code::dtype_mismatch || err.code() == Code::bad_argument;
        INFO(name(err.code()) << ": " << err.message());
        CHECK(about_dtype);
        CHECK(err.op() == row.name());
        CHECK(t != DType::float32);
        CHECK(t != DType::float64);
        continue;
      }
      std::vector<Tensor> want = run(e, reference);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const DType r = got[i].dtype();
        CHECK((is_floating(t) ? r == t || r == want[i].dtype() : true));
        REQUIRE(std::ranges::equal(got[i].shape(), want[i].shape()));
        const Values g = values(got[i]), w = values(want[i]);
        double largest = 0;
        for (const double x : w) largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
        for (size_t k = 0; k < g.size(); ++k) {
          const double right = is_floating(r) ? w[k] : wrapped(w[k], r);
          const double room = is_floating(r) ? 4 * eps_of(r) * std::max(largest, std::abs(right)) : 0;
          const bool same = g[k] == right || (std::isnan(g[k]) && std::isnan(right)) || std::abs(g[k] - right) <= room;
          INFO("element " << k << ": " << g[k] << " and " << right);
          CHECK(same);
        }
      }
    }
  });
}

TEST_CASE("Inputs stay as they are, and so do their versions", "[registry][A35]") {
  Engine e;
  each_sample(e, [&](const OpRow& row, const Arguments& sample) {
    if (is_remote(row)) return;
    std::vector<Tensor> before;
    for (const Tensor& t : sample.tensors) before.push_back(t ? copy_of(e.cx, t) : Tensor());
    if (refuses(e, sample)) return;
    run(e, sample);
    CHECK(difference(sample.tensors, before, 0, 0) == "");
    for (const Tensor& t : sample.tensors) CHECK((!t || t.version() == 0));
  });
}
