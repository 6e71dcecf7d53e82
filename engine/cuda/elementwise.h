// Kernels of functors for all dtypes. Included inside the unnamed namespace of a .cu, after the functors.

/// What formulas see of a stored element.
template <class T> using Number = std::conditional_t<std::is_integral_v<T>, Int<Computed<T>>, Computed<T>>;

template <class F> inline constexpr bool kMasked = std::is_invocable_v<F, bool, Int<int>, Int<int>>;

/// K inputs of type T; where F is masked the first is a bool.
template <class F, class T, int K> __device__ auto value(const F& f, const Place& p) {
  const auto in = [&](int k) { return Number<T>(computed(*reinterpret_cast<const T*>(p.at[k]))); };
  if constexpr (K == 1)
    return f(in(1));
  else if constexpr (K == 2)
    return f(in(1), in(2));
  else if constexpr (kMasked<F>)
    return f(*reinterpret_cast<const bool*>(p.at[1]), in(2), in(3));
  else
    return f(in(1), in(2), in(3));
}

template <class F, class T, int K> __global__ void elementwise(const F f, const Nest n) {
  for (int64_t i = first_element(); i < n.total; i += all_threads()) {
    const Place p(n, i);
    const auto v = value<F, T, K>(f, p);
    if constexpr (std::is_same_v<decltype(v), const bool>)
      *reinterpret_cast<bool*>(p.at[0]) = v;
    else if constexpr (std::is_integral_v<T>)
      *reinterpret_cast<T*>(p.at[0]) = v.v;
    else
      *reinterpret_cast<T*>(p.at[0]) = stored<T>(v);
  }
}

template <class F>
inline constexpr int kInputs = std::is_invocable_v<F, Int<int>>             ? 1
                               : std::is_invocable_v<F, Int<int>, Int<int>> ? 2
                                                                            : 3;

template <class F, class T> void launch(const void* functor, std::span<const View> views, void* stream) {
  const Nest n = nest_of(views);
  start(elementwise<F, T, kInputs<F>>, n.total, stream, *static_cast<const F*>(functor), n);
}

template <class F> void fill_row(PointwiseRow& r) {
  const auto set = [&](DType t, CudaPointwise k) { r.by_dtype[static_cast<int>(t)] = k; };
  if constexpr (has(F::on, Domain::boolean)) set(DType::boolean, launch<F, bool>);
  if constexpr (has(F::on, Domain::integers)) {
    set(DType::uint8, launch<F, uint8_t>), set(DType::int8, launch<F, int8_t>), set(DType::int16, launch<F, int16_t>);
    set(DType::int32, launch<F, int32_t>), set(DType::int64, launch<F, int64_t>);
  }
  if constexpr (has(F::on, Domain::floats)) {
    set(DType::float16, launch<F, __half>), set(DType::bfloat16, launch<F, __nv_bfloat16>);
    set(DType::float32, launch<F, float>), set(DType::float64, launch<F, double>);
  }
}
template <class... F> void find(list<F...>, std::string_view op, PointwiseRow& r) {
  ((op == F::op ? fill_row<F>(r) : void()), ...);
}
