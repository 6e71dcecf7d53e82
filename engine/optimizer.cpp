#include "engine/optimizer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_set>

#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/shape.h"

namespace gradwire::engine {
namespace {

[[noreturn]] void bad(std::string text) { throw Error(Code::bad_argument, std::move(text)); }

/// A row of float64.
Tensor numbers(Context& cx, const std::vector<double>& v) {
  return from_bytes(cx, DType::float64, Shape{static_cast<int64_t>(v.size())}, std::as_bytes(std::span(v)));
}
/// Its numbers; nothing where it is no such row of n.
std::vector<double> read_numbers(const Tensor& t, size_t n) {
  if (!t || !is_floating(t.dtype()) || t.ndim() != 1 || t.size(0) != static_cast<int64_t>(n)) return {};
  Context& cx = t.maker();
  std::vector<double> v(n);
  cx.backend.to_host(v.data(), cx.contiguous(t, DType::float64).data(), n * sizeof(double));
  return v;
}

}  // namespace

Optimizer::Optimizer(Context& cx, const Algorithm& a, std::span<const Tensor> params, const Options& defaults)
    : cx_(cx), algorithm_(a), defaults_(defaults) {
  check_options(a, defaults);
  check_params(params);
  push(params, defaults);
}

Optimizer::~Optimizer() { cx_.pool.uncharge(charged_); }

void Optimizer::check_params(std::span<const Tensor> params) const {
  if (params.empty()) bad("optimizer got an empty parameter list");
  std::unordered_set<const TensorImpl*> seen;
  for (const Tensor& t : params) {
    if (!t.is_leaf() && !t->retains_grad) bad("can't optimize a non-leaf Tensor");
    if (!seen.insert(t.get()).second) bad("optimizer contains a parameter group with duplicate parameters");
  }
  for (const Group& g : groups_) {
    for (const Slot& s : g.slots) {
      if (seen.contains(s.param.get())) bad("some parameters appear in more than one parameter group");
    }
  }
}

void Optimizer::push(std::span<const Tensor> params, const Options& options) {
  const size_t bytes = (groups_.empty() ? sizeof(Optimizer) : 0) + sizeof(Group) + params.size() * sizeof(Slot);
  cx_.pool.charge(bytes);
  try {
    Group g{options, {}};
    g.slots.reserve(params.size());
    for (const Tensor& t : params) {
      Slot& s = g.slots.emplace_back();
      s.param = t;
      s.number[0] = algorithm_.kind == OptimKind::asgd ? options[Option::lr] : 1, s.number[1] = 1;
    }
    groups_.push_back(std::move(g));
  } catch (...) {
    cx_.pool.uncharge(bytes);
    throw;
  }
  charged_ += bytes;
}

Tensor make_optimizer(const Call& c) {
  auto made = std::make_unique<Optimizer>(c.cx, algorithm_of(c.row.name()), c.tensors(0), all_options(c, 1));
  Tensor handle = c.cx.full({}, 0, DType::int64);
  extra(handle).optimizer = made.get();
  made.release();
  return handle;
}

void Optimizer::add_group(const Call& c, std::span<const Tensor> params, int first) {
  const Options o = with_options(c, first, algorithm_, defaults_);
  check_params(params);
  push(params, o);
}

void Optimizer::set(const Call& c, int first, int64_t group) {
  const auto n = static_cast<int64_t>(groups_.size());
  if (group < -1 || group >= n) {
    throw Error(Code::index_out_of_range, "group " + std::to_string(group) + " is out of range: there " +
                                              (n == 1 ? "is 1" : "are " + std::to_string(n)) + " of them");
  }
  std::vector<Options> fresh;
  for (int64_t k = 0; k < n; ++k) {
    const Options& now = groups_[static_cast<size_t>(k)].options;
    fresh.push_back(group < 0 || group == k ? with_options(c, first, algorithm_, now) : now);
  }
  for (size_t k = 0; k < fresh.size(); ++k) groups_[k].options = fresh[k];
}

std::vector<Tensor> Optimizer::params() const {
  std::vector<Tensor> all;
  for (const Group& g : groups_) {
    for (const Slot& s : g.slots) all.push_back(s.param);
  }
  return all;
}

/// A parameter that is about to move, with everything that can fail behind it.
struct Optimizer::Move {
  Slot* slot;
  const Options* options;
  Tensor grad;
  Tensor packed;    // of a parameter that is not contiguous
  Tensor fresh[3];  // what is kept from this step on
};

namespace {
bool keeps(OptimKind kind, const Options& o, int k) {
  switch (kind) {
    case OptimKind::sgd:
      return o[Option::momentum] != 0;
    case OptimKind::adam:
      return k < 2 || o[Option::amsgrad] != 0;
    case OptimKind::rmsprop:
      return k == 0 || (k == 1 ? o[Option::momentum] > 0 : o[Option::centered] != 0);
    default:
      return true;
  }
}
double starts_at(OptimKind kind, const Options& o, int k) {
  if (kind == OptimKind::adagrad) return o[Option::initial_accumulator_value];
  if (kind == OptimKind::rprop && k == 1) return o[Option::lr];
  return 0;
}
}  // namespace

Optimizer::Move Optimizer::prepare(Slot& s, const Options& o) const {
  const Tensor& p = s.param;
  Move m{&s, &o, grad_of(p), {}, {}};
  if (!is_floating(p.dtype()))
    throw Error(Code::dtype_mismatch, "\"step\" not implemented for '" + std::string(row(p.dtype()).torch) + "'");
  if (overlaps_itself(p.shape(), p.strides())) {
    bad("unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
  }
  if (m.grad->storage == p->storage)
    m.grad = copy_of(cx_, m.grad);
  else
    m.grad = cx_.contiguous(m.grad);
  if (!p->contiguous) m.packed = cx_.empty(p.shape(), p.dtype());
  for (int k = 0; k < algorithm_.kept; ++k) {
    if (s.kept[k])
      s.kept[k]->storage->writable(cx_);
    else if (keeps(algorithm_.kind, o, k))
      m.fresh[k] = cx_.full(p.shape(), starts_at(algorithm_.kind, o, k), p.dtype());
  }
  p->storage->writable(cx_);
  return m;
}

void Optimizer::apply(Move& m) const {
  Slot& s = *m.slot;
  const Options& o = *m.options;
  OptimParams v;
  v.kind = algorithm_.kind;
  v.maximize = o[Option::maximize] != 0, v.nesterov = o[Option::nesterov] != 0;
  v.amsgrad = o[Option::amsgrad] != 0, v.centered = o[Option::centered] != 0;
  v.weight_decay = o[Option::weight_decay], v.momentum = o[Option::momentum], v.dampening = o[Option::dampening];
  v.beta1 = o[Option::beta1], v.beta2 = o[Option::beta2], v.eps = o[Option::eps];
  v.step = o[Option::lr];
  const auto t = static_cast<double>(++s.steps);
  const double rest1 = 1 - std::pow(v.beta1, t), rest2 = 1 - std::pow(v.beta2, t);  // bias corrections
  switch (v.kind) {
    case OptimKind::sgd:
      v.first = static_cast<bool>(m.fresh[0]);
      break;
    case OptimKind::adam:
      v.step /= rest1, v.correction = std::sqrt(rest2);
      if (algorithm_.decoupled) v.shrink = 1 - o[Option::lr] * v.weight_decay, v.weight_decay = 0;
      break;
    case OptimKind::adamax:
      v.step /= rest1;
      break;
    case OptimKind::nadam: {
      auto momentum = [&](double at) { return v.beta1 * (1 - 0.5 * std::pow(0.96, at * o[Option::momentum_decay])); };
      const double mu = momentum(t), next = momentum(t + 1), product = s.number[0] *= mu;
      v.correction = rest2;
      v.step = o[Option::lr] * (1 - mu) / (1 - product), v.more = o[Option::lr] * next / (1 - product * next);
      break;
    }
    case OptimKind::radam: {
      const double most = 2 / (1 - v.beta2) - 1, length = most - 2 * t * std::pow(v.beta2, t) / rest2;
      v.rectified = length > 5;
      v.step /= rest1;
      if (v.rectified)
        v.step *= std::sqrt(rest2 * (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
      break;
    }
    case OptimKind::rmsprop:
      v.beta2 = o[Option::alpha];
      break;
    case OptimKind::adagrad:
      v.step /= 1 + (t - 1) * o[Option::lr_decay];
      break;
    case OptimKind::adadelta:
      v.beta2 = o[Option::rho];
      break;
    case OptimKind::rprop:
      v.eta_minus = o[Option::eta_minus], v.eta_plus = o[Option::eta_plus];
      v.least = o[Option::step_min], v.most = o[Option::step_max];
      break;
    case OptimKind::asgd:
      v.step = s.number[0], v.mu = s.number[1], v.shrink = 1 - o[Option::lambd] * v.step;
      s.number[0] = o[Option::lr] / std::pow(1 + o[Option::lambd] * o[Option::lr] * t, o[Option::alpha]);
      s.number[1] = 1 / std::max(1.0, t - o[Option::t0]);
      break;
  }
  for (int k = 0; k < 3; ++k) {
    if (m.fresh[k]) s.kept[k] = std::move(m.fresh[k]);
  }
  const Tensor& p = s.param;
  if (p.numel() > 0) {
    const Tensor& target = m.packed ? m.packed : p;
    if (m.packed) cx_.copy(m.packed, p);
    View kept[3];
    for (int k = 0; k < 3; ++k) {
      if (s.kept[k] && keeps(v.kind, o, k)) kept[k] = out_view(s.kept[k]);
    }
    launch(cx_, GW_KERNEL(optimize), {out_view(target), kept[0], kept[1], kept[2]}, {m.grad.view()}, &v);
    if (m.packed) cx_.copy(p, m.packed);
  }
  bump_version(p);
}

void Optimizer::count(const Tensor& handle, int64_t steps) {
  steps_ = steps;
  const FillParams value{Scalar(steps)};
  launch(cx_, GW_KERNEL(fill), {out_view(handle)}, {}, &value);
  bump_version(handle);
}

void Optimizer::step(const Tensor& handle) {
  std::vector<Move> moves;
  for (Group& g : groups_) {
    for (Slot& s : g.slots) {
      if (grad_of(s.param)) moves.push_back(prepare(s, g.options));
    }
  }
  handle->storage->writable(cx_);
  for (Move& m : moves) apply(m);
  count(handle, steps_ + 1);
}

std::vector<Tensor> Optimizer::state() const {
  std::vector<Tensor> all;
  for (const Group& g : groups_) {
    std::vector<double> options = {static_cast<double>(g.slots.size())};
    for (const OptionPlace& place : options_of(algorithm_)) {
      for (size_t k = 0; k < place.count; ++k) options.push_back(g.options.value[place.first + k]);
    }
    all.push_back(numbers(cx_, options));
    for (const Slot& s : g.slots) {
      const double three[] = {static_cast<double>(s.steps), s.number[0], s.number[1]};
      all.push_back(numbers(cx_, {three, three + algorithm_.numbers}));
      for (int k = 0; k < algorithm_.kept; ++k)
        all.push_back(s.kept[k] ? copy_of(cx_, s.kept[k]) : cx_.empty(Shape{0}, s.param.dtype()));
    }
  }
  return all;
}

void Optimizer::load(const Tensor& handle, std::span<const Tensor> state) {
  const std::vector<OptionPlace> places = options_of(algorithm_);
  size_t width = 1;
  for (const OptionPlace& place : places) width += place.count;
  const std::string foreign = "the state is not one that " + std::string(algorithm_.name) + " gave: ";
  const auto each = static_cast<size_t>(1 + algorithm_.kept);
  // Where its groups begin.
  std::vector<std::vector<double>> heads;
  std::vector<size_t> begins;
  for (size_t at = 0; at < state.size();) {
    std::vector<double> head = read_numbers(state[at], width);
    if (head.empty()) bad(foreign + "tensor " + std::to_string(at) + " has no options of a group");
    const double n = head[0];
    if (!(n >= 1 && n <= static_cast<double>((state.size() - at - 1) / each)))
      bad(foreign + "it ends before the parameters of group " + std::to_string(heads.size()) + " do");
    heads.push_back(std::move(head)), begins.push_back(at + 1);
    at += 1 + static_cast<size_t>(n) * each;
  }
  if (heads.size() != groups_.size()) bad("loaded state dict has a different number of parameter groups");
  for (size_t k = 0; k < heads.size(); ++k) {
    if (heads[k][0] != static_cast<double>(groups_[k].slots.size()))
      bad("loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
  }
  std::vector<Group> fresh = groups_;
  double most = 0;
  for (size_t k = 0; k < fresh.size(); ++k) {
    Group& g = fresh[k];
    const double* value = heads[k].data() + 1;
    for (const OptionPlace& place : places) {
      for (size_t i = 0; i < place.count; ++i) g.options.value[place.first + i] = *value++;
    }
    check_options(algorithm_, g.options);
    size_t at = begins[k];
    for (Slot& s : g.slots) {
      const std::vector<double> counts = read_numbers(state[at], static_cast<size_t>(algorithm_.numbers));
      if (counts.empty() || !(counts[0] >= 0 && counts[0] <= 0x1p53))
        bad(foreign + "tensor " + std::to_string(at) + " does not count steps");
      s.steps = static_cast<int64_t>(counts[0]), most = std::max(most, counts[0]);
      for (size_t i = 1; i < counts.size(); ++i) s.number[i - 1] = counts[i];
      ++at;
      for (int i = 0; i < algorithm_.kept; ++i, ++at) {
        const Tensor& t = state[at];
        s.kept[i] = Tensor();
        if (t.numel() == 0 && (s.param.numel() > 0 || t.ndim() == 1)) continue;
        if (!std::ranges::equal(t.shape(), s.param.shape()))
          bad(foreign + "tensor " + std::to_string(at) + " has shape " + to_string(t.shape()) + ", its parameter " +
              to_string(s.param.shape()));
        s.kept[i] = cx_.empty(t.shape(), s.param.dtype());
        cx_.copy(s.kept[i], t);
      }
    }
  }
  handle->storage->writable(cx_);
  std::swap(groups_, fresh);
  count(handle, static_cast<int64_t>(most));
}

}  // namespace gradwire::engine
