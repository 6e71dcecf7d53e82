#pragma once

#include <optional>
#include <source_location>
#include <string>

#include "client/nn/module.h"

namespace gradwire::nn {

// reduction: "mean", "sum" or "none".
struct LossOptions {
  std::string reduction = "mean";
};
struct SmoothL1LossOptions {
  std::string reduction = "mean";
  double beta = 1;
};
struct HuberLossOptions {
  std::string reduction = "mean";
  double delta = 1;
};
struct KLDivLossOptions {
  std::string reduction = "mean";
  bool log_target = false;
};
/// weight: one number a class, or none; it belongs to the module's buffers.
template <class T> struct NLLLossOptions {
  T weight{};
  int64_t ignore_index = -100;
  std::string reduction = "mean";
};
template <class T> struct CrossEntropyLossOptions {
  T weight{};
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  double label_smoothing = 0;
};
template <class T> struct BCELossOptions {
  T weight{};
  std::string reduction = "mean";
};
template <class T> struct BCEWithLogitsLossOptions {
  T weight{};
  std::string reduction = "mean";
  T pos_weight{};
};

namespace basic {

// Each is called with an input and a target: loss(input, target). Hooks of losses are not called.

template <class T> class MSELoss : public Module<T> {
 public:
  explicit MSELoss(LossOptions o = {}) : Module<T>("MSELoss"), o_(std::move(o)) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return mse_loss(input, target, o_.reduction, at);
  }

 private:
  LossOptions o_;
};

template <class T> class L1Loss : public Module<T> {
 public:
  explicit L1Loss(LossOptions o = {}) : Module<T>("L1Loss"), o_(std::move(o)) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return l1_loss(input, target, o_.reduction, at);
  }

 private:
  LossOptions o_;
};

template <class T> class SmoothL1Loss : public Module<T> {
 public:
  explicit SmoothL1Loss(SmoothL1LossOptions o = {}) : Module<T>("SmoothL1Loss"), o_(std::move(o)) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return smooth_l1_loss(input, target, o_.reduction, o_.beta, at);
  }

 private:
  SmoothL1LossOptions o_;
};

template <class T> class HuberLoss : public Module<T> {
 public:
  explicit HuberLoss(HuberLossOptions o = {}) : Module<T>("HuberLoss"), o_(std::move(o)) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return huber_loss(input, target, o_.reduction, o_.delta, at);
  }

 private:
  HuberLossOptions o_;
};

template <class T> class KLDivLoss : public Module<T> {
 public:
  explicit KLDivLoss(KLDivLossOptions o = {}) : Module<T>("KLDivLoss"), o_(std::move(o)) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return kl_div(input, target, o_.reduction, o_.log_target, at);
  }

 private:
  KLDivLossOptions o_;
};

/// A loss with a buffer "weight".
template <class T> class WeightedLoss : public Module<T> {
 public:
  const T& weight() const { return this->state().buffers[0].tensor; }

 protected:
  WeightedLoss(const char* kind, const T& weight) : Module<T>(kind) { this->set_buffer("weight", weight); }
};

/// Of logarithms of probabilities, and class numbers.
template <class T> class NLLLoss : public WeightedLoss<T> {
 public:
  explicit NLLLoss(NLLLossOptions<T> o = {})
      : WeightedLoss<T>("NLLLoss", o.weight), ignore_(o.ignore_index), reduction_(std::move(o.reduction)) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return nll_loss(input, target, this->weight(), {}, ignore_, {}, reduction_, at);
  }

 private:
  int64_t ignore_;
  std::string reduction_;
};

/// Of scores, and class numbers or probabilities.
template <class T> class CrossEntropyLoss : public WeightedLoss<T> {
 public:
  explicit CrossEntropyLoss(CrossEntropyLossOptions<T> o = {})
      : WeightedLoss<T>("CrossEntropyLoss", o.weight),
        ignore_(o.ignore_index),
        reduction_(std::move(o.reduction)),
        smoothing_(o.label_smoothing) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return cross_entropy(input, target, this->weight(), {}, ignore_, {}, reduction_, smoothing_, at);
  }

 private:
  int64_t ignore_;
  std::string reduction_;
  double smoothing_;
};

template <class T> class BCELoss : public WeightedLoss<T> {
 public:
  explicit BCELoss(BCELossOptions<T> o = {})
      : WeightedLoss<T>("BCELoss", o.weight), reduction_(std::move(o.reduction)) {}
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return binary_cross_entropy(input, target, this->weight(), reduction_, at);
  }

 private:
  std::string reduction_;
};

template <class T> class BCEWithLogitsLoss : public WeightedLoss<T> {
 public:
  explicit BCEWithLogitsLoss(BCEWithLogitsLossOptions<T> o = {})
      : WeightedLoss<T>("BCEWithLogitsLoss", o.weight), reduction_(std::move(o.reduction)) {
    this->set_buffer("pos_weight", o.pos_weight);
  }
  T operator()(const T& input, const T& target, std::source_location at = std::source_location::current()) const {
    return binary_cross_entropy_with_logits(input, target, this->weight(), reduction_, this->state().buffers[1].tensor,
                                            at);
  }

 private:
  std::string reduction_;
};

}  // namespace basic
}  // namespace gradwire::nn
