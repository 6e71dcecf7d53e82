#include "client/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "client/errors.h"

namespace gradwire::optim {
namespace {
[[noreturn]] void bad(std::string text) { raise(Error(Code::bad_argument, std::move(text))); }
}  // namespace

Schedule::Schedule(LearningRates& optimizer, int64_t last_epoch) : optimizer_(optimizer), last_epoch_(last_epoch) {
  for (size_t g = 0; g < optimizer.groups(); ++g) {
    if (last_epoch == -1) {
      if (!optimizer.initial_lr(g)) optimizer.set_initial_lr(optimizer.lr(g), g);
    } else if (!optimizer.initial_lr(g)) {
      bad("param 'initial_lr' is not specified in param_groups[" + std::to_string(g) + "] when resuming an optimizer");
    }
    base_.push_back(*optimizer.initial_lr(g));
  }
}

void Schedule::step(int64_t epoch) {
  for (size_t g = 0; g < base_.size(); ++g) {
    const double now = lr(epoch, g);
    if (now != optimizer_.lr(g)) optimizer_.set_lr(now, g);
  }
  last_epoch_ = epoch;
}

std::vector<double> Schedule::last_lr() const {
  std::vector<double> all;
  for (size_t g = 0; g < base_.size(); ++g) all.push_back(lr(last_epoch_, g));
  return all;
}

LambdaLR::LambdaLR(LearningRates& optimizer, Factor f, int64_t last_epoch)
    : LambdaLR(optimizer, std::vector<Factor>(optimizer.groups(), f), last_epoch) {}

LambdaLR::LambdaLR(LearningRates& optimizer, std::vector<Factor> f, int64_t last_epoch)
    : Schedule(optimizer, last_epoch), factors_(std::move(f)) {
  if (factors_.size() != optimizer.groups())
    bad("Expected " + std::to_string(optimizer.groups()) + " lr_lambdas, but got " + std::to_string(factors_.size()));
  begin();
}

StepLR::StepLR(LearningRates& optimizer, int64_t step_size, double gamma, int64_t last_epoch)
    : Schedule(optimizer, last_epoch), step_size_(step_size), gamma_(gamma) {
  if (step_size < 1) bad("StepLR: step_size must be at least 1, but is " + std::to_string(step_size));
  begin();
}
double StepLR::rate(double base, int64_t epoch, size_t) const {
  return base * std::pow(gamma_, static_cast<double>(epoch / step_size_));
}

MultiStepLR::MultiStepLR(LearningRates& optimizer, std::vector<int64_t> milestones, double gamma, int64_t last_epoch)
    : Schedule(optimizer, last_epoch), milestones_(std::move(milestones)), gamma_(gamma) {
  begin();
}
double MultiStepLR::rate(double base, int64_t epoch, size_t) const {
  const auto reached = std::ranges::count_if(milestones_, [&](int64_t m) { return m <= epoch; });
  return base * std::pow(gamma_, static_cast<double>(reached));
}

ExponentialLR::ExponentialLR(LearningRates& optimizer, double gamma, int64_t last_epoch)
    : Schedule(optimizer, last_epoch), gamma_(gamma) {
  begin();
}
double ExponentialLR::rate(double base, int64_t epoch, size_t) const {
  return base * std::pow(gamma_, static_cast<double>(epoch));
}

CosineAnnealingLR::CosineAnnealingLR(LearningRates& optimizer, int64_t T_max, double eta_min, int64_t last_epoch)
    : Schedule(optimizer, last_epoch), period_(T_max), eta_min_(eta_min) {
  if (T_max < 1) bad("CosineAnnealingLR: T_max must be at least 1, but is " + std::to_string(T_max));
  begin();
}
double CosineAnnealingLR::rate(double base, int64_t epoch, size_t) const {
  const double turn = std::numbers::pi * static_cast<double>(epoch) / static_cast<double>(period_);
  return eta_min_ + (base - eta_min_) * (1 + std::cos(turn)) / 2;
}

namespace {
bool is(std::string_view mode, std::string_view one, std::string_view other, const char* what) {
  if (mode != one && mode != other) bad(std::string(what) + " " + std::string(mode) + " is unknown!");
  return mode == one;
}
}  // namespace

ReduceLROnPlateau::ReduceLROnPlateau(LearningRates& optimizer, PlateauOptions o)
    : optimizer_(optimizer),
      max_(is(o.mode, "max", "min", "mode")),
      relative_(is(o.threshold_mode, "rel", "abs", "threshold mode")),
      factor_(o.factor),
      threshold_(o.threshold),
      min_lr_(o.min_lr),
      eps_(o.eps),
      patience_(o.patience),
      cooldown_(o.cooldown),
      best_(max_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity()) {
  if (!(o.factor < 1)) bad("Factor should be < 1.0.");
}

bool ReduceLROnPlateau::better(double metric) const {
  if (max_) return metric > (relative_ ? best_ * (1 + threshold_) : best_ + threshold_);
  return metric < (relative_ ? best_ * (1 - threshold_) : best_ - threshold_);
}

void ReduceLROnPlateau::step(double metric) {
  if (better(metric))
    best_ = metric, bad_ = 0;
  else
    ++bad_;
  if (resting_ > 0) --resting_, bad_ = 0;
  if (bad_ <= patience_) return;
  for (size_t g = 0; g < optimizer_.groups(); ++g) {
    const double now = optimizer_.lr(g), next = std::max(now * factor_, min_lr_);
    if (now - next > eps_) optimizer_.set_lr(next, g);
  }
  resting_ = cooldown_, bad_ = 0;
}

}  // namespace gradwire::optim
