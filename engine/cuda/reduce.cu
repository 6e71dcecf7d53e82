#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

template <class T> using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;  // floats add in double

/// Kept and reduced dimensions of (in, out).
struct Split {
  Nest kept, reduced;
  bool rows = false;  // a reduced dimension is the innermost
};

Split split(const View& out, const View& in) {
  View wide = out;
  int64_t strides[kMaxDims];
  for (int d = 0; d < in.ndim; ++d) strides[d] = out.shape[d] == in.shape[d] ? out.strides[d] : 0;
  wide.shape = in.shape, wide.strides = strides;
  const View views[] = {in, wide};
  const Nest n = nest_of(views);
  Split s{n, n, n.stride[0][1] == 0};
  s.kept.ndim = s.reduced.ndim = 0, s.kept.total = s.reduced.total = 1;
  for (int d = 0; d < n.ndim; ++d) {
    Nest& to = n.stride[d][1] ? s.kept : s.reduced;
    to.size[to.ndim] = n.size[d], to.total *= n.size[d];
    for (int k = 0; k < 2; ++k) to.stride[to.ndim][k] = n.stride[d][k];
    ++to.ndim;
  }
  return s;
}

/// Thread (kept place o, part p) adds the elements p, p + parts, p + 2 parts ... of o's.
template <class T> __global__ void sum_parts(const Split s, const int64_t parts, Sum<T>* to) {
  for (int64_t i = first_element(); i < s.kept.total * parts; i += all_threads()) {
    const int64_t o = s.rows ? i / parts : i % s.kept.total;  // neighbours are neighbours in memory
    const int64_t p = s.rows ? i % parts : i / s.kept.total;
    const char* kept = Place(s.kept, o).at[0];
    Sum<T> sum = 0;
    for (int64_t r = p; r < s.reduced.total; r += parts) {
      const char* at = kept + (Place(s.reduced, r).at[0] - s.reduced.at[0]);
      sum += static_cast<Sum<T>>(computed(*reinterpret_cast<const T*>(at)));
    }
    to[o * parts + p] = sum;
  }
}

template <class S>
__global__ void add_parts(const S* from, const int64_t parts, S* to, const int64_t fewer, const int64_t outs) {
  for (int64_t i = first_element(); i < outs * fewer; i += all_threads()) {
    const int64_t o = i / fewer, p = i % fewer;
    S sum = 0;
    for (int64_t r = p; r < parts; r += fewer) sum += from[o * parts + r];
    to[i] = sum;
  }
}

template <class T> __global__ void write(const Nest kept, const Sum<T>* from, const double scale) {
  for (int64_t i = first_element(); i < kept.total; i += all_threads()) {
    char* out = Place(kept, i).at[1];
    if constexpr (std::is_integral_v<T>)
      *reinterpret_cast<int64_t*>(out) = static_cast<int64_t>(from[i]);
    else
      *reinterpret_cast<T*>(out) = stored<T>(static_cast<Computed<T>>(from[i] * scale));
  }
}

}  // namespace

void sum(const Launch& l) {
  const View &out = l.out[0], &in = l.in[0];
  if (out.numel() == 0) return;
  if (in.numel() == 0) {
    const FillParams zero{Scalar(0)};
    return fill({.stream = l.stream, .out = l.out, .in = {}, .params = &zero});
  }
  const double scale = static_cast<const SumParams*>(l.params)->scale;
  const Split s = split(out, in);
  const int64_t outs = s.kept.total;
  // enough threads to fill the device, of at least 32 elements each: by the shapes alone
  int64_t parts = std::clamp<int64_t>(s.reduced.total / 32, 1, std::max<int64_t>(1, 262144 / outs));
  with_type(in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Scratch one(sizeof(Sum<T>) * outs * parts, l.stream);
    const Scratch two(sizeof(Sum<T>) * outs * ((parts + 63) / 64), l.stream);
    auto *from = one.as<Sum<T>>(), *to = two.as<Sum<T>>();
    start(sum_parts<T>, outs * parts, l.stream, s, parts, from);
    while (parts > 1) {
      const int64_t fewer = (parts + 63) / 64;
      start(add_parts<Sum<T>>, outs * fewer, l.stream, from, parts, to, fewer, outs);
      std::swap(from, to), parts = fewer;
    }
    start(write<T>, outs, l.stream, s.kept, from, scale);
  });
}

}  // namespace gradwire::engine::cuda
