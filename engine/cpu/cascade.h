#pragma once

#include <cstdint>

// Code for vectors of a fixed number of lanes, compiled for several instruction sets; the bits are the same in each.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GW_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define GW_CLONES
#endif

namespace gradwire::engine::cpu {

/// Adds numbers in pairs, pairs of pairs and so on, in the order in which they come: the error grows with log n.
template <class T> class Cascade {
 public:
  void add(T x) {
    int i = 0;
    for (uint64_t bits = count_++; bits & 1; bits >>= 1) x = level_[i++] + x;
    level_[i] = x;
  }
  T sum() const {
    T s = 0;
    bool first = true;
    uint64_t bits = count_;
    for (int i = 0; bits; bits >>= 1, ++i) {
      if (bits & 1) s = first ? level_[i] : level_[i] + s, first = false;
    }
    return s;
  }

 private:
  uint64_t count_ = 0;
  T level_[50];  // for 2^48 elements
};

/// The sum of n contiguous numbers; n is at most a few thousand: blocks for a Cascade.
float sum_block(const float*, int64_t n);
double sum_block(const double*, int64_t n);
uint64_t sum_block(const uint64_t*, int64_t n);  // wraps

/// to[i] += ((a[i] + b[i]) + (c[i] + d[i])), i < n.
void add_four(float* to, const float* const from[4], int64_t n);
void add_four(double* to, const double* const from[4], int64_t n);
void add_four(uint64_t* to, const uint64_t* const from[4], int64_t n);

}  // namespace gradwire::engine::cpu
