#include "engine/cuda/split.h"

namespace gradwire::engine::cuda {

Split split(const View& in, std::span<const View> outs, bool in_order) {
  View views[3] = {in};
  int64_t strides[2][kMaxDims];
  for (size_t k = 0; k < outs.size(); ++k) {
    for (int d = 0; d < in.ndim; ++d) strides[k][d] = outs[k].shape[d] == in.shape[d] ? outs[k].strides[d] : 0;
    views[k + 1] = outs[k];
    views[k + 1].shape = in.shape, views[k + 1].strides = strides[k];
  }
  const Nest n = nest_of({views, outs.size() + 1}, in_order);
  Split s{n, n, n.stride[0][1] == 0};
  s.kept.ndim = s.reduced.ndim = 0, s.kept.total = s.reduced.total = 1;
  for (int d = 0; d < n.ndim; ++d) {
    Nest& to = n.stride[d][1] ? s.kept : s.reduced;
    to.size[to.ndim] = n.size[d], to.total *= n.size[d];
    for (int k = 0; k < kMaxOperands; ++k) to.stride[to.ndim][k] = n.stride[d][k];
    ++to.ndim;
  }
  return s;
}

namespace {

template <class T> using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;  // floats add in double

/// What is added up of each element, and what is made of the sum.
template <class T> struct Scaled {
  double scale;
  __device__ Sum<T> of(T x) const { return static_cast<Sum<T>>(computed(x)); }
  __device__ Sum<T> finish(Sum<T> s) const {
    if constexpr (std::is_integral_v<T>)
      return s;
    else
      return s * scale;
  }
};
/// (sum of |x|^p)^(1/p)
template <class T> struct Powers {
  double p;
  __device__ double of(T x) const {
    const double a = fabs(static_cast<double>(computed(x)));
    return p == 2 ? a * a : p == 1 ? a : p == 0 ? (a != 0 ? 1.0 : 0.0) : ::pow(a, p);
  }
  __device__ double finish(double s) const { return p == 2 ? ::sqrt(s) : p == 1 || p == 0 ? s : ::pow(s, 1 / p); }
};

/// Thread (kept place o, part p) adds the elements p, p + parts, p + 2 parts ... of o's.
template <class T, class How> __global__ void sum_parts(const Split s, const How how, const int64_t parts, Sum<T>* to) {
  for (int64_t i = first_element(); i < s.kept.total * parts; i += all_threads()) {
    const Part part(s, parts, i);
    const char* kept = Place(s.kept, part.kept).at[0];
    Sum<T> sum = 0;
    for (int64_t r = part.number; r < s.reduced.total; r += parts)
      sum += how.of(*reinterpret_cast<const T*>(element(s, kept, r)));
    to[part.kept * parts + part.number] = sum;
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

template <class T, class How> __global__ void write(const Nest kept, const How how, const Sum<T>* from) {
  for (int64_t i = first_element(); i < kept.total; i += all_threads()) {
    char* out = Place(kept, i).at[1];
    const Sum<T> sum = how.finish(from[i]);
    if constexpr (std::is_integral_v<T>)
      *reinterpret_cast<int64_t*>(out) = static_cast<int64_t>(sum);
    else
      *reinterpret_cast<T*>(out) = stored<T>(static_cast<Computed<T>>(sum));
  }
}

template <class T, class How> void add_up(const Launch& l, const How& how) {
  const Split s = split(l.in[0], l.out);
  const int64_t outs = s.kept.total;
  int64_t parts = parts_of(s);
  const Scratch one(sizeof(Sum<T>) * outs * parts, l.stream);
  const Scratch two(sizeof(Sum<T>) * outs * ((parts + 63) / 64), l.stream);
  auto *from = one.as<Sum<T>>(), *to = two.as<Sum<T>>();
  start(sum_parts<T, How>, outs * parts, l.stream, s, how, parts, from);
  while (parts > 1) {
    const int64_t fewer = (parts + 63) / 64;
    start(add_parts<Sum<T>>, outs * fewer, l.stream, from, parts, to, fewer, outs);
    std::swap(from, to), parts = fewer;
  }
  start(write<T, How>, outs, l.stream, s.kept, how, from);
}

/// Nothing to add up: zeros.
bool empty(const Launch& l) {
  if (l.out[0].numel() == 0) return true;
  if (l.in[0].numel() > 0) return false;
  const FillParams zero{Scalar(0)};
  fill({.stream = l.stream, .out = l.out, .in = {}, .params = &zero});
  return true;
}

}  // namespace

void sum(const Launch& l) {
  if (empty(l)) return;
  const double scale = static_cast<const SumParams*>(l.params)->scale;
  with_type(l.in[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    add_up<T>(l, Scaled<T>{scale});
  });
}

void norm(const Launch& l) {
  if (empty(l)) return;
  const double p = static_cast<const NormParams*>(l.params)->p;
  with_floating(l.in[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    add_up<T>(l, Powers<T>{p});
  });
}

}  // namespace gradwire::engine::cuda
