#pragma once

#include <concepts>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include "client/nn/module.h"

namespace gradwire::nn::basic {

/// Layers one after the other, named "0", "1", ... A layer is a module, or any function of a tensor that gives one. One
/// sequence alone as the argument is copied, that is, becomes a second handle of it; append() puts it within.
template <class T> class Sequential : public Module<T> {
 public:
  Sequential() : Module<T>("Sequential") {}
  template <class First, class... Layers>
  requires(!std::derived_from<std::remove_cvref_t<First>, Sequential> ||
           sizeof...(Layers) > 0) explicit Sequential(const First& first, const Layers&... layers)
      : Sequential() {
    append(first);
    (append(layers), ...);
  }

  /// Adds a layer at the end.
  template <class L> const Sequential& append(const L& layer) const {
    const std::string name = std::to_string(this->state().steps.size());
    if constexpr (std::derived_from<L, Module<T>>)
      this->add_module(name, layer);
    else
      this->add_module(name, Module<T>("Function"));
    this->state().steps.push_back([layer](const T& x, [[maybe_unused]] const std::source_location& at) -> T {
      if constexpr (std::is_invocable_v<const L&, const T&, std::source_location>)
        return layer(x, at);
      else
        return layer(x);
    });
    return *this;
  }
  size_t size() const { return this->state().steps.size(); }
  Module<T> operator[](size_t i) const { return this->get_submodule(std::to_string(i)); }

  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      T y = v;
      for (const auto& step : this->state().steps) y = step(y, at);
      return y;
    });
  }
};

}  // namespace gradwire::nn::basic
