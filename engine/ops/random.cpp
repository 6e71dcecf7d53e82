// Drawn numbers. All come from Philox 4x32-10: the seed, the counters used before and the place of an element decide
// it, so that the same seed gives the same bits for any number of threads and on every device.
#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/draws.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kDrawn = "drawn anew each time";

// dtype, device and requires_grad are parameters from i on.
Tensor finish(const Call& c, int i, Tensor t) {
  if (c.flag(i + 2)) {
    if (!is_floating(t.dtype()))
      throw Error(Code::dtype_mismatch, "Only Tensors of floating point and complex dtype can require gradients");
    require_grad(t);
  }
  return t;
}

// A new tensor; the generator is parameter g, none where g < 0.
Results drawn(const Call& c, std::span<const int64_t> shape, DType otherwise, int g, int i, bool normal) {
  rule::device(c, i + 1);
  Draws from = g < 0 ? Draws(c.cx) : Draws(c, g);
  const Tensor t = finish(c, i, draw(c.cx, from, shape, c.dtype(i, otherwise), normal));
  from.commit();
  return t;
}

Results integers(const Call& c, std::span<const int64_t> shape, int64_t low, int64_t high, DType otherwise, int g,
                 int i) {
  const DType dtype = c.dtype(i, otherwise);
  rule::device(c, i + 1);
  check_range(low, high, dtype);
  Draws from = g < 0 ? Draws(c.cx) : Draws(c, g);
  const Tensor t = finish(c, i, draw_whole(c.cx, from, shape, dtype, low, high - 1));
  from.commit();
  return t;
}

// random_: writes whole numbers from low to high, which is among them.
void write_whole(const Call& c, const Tensor& target, int64_t low, int64_t high, int g) {
  Draws from(c, g);
  c.cx.copy(target, draw_whole(c.cx, from, target.shape(), target.dtype(), low, high));
  from.commit();
}

// The gradient of what is overwritten.
Grads nothing(const Vjp& g) { return {{zeros_like(g.dout())}}; }

