#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/registry.h"

namespace gradwire::engine {

/// What stands in the examples and samples of rows (engine/op.h describes the notation), read. The values borrow from
/// it.
struct Literals {
  std::vector<Bound> positional;
  std::vector<std::pair<std::string_view, Bound>> named;

  /// How a tensor came about: 'v' by its values, else the letter of its draw ("f", "p", "i", "b").
  struct Drawn {
    Tensor tensor;
    char how;  // and "o": an optimiser
  };
  std::deque<Drawn> tensors;
  std::deque<std::string> texts;
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<IndexItem<Tensor>>> indexes;

  Literals() = default;
  Literals(const Literals&) = delete;
};

/// What "o(2, 3)" stands for: optim.SGD with momentum over one tensor of this shape that has a gradient.
Tensor sample_optimizer(Context&, std::span<const int64_t> shape);
/// A copy of a sample's tensor; of an optimiser another such one.
Tensor copied(const Tensor&);

/// Drawn tensors have float64 values of magnitude 1/4 to 2, all different up to 57 elements, that every floating dtype
/// holds exactly. Throws std::invalid_argument that quotes what it does not understand.
std::unique_ptr<Literals> parse_literals(Context&, std::string_view text);

/// One call of a row, whose tensors can be exchanged.
struct Arguments {
  const OpRow* row = nullptr;
  std::shared_ptr<const Literals> literals;
  Bound values[kMaxParams];
  struct Place {
    int param;
    int element;  // of a Tensor[]; -1: the parameter is one tensor
    char how;     // as Literals::Drawn
  };
  std::vector<Place> places;
  std::vector<Tensor> tensors;  // one a place; those of a list stand together

  /// Binds the text's arguments to this row, as a client's call by name would.
  Arguments(Context&, const OpRow&, std::string_view text);
  /// The arguments for engine::call; they borrow from this.
  std::vector<Bound> bound() const;
  Results run(Context&) const;
};

/// The results in order, without empty ones at the end.
std::vector<Tensor> flat(Results);

}  // namespace gradwire::engine
