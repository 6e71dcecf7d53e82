#pragma once

#include <concepts>
#include <source_location>
#include <string>
#include <string_view>
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
  requires(!std::derived_from<First, Sequential> || sizeof...(Layers) > 0) explicit Sequential(const First& first,
                                                                                               const Layers&... layers)
      : Sequential() {
    append(first);
    (append(layers), ...);
  }
  /// For texts that give every layer its maker; nothing is made here.
  template <class... Layers> explicit Sequential(MakerOf<T>&, const Layers&... layers) : Sequential() {
    (append(layers), ...);
  }

  /// Adds a layer at the end.
  template <class L> const Sequential& append(const L& layer) const {
    add_module(std::to_string(size()), layer);
    return *this;
  }
  /// The same with a name of its own; a layer that has the name is replaced.
  template <class L> void add_module(std::string_view name, const L& layer) const {
    auto& s = this->state();
    size_t at = 0;  // each step is a child, in one order
    while (at < s.children.size() && s.children[at].first != name) ++at;
    if constexpr (std::derived_from<L, Module<T>>)
      Module<T>::add_module(name, layer);
    else
      Module<T>::add_module(name, Module<T>("Function"));
    s.steps.resize(s.children.size());
    s.steps[at] = [layer](const T& x, [[maybe_unused]] const std::source_location& line) -> T {
      if constexpr (std::is_invocable_v<const L&, const T&, std::source_location>)
        return layer(x, line);
      else
        return layer(x);
    };
  }
  size_t size() const { return this->state().steps.size(); }
  Module<T> operator[](size_t i) const {
    const auto children = this->children();
    if (i >= children.size()) raise(Error(Code::index_out_of_range, "index " + std::to_string(i) + " is out of range"));
    return children[i];
  }

  T operator()(const T& x, std::source_location at = std::source_location::current()) const {
    return this->call(x, [&](const T& v) {
      T y = v;
      for (const auto& step : this->state().steps) y = step(y, at);
      return y;
    });
  }
};

}  // namespace gradwire::nn::basic
