#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "client/optim/rates.h"

// torch.optim.lr_scheduler's classes. Each is a closed form `lr(epoch)`, so that the order of calls cannot matter: the
// constructor sets epoch 0's rate, and step(), called after each epoch, the next one's. Errors are PyTorch's.

namespace gradwire::optim {

/// Refers to the optimiser, which must outlive it.
class Schedule {
 public:
  Schedule(const Schedule&) = delete;
  virtual ~Schedule() = default;
  /// The rate of an epoch, counted from 0.
  double lr(int64_t epoch, size_t group = 0) const { return rate(base_.at(group), epoch, group); }
  void step() { step(last_epoch_ + 1); }
  void step(int64_t epoch);
  int64_t last_epoch() const { return last_epoch_; }
  /// The rates that are set now, one a group.
  std::vector<double> last_lr() const;
  std::vector<double> get_last_lr() const { return last_lr(); }

 protected:
  /// last_epoch: -1 begins; else it goes on from there, for an optimiser that had a schedule before or was given
  /// initial rates.
  Schedule(LearningRates& optimizer, int64_t last_epoch);
  /// At the end of a derived constructor: sets the rates of the epoch after last_epoch.
  void begin() { step(); }

 private:
  virtual double rate(double base, int64_t epoch, size_t group) const = 0;
  LearningRates& optimizer_;
  std::vector<double> base_;
  int64_t last_epoch_;
};

/// base * f(epoch), with one function or one for each group.
class LambdaLR final : public Schedule {
 public:
  using Factor = std::function<double(int64_t)>;
  LambdaLR(LearningRates& optimizer, Factor f, int64_t last_epoch = -1);
  LambdaLR(LearningRates& optimizer, std::vector<Factor> f, int64_t last_epoch = -1);

 private:
  double rate(double base, int64_t epoch, size_t group) const override { return base * factors_[group](epoch); }
  std::vector<Factor> factors_;
};

/// base * gamma^(epoch // step_size).
class StepLR final : public Schedule {
 public:
  StepLR(LearningRates& optimizer, int64_t step_size, double gamma = 0.1, int64_t last_epoch = -1);

 private:
  double rate(double base, int64_t epoch, size_t group) const override;
  int64_t step_size_;
  double gamma_;
};

/// base * gamma^(how many milestones the epoch has reached).
class MultiStepLR final : public Schedule {
 public:
  MultiStepLR(LearningRates& optimizer, std::vector<int64_t> milestones, double gamma = 0.1, int64_t last_epoch = -1);

 private:
  double rate(double base, int64_t epoch, size_t group) const override;
  std::vector<int64_t> milestones_;
  double gamma_;
};

/// base * gamma^epoch.
class ExponentialLR final : public Schedule {
 public:
  ExponentialLR(LearningRates& optimizer, double gamma, int64_t last_epoch = -1);

 private:
  double rate(double base, int64_t epoch, size_t group) const override;
  double gamma_;
};

/// eta_min + (base - eta_min) * (1 + cos(pi * epoch / T_max)) / 2.
class CosineAnnealingLR final : public Schedule {
 public:
  CosineAnnealingLR(LearningRates& optimizer, int64_t T_max, double eta_min = 0, int64_t last_epoch = -1);

 private:
  double rate(double base, int64_t epoch, size_t group) const override;
  int64_t period_;
  double eta_min_;
};

struct PlateauOptions {
  std::string_view mode = "min";  // or "max": what is better
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  std::string_view threshold_mode = "rel";  // or "abs"
  int64_t cooldown = 0;
  double min_lr = 0, eps = 1e-8;
};

/// Multiplies the rates by `factor` when a measure has not become better for more than `patience` steps. Which rate
/// comes when depends on the measures, so there is no closed form.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(LearningRates& optimizer, PlateauOptions o = {});
  ReduceLROnPlateau(const ReduceLROnPlateau&) = delete;
  /// After an epoch, with its measure.
  void step(double metric);
  double best() const { return best_; }
  int64_t num_bad_epochs() const { return bad_; }

 private:
  bool better(double metric) const;
  LearningRates& optimizer_;
  const bool max_, relative_;
  const double factor_, threshold_, min_lr_, eps_;
  const int64_t patience_, cooldown_;
  double best_;
  int64_t bad_ = 0, resting_ = 0;
};

}  // namespace gradwire::optim
