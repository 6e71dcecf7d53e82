#pragma once

#include <vector>

#include "engine/registry.h"

// Arguments that nobody in good faith would pass.

namespace gradwire::engine {

/// One such argument. Its tensors are made anew for each call, because calls may change them.
struct Edge {
  Bound plain;      // of no tensors
  int recipe = -1;  // else: which
};

/// Where the tensors and index items of a cooked argument live.
struct Store {
  std::vector<Tensor> tensors = std::vector<Tensor>(4);
  std::vector<IndexItem<Tensor>> items;
};

/// Tensors, lists of tensors and indexes by number; from kOwn on they are made of the call's own first tensor.
inline constexpr int kRecipes = 64, kOwn = 59;
Bound cook(Context&, int recipe, bool grad, const Tensor& own, Store&);

/// All of them: negative, huge, not a number, of any kind and dtype, empty and long.
struct Edges {
  std::vector<Edge> all;
  std::vector<std::vector<int64_t>> ints;
  std::vector<double> floats, more;
  Edges();
};

}  // namespace gradwire::engine
