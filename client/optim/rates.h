#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gradwire::optim {

/// The learning rates of an optimiser's groups, as this side has set them: what schedules work on.
class LearningRates {
 public:
  size_t groups() const { return rates_.size(); }
  double lr(size_t group = 0) const { return rates_.at(group).now; }
  void set_lr(double lr, size_t group) {
    static_cast<void>(rates_.at(group));  // throws before anything changes
    send(lr, group);
    rates_[group].now = lr;
  }
  void set_lr(double lr) {
    for (size_t g = 0; g < groups(); ++g) set_lr(lr, g);
  }
  /// Where a schedule of the group began; nothing before the first one.
  std::optional<double> initial_lr(size_t group) const { return rates_.at(group).initial; }
  void set_initial_lr(double lr, size_t group) { rates_.at(group).initial = lr; }

 protected:
  LearningRates() = default;
  LearningRates(const LearningRates&) = default;
  LearningRates& operator=(const LearningRates&) = default;
  virtual ~LearningRates() = default;
  void add(double lr) { rates_.push_back({lr, {}}); }
  void note(double lr, size_t group) { rates_.at(group).now = lr; }

 private:
  /// Tells the optimiser.
  virtual void send(double lr, size_t group) = 0;
  struct Rate {
    double now;
    std::optional<double> initial;
  };
  std::vector<Rate> rates_;
};

}  // namespace gradwire::optim
