#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"

// Running sums and their kin. Each row goes in order, so results do not depend on the number of threads.

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kWide = 256;  // rows that go on together where they are neighbours in memory
constexpr int64_t kFew = 4;     // and where they are not: enough to hide the latency of one row

/// In what a T runs on: floats in double, whole numbers modulo 2^64.
template <class T> using Running = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
template <class T> Running<T> running(T x) { return static_cast<Running<T>>(computed(x)); }
template <class T> T back(Running<T> x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(x);
  else
    return stored<T>(static_cast<Computed<T>>(x));
}

// Each op makes its element j of a state, of x, and of a second input, or it also tells a place.
enum class Second { none, input, place };
template <class T> struct Sum {
  static constexpr Second kSecond = Second::none;
  using State = Running<T>;
  static State start() { return 0; }
  T operator()(State& s, T x, const T*, int64_t) const { return back<T>(s += running(x)); }
};
template <class T> struct Product {
  static constexpr Second kSecond = Second::none;
  using State = Running<T>;
  static State start() { return 1; }
  T operator()(State& s, T x, const T*, int64_t) const { return back<T>(s *= running(x)); }
};
template <class T> struct LogSumExp {
  static constexpr Second kSecond = Second::none;
  using State = double;
  static State start() { return -std::numeric_limits<double>::infinity(); }
  T operator()(State& s, T x, const T*, int64_t) const {
    const double v = running(x);
    if (v != v || s != s)
      s = v + s;
    else if (v != s || std::isfinite(v))
      s = std::max(v, s) + std::log1p(std::exp(std::min(v, s) - std::max(v, s)));
    return back<T>(s);
  }
};
template <class T> struct Linear {
  static constexpr Second kSecond = Second::input;
  using State = double;
  static State start() { return 0; }
  T operator()(State& s, T x, const T* a, int64_t j) const {
    s = j == 0 ? running(x) : running(x) + running(*a) * s;
    return back<T>(s);
  }
};
template <class T, bool largest> struct Best {
  static constexpr Second kSecond = Second::place;
  struct State {
    T best;
    int64_t place;
  };
  static State start() { return {T{}, 0}; }
  T operator()(State& s, T x, int64_t* place, int64_t j) const {
    const auto v = computed(x), was = computed(s.best);
    if (j == 0 || v != v || (was == was && (largest ? v >= was : v <= was))) s = {x, j};
    *place = s.place;
    return s.best;
  }
};

/// Where rows stand and go: of out, in and the second, in bytes.
struct Lines {
  char* at[3];
  const int64_t *across, *along;
  int64_t n;  // elements of a row
  bool lag;
};

/// w rows, one element of each after the other. With `W` they are that many, held in registers; without, neighbours in
/// memory.
template <class T, class Op, int W> void run_rows(const Op& op, const Lines& l, int64_t first, int64_t w) {
  using Other = std::conditional_t<Op::kSecond == Second::place, int64_t, const T>;
  constexpr bool two = Op::kSecond != Second::none, flat = W == 0;
  const int64_t to_step = flat ? sizeof(T) : l.across[0], from_step = flat ? sizeof(T) : l.across[1],
                with_step = flat ? sizeof(Other) : l.across[2];
  const int64_t rows = flat ? w : W;
  typename Op::State state[flat ? kWide : W];
  for (int64_t c = 0; c < rows; ++c) state[c] = Op::start();
  for (int64_t j = 0; j < l.n; ++j) {
    char* to = l.at[0] + first * to_step + j * l.along[0];
    const char* from = l.at[1] + first * from_step + j * l.along[1];
    char* with = two ? l.at[2] + first * with_step + (l.lag ? j - 1 : j) * l.along[2] : nullptr;
    const auto one = [&](int64_t c) {
      *reinterpret_cast<T*>(to + c * to_step) = op(state[c], *reinterpret_cast<const T*>(from + c * from_step),
                                                   two ? reinterpret_cast<Other*>(with + c * with_step) : nullptr, j);
    };
    if constexpr (flat) {
#pragma omp simd
      for (int64_t c = 0; c < w; ++c) one(c);
    } else {
#pragma GCC unroll 4
      for (int c = 0; c < W; ++c) one(c);
    }
  }
}

template <class T, class Op> void scan_as(const Launch& l, const Op& op) {
  // out, in, and what else there is
  View views[3] = {l.out[0], l.in[0]};
  int count = 2;
  if (l.out.size() > 1) views[count++] = l.out[1];
  if (l.in.size() > 1) views[count++] = l.in[1];
  const bool lag = static_cast<const ScanParams*>(l.params)->lag;
  const int last = views[0].ndim - 1;
  const int64_t n = views[0].shape[last];
  int64_t along[3] = {};
  for (int k = 0; k < count; ++k) along[k] = views[k].strides[last] * size_of(views[k].dtype), --views[k].ndim;
  const Nest rows = nest_of({views, static_cast<size_t>(count)});
  if (rows.total == 0 || n == 0) return;
  const int64_t* across = rows.stride[0];
  const bool flat = across[0] == sizeof(T) && across[1] == sizeof(T) && (count == 2 || across[2] == rows.bytes[2]) &&
                    rows.size[0] > 1;
  const int64_t wide = flat ? kWide : kFew, blocks = (rows.size[0] + wide - 1) / wide;
#pragma omp parallel for schedule(static) if (rows.total * n > kParallel / 2)
  for (int64_t task = 0; task < rows.total / rows.size[0] * blocks; ++task) {
    const int64_t first = task % blocks * wide, w = std::min(wide, rows.size[0] - first);
    char* at[kMaxOperands] = {};
    rows.outer(task / blocks, 1, at);
    const Lines lines{{at[0], at[1], at[2]}, across, along, n, lag};
    if (flat) {
      run_rows<T, Op, 0>(op, lines, first, w);
    } else if (w == kFew) {
      run_rows<T, Op, kFew>(op, lines, first, w);
    } else {
      for (int64_t r = 0; r < w; ++r) run_rows<T, Op, 1>(op, lines, first + r, 1);
    }
  }
}

}  // namespace

void scan(const Launch& l) {
  const ScanOp op = static_cast<const ScanParams*>(l.params)->op;
  const DType t = l.out[0].dtype;
  const auto floats = [&](auto f) { with_floating(t, [&](auto type) { f(type); }); };
  const auto any = [&](auto f) { with_type(t, [&](auto type) { f(type); }); };
  switch (op) {
    case ScanOp::sum:
      return any([&](auto x) {
        using T = typename decltype(x)::type;
        scan_as<T>(l, Sum<T>());
      });
    case ScanOp::product:
      return any([&](auto x) {
        using T = typename decltype(x)::type;
        scan_as<T>(l, Product<T>());
      });
    case ScanOp::log_sum_exp:
      return floats([&](auto x) {
        using T = typename decltype(x)::type;
        scan_as<T>(l, LogSumExp<T>());
      });
    case ScanOp::linear:
      return floats([&](auto x) {
        using T = typename decltype(x)::type;
        scan_as<T>(l, Linear<T>());
      });
    case ScanOp::largest:
      return any([&](auto x) {
        using T = typename decltype(x)::type;
        scan_as<T>(l, Best<T, true>());
      });
    case ScanOp::smallest:
      return any([&](auto x) {
        using T = typename decltype(x)::type;
        scan_as<T>(l, Best<T, false>());
      });
  }
}

}  // namespace gradwire::engine::cpu
