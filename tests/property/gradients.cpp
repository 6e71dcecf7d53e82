#include "tests/property/gradients.h"

#include <cmath>
#include <optional>

#include "engine/autograd.h"
#include "schema/ops.h"
#include "tests/property/draw.h"
#include "tests/property/rows.h"
#include "tests/property/values.h"

// One number, the loss, is made of what has a history: a sum with weights. How it changes along the direction that
// the leaves move in is known twice: from the interpreter, which carries derivatives forward, and from the engine's
// gradients. The second derivative along it is that of the engine's gradients, and the difference of the interpreter's
// first ones a little to either side.

namespace gradwire::property {
namespace {

using engine::Tensor;

constexpr double kFirst = 1e-7, kSecond = 1e-4;  // relative to the sizes of what is added up

std::vector<double> weights(size_t variable, size_t n) {
  Dice dice(variable);
  std::vector<double> out;
  for (size_t i = 0; i < n; ++i) out.push_back(2 * dice.uniform() - 1);
  return out;
}

// About half of what has a history: gradients also come to others, and on one way only.
bool counts(const std::vector<Array>& env, size_t v) {
  const Array& a = env[v];
  return a.valid() && a.requires_grad() && count(a.shape) > 0 && Dice(~v).chance(50);
}

// The derivative of the loss along the direction, and the sizes of what it is made of.
struct Slope {
  double value = 0, size = 1;
  explicit Slope(const std::vector<Array>& env) {
    for (size_t v = 0; v < env.size(); ++v) {
      if (!counts(env, v)) continue;
      const std::vector<Num> all = elements(env[v]);
      const std::vector<double> w = weights(v, all.size());
      for (size_t i = 0; i < all.size(); ++i) value += w[i] * all[i].d, size += std::abs(w[i] * all[i].d);
    }
  }
};

// With all leaves moved by h along the direction; nothing where the program takes another way there, or where values
// move that are constant to backward.
std::optional<Slope> moved(const Program& p, double h) {
  std::vector<Array> env;
  try {
    for (Step s : p.steps) {
      const std::string_view name = s.row ? s.row->name : "";
      if (name == "detach" || name == "data") return std::nullopt;
      if (s.leaf) {
        std::vector<Num> values = elements(s.literal);
        for (Num& n : values) n.v += h * n.d;
        s.literal = fresh(s.literal.dtype, s.literal.shape, std::move(values));
      }
      interpret(s, env);
    }
    return Slope(env);
  } catch (const Redraw&) {
    return std::nullopt;
  }
}

std::string difference(const char* which, double got, double want) {
  Num g, w;
  g.v = got, w.v = want;
  return std::string("gradients: the ") + which + " derivative is " + text(g, DType::float64) + ", expected " +
         text(w, DType::float64);
}

class Checker {
 public:
  Checker(const Program& p, const std::vector<Array>& env, const std::vector<Tensor>& tensors)
      : program_(p), env_(env), tensors_(tensors) {}

  std::string run() {
    for (size_t v = 0; v < env_.size(); ++v) {
      if (!counts(env_, v)) continue;
      std::vector<Num> values;
      for (const double w : weights(v, static_cast<size_t>(count(env_[v].shape)))) values.push_back(Num{.v = w});
      const Tensor& t = tensors_[v];
      const Tensor part = sum(t * upload(t.maker(), fresh(DType::float64, env_[v].shape, std::move(values))));
      loss_ = loss_ ? loss_ + part : part;
    }
    if (!loss_) return {};
    for (const Step& s : program_.steps) {
      if (s.leaf) leaves_.push_back(tensors_[static_cast<size_t>(s.outs[0])]), ways_.push_back(elements(s.literal));
    }
    if (program_.index % 7 == 0) {
      if (const std::optional<std::string> answer = spoiled()) return *answer;
    }
    const int64_t form = static_cast<int64_t>(program_.index % 3);
    std::vector<Tensor> grads;
    if (form == 0) {
      backward(loss_);
      for (const Tensor& t : leaves_) grads.push_back(engine::grad_of(t));
    } else {
      grads = grad({loss_}, leaves_, {}, {}, form == 2, true);
    }
    const Slope want(env_);
    double size = want.size;
    const double got = along(grads, size);
    if (!(std::abs(got - want.value) <= kFirst * size)) return difference("first", got, want.value);
    return form == 2 ? second(grads) : std::string();
  }

