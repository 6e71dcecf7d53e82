#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"

// Sorting rows: values become unsigned keys in the same order, which are sorted with the places where they stood.

namespace gradwire::engine::cpu {
namespace {

template <class T>
using Key = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

/// Ordered as the values are: every NaN last, and the zeros alike.
template <class T> Key<T> key_of(T x) {
  using K = Key<T>;
  constexpr K top = static_cast<K>(K{1} << (8 * sizeof(K) - 1));
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) {
    return static_cast<K>(x);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<K>(static_cast<K>(x) ^ top);
  } else {
    const auto v = computed(x);
    if (v != v) return static_cast<K>(~K{0});
    const K bits = v == 0 ? K{0} : std::bit_cast<K>(x);
    return static_cast<K>(bits & top ? ~bits : bits | top);
  }
}

/// A key and its place. Of equal keys the earlier place is less, so any sort is stable.
struct Wide {
  uint64_t key, place;
  bool operator<(const Wide& o) const { return key != o.key ? key < o.key : place < o.place; }
};
using Packed = uint64_t;  // the key above, the place in the low 32 bits
template <class T> using Item = std::conditional_t<sizeof(T) == 8, Wide, Packed>;

inline uint64_t key_bits(Packed i) { return i >> 32; }
inline uint64_t key_bits(const Wide& i) { return i.key; }
inline int64_t place_of(Packed i) { return static_cast<int64_t>(i & 0xFFFFFFFF); }
inline int64_t place_of(const Wide& i) { return static_cast<int64_t>(i.place); }

constexpr int64_t kRadix = 512;  // below it comparisons are faster

/// Least significant digits first. `items` are in order of their places; `room` is as large. Says where the result is.
template <class I> I* radix(I* items, I* room, int64_t n, int bytes) {
  static constexpr int kDigits = 256;
  int64_t counts[8][kDigits] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t k = key_bits(items[i]);
    for (int b = 0; b < bytes; ++b) ++counts[b][k >> (8 * b) & 0xFF];
  }
  for (int b = 0; b < bytes; ++b) {
    int64_t* c = counts[b];
    if (c[key_bits(items[0]) >> (8 * b) & 0xFF] == n) continue;  // all alike
    int64_t at = 0;
    for (int d = 0; d < kDigits; ++d) at += std::exchange(c[d], at);
    for (int64_t i = 0; i < n; ++i) room[c[key_bits(items[i]) >> (8 * b) & 0xFF]++] = items[i];
    std::swap(items, room);
  }
  return items;
}

template <class T> struct Sorter {
  using I = Item<T>;
  bool descending;
  int64_t n, k;

  void row(char* values, int64_t value_step, char* places, int64_t place_step, const char* in, int64_t step,
           I* items) const {
    for (int64_t i = 0; i < n; ++i) {
      Key<T> key = key_of(*reinterpret_cast<const T*>(in + i * step));
      if (descending) key = static_cast<Key<T>>(~key);
      if constexpr (sizeof(T) == 8)
        items[i] = {key, static_cast<uint64_t>(i)};
      else
        items[i] = static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(i);
    }
    const I* sorted = items;
    if (k * 64 <= n) {  // a heap of the best turns most of the others away at once
      std::partial_sort(items, items + k, items + n);
    } else if (k < n / 4 || n < kRadix) {
      if (k < n) std::nth_element(items, items + k, items + n);
      std::sort(items, items + k);
    } else {
      sorted = radix(items, items + n, n, sizeof(T));
    }
    for (int64_t i = 0; i < k; ++i) {
      const int64_t p = place_of(sorted[i]);
      *reinterpret_cast<T*>(values + i * value_step) = *reinterpret_cast<const T*>(in + p * step);
      *reinterpret_cast<int64_t*>(places + i * place_step) = p;
    }
  }
};

}  // namespace

void sort(const Launch& l) {
  View views[] = {l.out[0], l.out[1], l.in[0]};
  const int last = views[0].ndim - 1;
  const int64_t n = views[2].shape[last], k = views[0].shape[last];
  int64_t steps[3];
  for (int i = 0; i < 3; ++i) steps[i] = views[i].strides[last] * size_of(views[i].dtype), --views[i].ndim;
  const Nest rows = nest_of(views);
  if (rows.total == 0 || k == 0) return;
  const View& scratch = l.out[2];
  const int64_t ways = scratch.shape[0];
  const bool descending = static_cast<const SortParams*>(l.params)->descending;
  with_type(views[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Sorter<T> sorter{descending, n, k};
    // Each way takes every `ways`th row, whichever thread runs it.
#pragma omp parallel for schedule(static, 1) if (rows.total * n > kParallel / 8)
    for (int64_t way = 0; way < ways; ++way) {
      auto* items = reinterpret_cast<Item<T>*>(static_cast<int64_t*>(scratch.data) + way * scratch.strides[0]);
      for (int64_t r = way; r < rows.total; r += ways) {
        char* at[kMaxOperands] = {};
        rows.outer(r, 0, at);
        sorter.row(at[0], steps[0], at[1], steps[1], at[2], steps[2], items);
      }
    }
  });
}

}  // namespace gradwire::engine::cpu