constexpr OpDef kRows[] = {
    {
        .sig = "generator(int seed=67280421310721) -> Tensor",
        .doc = "A generator of its own for random operators: an int64 tensor with its seed and the number of counters "
               "used, which each of them advances.",
        .compute = [](const Call& c) -> Results {
          const int64_t words[2] = {c.integer(0), 0};
          return from_bytes(c.cx, DType::int64, Shape{2}, std::as_bytes(std::span(words)));
        },
        .no_grad = "whole numbers, made of no tensor",
        .examples = {{"7", "[7, 0]"}},
        .samples = {"7"},
    },
    {
        .sig = "manual_seed(int seed) -> ()",
        .doc = "Starts the session's generator anew.",
        .compute = [](const Call& c) -> Results {
          c.cx.generator = {static_cast<uint64_t>(c.integer(0)), 0};
          return {};
        },
        .no_grad = "it makes no tensor",
        .samples = {"7"},
    },
    {
        .sig = "rand(int[] size, *, dtype? dtype=None, device? device=None, bool requires_grad=False, "
               "Generator? generator=None) -> Tensor",
        .doc = "Uniform in [0, 1).",
        .compute = [](const Call& c) -> Results { return drawn(c, c.ints(0), c.cx.default_dtype, 4, 1, false); },
        .no_grad = kDrawn,
        .samples = {"(2, 3)", "()", "(5); dtype='float64'"},
    },
    {
        .sig = "randn(int[] size, *, dtype? dtype=None, device? device=None, bool requires_grad=False, "
               "Generator? generator=None) -> Tensor",
        .doc = "Normal with mean 0 and variance 1, by Box and Muller.",
        .compute = [](const Call& c) -> Results { return drawn(c, c.ints(0), c.cx.default_dtype, 4, 1, true); },
        .no_grad = kDrawn,
        .samples = {"(2, 3)", "()", "(5); dtype='float64'"},
    },
    {
        .sig = "rand_like(Tensor self, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Uniform in [0, 1), in self's shape and dtype.",
        .compute = [](const Call& c) -> Results {
          return drawn(c, c.tensor(0).shape(), c.tensor(0).dtype(), -1, 1, false);
        },
        .no_grad = kDrawn,
        .samples = {"i2(2, 3); dtype='float32'"},
    },
    {
        .sig = "randn_like(Tensor self, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Normal with mean 0 and variance 1, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results {
          return drawn(c, c.tensor(0).shape(), c.tensor(0).dtype(), -1, 1, true);
        },
        .no_grad = kDrawn,
        .samples = {"i2(2, 3); dtype='float64'"},
    },
    {
        .sig = "randint(int high, int[] size, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False, Generator? generator=None) -> Tensor",
        .doc = "Whole numbers from 0 to high - 1, each as likely: int64 if no dtype is given.",
        .compute = [](const Call& c) -> Results { return integers(c, c.ints(1), 0, c.integer(0), DType::int64, 5, 2); },
        .no_grad = kDrawn,
        .samples = {"5; (2, 3)", "2; (3); dtype='bool'", "9; (0); dtype='float32'"},
    },
    {
        .sig = "randint.low(int low, int high, int[] size, *, dtype? dtype=None, device? device=None, "
               "bool requires_grad=False, Generator? generator=None) -> Tensor",
        .doc = "Whole numbers from low to high - 1, each as likely: int64 if no dtype is given.",
        .compute = [](const Call& c) -> Results {
          return integers(c, c.ints(2), c.integer(0), c.integer(1), DType::int64, 6, 3);
        },
        .no_grad = kDrawn,
        .samples = {"-2; 5; (2, 3)"},
    },
    {
        .sig = "randint_like(Tensor self, int high, *, dtype? dtype=None, device? device=None, bool "
               "requires_grad=False) -> Tensor",
        .doc = "Whole numbers from 0 to high - 1, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results {
          return integers(c, c.tensor(0).shape(), 0, c.integer(1), c.tensor(0).dtype(), -1, 2);
        },
        .no_grad = kDrawn,
        .samples = {"i2(2, 3); 5"},
    },
    {
        .sig = "randint_like.low(Tensor self, int low, int high, *, dtype? dtype=None, device? "
               "device=None, bool requires_grad=False) -> Tensor",
        .doc = "Whole numbers from low to high - 1, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results {
          return integers(c, c.tensor(0).shape(), c.integer(1), c.integer(2), c.tensor(0).dtype(), -1, 3);
        },
        .no_grad = kDrawn,
        .samples = {"i2(2, 3); -2; 5"},
    },
    {
        .sig = "randperm(int n, *, dtype? dtype=None, device? device=None, bool requires_grad=False, "
               "Generator? generator=None) -> Tensor",
        .doc = "The numbers from 0 to n - 1 in random order: int64 if no dtype is given.",
        .compute = [](const Call& c) -> Results {
          const int64_t n = c.integer(0);
          const DType dtype = c.dtype(1, DType::int64);
          rule::device(c, 2);
          if (dtype == DType::boolean) throw Error(Code::dtype_mismatch, "\"randperm\" not implemented for 'Bool'");
          checked_numel(Shape{n});
          const Bounds b = bounds_of(dtype);
          if (n > b.most && b.name) {
            throw Error(Code::bad_argument,
                        std::string("value cannot be converted to type ") + name(dtype) + " without overflow");
          }
          if (n - 1 > b.most) {
            throw Error(Code::bad_argument, "n cannot be greater than " + std::to_string(b.most + 1) + " for " +
                                                row(dtype).torch + " type.");
          }
          Draws from(c, 4);
          const Tensor t = c.cx.empty(Shape{n}, DType::int64);
          const RandomParams params = from.next(n, 2);
          if (n > 0) {
            const Tensor room = c.cx.empty(Shape{4 * n}, DType::int64);
            launch(c.cx, GW_KERNEL(permutation), {out_view(t), out_view(room)}, {}, &params);
          }
          const Tensor made = finish(c, 1, c.cx.contiguous(t, dtype));
          from.commit();
          return made;
        },
        .no_grad = kDrawn,
        .samples = {"5", "0", "3; dtype='float32'"},
    },
    {
        .sig = "normal(Operand mean, Operand std=1.0, *, Generator? generator=None) -> Tensor",
        .doc = "Normal with these means and standard deviations, numbers or tensors that broadcast; their gradients "
               "are 0.",
        .compose = [](const Call& c) -> Results {
          Promotion p;
          Shape shape;
          for (const int k : {0, 1}) {
            if (!c.is_tensor(k)) continue;
            check_floating(c.tensor(k).dtype(), "normal");
            p.add(c.tensor(k)), shape = broadcast_shapes(shape, c.tensor(k).shape());
          }
          if (!c.is_tensor(0) && !c.is_tensor(1)) throw Error(Code::bad_argument, "normal(): two numbers need a size");
          if (!c.is_tensor(1)) check_spread(c.scalar(1).real());
          if (c.is_tensor(1) && any_negative(c.cx, c.tensor(1)))
            throw Error(Code::bad_argument, "normal expects all elements of std >= 0.0");
          Draws from(c, 2);
          Tensor t;
          {
            const GradMode off(c.cx, false);
            const auto operand = [&](int k) {
              return c.is_tensor(k) ? Operand<Tensor>(c.tensor(k)) : Operand<Tensor>(c.scalar(k));
            };
            t = draw(c.cx, from, shape, p.result(), true) * operand(1) + operand(0);
          }
          for (const int k : {0, 1}) {  // a part of the history, without a gradient
            if (c.is_tensor(k) && c.tensor(k).requires_grad()) t = gradwire::copy(expand(c.tensor(k), shape), t);
          }
          from.commit();
          return t;
        },
        .examples = {{"[1., 2.]; 0.0", "[1., 2.]"}},
        .samples = {"[1., 2.]; 0.0", "[1., 2.]; [0., 0.]"},
    },
    {
        .sig = "normal.size(float mean, float std, int[] size, *, dtype? dtype=None, device? "
               "device=None, bool requires_grad=False, Generator? generator=None) -> Tensor",
        .doc = "Normal with this mean and standard deviation.",
        .compute = [](const Call& c) -> Results {
          check_spread(c.args[1].scalar().real());
          const DType dtype = c.dtype(3, c.cx.default_dtype);
          rule::device(c, 4);
          Draws from(c, 6);
          const Tensor z = draw(c.cx, from, c.ints(2), dtype, true);
          const Tensor t = finish(c, 3, scaled(z, c.args[1].scalar().real(), c.args[0].scalar().real()));
          from.commit();
          return t;
        },
        .no_grad = kDrawn,
        .samples = {"1.0; 2.0; (2, 3)"},
    },
    {
        .sig = "bernoulli(Tensor self, *, Generator? generator=None) -> Tensor",
        .doc = "1 with the probability that self gives, else 0, in its dtype; its gradient is 0.",
        .compose = [](const Call& c) -> Results {
          const Tensor& p = c.tensor(0);
          check_floating(p.dtype(), "bernoulli");
          check_chances(c.cx, p);
          Draws from(c, 1);
          const Tensor t = coins(c.cx, from, p, p.shape(), p.dtype());
          from.commit();
          return p.requires_grad() ? gradwire::copy(p, t) : t;
        },
        .examples = {{"[0., 1.]", "[0., 1.]"}},
        .samples = {"[0., 1.]"},
    },
    {
        .sig = "bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor",
        .doc = "1 with probability p, else 0, in self's shape and dtype.",
        .compute = [](const Call& c) -> Results {
          const double p = c.args[1].scalar().real();
          check_chance(p);
          Draws from(c, 2);
          const Tensor t = coins(c.cx, from, p, c.tensor(0).shape(), c.tensor(0).dtype());
          from.commit();
          return t;
        },
        .vjp = nothing,
        .examples = {{"[5., 7.]; 1.0", "[1., 1.]"}},
        .samples = {"f(2, 3); 1.0", "f(2); 0.0"},
    },
    {
        .sig = "normal_(Tensor self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor",
        .doc = "Writes normal numbers with this mean and standard deviation.",
        .write =
            [](const Call& c, const Tensor& target) {
              const double mean = c.args[1].scalar().real(), std = c.args[2].scalar().real();
              check_spread(std);
              Draws from(c, 3);
              c.cx.copy(target, scaled(draw(c.cx, from, target.shape(), target.dtype(), true), std, mean));
              from.commit();
            },
        .vjp = nothing,
        .samples = {"f(2, 3)", "f(2); 1.0; 2.0"},
    },
    {
        .sig = "uniform_(Tensor self, float from=0, float to=1, *, Generator? generator=None) -> Tensor",
        .doc = "Writes uniform numbers in [from, to).",
        .write =
            [](const Call& c, const Tensor& target) {
              const double low = c.args[1].scalar().real(), high = c.args[2].scalar().real();
              check_floating(target.dtype(), "uniform");
              check_interval(low, high, target.dtype());
              Draws from(c, 3);
              c.cx.copy(target, scaled(draw(c.cx, from, target.shape(), target.dtype(), false), high - low, low));
              from.commit();
            },
        .vjp = nothing,
        .samples = {"f(2, 3)", "f(2); -1.0; 2.0"},
    },
    {
        .sig = "random_(Tensor self, *, Generator? generator=None) -> Tensor",
        .doc = "Writes whole numbers: from 0 to the largest that an integer dtype holds, or up to which a floating one "
               "holds all.",
        .write = [](const Call& c,
                    const Tensor& target) { write_whole(c, target, 0, bounds_of(target.dtype()).most, 1); },
        .vjp = nothing,
        .samples = {"f(2, 3)", "i5(2)"},
    },
    {
        .sig = "random_.to(Tensor self, int to, *, Generator? generator=None) -> Tensor",
        .doc = "Writes whole numbers from 0 to to - 1.",
        .write =
            [](const Call& c, const Tensor& target) {
              check_range(0, c.integer(1), target.dtype());
              write_whole(c, target, 0, c.integer(1) - 1, 2);
            },
        .vjp = nothing,
        .samples = {"f(2, 3); 5"},
    },
    {
        .sig = "random_.from(Tensor self, int from, int? to, *, Generator? generator=None) -> Tensor",
        .doc = "Writes whole numbers from `from` to to - 1; with None to the largest that the dtype holds.",
        .write =
            [](const Call& c, const Tensor& target) {
              if (c.has(2)) {
                check_range(c.integer(1), c.integer(2), target.dtype());
                return write_whole(c, target, c.integer(1), c.integer(2) - 1, 3);
              }
              const Bounds b = bounds_of(target.dtype());
              if (c.integer(1) > b.most || c.integer(1) < b.least)
                throw Error(Code::bad_argument, std::string("from is out of bounds for ") + name(target.dtype()));
              write_whole(c, target, c.integer(1), b.most, 3);
            },
        .vjp = nothing,
        .samples = {"f(2, 3); -2; 5", "i5(2); 3; None"},
    },
    {
        .sig = "bernoulli_(Tensor self, Operand p=0.5, *, Generator? generator=None) -> Tensor",
        .doc = "Writes 1 with probability p, a number or a tensor that broadcasts, else 0.",
        .write =
            [](const Call& c, const Tensor& target) {
              if (c.is_tensor(1)) {
                check_floating(c.tensor(1).dtype(), "bernoulli");
                check_chances(c.cx, c.tensor(1));
              } else {
                check_chance(c.scalar(1).real());
              }
              Draws from(c, 2);
              const Tensor p = c.is_tensor(1) ? expand(c.tensor(1), Ints(target.shape())) : Tensor();
              c.cx.copy(target, coins(c.cx, from, p ? Operand<Tensor>(p) : Operand<Tensor>(c.scalar(1)), target.shape(),
                                      target.dtype()));
              from.commit();
            },
        .vjp = [](const Vjp& g) -> Grads {
          Grads d = nothing(g);
          if (g.needs(1)) d.at[1] = g.cx.full(g.shape(1), 0, g.dtype(1));
          return d;
        },
        .samples = {"f(2, 3)", "f(2); 1.0", "f(2, 2); [0., 1.]"},
    },
    {
        .sig = "exponential_(Tensor self, float lambd=1, *, Generator? generator=None) -> Tensor",
        .doc = "Writes numbers with the density lambd * exp(-lambd * x).",
        .write =
            [](const Call& c, const Tensor& target) {
              const double rate = c.args[1].scalar().real();
              check_floating(target.dtype(), "exponential");
              if (!(rate >= 0)) throw Error(Code::bad_argument, "exponential_ expects lambda >= 0.0");
              Draws from(c, 2);
              const Tensor u = draw(c.cx, from, target.shape(),
                                    target.dtype() == DType::float64 ? DType::float64 : DType::float32, false);
              c.cx.copy(target, log(1 - u) / -rate);
              from.commit();
            },
        .vjp = nothing,
        .samples = {"f(2, 3)", "f(2); 2.5"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kRandomOps = kRows;

}  // namespace gradwire::engine