 private:
  // What the gradients say of the direction; adds the sizes of its parts.
  double along(const std::vector<Tensor>& grads, double& size) const {
    double sum = 0;
    for (size_t k = 0; k < grads.size(); ++k) {
      if (!grads[k]) continue;
      const std::vector<Num> g = download(grads[k]);
      for (size_t i = 0; i < ways_[k].size(); ++i) {
        const double part = g.at(i).v * ways_[k][i].d;
        sum += part, size += std::abs(part);
      }
    }
    return sum;
  }

  // A result that its gradient is made of is written through detach(): backward must notice. Nothing
  // else can be asked of such a program afterwards.
  std::optional<std::string> spoiled() {
    for (size_t k = program_.steps.size(); k-- > 0;) {
      const Step& s = program_.steps[k];
      if (!s.row || s.inplace || s.row->saves != kResult) continue;
      const auto v = static_cast<size_t>(s.outs[0]);
      if (!env_[v].history || env_[v].store->tracked || count(env_[v].shape) == 0) continue;
      const Tensor loss = sum(tensors_[v]);
      const Tensor written = detach(tensors_[v]);
      fill_(written, 0.5);
      std::string unseen = "gradients: backward did not notice that v" + std::to_string(v) + " was written";
      try {
        grad({loss}, leaves_, {}, {}, true, true);
      } catch (const Error& e) {
        if (e.code() != Code::inplace_modified) throw;
        unseen.clear();
      }
      return unseen;
    }
    return std::nullopt;
  }

  std::string second(const std::vector<Tensor>& grads) {
    constexpr double h = 1e-4;
    const std::optional<Slope> a = moved(program_, h), b = moved(program_, -h), c = moved(program_, 2 * h),
                               d = moved(program_, -2 * h);
    if (!a || !b || !c || !d) return {};
    const double fine = (a->value - b->value) / (2 * h), coarse = (c->value - d->value) / (4 * h);
    Tensor slope;
    for (size_t k = 0; k < grads.size(); ++k) {
      if (!grads[k] || !grads[k].requires_grad()) continue;
      std::vector<Num> values;
      for (const Num& n : ways_[k]) values.push_back(Num{.v = n.d});
      const Sizes shape(grads[k].shape().begin(), grads[k].shape().end());
      const Tensor part = sum(grads[k] * upload(loss_.maker(), fresh(DType::float64, shape, std::move(values))));
      slope = slope ? slope + part : part;
    }
    double size = 1;
    const double got = slope ? along(grad({slope}, leaves_, {}, {}, false, true), size) : 0;
    // Where the two differences are apart there is a kink, or too much of the third derivative.
    const double apart = std::abs(fine - coarse);
    if (apart > kSecond * (size + std::abs(fine))) return {};
    const double want = (4 * fine - coarse) / 3;
    if (std::abs(got - want) <= kSecond * (size + std::abs(want)) + 10 * apart) return {};
    return difference("second", got, want);
  }

  const Program& program_;
  const std::vector<Array>& env_;
  const std::vector<Tensor>& tensors_;
  Tensor loss_;
  std::vector<Tensor> leaves_;
  std::vector<std::vector<Num>> ways_;
};

}  // namespace

std::string wrong_gradients(const Program& p, const std::vector<Array>& env, const std::vector<Tensor>& tensors) {
  try {
    return Checker(p, env, tensors).run();
  } catch (const Error& e) {
    return std::string("gradients refused: ") + e.what();
  }
}

}  // namespace gradwire::property
