#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schema/error.h"

namespace gradwire::nn {

/// Tensors by name, in order: what state_dict() gives and safetensors files hold.
template <class T> class StateDict {
 public:
  using Entry = std::pair<std::string, T>;
  StateDict() = default;
  StateDict(std::vector<Entry> entries) {
    for (Entry& e : entries) set(std::move(e.first), std::move(e.second));
  }
  /// Adds a tensor at the end, or takes the place of the one of this name.
  void set(std::string name, T tensor) {
    const auto [at, fresh] = places_.emplace(name, entries_.size());
    if (fresh)
      entries_.emplace_back(std::move(name), std::move(tensor));
    else
      entries_[at->second].second = std::move(tensor);
  }
  /// Null if there is none.
  const T* find(const std::string& name) const {
    const auto i = places_.find(name);
    return i == places_.end() ? nullptr : &entries_[i->second].second;
  }
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  /// Throws Error{bad_argument} if there is none.
  const T& at(const std::string& name) const {
    const T* t = find(name);
    if (!t) throw Error(Code::bad_argument, "there is no tensor '" + name + "'");
    return *t;
  }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace gradwire::nn
