// Integers and bool: the same functors in plain loops, which the compiler vectorises.
#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/cpu/pointwise.h"
#include "engine/math.h"

namespace gradwire::engine::cpu {
namespace {

template <class... F> struct list {};

#include "engine/functors/unary.h"
#include "engine/functors/curves.h"
#include "engine/functors/binary.h"
#include "engine/functors/ternary.h"
#include "engine/functors/compare.h"
#include "engine/functors/logic.h"

constexpr int64_t kWide = 64;

template <class R> auto plain(R r) {
  if constexpr (std::is_same_v<R, bool>)
    return r;
  else
    return r.v;
}
/// In place, out is one of in: never another element of it.
template <class Out, class F, class... In> inline void some(const F& f, Out* out, int64_t n, const In*... in) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) out[j] = static_cast<Out>(f(in[j]...));
}

/// A broadcast value becomes a block of copies, so that one loop serves all steps.
template <class F, class Out, class... In, size_t... K>
void apply_row(const F& f, const Row& row, std::index_sequence<K...>) {
  Out* out = static_cast<Out*>(row.out);
  std::tuple<const In*...> in(static_cast<const In*>(row.in[K])...);
  std::tuple<std::array<In, kWide>...> same;
  ((row.step[K] ? void()
                : (std::get<K>(same).fill(*std::get<K>(in)), void(std::get<K>(in) = std::get<K>(same).data()))),
   ...);
  const int64_t step[] = {row.step[K]...};
  int64_t i = 0;
  for (; i + kWide <= row.n; i += kWide) some<Out>(f, out + i, kWide, std::get<K>(in) + i * step[K]...);
  some<Out>(f, out + i, row.n - i, std::get<K>(in) + i * step[K]...);
}

template <class F, class T>
inline constexpr int kInputs = std::is_invocable_v<F, Int<T>>           ? 1
                               : std::is_invocable_v<F, Int<T>, Int<T>> ? 2
                                                                        : 3;

/// Of three inputs the first is a mask.
template <class F> inline constexpr bool kMasked = std::is_invocable_v<F, bool, Int<int>, Int<int>>;

template <class F, class T> void kernel(const void* functor, const Row& row) {
  const F& f = *static_cast<const F*>(functor);
  using V = Int<T>;
  if constexpr (kInputs<F, T> == 1) {
    const auto g = [&f](T x) { return plain(f(V(x))); };
    apply_row<decltype(g), std::invoke_result_t<decltype(g), T>, T>(g, row, std::make_index_sequence<1>());
  } else if constexpr (kInputs<F, T> == 2) {
    const auto g = [&f](T a, T b) { return plain(f(V(a), V(b))); };
    apply_row<decltype(g), std::invoke_result_t<decltype(g), T, T>, T, T>(g, row, std::make_index_sequence<2>());
  } else if constexpr (!kMasked<F>) {
    const auto g = [&f](T a, T b, T c) { return f(V(a), V(b), V(c)).v; };
    apply_row<decltype(g), T, T, T, T>(g, row, std::make_index_sequence<3>());
  } else {
    const auto g = [&f](bool c, T a, T b) { return f(c, V(a), V(b)).v; };
    apply_row<decltype(g), T, bool, T, T>(g, row, std::make_index_sequence<3>());
  }
}

template <class F> constexpr PointwiseRow row_of() {
  PointwiseRow r{F::op, kInputs<F, int>, kMasked<F>, {}};
  if constexpr (has(F::on, Domain::boolean)) r.by_dtype[static_cast<int>(DType::boolean)] = kernel<F, bool>;
  if constexpr (has(F::on, Domain::integers)) {
    r.by_dtype[static_cast<int>(DType::uint8)] = kernel<F, uint8_t>;
    r.by_dtype[static_cast<int>(DType::int8)] = kernel<F, int8_t>;
    r.by_dtype[static_cast<int>(DType::int16)] = kernel<F, int16_t>;
    r.by_dtype[static_cast<int>(DType::int32)] = kernel<F, int32_t>;
    r.by_dtype[static_cast<int>(DType::int64)] = kernel<F, int64_t>;
  }
  return r;
}

template <class... F> constexpr auto table_of(list<F...>) { return std::array{row_of<F>()...}; }
template <size_t... N> constexpr auto joined(const std::array<PointwiseRow, N>&... tables) {
  std::array<PointwiseRow, (N + ...)> all;
  size_t at = 0;
  ((std::copy(tables.begin(), tables.end(), all.begin() + at), at += N), ...);
  return all;
}
constexpr auto kTable = joined(table_of(unary()), table_of(curves()), table_of(binary()), table_of(ternary()),
                               table_of(compare()), table_of(logic()));

}  // namespace

std::span<const PointwiseRow> whole_rows() { return kTable; }

}  // namespace gradwire::engine::cpu
