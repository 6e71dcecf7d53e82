// One step of each optimiser for one element: the parameter p, its gradient g, and up to three numbers kept from step
// to step. See unary.h for how this file is used, OptimParams for the numbers. The formulas are those of torch.optim's
// documentation, in its order of operations.

/// g, turned around to climb, with the decay of the weights in it.
template <class V> GW_FN V optim_gradient(const OptimParams& o, V p, V g) {
  if (o.maximize) g = -g;
  if (o.weight_decay != 0) g = g + V(o.weight_decay) * p;
  return g;
}
/// The mean of what came so far, the latest counting most.
template <class V> GW_FN V optim_mean(V mean, V x, double beta) { return mean * V(beta) + V(1 - beta) * x; }
template <class V> GW_FN V optim_sign(V x) {
  return math::select(x > V(0.0), V(1.0), math::select(x < V(0.0), V(-1.0), V(0.0)));
}

struct sgd {  // momentum_buffer
  static constexpr OptimKind kind = OptimKind::sgd;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& buffer, V&, V&) const {
    g = optim_gradient(o, p, g);
    if (o.momentum != 0) {
      buffer = o.first ? g : buffer * V(o.momentum) + V(1 - o.dampening) * g;
      g = o.nesterov ? g + V(o.momentum) * buffer : buffer;
    }
    p = p - V(o.step) * g;
  }
};

/// And AdamW, whose decay is `shrink`.
struct adam {  // exp_avg, exp_avg_sq, max_exp_avg_sq
  static constexpr OptimKind kind = OptimKind::adam;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& mean, V& square, V& largest) const {
    g = optim_gradient(o, p, g);
    if (o.shrink != 1) p = p * V(o.shrink);
    mean = optim_mean(mean, g, o.beta1);
    square = optim_mean(square, g * g, o.beta2);
    V by = square;
    if (o.amsgrad) by = largest = math::select(largest >= square, largest, square);
    p = p - V(o.step) * mean / (math::sqrt(by) / V(o.correction) + V(o.eps));
  }
};

struct adamax {  // exp_avg, exp_inf
  static constexpr OptimKind kind = OptimKind::adamax;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& mean, V& norm, V&) const {
    g = optim_gradient(o, p, g);
    mean = optim_mean(mean, g, o.beta1);
    const V faded = norm * V(o.beta2), now = math::abs(g) + V(o.eps);
    norm = math::select(faded >= now, faded, now);
    p = p - V(o.step) * mean / norm;
  }
};

struct nadam {  // exp_avg, exp_avg_sq
  static constexpr OptimKind kind = OptimKind::nadam;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& mean, V& square, V&) const {
    g = optim_gradient(o, p, g);
    mean = optim_mean(mean, g, o.beta1);
    square = optim_mean(square, g * g, o.beta2);
    const V by = math::sqrt(square / V(o.correction)) + V(o.eps);
    p = p - V(o.step) * g / by - V(o.more) * mean / by;
  }
};

struct radam {  // exp_avg, exp_avg_sq
  static constexpr OptimKind kind = OptimKind::radam;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& mean, V& square, V&) const {
    g = optim_gradient(o, p, g);
    mean = optim_mean(mean, g, o.beta1);
    square = optim_mean(square, g * g, o.beta2);
    V way = V(o.step) * mean;
    if (o.rectified) way = way / (math::sqrt(square) + V(o.eps));
    p = p - way;
  }
};

struct rmsprop {  // square_avg, momentum_buffer, grad_avg
  static constexpr OptimKind kind = OptimKind::rmsprop;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& square, V& buffer, V& mean) const {
    g = optim_gradient(o, p, g);
    square = optim_mean(square, g * g, o.beta2);
    V by = square;
    if (o.centered) {
      mean = optim_mean(mean, g, o.beta2);
      by = square - mean * mean;
    }
    g = g / (math::sqrt(by) + V(o.eps));
    if (o.momentum > 0) g = buffer = buffer * V(o.momentum) + g;
    p = p - V(o.step) * g;
  }
};

struct adagrad {  // sum
  static constexpr OptimKind kind = OptimKind::adagrad;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& sum, V&, V&) const {
    g = optim_gradient(o, p, g);
    sum = sum + g * g;
    p = p - V(o.step) * g / (math::sqrt(sum) + V(o.eps));
  }
};

struct adadelta {  // square_avg, acc_delta
  static constexpr OptimKind kind = OptimKind::adadelta;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& square, V& moved, V&) const {
    g = optim_gradient(o, p, g);
    square = optim_mean(square, g * g, o.beta2);
    const V way = math::sqrt(moved + V(o.eps)) / math::sqrt(square + V(o.eps)) * g;
    moved = optim_mean(moved, way * way, o.beta2);
    p = p - V(o.step) * way;
  }
};

struct rprop {  // prev, step_size
  static constexpr OptimKind kind = OptimKind::rprop;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& before, V& size, V&) const {
    g = optim_gradient(o, p, g);
    const V agree = g * before;
    size = size * math::select(agree > V(0.0), V(o.eta_plus), math::select(agree < V(0.0), V(o.eta_minus), V(1.0)));
    size = math::select(size < V(o.least), V(o.least), math::select(size > V(o.most), V(o.most), size));
    g = math::select(agree < V(0.0), V(0.0), g);
    p = p - optim_sign(g) * size;
    before = g;
  }
};

struct asgd {  // ax
  static constexpr OptimKind kind = OptimKind::asgd;
  OptimParams o;
  template <class V> GW_FN void operator()(V& p, V g, V& average, V&, V&) const {
    g = optim_gradient(o, p, g);
    p = p * V(o.shrink) - V(o.step) * g;
    average = o.mu == 1 ? p : average + (p - average) * V(o.mu);
  }
};

using optimisers = list<sgd, adam, adamax, nadam, radam, rmsprop, adagrad, adadelta, rprop, asgd>;
