#pragma once

#include <bitset>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tensor.h"

// einsum: sums of products over named dims, as PyTorch has it. Made of operators, so that gradients follow.

namespace gradwire::engine::contraction {

inline constexpr size_t kMaxOperands = 64;  // each step looks at all pairs
inline constexpr int kLetters = 52, kLabels = kLetters + kMaxDims;

/// Names of dims in their order: A to Z are 0 to 25, a to z 26 to 51; behind them the dims that "..." stands for.
using Labels = std::vector<uint8_t>;

struct Equation {
  std::vector<Labels> in;  // an operand each, a label a dim
  Labels out;
};
/// Reads "ij,jk->ik" for operands with so many dims. Throws bad_argument in PyTorch's words.
Equation parse(std::string_view text, std::span<const int> ndims);

/// The pair of terms to multiply first: the one that leaves the fewest elements, compared with what it takes away.
std::pair<size_t, size_t> best_pair(std::span<const Labels> terms, const Labels& out, std::span<const int64_t> sizes);

/// The view of t's elements whose dims a and b (a < b) have one index, as its last dim; where they differ in
/// size, the smaller counts.
Tensor diagonal(const Tensor& t, int a, int b);

/// Throws bad_argument, shape_mismatch, dtype_mismatch.
Tensor contract(Context&, std::string_view equation, std::span<const Tensor> operands);

}  // namespace gradwire::engine::contraction
