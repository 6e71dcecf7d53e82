#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "client/optim/optimizer.h"
#include "client/optim/rates.h"

namespace gradwire::optim::basic {

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;
  std::optional<int64_t> max_eval{};  // 1.25 * max_iter
  double tolerance_grad = 1e-5, tolerance_change = 1e-9;
  int64_t history_size = 100;
};

/// torch.optim.LBFGS without a line search: quasi-Newton steps of one function. It asks for the loss several times a
/// step and decides by its values, so it runs on this side and waits for some numbers an iteration; vectors stay where
/// the parameters are. All parameters form one group and have a gradient after the first call of the closure.
template <class T> class LBFGS : public LearningRates {
 public:
  LBFGS(std::vector<T> params, LBFGSOptions o = {}) : params_(std::move(params)), o_(o) {
    if (params_.empty()) bad("optimizer got an empty parameter list");
    add(o.lr);
  }
  void add_param_group(const std::vector<T>&) { bad("LBFGS doesn't support per-parameter options (parameter groups)"); }
  void zero_grad(bool set_to_none = true) { gradwire::zero_grad(params_, {.set_to_none = set_to_none}); }

  /// `closure` clears the gradients, computes the loss, calls backward and returns the loss. Answers the first loss.
  template <class F> double step(F closure) {
    const double first = number_of(closure());
    double loss = first;
    T g = gradient();
    if (largest(g) <= o_.tolerance_grad) return first;
    const int64_t most = o_.max_eval.value_or(o_.max_iter * 5 / 4);
    int64_t evaluations = 1;
    for (int64_t n = 1; n <= o_.max_iter; ++n) {
      direct(g);
      before_ = g;
      const double previous = loss;
      rate_ = iterations_ == 1 ? std::min(1.0, 1 / number_of(abs(g).sum())) * lr() : lr();
      if (number_of(dot(g, direction_)) > -o_.tolerance_change) break;
      move();
      if (n == o_.max_iter) break;  // the gradient where it ends is not needed
      loss = number_of(closure());
      g = gradient();
      if (++evaluations >= most || largest(g) <= o_.tolerance_grad) break;
      if (largest(direction_) * rate_ <= o_.tolerance_change) break;
      if (std::abs(loss - previous) < o_.tolerance_change) break;
    }
    return first;
  }

 private:
  struct Pair {
    T y, s;  // how the gradient and the parameters changed
    double rho;
  };

  [[noreturn]] static void bad(const char* text) {
    throw ErrorOf<Code::bad_argument>(Error(Code::bad_argument, text, "optim.LBFGS"));
  }
  void send(double, size_t) override {}

  static double largest(const T& t) { return number_of(max(abs(t))); }
  T gradient() const {
    std::vector<T> parts;
    for (const T& p : params_) {
      if constexpr (requires { p.grad(); })
        parts.push_back(detach(p.grad()).reshape({-1}));
      else
        parts.push_back(detach(grad_of(p)).reshape({-1}));
    }
    return cat(parts);
  }

  /// -H g, with the inverse Hessian as the last steps show it: the two loops of Nocedal and Wright, algorithm 7.4.
  void direct(const T& g) {
    if (++iterations_ == 1) {
      direction_ = neg(g);
      return;
    }
    const T y = g - before_, s = direction_ * rate_;
    if (const double ys = number_of(dot(y, s)); ys > 1e-10) {
      if (std::ssize(pairs_) == o_.history_size) pairs_.pop_front();
      pairs_.push_back({y, s, 1 / ys});
      scale_ = ys / number_of(dot(y, y));
    }
    T q = neg(g);
    std::vector<double> weight(pairs_.size());
    for (size_t i = pairs_.size(); i-- > 0;) {
      weight[i] = number_of(dot(pairs_[i].s, q)) * pairs_[i].rho;
      q = q - pairs_[i].y * weight[i];
    }
    q = q * scale_;
    for (size_t i = 0; i < pairs_.size(); ++i)
      q = q + pairs_[i].s * (weight[i] - number_of(dot(pairs_[i].y, q)) * pairs_[i].rho);
    direction_ = q;
  }
  /// Through detached handles of the parameters: they share storage and the count of writes.
  void move() {
    int64_t at = 0;
    for (const T& p : params_) {
      const int64_t n = p.numel();
      detach(p).add_(narrow(direction_, 0, at, n).reshape(Ints(p.shape())) * rate_);
      at += n;
    }
  }

  std::vector<T> params_;
  LBFGSOptions o_;
  int64_t iterations_ = 0;
  double rate_ = 1, scale_ = 1;
  T direction_, before_;
  std::deque<Pair> pairs_;
};

}  // namespace gradwire::optim::basic
