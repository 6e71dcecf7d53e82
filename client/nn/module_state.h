#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/nn/tree.h"

namespace gradwire::nn::basic {

template <class T> class Module;

/// What the handles of one module share.
template <class T> struct ModuleState final : tree::Node {
  struct Parameter {
    std::string name;
    T tensor;  // undefined: none, as PyTorch's None
    std::optional<uint64_t>
        computed_by{};  // the hook that makes it before each call: then it is none of the parameters
  };
  struct Buffer {
    std::string name;
    T tensor;
    bool persistent = true;
    bool may_lack = false;  // files of old do not have it: it becomes zero
  };
  using PreHook = std::function<T(const Module<T>&, const T&)>;
  using Hook = std::function<T(const Module<T>&, const T&, const T&)>;

  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<std::pair<uint64_t, PreHook>> pre_hooks;
  std::vector<std::pair<uint64_t, Hook>> hooks;
  uint64_t next_hook = 0;
  std::vector<std::function<T(const T&, const std::source_location&)>> steps;  // of a Sequential

  T* parameter(std::string_view name) {
    for (auto& p : parameters)
      if (p.name == name) return &p.tensor;
    return nullptr;
  }
  T* buffer(std::string_view name) {
    for (auto& b : buffers)
      if (b.name == name) return &b.tensor;
    return nullptr;
  }
  /// take(name, tensor) for the parameters that there are.
  template <class F> void each_parameter(F take) {
    for (auto& p : parameters)
      if (p.tensor && !p.computed_by) take(p.name, p.tensor);
  }
  bool has_tensor(std::string_view name) const override {
    auto& self = const_cast<ModuleState&>(*this);
    return self.parameter(name) || self.buffer(name);
  }
};

/// Takes a hook away again, once; harmless after its module is gone.
template <class T> class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(std::weak_ptr<ModuleState<T>> state, uint64_t id) : state_(std::move(state)), id_(id) {}
  void remove() {
    const auto s = state_.lock();
    if (!s) return;
    std::erase_if(s->pre_hooks, [&](const auto& h) { return h.first == id_; });
    std::erase_if(s->hooks, [&](const auto& h) { return h.first == id_; });
  }

 private:
  std::weak_ptr<ModuleState<T>> state_;
  uint64_t id_ = 0;
};

}  // namespace gradwire::nn::basic
