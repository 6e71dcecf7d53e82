#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

__global__ void first_bad(const Nest n, const int64_t least, const int64_t size, unsigned long long* first) {
  for (int64_t i = first_element(); i < n.total; i += all_threads()) {
    const int64_t x = *reinterpret_cast<const int64_t*>(Place(n, i).at[0]);
    if (x < least || x >= size) atomicMin(first, static_cast<unsigned long long>(i));
  }
}

/// The first value outside [-size, size), or [0, size), in row-major order is an error: one small copy to the host a
/// kernel.
void check_index(View v, const LinearIndexParams& p, size_t k, void* stream) {
  const int64_t size = p.size[k], least = p.negative ? -size : 0;
  int64_t shape[kMaxDims];  // each value once
  for (int d = 0; d < v.ndim; ++d) shape[d] = v.strides[d] ? v.shape[d] : std::min<int64_t>(v.shape[d], 1);
  v.shape = shape;
  const Nest n = nest_of({&v, 1}, true);
  if (n.total == 0) return;
  const Scratch flag(8, stream);
  check(cudaMemsetAsync(flag.as<void>(), 0xFF, 8, static_cast<cudaStream_t>(stream)), "clear");
  start(first_bad, n.total, stream, n, least, size, flag.as<unsigned long long>());
  uint64_t first;
  copy_to_host(&first, flag.as<void>(), 8, stream);
  if (first == UINT64_MAX) return;
  char* at[kMaxOperands] = {};
  n.outer(static_cast<int64_t>(first), 0, at);
  int64_t bad;
  copy_to_host(&bad, at[0], 8, stream);
  throw index_error(p, k, bad);
}

__global__ void index_each(const Nest n, const int64_t size, const int64_t stride, const bool add) {
  for (int64_t i = first_element(); i < n.total; i += all_threads()) {
    const Place p(n, i);
    const int64_t x = *reinterpret_cast<const int64_t*>(p.at[1]);
    int64_t& out = *reinterpret_cast<int64_t*>(p.at[0]);
    out = (x < 0 ? x + size : x) * stride + (add ? out : 0);
  }
}

template <class T> __global__ void take_each(const Nest n) {
  for (int64_t i = first_element(); i < n.total; i += all_threads()) {
    const Place p(n, i);
    *reinterpret_cast<T*>(p.at[0]) = reinterpret_cast<const T*>(p.at[1])[*reinterpret_cast<const int64_t*>(p.at[2])];
  }
}

/// Rows of a put: where each goes, and its number.
__global__ void put_keys(const Nest n, const int64_t rows, const int64_t width, int64_t* keys, int64_t* numbers) {
  for (int64_t r = first_element(); r < rows; r += all_threads()) {
    const Place p(n, r * width);
    keys[r] = (p.at[0] - n.at[0]) / n.bytes[0] + *reinterpret_cast<const int64_t*>(p.at[1]);
    numbers[r] = r;
  }
}

/// Rows sorted by place, the earlier first where the place is the same: the first of them adds all up, or the last is
/// written.
template <class T>
__global__ void put_rows(const Nest n, const int64_t rows, const int64_t width, const int64_t* keys,
                         const int64_t* numbers, const bool accumulate) {
  for (int64_t i = first_element(); i < rows * width; i += all_threads()) {
    const int64_t r = i / width, c = i % width;
    if (accumulate ? r > 0 && keys[r - 1] == keys[r] : r + 1 < rows && keys[r + 1] == keys[r]) continue;
    T& x = *reinterpret_cast<T*>(n.at[0] + keys[r] * n.bytes[0] + (width > 1 ? c * n.stride[0][0] : 0));
    const auto value = [&](int64_t k) { return *reinterpret_cast<const T*>(Place(n, numbers[k] * width + c).at[2]); };
    if (!accumulate) {
      x = value(r);
      continue;
    }
    for (int64_t k = r; k < rows && keys[k] == keys[r]; ++k) {
      if constexpr (std::is_integral_v<T>)
        x = (Int<T>(x) + Int<T>(value(k))).v;
      else
        x = stored<T>(computed(x) + computed(value(k)));
    }
  }
}

constexpr int64_t kChunk = 64;  // elements of a thread

template <class T> __device__ bool nonzero_at(const char* p) {
  return computed(*reinterpret_cast<const T*>(p)) != Computed<T>(0);
}

template <class T> __global__ void count_chunks(const Nest n, const int64_t chunks, int64_t* counts) {
  for (int64_t c = first_element(); c < chunks; c += all_threads()) {
    int64_t count = 0;
    for (int64_t i = c * kChunk; i < n.total && i < (c + 1) * kChunk; ++i) count += nonzero_at<T>(Place(n, i).at[0]);
    counts[c] = count;
  }
}

struct Coordinates {
  int ndim;
  int64_t shape[kMaxDims];
};

