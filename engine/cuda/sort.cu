#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>
#include <limits>

#include "engine/cuda/device.h"
#include "schema/error.h"

// Sorting rows: values become unsigned keys in the same order, which CUB sorts, stably, with the places where they
// stood.

namespace gradwire::engine::cuda {
namespace {

/// Ordered as the values are: every NaN last, and the zeros alike.
template <class T> __device__ uint64_t key_of(T x) {
  constexpr uint64_t top = uint64_t{1} << 63;
  if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? static_cast<uint64_t>(static_cast<int64_t>(x)) ^ top : static_cast<uint64_t>(x);
  } else {
    const double v = static_cast<double>(computed(x));
    if (v != v) return ~uint64_t{0};
    const uint64_t bits = v == 0 ? 0 : static_cast<uint64_t>(__double_as_longlong(v));
    return bits & top ? ~bits : bits | top;
  }
}

struct Rows {
  Nest nest;  // out values, out places, in
  int64_t steps[3], n, k;
};

template <class T>
__global__ void make_keys(const Rows rows, int64_t first, int64_t count, bool descending, uint64_t* keys,
                          int64_t* places) {
  for (int64_t i = first_element(); i < count * rows.n; i += all_threads()) {
    const int64_t r = i / rows.n, c = i % rows.n;
    const uint64_t key = key_of(*reinterpret_cast<const T*>(Place(rows.nest, first + r).at[2] + c * rows.steps[2]));
    keys[i] = descending ? ~key : key;
    places[i] = c;
  }
}

template <class T> __global__ void take_sorted(const Rows rows, int64_t first, int64_t count, const int64_t* places) {
  for (int64_t i = first_element(); i < count * rows.k; i += all_threads()) {
    const int64_t r = i / rows.k, c = i % rows.k, from = places[r * rows.n + c];
    const Place p(rows.nest, first + r);
    *reinterpret_cast<T*>(p.at[0] + c * rows.steps[0]) = *reinterpret_cast<const T*>(p.at[2] + from * rows.steps[2]);
    *reinterpret_cast<int64_t*>(p.at[1] + c * rows.steps[1]) = from;
  }
}

__global__ void make_offsets(int64_t rows, int64_t n, int* offsets) {
  for (int64_t i = first_element(); i <= rows; i += all_threads()) offsets[i] = static_cast<int>(i * n);
}

constexpr int64_t kTogether = 1 << 24;  // elements that are sorted at a time, where rows are shorter

}  // namespace

void sort(const Launch& l) {
  View views[] = {l.out[0], l.out[1], l.in[0]};
  const int last = views[0].ndim - 1;
  Rows rows{};
  rows.n = views[2].shape[last], rows.k = views[0].shape[last];
  for (int i = 0; i < 3; ++i) rows.steps[i] = views[i].strides[last] * size_of(views[i].dtype), --views[i].ndim;
  rows.nest = nest_of(views);
  const int64_t n = rows.n, total = rows.nest.total;
  if (total == 0 || rows.k == 0) return;
  if (n > std::numeric_limits<int>::max()) throw Error(Code::bad_argument, "more than 2147483647 elements to sort");
  const int64_t each = std::clamp<int64_t>(kTogether / n, 1, total);
  const bool descending = static_cast<const SortParams*>(l.params)->descending;
  const auto stream = static_cast<cudaStream_t>(l.stream);
  const Scratch keys(sizeof(uint64_t) * each * n, l.stream), sorted(sizeof(uint64_t) * each * n, l.stream),
      places(sizeof(int64_t) * each * n, l.stream), moved(sizeof(int64_t) * each * n, l.stream),
      offsets(sizeof(int) * (each + 1), l.stream);
  start(make_offsets, each + 1, l.stream, each, n, offsets.as<int>());
  with_type(views[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t first = 0; first < total; first += each) {
      const int64_t count = std::min(each, total - first);
      start(make_keys<T>, count * n, l.stream, rows, first, count, descending, keys.as<uint64_t>(),
            places.as<int64_t>());
      const auto run = [&](void* room, size_t& bytes) {
        const int items = static_cast<int>(count * n);
        return count == 1
                   ? cub::DeviceRadixSort::SortPairs(room, bytes, keys.as<uint64_t>(), sorted.as<uint64_t>(),
                                                     places.as<int64_t>(), moved.as<int64_t>(), items, 0, 64, stream)
                   : cub::DeviceSegmentedRadixSort::SortPairs(room, bytes, keys.as<uint64_t>(), sorted.as<uint64_t>(),
                                                              places.as<int64_t>(), moved.as<int64_t>(), items,
                                                              static_cast<int>(count), offsets.as<int>(),
                                                              offsets.as<int>() + 1, 0, 64, stream);
      };
      size_t bytes = 0;
      check(run(nullptr, bytes), "sort");
      const Scratch room(std::max<size_t>(bytes, 1), l.stream);
      size_t given = std::max<size_t>(bytes, 1);
      check(run(room.as<void>(), given), "sort");
      start(take_sorted<T>, count * rows.k, l.stream, rows, first, count, moved.as<int64_t>());
    }
  });
}

}  // namespace gradwire::engine::cuda
