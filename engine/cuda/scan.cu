#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

template <class T> using Running = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
template <class T> __device__ T back(Running<T> x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(x);
  else
    return stored<T>(static_cast<Computed<T>>(x));
}

// Each op makes its element j of a state, of x, and of a second input, or it also tells a place.
template <class T> struct Sum {
  Running<T> s = 0;
  __device__ T operator()(T x, char*, int64_t) { return back<T>(s += static_cast<Running<T>>(computed(x))); }
};
template <class T> struct Product {
  Running<T> s = 1;
  __device__ T operator()(T x, char*, int64_t) { return back<T>(s *= static_cast<Running<T>>(computed(x))); }
};
template <class T> struct LogSumExp {
  double s = -HUGE_VAL;
  __device__ T operator()(T x, char*, int64_t) {
    const double v = computed(x);
    if (v != v || s != s)
      s = v + s;
    else if (v != s || isfinite(v))
      s = fmax(v, s) + ::log1p(::exp(fmin(v, s) - fmax(v, s)));
    return back<T>(s);
  }
};
template <class T> struct Linear {
  double s = 0;
  __device__ T operator()(T x, char* a, int64_t j) {
    const double v = computed(x);
    s = j == 0 ? v : v + static_cast<double>(computed(*reinterpret_cast<const T*>(a))) * s;
    return back<T>(s);
  }
};
template <class T, bool largest> struct Best {
  T best{};
  int64_t at = 0;
  __device__ T operator()(T x, char* place, int64_t j) {
    const auto v = computed(x), was = computed(best);
    if (j == 0 || v != v || (was == was && (largest ? v >= was : v <= was))) best = x, at = j;
    *reinterpret_cast<int64_t*>(place) = at;
    return best;
  }
};

struct Steps {
  int64_t at[3];  // along the rows, in bytes
};

/// A thread a row.
template <class T, class Op> __global__ void scan_rows(const Nest rows, const Steps steps, int64_t n, bool lag) {
  for (int64_t r = first_element(); r < rows.total; r += all_threads()) {
    const Place p(rows, r);
    Op op;
    for (int64_t j = 0; j < n; ++j) {
      char* second = p.at[2] ? p.at[2] + (lag ? j - 1 : j) * steps.at[2] : nullptr;
      *reinterpret_cast<T*>(p.at[0] + j * steps.at[0]) =
          op(*reinterpret_cast<const T*>(p.at[1] + j * steps.at[1]), second, j);
    }
  }
}

template <class T, class Op> void scan_as(const Launch& l) {
  View views[3] = {l.out[0], l.in[0]};
  size_t count = 2;
  if (l.out.size() > 1) views[count++] = l.out[1];
  if (l.in.size() > 1) views[count++] = l.in[1];
  const int last = views[0].ndim - 1;
  const int64_t n = views[0].shape[last];
  Steps steps{};
  for (size_t k = 0; k < count; ++k) steps.at[k] = views[k].strides[last] * size_of(views[k].dtype), --views[k].ndim;
  const Nest rows = nest_of({views, count});
  if (rows.total == 0 || n == 0) return;
  start(scan_rows<T, Op>, rows.total, l.stream, rows, steps, n, static_cast<const ScanParams*>(l.params)->lag);
}

template <template <class> class Op> void floats(const Launch& l) {
  with_floating(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    scan_as<T, Op<T>>(l);
  });
}
template <template <class> class Op> void any(const Launch& l) {
  with_type(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    scan_as<T, Op<T>>(l);
  });
}
template <class T> using Largest = Best<T, true>;
template <class T> using Smallest = Best<T, false>;

}  // namespace

void scan(const Launch& l) {
  switch (static_cast<const ScanParams*>(l.params)->op) {
    case ScanOp::sum:
      return any<Sum>(l);
    case ScanOp::product:
      return any<Product>(l);
    case ScanOp::log_sum_exp:
      return floats<LogSumExp>(l);
    case ScanOp::linear:
      return floats<Linear>(l);
    case ScanOp::largest:
      return any<Largest>(l);
    case ScanOp::smallest:
      return any<Smallest>(l);
  }
}

}  // namespace gradwire::engine::cuda
