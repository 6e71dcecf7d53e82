#include "engine/optimizer_options.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "engine/registry.h"

namespace gradwire::engine {
namespace {

constexpr Algorithm kAlgorithms[] = {
    {"optim.SGD", OptimKind::sgd, 1, 1},           {"optim.Adam", OptimKind::adam, 3, 1},
    {"optim.AdamW", OptimKind::adam, 3, 1, true},  {"optim.Adamax", OptimKind::adamax, 2, 1},
    {"optim.NAdam", OptimKind::nadam, 2, 2},       {"optim.RAdam", OptimKind::radam, 2, 1},
    {"optim.RMSprop", OptimKind::rmsprop, 3, 1},   {"optim.Adagrad", OptimKind::adagrad, 1, 1},
    {"optim.Adadelta", OptimKind::adadelta, 2, 1}, {"optim.Rprop", OptimKind::rprop, 2, 1},
    {"optim.ASGD", OptimKind::asgd, 1, 3},
};

// What may be said of an option, and the words for what may not.
enum class Range : uint8_t { any, from_0, below_1, up_to_1 };
struct OptionRow {
  const char* name;  // of the parameter
  Option first;
  int count;  // 2: a pair
  Range range;
  const char* what;     // "Invalid <what>: -1"
  double otherwise[2];  // of a pair that is not given
};
constexpr OptionRow kOptionRows[] = {
    {"lr", Option::lr, 1, Range::from_0, "learning rate", {}},
    {"lr_decay", Option::lr_decay, 1, Range::from_0, "lr_decay value", {}},
    {"eps", Option::eps, 1, Range::from_0, "epsilon value", {}},
    {"betas", Option::beta1, 2, Range::below_1, "beta parameter at index ", {0.9, 0.999}},
    {"rho", Option::rho, 1, Range::up_to_1, "rho value", {}},
    {"momentum", Option::momentum, 1, Range::from_0, "momentum value", {}},
    {"dampening", Option::dampening, 1, Range::any, "", {}},
    {"weight_decay", Option::weight_decay, 1, Range::from_0, "weight_decay value", {}},
    {"nesterov", Option::nesterov, 1, Range::any, "", {}},
    {"maximize", Option::maximize, 1, Range::any, "", {}},
    {"amsgrad", Option::amsgrad, 1, Range::any, "", {}},
    {"alpha", Option::alpha, 1, Range::from_0, "alpha value", {}},
    {"centered", Option::centered, 1, Range::any, "", {}},
    {"initial_accumulator_value",
     Option::initial_accumulator_value,
     1,
     Range::from_0,
     "initial_accumulator_value value",
     {}},
    {"etas", Option::eta_minus, 2, Range::any, "", {0.5, 1.2}},
    {"step_sizes", Option::step_min, 2, Range::any, "", {1e-6, 50}},
    {"lambd", Option::lambd, 1, Range::any, "", {}},
    {"t0", Option::t0, 1, Range::any, "", {}},
    {"momentum_decay", Option::momentum_decay, 1, Range::from_0, "momentum_decay value", {}},
};
const OptionRow* option_row(std::string_view name) {
  const auto* row = std::ranges::find(kOptionRows, name, [](const OptionRow& r) { return std::string_view(r.name); });
  return row == std::end(kOptionRows) ? nullptr : row;
}

[[noreturn]] void bad(std::string text) { throw Error(Code::bad_argument, std::move(text)); }

std::string shown(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}
/// As Python writes a float.
std::string as_float(double x) {
  const std::string s = shown(x);
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

/// Reads parameter i of a call, which was given.
void read(const Call& c, int i, const OptionRow& row, Options& to) {
  const auto first = static_cast<size_t>(row.first);
  if (row.count == 1) {
    to.value[first] = c.scalar(i).real();
    return;
  }
  if (const uint32_t n = c.args[i].count; n != 2)
    bad("argument '" + std::string(row.name) + "' must be a tuple of 2 floats, but has " + std::to_string(n));
  to.value[first] = c.real(i, 0), to.value[first + 1] = c.real(i, 1);
}

}  // namespace

const Algorithm& algorithm_of(std::string_view row) {
  return *std::ranges::find(kAlgorithms, row, [](const Algorithm& a) { return std::string_view(a.name); });
}

std::vector<OptionPlace> options_of(const Algorithm& a) {
  std::vector<OptionPlace> all;
  for (const Param& p : find_op(a.name)->sig.params) {
    if (const OptionRow* row = option_row(p.name))
      all.push_back({row->name, static_cast<size_t>(row->first), static_cast<size_t>(row->count)});
  }
  return all;
}

Options all_options(const Call& c, int first) {
  Options o;
  for (int i = first; i < c.row.params; ++i) {
    const OptionRow& row = *option_row(c.row.sig.params[static_cast<size_t>(i)].name);
    if (c.has(i)) {
      read(c, i, row, o);
    } else if (row.count == 2) {
      std::copy_n(row.otherwise, 2, o.value.begin() + static_cast<int>(row.first));
    } else {
      bad("parameter group didn't specify a value of required optimization parameter " + std::string(row.name));
    }
  }
  return o;
}

Options with_options(const Call& c, int first, const Algorithm& a, Options o) {
  const std::vector<OptionPlace> its = options_of(a);
  for (int i = first; i < c.row.params; ++i) {
    const OptionRow* row = option_row(c.row.sig.params[static_cast<size_t>(i)].name);
    if (!row || !c.has(i)) continue;
    if (std::ranges::find(its, row->name, &OptionPlace::name) == its.end())
      bad(std::string(a.name) + " has no option '" + row->name + "'");
    read(c, i, *row, o);
  }
  check_options(a, o);
  return o;
}

void check_options(const Algorithm& a, const Options& o) {
  for (const OptionPlace& place : options_of(a)) {
    const OptionRow* row = option_row(place.name);
    for (int k = 0; k < row->count; ++k) {
      const double x = o.value[static_cast<size_t>(row->first) + static_cast<size_t>(k)];
      const bool right = row->range == Range::any ||
                         (x >= 0 && (row->range == Range::from_0 || x < 1 || (row->range == Range::up_to_1 && x == 1)));
      if (!right) {
        bad("Invalid " + std::string(row->what) +
            (row->count > 1 ? std::to_string(k) + ": " + as_float(x) : ": " + shown(x)));
      }
    }
  }
  if (a.kind == OptimKind::sgd && o[Option::nesterov] != 0 && (o[Option::momentum] <= 0 || o[Option::dampening] != 0))
    bad("Nesterov momentum requires a momentum and zero dampening");
  const double minus = o[Option::eta_minus], plus = o[Option::eta_plus];
  if (a.kind == OptimKind::rprop && !(0 < minus && minus < 1 && 1 < plus))
    bad("Invalid eta values: " + as_float(minus) + ", " + as_float(plus));
}

}  // namespace gradwire::engine
