#pragma once

#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/optim/rates.h"
#include "schema/ops.h"

// torch.optim's classes over optimisers that live where the tensors do: T is the SDK's Tensor or the engine's. Their
// options are those of schema/ops.md, by name: SGD<T>(params, {.lr = 0.1, .momentum = 0.9}), or with groups of
// parameters SGD<T>({{backbone, {.lr = 0.01}}, {head}}, {.lr = 0.1, .momentum = 0.9}).

namespace gradwire::optim::basic {

/// The only element of a tensor, of which the SDK waits for the value.
template <class T> double number_of(const T& t) {
  if constexpr (requires { t.template item<double>(); })
    return t.template item<double>();
  else
    return item(t).real();
}

/// Parameters with options of their own; those that are not given are as the constructor's.
template <class T> struct ParamGroup {
  std::vector<T> params;
  optim_add_param_group_options options{};
};

/// A handle; a copy is a second handle of one optimiser, but knows only of the rates that were set through itself.
template <class T> class Optimizer : public LearningRates {
 public:
  using At = std::source_location;

  void step(At at = At::current()) { optim_step(handle_, at); }
  /// Drops the gradients of all parameters, or sets them to zero.
  void zero_grad(bool set_to_none = true, At at = At::current()) { optim_zero_grad(handle_, set_to_none, at); }
  /// Changes options of one group, or of all where `group` is left out.
  void set(optim_set_options o, At at = At::current()) {
    optim_set(handle_, o, at);
    if (!o.lr) return;
    for (size_t g = 0; g < groups(); ++g) {
      if (!o.group || static_cast<size_t>(*o.group) == g) note(*o.lr, g);
    }
  }
  /// More parameters; options that are not given are as the constructor had them.
  void add_param_group(const std::vector<T>& params, optim_add_param_group_options o = {}, At at = At::current()) {
    optim_add_param_group(handle_, params, o, at);
    params_.push_back(params);
    add(o.lr.value_or(default_lr_));
  }
  const std::vector<T>& params(size_t group = 0) const { return params_.at(group); }

  /// All that load_state_dict needs, as new tensors: schema/ops.md, optim.state, says which.
  std::vector<T> state_dict(At at = At::current()) const { return optim_state(handle_, at); }
  /// Of an optimiser of the same kind, groups and shapes; options come back too. Reads the rates, which waits.
  void load_state_dict(const std::vector<T>& state, At at = At::current()) {
    optim_load_state(handle_, state, at);
    size_t first = 0;
    for (size_t g = 0; g < groups(); ++g) {
      note(number_of(select(state.at(first), 0, 1)), g);
      first += 1 + (state.size() - groups()) / all_params() * params_[g].size();
    }
  }

  /// What stands for it in operators: optim.step(handle) and the like; its value is the number of steps taken.
  const T& handle() const { return handle_; }

 protected:
  Optimizer(T handle, std::vector<T> params, double lr) : handle_(std::move(handle)), default_lr_(lr) {
    params_.push_back(std::move(params));
    add(lr);
  }
  using Groups = std::initializer_list<ParamGroup<T>>;
  static const std::vector<T>& checked(const std::vector<T>& params, const char* op, const At& at) {
    if (params.empty()) refuse("optimizer got an empty parameter list", op, at);
    return params;
  }
  static const std::vector<T>& first(Groups groups, const char* op, const At& at) {
    if (groups.size() == 0) refuse("optimizer got an empty parameter list", op, at);
    if (groups.begin()->options.initial_accumulator_value)
      refuse("the first group's initial_accumulator_value is that of the optimizer", op, at);
    return groups.begin()->params;
  }
  /// The optimiser has the first group's parameters.
  void take(Groups groups, const At& at) {
    const optim_add_param_group_options& o = groups.begin()->options;
    set({.lr = o.lr,
         .momentum = o.momentum,
         .dampening = o.dampening,
         .weight_decay = o.weight_decay,
         .nesterov = o.nesterov,
         .maximize = o.maximize,
         .betas = o.betas,
         .eps = o.eps,
         .amsgrad = o.amsgrad,
         .alpha = o.alpha,
         .centered = o.centered,
         .lr_decay = o.lr_decay,
         .rho = o.rho,
         .etas = o.etas,
         .step_sizes = o.step_sizes,
         .lambd = o.lambd,
         .t0 = o.t0,
         .momentum_decay = o.momentum_decay,
         .group = 0},
        at);
    for (const ParamGroup<T>* g = groups.begin() + 1; g != groups.end(); ++g)
      add_param_group(g->params, g->options, at);
  }

 private:
  void send(double lr, size_t group) override { optim_set(handle_, {.lr = lr, .group = static_cast<int64_t>(group)}); }
  [[noreturn]] static void refuse(const char* text, const char* op, const At& at) {
    throw ErrorOf<Code::bad_argument>(
        Error(Code::bad_argument, text, op).at(Where{at.file_name(), static_cast<uint32_t>(at.line())}));
  }
  size_t all_params() const {
    size_t n = 0;
    for (const auto& p : params_) n += p.size();
    return n;
  }

  T handle_;
  double default_lr_;
  std::vector<std::vector<T>> params_;
};

#define GRADWIRE_OPTIMIZER(Name, ...)                                                                                 \
  template <class T> class Name : public Optimizer<T> {                                                               \
   public:                                                                                                            \
    using Options = optim_##Name##_options;                                                                           \
    using Group = ParamGroup<T>;                                                                                      \
    Name(const std::vector<T>& params, Options o __VA_ARGS__,                                                         \
         std::source_location at = std::source_location::current())                                                   \
        : Optimizer<T>(optim_##Name(Optimizer<T>::checked(params, "optim." #Name, at), o, at), params, rate(o.lr)) {} \
    Name(std::initializer_list<Group> groups, Options o __VA_ARGS__,                                                  \
         std::source_location at = std::source_location::current())                                                   \
        : Name(Optimizer<T>::first(groups, "optim." #Name, at), o, at) {                                              \
      this->take(groups, at);                                                                                         \
    }                                                                                                                 \
                                                                                                                      \
   private:                                                                                                           \
    static double rate(std::optional<double> lr) { return lr.value_or(0); }                                           \
  };
GRADWIRE_OPTIMIZER(SGD)
GRADWIRE_OPTIMIZER(Adam, = {})
GRADWIRE_OPTIMIZER(AdamW, = {})
GRADWIRE_OPTIMIZER(Adamax, = {})
GRADWIRE_OPTIMIZER(NAdam, = {})
GRADWIRE_OPTIMIZER(RAdam, = {})
GRADWIRE_OPTIMIZER(RMSprop, = {})
GRADWIRE_OPTIMIZER(Adagrad, = {})
GRADWIRE_OPTIMIZER(Adadelta, = {})
GRADWIRE_OPTIMIZER(Rprop, = {})
GRADWIRE_OPTIMIZER(ASGD, = {})
#undef GRADWIRE_OPTIMIZER

}  // namespace gradwire::optim::basic
