#include "engine/cpu/convert.h"

#include <algorithm>
#include <cmath>

#include "engine/cpu/loop.h"
#include "engine/cpu/rows.h"
#include "engine/kernels.h"

namespace gradwire::engine::cpu {
namespace {

template <class To, class From> void convert_row(const void*, const Row& row) {
  auto* out = static_cast<To*>(row.out);
  auto* in = static_cast<const From*>(row.in[0]);
  if (row.step[0] == 0) {
    std::fill_n(out, row.n, converted<To>(*in));
  } else if constexpr (kHalf<To> && std::is_same_v<From, float>) {
    from_float(in, out, row.n);
  } else if constexpr (kHalf<From> && std::is_same_v<To, float>) {
    to_float(in, out, row.n);
  } else if constexpr (kHalf<To> || kHalf<From>) {  // in two steps, over a block in the first cache
    float some[1024];
    for (int64_t i = 0; i < row.n; i += 1024) {
      const int64_t n = std::min<int64_t>(1024, row.n - i);
      if constexpr (kHalf<From>)
        to_float(in + i, some, n);
      else
        for (int64_t j = 0; j < n; ++j) some[j] = converted<float>(in[i + j]);
      if constexpr (kHalf<To>)
        from_float(some, out + i, n);
      else
        for (int64_t j = 0; j < n; ++j) out[i + j] = converted<To>(some[j]);
    }
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    // blocks of what fits take the instruction, which is undefined for anything else
    constexpr From kLimit = sizeof(To) == 8 ? From(0x1p62) : From(0x1p30);
    using Fits = std::conditional_t<sizeof(To) == 8, int64_t, int32_t>;
    for (int64_t i = 0; i < row.n; i += 256) {
      const int64_t n = std::min<int64_t>(256, row.n - i);
      int fits = 1;
      for (int64_t j = i; j < i + n; ++j) fits &= std::abs(in[j]) < kLimit;
      if (fits)
        for (int64_t j = i; j < i + n; ++j) out[j] = static_cast<To>(static_cast<Fits>(in[j]));
      else
        for (int64_t j = i; j < i + n; ++j) out[j] = converted<To>(in[j]);
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < row.n; ++i) out[i] = converted<To>(in[i]);
  }
}

template <class T> void fill_row(const void* value, const Row& row) {
  std::fill_n(static_cast<T*>(row.out), row.n, *static_cast<const T*>(value));
}

}  // namespace

void convert(const Launch& l) {
  const View views[] = {l.out[0], l.in[0]};
  if (views[0].dtype == views[1].dtype) return copy(views);
  with_type(views[0].dtype, [&](auto to) {
    with_type(views[1].dtype, [&](auto from) {
      run(nest_of(views), convert_row<typename decltype(to)::type, typename decltype(from)::type>, nullptr);
    });
  });
}

void fill(const Launch& l) {
  const View& out = l.out[0];
  const Scalar& s = static_cast<const FillParams*>(l.params)->value;
  with_type(out.dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    const T value = s.kind == Category::floating  ? converted<T>(s.f)
                    : s.kind == Category::integer ? converted<T>(s.i)
                                                  : converted<T>(s.b);
    run(nest_of({&out, 1}), fill_row<T>, &value);
  });
}

}  // namespace gradwire::engine::cpu
