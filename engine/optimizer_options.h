#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "engine/kernels.h"
#include "engine/op.h"

namespace gradwire::engine {

/// Hyper-parameters. A group has a number for each, flags as 0 and 1; an algorithm uses those of its row's parameters.
enum class Option : uint8_t {
  lr,
  momentum,
  dampening,
  weight_decay,
  nesterov,
  maximize,
  beta1,
  beta2,
  eps,
  amsgrad,
  alpha,
  centered,
  lr_decay,
  initial_accumulator_value,
  rho,
  eta_minus,
  eta_plus,
  step_min,
  step_max,
  lambd,
  t0,
  momentum_decay
};
inline constexpr int kOptions = 22;
struct Options {
  std::array<double, kOptions> value{};
  double& operator[](Option o) { return value[static_cast<size_t>(o)]; }
  double operator[](Option o) const { return value[static_cast<size_t>(o)]; }
};

/// One of torch.optim's classes.
struct Algorithm {
  const char* name;  // of its row
  OptimKind kind;
  int kept, numbers;       // how many tensors and numbers a parameter has; of the latter one counts steps
  bool decoupled = false;  // weight decay is apart from the gradient
};
/// Of a row that makes optimisers.
const Algorithm& algorithm_of(std::string_view row);

/// A parameter of these rows as options: one, or a pair.
struct OptionPlace {
  const char* name;
  size_t first, count;  // in Options::value
};
/// The options of an algorithm in the order of its row's parameters.
std::vector<OptionPlace> options_of(const Algorithm&);
/// What the call of a row that makes optimisers says: parameters from `first` on. Throws bad_argument where a number
/// without a default is left out.
Options all_options(const Call&, int first);
/// `o` with what a call gives on top of it: its parameters from `first` on that are options, by name. Throws
/// bad_argument for one that the algorithm does not have.
Options with_options(const Call&, int first, const Algorithm&, Options o);
/// Throws bad_argument in PyTorch's words.
void check_options(const Algorithm&, const Options&);

}  // namespace gradwire::engine