template <class T>
__global__ void write_chunks(const Nest n, const int64_t chunks, const int64_t* starts, const Coordinates co,
                             int64_t* out, const int64_t row, const int64_t column) {
  for (int64_t c = first_element(); c < chunks; c += all_threads()) {
    int64_t* to = out + starts[c] * row;
    for (int64_t i = c * kChunk; i < n.total && i < (c + 1) * kChunk; ++i) {
      if (!nonzero_at<T>(Place(n, i).at[0])) continue;
      int64_t rest = i;
      for (int d = co.ndim - 1; d >= 0; rest /= co.shape[d--]) to[d * column] = rest % co.shape[d];
      to += row;
    }
  }
}

/// counts -> the sum of those before, in place; one more than there are chunks.
void scan(int64_t* counts, int64_t n, void* stream) {
  size_t bytes = 0;
  const auto s = static_cast<cudaStream_t>(stream);
  check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, counts, counts, n, s), "scan");
  const Scratch room(bytes, stream);
  check(cub::DeviceScan::ExclusiveSum(room.as<void>(), bytes, counts, counts, n, s), "scan");
}

/// starts of each chunk, and in the end the number of all.
template <class T> void count(const Nest& n, int64_t chunks, int64_t* starts, void* stream) {
  check(cudaMemsetAsync(starts + chunks, 0, 8, static_cast<cudaStream_t>(stream)), "clear");
  start(count_chunks<T>, chunks, stream, n, chunks, starts);
  scan(starts, chunks + 1, stream);
}

}  // namespace

void linear_index(const Launch& l) {
  const auto& p = *static_cast<const LinearIndexParams*>(l.params);
  for (size_t k = 0; k < l.in.size(); ++k) check_index(l.in[k], p, k, l.stream);
  for (size_t k = 0; k < l.in.size(); ++k) {
    const View views[] = {l.out[0], l.in[k]};
    const Nest n = nest_of(views);
    start(index_each, n.total, l.stream, n, p.size[k], p.stride[k], k > 0);
  }
}

void take(const Launch& l) {
  const View views[] = {l.out[0], l.in[0], l.in[1]};
  const Nest n = nest_of(views);
  with_bytes(n.bytes[0], [&](auto type) { start(take_each<typename decltype(type)::type>, n.total, l.stream, n); });
}

void put(const Launch& l) {
  const bool accumulate = static_cast<const PutParams*>(l.params)->accumulate;
  const View views[] = {l.out[0], l.in[0], l.in[1]};
  const Nest n = nest_of(views, true);
  if (n.total == 0) return;
  const auto stream = static_cast<cudaStream_t>(l.stream);
  const int64_t width = n.stride[0][1] == 0 && n.stride[0][0] != 0 ? n.size[0] : 1, rows = n.total / width;
  const Scratch lists(sizeof(int64_t) * 4 * rows, l.stream);
  auto *keys = lists.as<int64_t>(), *numbers = keys + rows, *sorted = numbers + rows, *order = sorted + rows;
  start(put_keys, rows, l.stream, n, rows, width, keys, numbers);
  size_t bytes = 0;
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted, numbers, order, rows, 0, 64, stream), "sort");
  const Scratch room(bytes, l.stream);
  check(cub::DeviceRadixSort::SortPairs(room.as<void>(), bytes, keys, sorted, numbers, order, rows, 0, 64, stream),
        "sort");
  const auto run = [&](auto type) {
    start(put_rows<typename decltype(type)::type>, n.total, l.stream, n, rows, width, sorted, order, accumulate);
  };
  if (accumulate)
    with_type(l.out[0].dtype, run);
  else
    with_bytes(n.bytes[0], run);
}

void count_nonzero(const Launch& l) {
  const Nest n = nest_of({&l.in[0], 1}, true);
  const auto stream = static_cast<cudaStream_t>(l.stream);
  if (n.total == 0) return check(cudaMemsetAsync(l.out[0].data, 0, 8, stream), "clear");
  const int64_t chunks = (n.total + kChunk - 1) / kChunk;
  const Scratch starts(sizeof(int64_t) * (chunks + 1), l.stream);
  with_type(l.in[0].dtype,
            [&](auto type) { count<typename decltype(type)::type>(n, chunks, starts.as<int64_t>(), l.stream); });
  check(cudaMemcpyAsync(l.out[0].data, starts.as<int64_t>() + chunks, 8, cudaMemcpyDeviceToDevice, stream), "copy");
}

void nonzero(const Launch& l) {
  const View &out = l.out[0], &in = l.in[0];
  const Nest n = nest_of({&in, 1}, true);
  if (n.total == 0 || out.numel() == 0) return;
  const int64_t chunks = (n.total + kChunk - 1) / kChunk;
  const Scratch starts(sizeof(int64_t) * (chunks + 1), l.stream);
  Coordinates co{in.ndim, {}};
  std::copy_n(in.shape, in.ndim, co.shape);
  with_type(in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    count<T>(n, chunks, starts.as<int64_t>(), l.stream);
    start(write_chunks<T>, chunks, l.stream, n, chunks, starts.as<int64_t>(), co, static_cast<int64_t*>(out.data),
          out.strides[0], out.strides[1]);
  });
}

}  // namespace gradwire::engine::cuda
