#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "client/nn/module.h"

namespace gradwire::nn::basic {

/// Modules of one kind, named "0", "1", ..., which their owner calls: `for (const Block& b : blocks) x = b(x);`.
template <class L> class ModuleList : public Module<typename L::Tensor> {
 public:
  ModuleList() : ModuleList({}) {}
  ModuleList(std::initializer_list<L> modules)
      : Module<typename L::Tensor>("ModuleList"), modules_(std::make_shared<std::vector<L>>()) {
    for (const L& m : modules) append(m);
  }
  const ModuleList& append(const L& m) const {
    this->add_module(std::to_string(size()), m);
    modules_->push_back(m);
    return *this;
  }
  size_t size() const { return modules_->size(); }
  /// Counts from the end below zero.
  const L& operator[](int64_t i) const {
    const auto n = static_cast<int64_t>(size());
    if (i < -n || i >= n) raise(Error(Code::index_out_of_range, "index " + std::to_string(i) + " is out of range"));
    return (*modules_)[static_cast<size_t>(i < 0 ? i + n : i)];
  }
  auto begin() const { return modules_->cbegin(); }
  auto end() const { return modules_->cend(); }

 private:
  std::shared_ptr<std::vector<L>> modules_;  // a copy is the same module
};

}  // namespace gradwire::nn::basic
