#include "engine/cuda/split.h"

// Products and extremes. Parts may be joined in any order: of equal extremes the one at the lower place is the first.

namespace gradwire::engine::cuda {
namespace {

template <class T> struct Best {
  using Element = T;
  using S = Computed<T>;
  bool largest;
  struct One {
    S best;
    int64_t place;  // -1: none yet
  };

  __device__ static bool is_nan(S x) { return x != x; }
  __device__ One start() const { return {S{}, -1}; }
  __device__ void join(One& a, const One& b) const {
    if (b.place < 0) return;
    const bool alike = a.best == b.best || (is_nan(a.best) && is_nan(b.best));
    const bool better = !is_nan(a.best) && (is_nan(b.best) || (largest ? b.best > a.best : b.best < a.best));
    if (a.place < 0 || better || (alike && b.place < a.place)) a = b;
  }
  __device__ void add(One& a, T x, int64_t place) const { join(a, {computed(x), place}); }
  __device__ void store(const One& a, char* out, char* place) const {
    *reinterpret_cast<T*>(out) = stored<T>(a.best);
    if (place) *reinterpret_cast<int64_t*>(place) = a.place;
  }
};

template <class T> struct Product {
  using Element = T;
  using One = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  __device__ One start() const { return 1; }
  __device__ void join(One& a, const One& b) const { a *= b; }
  __device__ void add(One& a, T x, int64_t) const { a *= static_cast<One>(computed(x)); }
  __device__ void store(const One& a, char* out, char*) const {
    if constexpr (std::is_integral_v<T>)
      *reinterpret_cast<int64_t*>(out) = static_cast<int64_t>(a);
    else
      *reinterpret_cast<T*>(out) = stored<T>(static_cast<Computed<T>>(a));
  }
};

template <class Op> __global__ void fold_parts(const Split s, const Op op, const int64_t parts, typename Op::One* to) {
  for (int64_t i = first_element(); i < s.kept.total * parts; i += all_threads()) {
    const Part part(s, parts, i);
    const char* kept = Place(s.kept, part.kept).at[0];
    typename Op::One one = op.start();
    for (int64_t r = part.number; r < s.reduced.total; r += parts)
      op.add(one, *reinterpret_cast<const typename Op::Element*>(element(s, kept, r)), r);
    to[part.kept * parts + part.number] = one;
  }
}

template <class Op>
__global__ void join_parts(const Op op, const typename Op::One* from, const int64_t parts, typename Op::One* to,
                           const int64_t fewer, const int64_t outs) {
  for (int64_t i = first_element(); i < outs * fewer; i += all_threads()) {
    const int64_t o = i / fewer, p = i % fewer;
    typename Op::One one = op.start();
    for (int64_t r = p; r < parts; r += fewer) op.join(one, from[o * parts + r]);
    to[i] = one;
  }
}

template <class Op> __global__ void write(const Nest kept, const Op op, const typename Op::One* from) {
  for (int64_t i = first_element(); i < kept.total; i += all_threads()) {
    const Place p(kept, i);
    op.store(from[i], p.at[1], p.at[2]);
  }
}

template <class Op> void fold(const Launch& l, const Op& op, bool in_order) {
  using One = typename Op::One;
  const Split s = split(l.in[0], l.out, in_order);
  const int64_t outs = s.kept.total;
  int64_t parts = parts_of(s);
  const Scratch one(sizeof(One) * outs * parts, l.stream);
  const Scratch two(sizeof(One) * outs * ((parts + 63) / 64), l.stream);
  auto *from = one.as<One>(), *to = two.as<One>();
  start(fold_parts<Op>, outs * parts, l.stream, s, op, parts, from);
  while (parts > 1) {
    const int64_t fewer = (parts + 63) / 64;
    start(join_parts<Op>, outs * fewer, l.stream, op, from, parts, to, fewer, outs);
    std::swap(from, to), parts = fewer;
  }
  start(write<Op>, outs, l.stream, s.kept, op, from);
}

}  // namespace

void prod(const Launch& l) {
  if (l.out[0].numel() == 0) return;
  if (l.in[0].numel() == 0) {
    const FillParams one{Scalar(1)};
    return fill({.stream = l.stream, .out = l.out, .in = {}, .params = &one});
  }
  with_type(l.in[0].dtype, [&](auto type) { fold(l, Product<typename decltype(type)::type>{}, false); });
}

void extreme(const Launch& l) {
  if (l.out[0].numel() == 0) return;
  const bool largest = static_cast<const ExtremeParams*>(l.params)->largest;
  with_type(l.in[0].dtype, [&](auto type) { fold(l, Best<typename decltype(type)::type>{largest}, l.out.size() > 1); });
}

}  // namespace gradwire::engine::cuda
