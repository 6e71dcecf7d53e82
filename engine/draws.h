#pragma once

#include "engine/kernels.h"
#include "engine/op.h"

// What random operators are made of.

namespace gradwire::engine {

/// Counters of the generator that a call names, or of the session's. A generator is an int64 tensor: its seed, and how
/// many counters were used. Those of a call are taken by commit(), at its end, when nothing can fail any more.
class Draws {
 public:
  explicit Draws(Context& cx) : cx_(cx), seed_(cx.generator.seed), offset_(cx.generator.offset) {}
  /// Parameter i; throws bad_argument where it is no generator.
  Draws(const Call& c, int i);
  /// For n elements of which each takes so many words of 32 bits.
  RandomParams next(int64_t n, int words);
  void commit();

 private:
  Context& cx_;
  Tensor state_;
  uint64_t seed_, offset_, used_ = 0;
};

/// The whole numbers that a dtype holds, of floating ones those up to which it holds all. `name` as PyTorch's messages
/// have it; null for floating dtypes.
struct Bounds {
  int64_t least, most;
  const char* name;
};
Bounds bounds_of(DType);

/// Of this shape, in [0, 1) or normal. Throws dtype_mismatch unless the dtype is floating.
Tensor draw(Context&, Draws&, std::span<const int64_t> shape, DType, bool normal);
/// Whole numbers from low to high, which is among them.
Tensor draw_whole(Context&, Draws&, std::span<const int64_t> shape, DType, int64_t low, int64_t high);
/// 1 with probability p, else 0.
Tensor coins(Context&, Draws&, const Operand<Tensor>& p, std::span<const int64_t> shape, DType);
/// t * factor + more.
Tensor scaled(const Tensor& t, double factor, double more);

// Checks, in PyTorch's words.
void check_floating(DType, const char* what);
void check_range(int64_t low, int64_t high, DType);  // of whole numbers, below high
void check_interval(double low, double high, DType);
void check_spread(double std);
void check_chance(double p);
void check_chances(Context&, const Tensor& p);
bool any_negative(Context&, const Tensor& t);

}  // namespace gradwire::engine
