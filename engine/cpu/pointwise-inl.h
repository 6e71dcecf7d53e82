// Row kernels of functors for float32, float64 and, through float32, the halves. Included inside the namespace of a
// SIMD target, after simd.h and the functors.

/// One row: whole vectors, then the rest. In lists the stored type of each input; where's first is bool.
template <class F, class Out, class... In, size_t... K>
GW_FN void apply_row(const F f, const Row& row, std::index_sequence<K...>) {
  using D = hn::ScalableTag<std::tuple_element_t<sizeof...(In) - 1, std::tuple<In...>>>;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  Out* out = static_cast<Out*>(row.out);
  std::tuple<const In*...> in(static_cast<const In*>(row.in[K])...);
  const int64_t step[] = {row.step[K]...};
  std::tuple<std::array<In, kLanes>...> same;  // a vector's worth of each broadcast value
  ((step[K] ? void() : (std::get<K>(same).fill(*std::get<K>(in)), void(std::get<K>(in) = std::get<K>(same).data()))),
   ...);

  int64_t i = 0;
  if (row.stream && std::is_same_v<Out, hn::TFromD<D>> && row.n >= 2 * kLanes) {
    constexpr int64_t kBytes = kLanes * sizeof(Out);
    const int64_t skew = reinterpret_cast<uintptr_t>(out) % kBytes;
    if (skew % sizeof(Out) == 0) {
      store(f(load<D>(std::get<K>(in))...), out);  // up to the first boundary, and some elements twice
      i = skew ? (kBytes - skew) / static_cast<int64_t>(sizeof(Out)) : 0;
      for (; i + 2 * kLanes <= row.n; i += 2 * kLanes) {
        const auto lo = f(load<D>(std::get<K>(in) + i * step[K])...);
        const auto hi = f(load<D>(std::get<K>(in) + (i + kLanes) * step[K])...);
        stream(lo, out + i);
        stream(hi, out + i + kLanes);
      }
    }
  }
  for (; i + 2 * kLanes <= row.n; i += 2 * kLanes) {  // two at a time: formulas are long chains of dependent steps
    const auto lo = f(load<D>(std::get<K>(in) + i * step[K])...);
    const auto hi = f(load<D>(std::get<K>(in) + (i + kLanes) * step[K])...);
    store(lo, out + i);
    store(hi, out + i + kLanes);
  }
  for (; i + kLanes <= row.n; i += kLanes) store(f(load<D>(std::get<K>(in) + i * step[K])...), out + i);
  if (const int64_t rest = row.n - i; rest > 0) {  // whole vectors are read: every storage is readable past its end
    std::array<Out, kLanes> last;
    store(f(load<D>(std::get<K>(in) + i * step[K])...), last.data());
    const Out* from = last.data();
    for (int64_t part = kLanes / 2; part > 0; part /= 2) {
      if (rest & part) std::memcpy(out + i, from, part * sizeof(Out)), from += part, i += part;
    }
  }
}

template <class T> using Number = Vec<hn::ScalableTag<T>>;
template <class T> using Truth = Mask<hn::ScalableTag<T>>;

template <class F>
inline constexpr int kInputs = std::is_invocable_v<F, Number<float>>                  ? 1
                               : std::is_invocable_v<F, Number<float>, Number<float>> ? 2
                                                                                      : 3;
/// Of three inputs the first is a mask.
template <class F> inline constexpr bool kMasked = std::is_invocable_v<F, Truth<float>, Number<float>, Number<float>>;
template <class F> constexpr bool gives_mask() {
  if constexpr (kInputs<F> == 1)
    return std::is_same_v<std::invoke_result_t<F, Number<float>>, Truth<float>>;
  else if constexpr (kInputs<F> == 2)
    return std::is_same_v<std::invoke_result_t<F, Number<float>, Number<float>>, Truth<float>>;
  else
    return false;
}

template <class F, class T> HWY_ATTR void kernel(const void* functor, const Row& row) {
  const F& f = *static_cast<const F*>(functor);
  using Out = std::conditional_t<gives_mask<F>(), bool, T>;
  if constexpr (kInputs<F> == 1)
    apply_row<F, Out, T>(f, row, std::make_index_sequence<1>());
  else if constexpr (kInputs<F> == 2)
    apply_row<F, Out, T, T>(f, row, std::make_index_sequence<2>());
  else if constexpr (kMasked<F>)
    apply_row<F, T, bool, T, T>(f, row, std::make_index_sequence<3>());
  else
    apply_row<F, T, T, T, T>(f, row, std::make_index_sequence<3>());
}

template <class F, class Half> void half_kernel(const void* functor, const Row& row) {
  through_float<Half>(functor, row, kernel<F, float>, kInputs<F>, kMasked<F>, gives_mask<F>());
}

template <class F> constexpr PointwiseRow row_of() {
  PointwiseRow r{F::op, kInputs<F>, kMasked<F>, {}};
  if constexpr (has(F::on, Domain::floats)) {
    r.by_dtype[static_cast<int>(DType::float16)] = half_kernel<F, float16>;
    r.by_dtype[static_cast<int>(DType::bfloat16)] = half_kernel<F, bfloat16>;
    r.by_dtype[static_cast<int>(DType::float32)] = kernel<F, float>;
    r.by_dtype[static_cast<int>(DType::float64)] = kernel<F, double>;
  }
  return r;
}

template <class... F> constexpr auto table_of(list<F...>) { return std::array{row_of<F>()...}; }
